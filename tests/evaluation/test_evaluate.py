"""Scores against scikit-learn and by hand, and the loop over a stream."""

import time
import weakref

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.metrics import accuracy_score, roc_auc_score

from lifelong import Budget, mlp
from lifelong.evaluation.evaluate import PROBE, evaluate, score, steps, timed
from lifelong.evaluation.metrics import METRICS, Metric, accuracy, auroc
from lifelong.learners.registry import METHODS
from lifelong.records import Capacity, StageRecord
from lifelong.tasks.datasets import load
from lifelong.tasks.kinds import Kind, TaskError
from lifelong.tasks.streams import Stream
from lifelong.tasks.task import Task


class Means:
    """Answers by the distance to the mean of each output's training rows; grows by one a task."""

    def __init__(self, order=None):
        self.means: dict[str, torch.Tensor] = {}
        self.kinds: dict[str, Kind] = {}
        self.order = [] if order is None else order

    def learn(self, task):
        self.order.append(f"learn {task.name}")
        x, y = task.train.x, task.train.y
        hits = y if task.kind is Kind.BINARY else torch.nn.functional.one_hot(y).float()
        self.means[task.name] = (hits.T @ x) / hits.sum(0)[:, None]
        self.kinds[task.name] = task.kind
        return f"learned {task.name}"

    def predict_proba(self, x, *, task):
        self.order.append(f"predict {task}")
        near = -torch.cdist(x, self.means[task])
        return near.softmax(1) if self.kinds[task] is Kind.CLASSES else (near + 7).sigmoid()

    def capacity(self, as_of=None):
        tasks = list(self.means)
        if as_of is None:
            return Capacity(len(tasks) * 10, len(tasks) * 9, len(tasks) * 8)
        return Capacity(10, 9, tasks.index(as_of))


def test_auroc_by_hand():
    labels = np.array([[0.0], [1.0], [0.0], [1.0]])
    guesses = np.array([[0.1], [0.4], [0.35], [0.8]])
    assert auroc(Kind.BINARY, labels, guesses) == 1.0
    assert auroc(Kind.BINARY, labels, 1 - guesses) == 0.0
    assert auroc(Kind.BINARY, labels, np.full((4, 1), 0.5)) == 0.5
    guesses[1] = 0.2  # one of four pairs in the wrong order
    assert auroc(Kind.BINARY, labels, guesses) == 0.75


@settings(max_examples=40, deadline=None)
@given(seed=st.integers(0, 2**31), outputs=st.integers(1, 4))
def test_binary_scores_are_the_means_of_scikit_learns(seed, outputs):
    rng = np.random.default_rng(seed)
    labels = rng.integers(0, 2, (30, outputs)).astype(np.float32)
    labels[0], labels[1] = 0, 1
    guesses = rng.uniform(size=(30, outputs)).round(1)  # with ties
    areas = [roc_auc_score(labels[:, k], guesses[:, k]) for k in range(outputs)]
    shares = [accuracy_score(labels[:, k], guesses[:, k] >= 0.5) for k in range(outputs)]
    assert auroc(Kind.BINARY, labels, guesses) == pytest.approx(np.mean(areas))
    assert accuracy(Kind.BINARY, labels, guesses) == pytest.approx(np.mean(shares))


@settings(max_examples=40, deadline=None)
@given(seed=st.integers(0, 2**31), classes=st.integers(3, 5))
def test_class_scores_are_scikit_learns(seed, classes):
    rng = np.random.default_rng(seed)
    labels = np.concatenate([np.arange(classes), rng.integers(0, classes, 20)])
    guesses = rng.dirichlet(np.ones(classes), len(labels))
    area = roc_auc_score(labels, guesses, multi_class="ovr", average="macro")
    assert auroc(Kind.CLASSES, labels, guesses) == pytest.approx(area)
    share = accuracy_score(labels, guesses.argmax(1))
    assert accuracy(Kind.CLASSES, labels, guesses) == pytest.approx(share)


@pytest.mark.parametrize("options", [{}, {"group": 2, "kind": "classes"}, {"group": 5}])
def test_every_task_known_is_scored_after_every_task(options):
    stream = load("digits", seed=0, **options).first(2)
    learner = Means()
    results = evaluate(learner, stream)
    first, second = stream.names
    predicted = list(dict.fromkeys(learner.order))
    assert predicted == [
        f"learn {first}",
        f"predict {first}",
        f"learn {second}",
        f"predict {second}",
    ]
    assert learner.order[-2:] == [f"predict {first}", f"predict {second}"]
    assert results.tasks == stream.names
    assert results.source == stream.source
    # The first task's mean never changes, so neither does its score.
    for measure in ("auroc", "accuracy"):
        r = results.matrix(measure)
        assert np.isnan(r[0, 1])
        assert r[0, 0] == r[1, 0] > 0.5
    assert results.capacity == (Capacity(10, 9, 8), Capacity(20, 18, 16))
    assert results.as_of == (Capacity(10, 9, 0), Capacity(10, 9, 1))
    assert (results.seconds > 0).all()


def test_scores_in_the_matrix_are_those_of_the_test_rows():
    stream = load("digits", seed=0).first(2)
    learner = Means()
    results = evaluate(learner, stream)
    for j, task in enumerate(stream):
        guesses = learner.predict_proba(task.test.x, task=task.name).numpy()
        area = roc_auc_score(task.test.y.numpy(), guesses)
        assert results.matrix("auroc")[1, j] == pytest.approx(area)
        assert score(learner, task.name, task.test, kind=task.kind, outputs=1)[
            "auroc"
        ] == pytest.approx(area)


