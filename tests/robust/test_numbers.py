"""Inputs, labels and settings at the edges of what numbers can be: learned, or refused and why."""

from collections.abc import Callable

import numpy as np
import pytest
import torch

from builders import (
    BUDGET,
    answers,
    contents,
    inputs_for,
    learned,
    quick,
    random,
    random_network,
    same,
    small_mlp,
    task_for,
)
from lifelong.learners.baselines import EWC, SI, EWCSettings, SISettings
from lifelong.learners.den import DEN
from lifelong.networks.sequential import mlp
from lifelong.tasks.kinds import Kind, TaskError
from lifelong.tasks.task import Task
from lifelong.training.budget import Budget
from lifelong.training.loop import STANDALONE, TrainingError

X = inputs_for(small_mlp(), 40)
Y = (X.sum(dim=1) > 0).long()
CLASSES = X[:, :3].argmax(dim=1)
SCALES = torch.tensor([1, 1e8, 1e-30, 0, 1e20, -1])

INPUTS: dict[str, Callable[[], object]] = {
    "constant": lambda: X * 0 + 3,
    "zero": lambda: X * 0,
    "huge": lambda: X * 1e8,
    "as large as can be": lambda: X * 1e37,
    "tiny": lambda: X * 1e-30,
    "denormal": lambda: X * 1e-40,
    "of every scale": lambda: X * SCALES,
    "float64": lambda: X.double(),
    "float16": lambda: X.half(),
    "integer": lambda: (X * 3).long(),
    "boolean": lambda: X > 0,
    "unsigned": lambda: (X.abs() * 3).numpy().astype(np.uint16),
}


def whole(learner):
    """All numbers finite, and an answer for every task."""
    x = inputs_for(learner.network.architecture, 3)
    tensors = [*contents(learner).values(), *answers(learner, x).values()]
    return all(bool(torch.isfinite(tensor).all()) for tensor in tensors)


@pytest.mark.filterwarnings("ignore::lifelong.tasks.task.UnscaledWarning")
@pytest.mark.parametrize("labels", [Y, CLASSES], ids=["binary", "classes"])
@pytest.mark.parametrize("name", INPUTS)
def test_odd_inputs_are_learned_first_and_last(name, labels):
    odd = Task("odd", (INPUTS[name](), labels), (INPUTS[name](), labels))
    even = Task("even", (X, Y), (X, Y))
    for order in ([odd, even], [even, odd]):
        learner = learned(small_mlp(), order, quick())
        assert whole(learner)
        assert learner.tasks == tuple(task.name for task in order)


@pytest.mark.parametrize(
    ("inputs", "says"),
    [
        (X.double() * 1e300, "must be finite in float32, but the value at"),
        (X / 0, "must be finite in float32"),
        (X.to(torch.complex64), "must be real arrays"),
        (X.numpy().astype(str), "must be numeric arrays"),
        (X.numpy().astype(object), "must be numeric arrays"),
    ],
)
def test_inputs_that_are_no_numbers_are_refused_with_a_reason(inputs, says):
    with pytest.raises(TaskError, match=says):
        Task("odd", (inputs, Y), (inputs, Y))


@pytest.mark.parametrize("kind", ["binary", "classes"])
def test_three_examples_are_a_task(kind):
    labels = torch.tensor([0, 1, 1] if kind == "binary" else [0, 1, 2])
    tiny = Task("tiny", (X[:3], labels), (X[:3], labels), kind=kind)
    assert whole(learned(small_mlp(), [task_for(small_mlp()), tiny], quick()))
    assert whole(learned(small_mlp(), [tiny, task_for(small_mlp())], quick()))


def test_ten_thousand_outputs():
    classes = Task("classes", (X, torch.arange(40) * 250), (X, torch.arange(40) * 250),
                   kind=Kind.CLASSES, outputs=10_000)  # fmt: skip
    columns = (torch.rand(40, 10_000, generator=random(1)) > 0.5).long()
    columns[0], columns[1] = 0, 1
    binary = Task("binary", (X, columns), (X, columns))
    for task in (classes, binary):
        learner = learned(small_mlp(), [task], quick())
        assert learner.predict_proba(X[:2], task=task.name).shape == (2, 10_000)
        assert whole(learner)


@pytest.mark.parametrize("features", [1, 100_000])
def test_one_feature_and_a_hundred_thousand(features):
    budget = Budget(steps=4, batch_size=16, check_every=2)
    x = torch.randn(20, features, generator=random(0))
    tasks = [
        Task(str(n), (x, (x[:, 0] > n / 2).long()), (x, (x[:, 0] > n / 2).long())) for n in (0, 1)
    ]
    assert whole(learned(mlp(features, [6, 4]), tasks, quick(budget=budget)))


@pytest.mark.parametrize("grows", [True, False])
def test_a_head_of_zeros_selects_nothing_and_harms_nothing(grows):
    settings = quick(head_l1=1.0, expand=grows, split=grows)
    learner = learned(small_mlp(), [task_for(small_mlp(), seed=n) for n in (1, 2)], settings)
    assert all(group.selected == 0 for group in learner.records[1].groups.values())
    assert whole(learner)


def test_a_loss_that_is_not_finite_names_stage_and_setting_and_rolls_back():
    learner = learned(small_mlp(), [task_for(small_mlp(), seed=1)], quick())
    before = contents(learner)
    wild = Budget(steps=60, batch_size=16, learning_rate=1e15, check_every=1, patience=60)
    learner.settings = quick(budget=wild)
    with pytest.raises(TrainingError, match=r"second: retrain: .* became (nan|inf).*learning_rate"):
        learner.learn(task_for(small_mlp(), seed=2, name="second"))
    assert same(contents(learner), before)
    learner.settings = quick()
    learner.learn(task_for(small_mlp(), seed=2, name="second"))


@pytest.mark.parametrize(
    "learner",
    [
        EWC(small_mlp(), EWCSettings(budget=BUDGET)),
        SI(small_mlp(), SISettings(budget=BUDGET, damping=1e-45)),
    ],
    ids=["EWC", "SI"],
)
def test_what_overflows_besides_the_loss_is_refused_too(learner, tmp_path):
    """An importance is a square: it overflows long before the loss does, and such a model could be
    saved but not loaded.
    """
    odd = Task("odd", (X * 1e30, Y), (X * 1e30, Y))
    try:
        learner.learn(odd)
    except TrainingError as error:
        assert "importance" in str(error)  # noqa: PT017
        assert learner.tasks == ()
    learner.save(tmp_path)
    assert same(contents(type(learner).load(tmp_path)), contents(learner))


def test_inputs_that_overflow_the_network_get_no_answer_rather_than_a_wrong_one():
    learner = learned(small_mlp(), [Task("t", (X, CLASSES), (X, CLASSES))], quick())
    network = random_network(small_mlp(), random(0), 3)
    strong = {name: tensor * 100 for name, tensor in network.tensors.items()}
    known = type(learner.network)(small_mlp()).remember(
        Task("t", (X, CLASSES), (X, CLASSES)), network.with_tensors(strong)
    )
    learner._commit(STANDALONE, known, learner.records)
    assert learner.predict_proba(X, task="t").shape == (40, 3)
    for predict in (learner.predict_proba, learner.predict):
        with pytest.raises(TaskError, match="overflow the network"):
            predict(X * 1e37, task="t")


def test_a_learner_that_has_learned_in_double_numbers_learns_the_same_from_single_ones():
    double, single = (
        learned(small_mlp(), [Task("t", (x, Y), (x, Y))], quick()) for x in (X.double(), X)
    )
    assert same(contents(double), contents(single))
    assert isinstance(double, DEN)
