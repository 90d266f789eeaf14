"""A learning that is stopped anywhere goes on where it was, and ends with the same bits."""

import copy
import os
from collections.abc import Callable
from dataclasses import replace
from functools import partial

import pytest
import torch

from builders import (
    ARCHITECTURES,
    BUDGET,
    CountedExamples,
    contents,
    learned,
    quick,
    same,
    small_mlp,
    stream_for,
    task_for,
    tensors_of,
    with_rows,
)
from lifelong.learners.base import Learner
from lifelong.learners.baselines import (
    EWC,
    IMM,
    SI,
    EWCSettings,
    IMMSettings,
    Joint,
    Progressive,
    ProgressiveSettings,
    Single,
    SISettings,
    TrainingSettings,
)
from lifelong.learners.den import DEN, starts
from lifelong.learners.den.mask import MASK
from lifelong.learners.registry import METHODS as REGISTERED
from lifelong.persistence import checkpoint as journal
from lifelong.persistence.checkpoint import CheckpointError
from lifelong.persistence.files import LOCK
from lifelong.tasks.examples import DatasetExamples
from lifelong.training.budget import Budget
from lifelong.training.loop import TrainingError


class Stop(BaseException):
    """What nobody catches, like a kill."""


@pytest.fixture(autouse=True)
def every_look(monkeypatch):
    """Let checkpoints be written whenever they may be, and not wait for the disk each time."""
    monkeypatch.setattr(journal, "APART", 0)
    monkeypatch.setattr(os, "fsync", lambda _: None)


def stop_after(looks, patch):
    """Stop at a look at the validation loss, after what is written there."""
    left = iter(range(looks))
    keep = journal.Checkpoint.keep

    def keep_and_stop(self, snapshot):
        keep(self, snapshot)
        if next(left, None) is None:
            raise Stop

    patch.setattr(journal.Checkpoint, "keep", keep_and_stop)


def stopped_everywhere(make, act, directory):
    """Learners that were stopped at the first look, the second and so on, and then went on."""
    for looks in range(1000):
        checkpoint = directory / str(looks)
        with pytest.MonkeyPatch.context() as patch:
            stop_after(looks, patch)
            try:
                act(make(), checkpoint)
                return
            except Stop:
                pass
        learner = make()
        act(learner, checkpoint)
        yield learner


def unhurried(records):
    """Records but for the seconds."""
    return [
        (r.task, r.number, r.groups, [(s.name, s.loss, s.steps) for s in r.stages]) for r in records
    ]


def stops_with_the_same_end(base, task, expected, directory):
    """How many stops there are while `base` learns the task; each goes on to what is expected."""
    stops = 0
    for learner in stopped_everywhere(
        lambda: copy.copy(base),
        lambda learner, at: learner.learn(task, checkpoint=at),
        directory,
    ):
        assert same(contents(learner), contents(expected))
        assert unhurried(learner.records) == unhurried(expected.records)
        stops += 1
    return stops


@pytest.mark.parametrize("name", ARCHITECTURES)
def test_a_learn_that_was_stopped_goes_on_to_the_bit(name, tmp_path):
    architecture = ARCHITECTURES[name]()
    first, second = stream_for(architecture, "one output", "subtasks")
    settings = quick(sigma=0.0)
    base, expected = (learned(architecture, [first], settings) for _ in range(2))
    expected.learn(second)
    resumed = stops_with_the_same_end(base, second, expected, tmp_path)
    assert (
        resumed
        == sum(stage.steps for stage in expected.records[-1].stages[1:]) / BUDGET.check_every
    )


def test_a_learn_that_tries_a_mask_goes_on_to_the_bit(tmp_path, monkeypatch):
    monkeypatch.setattr(starts, "best_start", lambda _: starts.FROM_ROOT)
    first, second = stream_for(small_mlp(), "one output", "classes")
    settings = quick(split="auto", price=0.01)
    base, expected = (learned(small_mlp(), [first], settings) for _ in range(2))
    expected.learn(second)
    assert MASK in [stage.name for stage in expected.records[-1].stages]
    assert stops_with_the_same_end(base, second, expected, tmp_path)