def test_steps_show_what_is_known_on_the_way():
    stream = load("digits", seed=0).first(3)
    seen = list(steps(Means(), stream))
    assert [step.task for step in seen] == list(stream.names)
    assert [step.record for step in seen] == [f"learned {name}" for name in stream.names]
    assert [len(step.results.tasks) for step in seen] == [1, 2, 3]
    last = seen[-1].results.matrix("auroc")
    np.testing.assert_array_equal(seen[0].results.matrix("auroc"), last[:1, :1])


def test_a_metric_that_came_after_an_interruption_is_left_out(monkeypatch):
    stream = load("digits", seed=0).first(3)
    learner = Means()
    first = next(steps(learner, stream))
    late = Metric("late", "late", lambda *_: 1.0)
    monkeypatch.setattr(METRICS, "_rows", {**METRICS, "late": late})
    last = list(steps(learner, stream, done=first.results))[-1]
    assert list(last.results.scores) == ["auroc", "accuracy"]
    assert "late" in list(steps(Means(), stream))[-1].results.scores


def test_seconds_before_an_interruption_count():
    record = StageRecord("taken up again", 0.1, 100, 3600.0)
    results = [step.results for step in steps(Means(), load("digits", seed=0).first(1))][-1]
    assert results.seconds[0] < 3600
    assert timed(lambda: record) == (record, 3600.0)
    assert timed(lambda: time.sleep(0.01))[1] >= 0.01


def random_task(name, **changes):
    generator = torch.Generator().manual_seed(len(name))
    x, y = torch.randn(8, 3, generator=generator), torch.arange(8) % 2
    splits = {"train": (x, y), "valid": (x, y), "test": (x, y)} | changes
    return Task(name, **splits, kind="binary", outputs=1)


def test_training_rows_are_let_go_before_the_next_task_is_made():
    training: list[weakref.ref[torch.Tensor]] = []

    def make(name):
        assert all(ref() is None for ref in training)
        task = random_task(name, train=(torch.randn(8, 3), torch.arange(8) % 2))
        training.append(weakref.ref(task.train.x))
        return task

    stream = Stream({name: lambda name=name: make(name) for name in "abc"}, source="")
    evaluate(Means(), stream)
    assert len(training) == 3


def one_task(task):
    return Stream({task.name: lambda: task}, source="")


def test_what_cannot_be_scored_is_refused_before_learning():
    learner = Means()
    untested = random_task("a", test=None)
    with pytest.raises(TaskError, match="task 'a' has no test rows to score it on"):
        evaluate(learner, one_task(untested))
    one_sided = random_task("a", test=(torch.randn(4, 3), torch.ones(4)))
    with pytest.raises(TaskError, match=r"output 0 holds for every row, .* AUROC is not defined"):
        evaluate(learner, one_task(one_sided))
    x, y = torch.randn(6, 3), torch.arange(6) % 3
    missing = Task("c", (x, y), (x, y), (x, y % 2), kind="classes", outputs=3)
    with pytest.raises(TaskError, match="class 2 holds for no row"):
        evaluate(learner, one_task(missing))
    assert learner.order == []


def test_two_tasks_of_one_name_are_refused():
    stream = Stream({"x": lambda: random_task("a"), "y": lambda: random_task("a")}, source="")
    with pytest.raises(TaskError, match="two tasks of the stream are named 'a'"):
        evaluate(Means(), stream)


@pytest.mark.parametrize(
    ("answer", "message"),
    [
        (lambda x: torch.zeros(len(x)), r"not shape \(8,\)"),
        (lambda _: torch.zeros(3, 1), r"that is shape \(8, 1\), not shape \(3, 1\)"),
        (lambda x: torch.full((len(x), 1), float("nan")), "not finite; learning has probably"),
        (lambda x: torch.zeros(len(x), 2), r"not shape \(8, 2\)"),
    ],
)
def test_predictions_that_are_none_are_refused(answer, message):
    class Odd(Means):
        def predict_proba(self, x, *, task):  # noqa: ARG002
            return answer(x)

    with pytest.raises(TaskError, match=message):
        evaluate(Odd(), one_task(random_task("a")))


class Stranger(Means):
    """A learner that happens to have a `predictor` too."""

    predictor = torch.nn.Linear(64, 1)


def test_a_learner_of_others_is_scored_whatever_else_it_has():
    stream = load("digits", seed=0).first(2)
    ours, theirs = (evaluate(learner, stream) for learner in (Means(), Stranger()))
    np.testing.assert_array_equal(ours.matrix("auroc"), theirs.matrix("auroc"))


@pytest.mark.parametrize("method", ["DEN", "DNN"])
def test_a_task_is_scored_anew_only_if_what_serves_it_has_changed(method, monkeypatch):
    stream = load("digits", seed=0).first(3)
    budget = Budget(steps=60, learning_rate=5e-3, check_every=20, patience=2)
    learner = METHODS[method].make(mlp(64, [16, 8]), budget=budget, seed=0)
    rows, predict = [], type(learner).predict_proba

    def counted(self, x, *, task):
        rows.append((task, len(x)))
        return predict(self, x, task=task)

    monkeypatch.setattr(type(learner), "predict_proba", counted)
    for step in steps(learner, stream):
        predicted = {name: sum(n for task, n in rows if task == name) for name in learner.tasks}
        now = step.results.matrix("auroc")[-1]
        for place, task in enumerate(stream.first(len(now))):
            by_hand = score(learner, task.name, task.test, kind=task.kind, outputs=1)
            assert now[place] == by_hand["auroc"]
            whole = method == "DNN" or place == len(now) - 1
            assert predicted[task.name] == PROBE + whole * len(task.test)
        rows.clear()
    first = step.results.matrix("auroc")[:, 0]
    assert (first[0] == first[-1]) == (method == "DEN")
