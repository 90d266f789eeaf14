"""What a program sets in torch for itself does not change what a learner does."""

import numpy as np
import pytest
import torch

from builders import contents, inputs_for, learned, quick, same, small_mlp, stream_for, task_for
from lifelong import mlp
from lifelong.learners.base import Learner
from lifelong.learners.baselines import Joint, TrainingSettings
from lifelong.tasks.kinds import TaskError
from lifelong.tasks.task import Task

TASKS = stream_for(small_mlp(), "one output", "classes")


@pytest.fixture
def autocast():
    with torch.autocast("cpu"):
        yield


@pytest.fixture(scope="module")
def plain():
    return learned(small_mlp(), TASKS, quick())


@pytest.mark.usefixtures("autocast")
def test_autocast_changes_nothing(plain):
    again = learned(small_mlp(), TASKS, quick())
    assert same(contents(again), contents(plain))
    x = inputs_for(small_mlp(), 5)
    told = again.predict_proba(x, task="task 1")
    assert told.dtype == torch.float32
    with torch.autocast("cpu", enabled=False):
        assert torch.equal(told, plain.predict_proba(x, task="task 1"))
    assert torch.is_autocast_enabled("cpu")


@pytest.mark.usefixtures("autocast")
def test_autocast_does_not_reach_who_learns_all_at_once():
    joint: Learner = Joint(small_mlp(), TrainingSettings(budget=quick().budget))
    joint.learn_together(TASKS)
    assert joint.predict_proba(inputs_for(small_mlp(), 5), task="task 2").dtype == torch.float32


def test_inputs_to_predict_are_taken_and_refused_as_those_of_a_task(plain):
    x = inputs_for(small_mlp(), 5).numpy()
    told = plain.predict_proba(x, task="task 1")
    for odd in (x.astype(">f4"), np.ascontiguousarray(x[::-1])[::-1]):
        assert torch.equal(plain.predict_proba(odd, task="task 1"), told)
    for bad in (x + 1j, torch.tensor(x).to_sparse(), np.full(x.shape, "a")):
        with pytest.raises(TaskError, match="inputs and labels must be"):
            plain.predict_proba(bad, task="task 1")


def elsewhere(x, numbers):
    """The same rows so many numbers behind where NumPy would have put them."""
    array = np.zeros(x.numel() + numbers, np.float32)[numbers:].reshape(x.shape)
    array[:] = x
    return array


@pytest.mark.parametrize("numbers", [1, 2, 3])
def test_where_rows_lie_in_memory_changes_nothing(plain, numbers):
    moved = [
        Task(
            task.name,
            *((elsewhere(rows.x, numbers), rows.y) for rows in (task.train, task.valid)),
            kind=task.kind,
            outputs=task.outputs,
        )
        for task in TASKS
    ]
    assert same(contents(learned(small_mlp(), moved, quick())), contents(plain))
    x = inputs_for(small_mlp(), 7)
    for rows in (x, x[:1]):
        told = plain.predict_proba(elsewhere(rows, numbers), task="task 1")
        assert torch.equal(told, plain.predict_proba(rows, task="task 1"))


@pytest.mark.parametrize("rows", [1, 2, 7])
def test_in_which_order_rows_lie_in_memory_changes_no_answer(rows):
    architecture = mlp(64, [33, 10])  # of sizes at which the order was seen to change last digits
    learner = learned(architecture, [task_for(architecture, "classes", name="task 1")], quick())
    x = inputs_for(architecture, rows)
    told = learner.decision_function(x, task="task 1")
    by_column = np.asfortranarray(x.numpy())
    assert torch.equal(learner.decision_function(by_column, task="task 1"), told)