FAMILY = ["LPF", "LwF", "ER", "GPM", "PackNet", "Piggyback", "SupSup", "WSN", "HAT", "LoRA", "APD"]
IN_EPOCHS = replace(BUDGET, epochs=8, optimizer="sgd", momentum=0.9, weight_decay=0.01)
METHODS: dict[str, Callable[[], Learner]] = {
    "EWC": lambda: EWC(small_mlp(), EWCSettings(budget=BUDGET)),
    "SI": lambda: SI(small_mlp(), SISettings(budget=BUDGET)),
    "IMM": lambda: IMM(small_mlp(), IMMSettings(budget=BUDGET)),
    "Progressive": lambda: Progressive(small_mlp(), ProgressiveSettings(budget=BUDGET)),
    "Single": lambda: Single(small_mlp(), TrainingSettings(budget=BUDGET)),
    **{name: partial(REGISTERED[name].make, small_mlp(), budget=BUDGET) for name in FAMILY},
    "SGD": lambda: SI(small_mlp(), SISettings(budget=IN_EPOCHS)),
    "SGD carried": lambda: EWC(small_mlp(), EWCSettings(budget=IN_EPOCHS, adam="carried")),
}


@pytest.mark.parametrize("method", METHODS)
def test_every_method_goes_on_to_the_bit(method, tmp_path):
    first, second = stream_for(small_mlp(), "one output", "classes")

    base = METHODS[method]()
    base.learn(first)
    expected = copy.copy(base)
    expected.learn(second)
    act = lambda learner, at: learner.learn(second, checkpoint=at)  # noqa: E731
    resumed = list(stopped_everywhere(lambda: copy.copy(base), act, tmp_path))
    assert resumed
    assert all(same(contents(learner), contents(expected)) for learner in resumed)


def test_finetuning_goes_on_to_the_bit(tmp_path):
    tasks = stream_for(small_mlp(), "one output", "classes", "subtasks")

    base = learned(small_mlp(), tasks, quick())
    expected = copy.copy(base)
    expected.finetune(tasks)
    act = lambda learner, at: learner.finetune(tasks, checkpoint=at)  # noqa: E731
    resumed = list(stopped_everywhere(lambda: copy.copy(base), act, tmp_path))
    assert resumed
    assert all(same(contents(learner), contents(expected)) for learner in resumed)
    assert not same(contents(base), contents(expected))


class Pairs:
    """A data set that is not in memory."""

    def __init__(self, task):
        self.rows = tensors_of(task.train)

    def __len__(self):
        return len(self.rows)

    def __getitem__(self, index):
        return self.rows.x[index], self.rows.y[index]


def from_dataset(task):
    return with_rows(task, train=DatasetExamples(Pairs(task), task.kind, task.outputs))


@pytest.mark.parametrize("given", [lambda task: task, from_dataset], ids=["memory", "data set"])
def test_learning_together_goes_on_to_the_bit_in_passes_of_different_length(given, tmp_path):
    architecture = small_mlp()
    sizes = enumerate((50, 33))
    tasks = [given(task_for(architecture, seed=n, name=str(n), rows=rows)) for n, rows in sizes]
    base = Joint(architecture, TrainingSettings(budget=BUDGET))
    expected = copy.copy(base)
    expected.learn_together(tasks)
    act = lambda learner, at: learner.learn_together(tasks, checkpoint=at)  # noqa: E731
    resumed = list(stopped_everywhere(lambda: copy.copy(base), act, tmp_path))
    assert len(resumed) == 3
    assert all(same(contents(learner), contents(expected)) for learner in resumed)


def stopped(learner, task, checkpoint, looks=1):
    with pytest.MonkeyPatch.context() as patch:
        stop_after(looks, patch)
        with pytest.raises(Stop):
            learner.learn(task, checkpoint=checkpoint)


def test_what_is_done_is_not_done_again(tmp_path):
    task = task_for(small_mlp())
    first, second = CountedExamples(task.train), CountedExamples(task.train)
    stopped(DEN(small_mlp(), quick()), with_rows(task, train=first), tmp_path, looks=1)
    DEN(small_mlp(), quick()).learn(with_rows(task, train=second), checkpoint=tmp_path)
    # A batch to see that it is the same data; one to be where the pass was, with three batches a
    # pass and 16 steps taken; and one for each of the 8 steps that are left.
    assert (first.served, second.served) == (1 + 16, 1 + 1 + 8)


def test_the_checkpoint_stays_until_the_model_is_saved(tmp_path):
    """Who is killed between the two need not learn again."""
    architecture, at = small_mlp(), tmp_path / "checkpoint"
    task = task_for(architecture)
    learner = DEN(architecture, quick())
    learner.learn(task, checkpoint=at)
    again = DEN(architecture, quick())
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("lifelong.training.loop._Loop", pytest.fail)
        again.learn(task, checkpoint=at)
    assert same(contents(again), contents(learner))
    learner.save(tmp_path / "model")
    assert [file.name for file in at.iterdir()] == [LOCK]


