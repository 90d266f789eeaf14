"""Losses of tasks: weights of classes, and losses of the user's own."""

import pytest
import torch
import torch.nn.functional as F
from hypothesis import given
from hypothesis import settings as runs
from hypothesis import strategies as st

from builders import BUDGET, answers, contents, quick, random, same, small_mlp, task_for
from lifelong import DEN, Task
from lifelong.learners.registry import METHODS
from lifelong.tasks.kinds import TaskError
from lifelong.tasks.streams import Stream
from lifelong.training.losses import loss_of

X = torch.randn(12, 6, generator=random(0))
WEIGHTS = st.lists(st.floats(0.1, 10), min_size=3, max_size=3)


def classes(**given):
    return Task("a", (X, torch.arange(12) % 3), (X, torch.arange(12) % 3), kind="classes", **given)


def weighted(task, weights):
    return Task(
        *(task.name, (task.train.x, task.train.y), (task.valid.x, task.valid.y)),
        kind=task.kind,
        class_weights=weights,
    )


@given(WEIGHTS, st.integers(0, 99))
@runs(max_examples=25, deadline=None)
def test_a_row_counts_by_the_weight_of_its_class_whatever_else_is_in_the_batch(weights, seed):
    task = classes(class_weights=weights)
    outputs, y = torch.randn(12, 3, generator=random(seed)), task.train.y
    found = loss_of(task)(outputs, y)
    alone = torch.stack([loss_of(task)(outputs[[n]], y[[n]]) for n in range(12)])
    by_hand = F.cross_entropy(outputs, y, reduction="none") * torch.tensor(weights)[y]
    torch.testing.assert_close(found, alone.mean())
    torch.testing.assert_close(found, by_hand.mean())


def test_positives_count_by_their_weight():
    y = (X[:, :2] > 0).float()
    task = Task("a", (X, y), (X, y), class_weights=[2.0, 5.0])
    outputs = torch.randn(12, 2, generator=random(1))
    terms = F.binary_cross_entropy_with_logits(outputs, y, reduction="none")
    by_hand = torch.where(y > 0, torch.tensor([2.0, 5.0]), 1.0) * terms
    torch.testing.assert_close(loss_of(task)(outputs, y), by_hand.mean())


def test_balanced_weights_give_all_classes_the_same_influence():
    y = torch.tensor([0] * 8 + [1] * 3 + [2])
    task = Task("a", (X, y), (X, y), kind="classes", class_weights="balanced")
    totals = torch.stack([task.class_weights[y[y == code]].sum() for code in range(3)])
    torch.testing.assert_close(totals, torch.full((3,), 4.0))
    binary = Task("b", (X, y == 2), (X, y == 2), class_weights="balanced")
    assert binary.class_weights.tolist() == [11.0]
    stream = Stream({"a": lambda: task}, source="arrays").validated()
    assert torch.equal(stream["a"].class_weights, task.class_weights)


def test_the_kinds_own_loss_given_by_hand_changes_no_bit():
    plain = task_for(small_mlp(), "classes")
    pair = (plain.train.x, plain.train.y)
    own = Task("classes 0", pair, (plain.valid.x, plain.valid.y), kind="classes", outputs=3,
               loss=F.cross_entropy)  # fmt: skip
    settings = quick(distillation=0.0)
    first, second = (DEN(small_mlp(), settings, seed=1) for _ in range(2))
    for learner, task in ((first, plain), (second, own)):
        learner.learn(task)
        learner.learn(task_for(small_mlp(), "subtasks", 5))
    assert same(contents(first), contents(second))


def focal(outputs, y):
    """Only takes class numbers: soft labels would be an error."""
    assert y.dtype == torch.long
    return ((1 - outputs.softmax(1)[torch.arange(len(y)), y]) ** 2).mean()


@pytest.mark.parametrize("split", ["units", "weights", "auto"])
def test_a_loss_that_knows_no_soft_labels_trains_every_stage(split):
    learner = DEN(small_mlp(), quick(split=split), seed=1)
    for number in (1, 2):
        plain = task_for(small_mlp(), "classes", number)
        rows = ((plain.train.x, plain.train.y), (plain.valid.x, plain.valid.y))
        learner.learn(Task(f"{number}", *rows, kind="classes", outputs=3, loss=focal))
    found = focal(learner.decision_function(plain.valid.x, task="2"), plain.valid.y)
    assert float(found) == pytest.approx(learner.records[1].stages[-1].loss, abs=1e-5)


@pytest.mark.parametrize("method", METHODS)
def test_every_method_learns_with_weights_of_classes(method):
    row = METHODS[method]
    if row.keeps_data and not hasattr(row.learner, "_objectives"):
        return  # it takes all tasks at once
    plain, other = (row.make(small_mlp(), budget=BUDGET) for _ in range(2))
    task = task_for(small_mlp(), "classes")
    plain.learn(task)
    other.learn(weighted(task, [50.0, 1.0, 1.0]))
    x = X
    assert not same(answers(plain, x), answers(other, x))


@pytest.mark.parametrize(
    ("given", "told"),
    [
        ({"class_weights": [1.0, 2.0]}, "'balanced' or 3 positive numbers, one per class"),
        ({"class_weights": [1.0, 2.0, 0.0]}, "positive numbers"),
        ({"class_weights": [1.0, 2.0, float("inf")]}, "positive numbers"),
        ({"class_weights": "equal"}, "positive numbers"),
        ({"loss": 3}, "loss must be a function of outputs and labels"),
        ({"loss": lambda _o, _y: 1 / 0}, "it ended in ZeroDivisionError"),
        ({"loss": lambda o, _y: o.mean(1)}, "returns one finite number"),
        ({"loss": F.cross_entropy, "class_weights": [1, 1, 1]}, "without class_weights"),
    ],
)
def test_what_is_no_loss_or_weight_is_refused(given, told):
    with pytest.raises(TaskError, match=told):
        classes(**given)


def test_a_regression_has_no_classes():
    with pytest.raises(TaskError, match="a regression has no classes"):
        Task("a", (X, X[:, 0]), (X, X[:, 0]), kind="regression", class_weights=[1.0])
