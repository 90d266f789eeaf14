"""Who predicts while another learns, and what a seed means: the same bits, in any process."""

import copy
import os
import random as pythons
import subprocess
import sys
import threading
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import Tensor

from builders import (
    BUDGET,
    CountedExamples,
    contents,
    inputs_for,
    learned,
    quick,
    same,
    small_mlp,
    stream_for,
    task_for,
    with_rows,
)
from lifelong.learners.baselines import Finetuning, SequentialSettings
from lifelong.learners.den import DEN
from lifelong.persistence.files import digest_of
from lifelong.tasks.kinds import TaskError

X = inputs_for(small_mlp(), 20)


@contextmanager
def asked_all_the_time(learner, task):
    """Three threads that ask for predictions; what they were told, each answer once."""
    told: list[Tensor] = []
    over = threading.Event()

    def objective():
        while not over.is_set():
            answer = learner.predict_proba(X, task=task)
            if not any(torch.equal(answer, known) for known in told):
                told.append(answer)

    threads = [threading.Thread(target=objective) for _ in range(3)]
    for thread in threads:
        thread.start()
    yield told
    over.set()
    for thread in threads:
        thread.join()


def test_predictions_are_those_of_before_or_of_after_while_another_thread_learns():
    """By a method that forgets, so that the two differ."""
    first, *others = stream_for(small_mlp(), "one output", "subtasks", "one output")
    learner = Finetuning(small_mlp(), SequentialSettings(budget=BUDGET))
    learner.learn(first)
    allowed = [learner.predict_proba(X, task=first.name)]
    with asked_all_the_time(learner, first.name) as told:
        for task in others:
            learner.learn(task)
            allowed.append(learner.predict_proba(X, task=first.name))
    assert not torch.equal(allowed[0], allowed[-1])
    assert told
    assert all(any(torch.equal(answer, one) for one in allowed) for answer in told)


def test_what_is_saved_while_another_thread_learns_is_the_model_of_before_or_of_after(
    tmp_path,
):
    first, second = stream_for(small_mlp(), "one output", "subtasks")
    learner = learned(small_mlp(), [first], quick())
    before = contents(learner)
    thread = threading.Thread(target=learner.learn, args=(second,))
    thread.start()
    saved = []
    while thread.is_alive():
        learner.save(tmp_path)
        saved.append(contents(DEN.load(tmp_path)))
    thread.join()
    assert saved
    assert all(same(one, before) or same(one, contents(learner)) for one in saved)


def test_two_that_learn_at_once_are_told():
    learner = DEN(small_mlp(), quick())
    told: list[str] = []
    task = task_for(small_mlp())

    class Meanwhile(CountedExamples):
        def batches(self, *given):  # type: ignore[no-untyped-def]
            if not told:
                with pytest.raises(TaskError, match="is learning already") as caught:
                    learner.learn(task_for(small_mlp(), name="other"))
                told.append(str(caught.value))
            return super().batches(*given)

    learner.learn(with_rows(task, train=Meanwhile(task.train)))
    assert told
    assert learner.tasks == (task.name,)
    learner.learn(task_for(small_mlp(), seed=3, name="other"))


def outcome():
    """A checksum of what a seed comes to, by all that draws random numbers."""
    tasks = stream_for(small_mlp(), "one output", "subtasks")
    learner = learned(small_mlp(), tasks, quick(), seed=7)
    learner.finetune(tasks)
    return digest_of(contents(learner))


def global_state():
    numpys = repr([list(map(str, part)) if hasattr(part, "__len__") else part
                   for part in np.random.get_state()])  # noqa: NPY002  # fmt: skip
    return torch.get_rng_state().numpy().tobytes(), numpys, pythons.getstate()


def test_global_random_state_is_neither_read_nor_changed():
    expected = outcome()
    for seed in (1, 2):
        torch.manual_seed(seed)
        np.random.seed(seed)  # noqa: NPY002
        pythons.seed(seed)
        before = global_state()
        assert outcome() == expected
        assert global_state() == before


def test_the_same_bits_in_another_process_whatever_ran_before():
    learned(small_mlp(), [task_for(small_mlp(), "classes", seed=30)], quick(), seed=1)
    here = outcome()
    tests = Path(__file__).parent
    script = "import torch; torch.set_num_threads(1); from test_threads_and_seeds import outcome"
    environment = {
        **os.environ,
        "PYTHONPATH": os.pathsep.join([str(tests), str(tests.parent), *sys.path]),
        "PYTHONHASHSEED": "12345",
    }
    there = subprocess.run(
        [sys.executable, "-c", f"{script}; print(outcome())"],
        env=environment,
        capture_output=True,
        text=True,
        check=True,
        timeout=300,
    )
    assert there.stdout.split() == [here]


@pytest.mark.parametrize("threads", [1, 2, 4])
def test_the_same_number_of_threads_gives_the_same_bits(threads):
    before = torch.get_num_threads()
    torch.set_num_threads(threads)
    try:
        assert outcome() == outcome()
    finally:
        torch.set_num_threads(before)


def test_learning_does_not_hang_on_the_callers_gradients_or_default_type():
    task = task_for(small_mlp())
    expected = learned(small_mlp(), [task], quick())
    with torch.no_grad():
        assert same(contents(learned(small_mlp(), [task], quick())), contents(expected))
    torch.set_default_dtype(torch.float64)
    try:
        other = learned(small_mlp(), [task], quick())
        assert same(contents(other), contents(expected))
        assert same(
            {"p": other.predict_proba(X, task=task.name)},
            {"p": expected.predict_proba(X, task=task.name)},
        )
    finally:
        torch.set_default_dtype(torch.float32)


def test_a_copy_of_a_learner_goes_its_own_way():
    first, second = stream_for(small_mlp(), "one output", "subtasks")
    learner = learned(small_mlp(), [first], quick())
    for duplicate in (copy.copy(learner), copy.deepcopy(learner)):
        duplicate.learn(second)
        assert learner.tasks == ("task 1",)
        assert same(contents(duplicate), contents(learned(small_mlp(), [first, second], quick())))