def test_the_next_task_takes_over_the_directory_of_one_that_was_learned(tmp_path):
    first, second = stream_for(small_mlp(), "one output", "classes")
    learner = DEN(small_mlp(), quick())
    learner.learn(first, checkpoint=tmp_path)
    learner.learn(second, checkpoint=tmp_path)
    assert same(contents(learner), contents(learned(small_mlp(), [first, second], quick())))


@pytest.mark.parametrize(
    ("other", "says"),
    [
        (lambda: DEN(small_mlp(), quick(), seed=1), "seed is 0 there, now 1"),
        (lambda: DEN(small_mlp(), quick(mu=0.5)), "setting mu is 0.1 there, now 0.5"),
        (lambda: Single(small_mlp(), TrainingSettings(budget=BUDGET)), "method is DEN there"),
        (
            lambda: learned(small_mlp(), [task_for(small_mlp(), seed=5)], quick()),
            "network is .* there",
        ),
    ],
)
def test_the_checkpoint_of_another_learning_is_refused(other, says, tmp_path):
    task = task_for(small_mlp())
    stopped(DEN(small_mlp(), quick()), task, tmp_path)
    with pytest.raises(CheckpointError, match=f"{says}.*remove this one to learn from the start"):
        other().learn(task, checkpoint=tmp_path)
    DEN(small_mlp(), quick()).learn(task, checkpoint=tmp_path)


def test_a_checkpoint_knows_whether_mkldnn_was_on(tmp_path, monkeypatch):
    task = task_for(small_mlp())
    stopped(DEN(small_mlp(), quick()), task, tmp_path)
    with monkeypatch.context() as off:
        off.setattr(torch.backends.mkldnn, "enabled", False)
        with pytest.raises(CheckpointError, match=r"torch is .* there, now .* without mkldnn"):
            DEN(small_mlp(), quick()).learn(task, checkpoint=tmp_path)
    DEN(small_mlp(), quick()).learn(task, checkpoint=tmp_path)


def test_other_data_by_the_same_name_is_refused(tmp_path):
    stopped(DEN(small_mlp(), quick()), task_for(small_mlp(), name="a"), tmp_path)
    with pytest.raises(CheckpointError, match=r"data is .* there"):
        DEN(small_mlp(), quick()).learn(
            task_for(small_mlp(), seed=1, name="a"), checkpoint=tmp_path
        )


def test_a_damaged_checkpoint_is_refused(tmp_path):
    task = task_for(small_mlp())
    stopped(DEN(small_mlp(), quick()), task, tmp_path)
    file = next(tmp_path.glob("training-*"))
    file.write_bytes(file.read_bytes()[:-1] + b"x")
    with pytest.raises(CheckpointError, match=r"damaged: the checksum of .* differs; remove the"):
        DEN(small_mlp(), quick()).learn(task, checkpoint=tmp_path)
    (tmp_path / journal.FILE).write_text("{")
    with pytest.raises(CheckpointError, match=r"damaged: journal\.json"):
        DEN(small_mlp(), quick()).learn(task, checkpoint=tmp_path)


def test_a_training_that_diverged_leaves_no_checkpoint(tmp_path):
    """To go on from it would end in the same error, and another setting could not use it."""
    wild = Budget(steps=60, batch_size=16, learning_rate=1e15, check_every=1, patience=60)
    with pytest.raises(TrainingError):
        DEN(small_mlp(), quick(budget=wild)).learn(task_for(small_mlp()), checkpoint=tmp_path)
    DEN(small_mlp(), quick()).learn(task_for(small_mlp()), checkpoint=tmp_path)


def test_a_write_takes_a_small_part_of_the_time(tmp_path, monkeypatch):
    """One in 25 of the time between two, however fast or slow the disk is."""
    monkeypatch.setattr(journal, "APART", 25)
    now = [0.0]
    monkeypatch.setattr(journal.time, "monotonic", lambda: now[0])
    write = journal.replace_file

    def slow(file, content):
        now[0] += 0.5
        write(file, content)

    monkeypatch.setattr(journal, "replace_file", slow)
    snapshot = journal.StageSnapshot("a stage", False, {}, {"t": torch.zeros(3)})
    written = []
    with journal.Checkpoint.at(tmp_path, {}) as kept:
        for _ in range(2000):
            now[0] += 0.1
            before = now[0]
            kept.keep(lambda: snapshot)
            if now[0] > before:
                written.append(before)
    assert len(written) > 5
    assert now[0] - 200 <= 200 / 24
