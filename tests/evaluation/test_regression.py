"""Regressions through evaluation, runs and the report."""

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from sklearn.metrics import r2_score, root_mean_squared_error

from builders import quick, small_mlp, task_for
from lifelong.evaluation.evaluate import evaluate
from lifelong.evaluation.measure import RunMetadata, measure
from lifelong.evaluation.metrics import metrics_for, r2, rmse
from lifelong.evaluation.runs import Run
from lifelong.learners.den import DEN
from lifelong.report.page import page
from lifelong.tasks.kinds import TaskError
from lifelong.tasks.streams import Stream, class_groups
from lifelong.tasks.task import Task


def stream(*kinds):
    tasks = [task_for(small_mlp(), kind, n, f"task {n}") for n, kind in enumerate(kinds)]
    return Stream({task.name: lambda task=task: task for task in tasks}, source="made up")


@given(st.integers(0, 10**6), st.integers(2, 30), st.integers(1, 3))
def test_the_metrics_are_those_of_scikit_learn(seed, rows, outputs):
    generator = np.random.default_rng(seed)
    truth, told = generator.normal(size=(2, rows, outputs))
    assert r2("regression", truth, told) == pytest.approx(r2_score(truth, told), rel=1e-5)
    together = root_mean_squared_error(truth.ravel(), told.ravel())
    assert rmse("regression", truth, told) == pytest.approx(together, rel=1e-5)


def test_a_stream_of_regressions_is_scored_by_its_own_metrics_and_shown():
    learner = DEN(small_mlp(), quick())
    tasks = stream("regression", "median regression")
    run = measure(learner, tasks, RunMetadata(data="made up"))
    assert set(run.scores) == set(metrics_for("regression")) == {"r2", "rmse"}
    first = next(iter(tasks))
    truth = first.test.y.numpy()
    told = learner.predict(first.test.x, task=first.name).numpy()
    assert run.scores["r2"][0] == pytest.approx(r2_score(truth, told), rel=1e-5)
    assert run.summary.auroc is None
    assert run.results.average() == run.results.average("r2")
    assert run.summary.forgetting == 0.0
    shown = page((Run.from_json(run.to_json()),))
    assert "points of R2 lost since the best" in shown
    assert "R2 and RMSE on test rows" in shown
    assert "AUROC" not in shown


def test_regressions_and_classes_are_not_scored_together():
    with pytest.raises(TaskError, match="'task 1' is classes, but 'task 0' is regression: they ha"):
        evaluate(DEN(small_mlp(), quick()), stream("regression", "classes"))


def test_test_labels_that_never_differ_have_no_r2():
    x, y = torch.randn(8, 6), torch.randn(8, 1)
    flat = Task("flat", (x, y), (x, y), (x, y * 0 + 2), kind="regression")
    with pytest.raises(TaskError, match=r"every label of output 0 is 2\.0, so that its R2 is not"):
        evaluate(DEN(small_mlp(), quick()), Stream({"flat": lambda: flat}, source="made up"))


def test_classes_are_not_grouped_into_regressions():
    with pytest.raises(TaskError, match="kind must be one of 'binary', 'classes', not 'regression"):
        class_groups(None, 2, seed=0, kind="regression")
