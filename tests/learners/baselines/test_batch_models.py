"""DNN-STL and DNN-MTL."""

import pytest
import torch

from builders import (
    ARCHITECTURES,
    BUDGET,
    answers,
    contents,
    inputs_for,
    same,
    small_mlp,
    stream_for,
    task_for,
)
from lifelong.learners.baselines import Joint, Single, TrainingSettings
from lifelong.tasks.kinds import TaskError
from lifelong.training.budget import Budget, SettingError

TRAINING = TrainingSettings(mu=0.01, budget=Budget(steps=300, batch_size=32, learning_rate=0.01))
QUICK = TrainingSettings(budget=BUDGET)


def share_right(learner, task):
    labels = learner.predict(task.train.x, task=task.name)
    truth = task.train.y if task.train.y.ndim == 1 else task.train.y[:, 0].long()
    return float((labels == truth).float().mean())


@pytest.mark.parametrize("kind", ["one output", "classes"])
def test_both_learn(kind):
    tasks = [task_for(small_mlp(), kind, n, f"task {n}", rows=100) for n in range(2)]
    single, joint = Single(small_mlp(), TRAINING), Joint(small_mlp(), TRAINING)
    joint.learn_together(tasks)
    for task in tasks:
        single.learn(task)
        assert share_right(single, task) > 0.9
        assert share_right(joint, task) > 0.8


@pytest.mark.parametrize("architecture", ARCHITECTURES)
def test_a_network_of_its_own_knows_nothing_of_the_others(architecture):
    sequential = ARCHITECTURES[architecture]()
    tasks = stream_for(sequential, "one output", "classes", "subtasks")
    learner = Single(sequential, QUICK)
    learner.learn(tasks[0])
    x = inputs_for(sequential, 20)
    before = answers(learner, x)
    for task in tasks[1:]:
        learner.learn(task)
    assert torch.equal(answers(learner, x)["task 1"], before["task 1"])
    assert learner.capacity().parameters == sum(
        sequential.layout.parameters([task.outputs]) for task in tasks
    )


@pytest.mark.parametrize("architecture", ARCHITECTURES)
def test_the_multi_task_network_has_one_body_and_a_head_for_each(architecture):
    sequential = ARCHITECTURES[architecture]()
    tasks = stream_for(sequential, "one output", "classes", "subtasks")
    learner = Joint(sequential, QUICK)
    learner.learn_together(tasks)
    assert learner.relative_capacity() == 1
    assert learner.tasks == ("task 1", "task 2", "task 3")
    shapes = {
        name: answer.shape for name, answer in answers(learner, inputs_for(sequential, 5)).items()
    }
    assert shapes == {"task 1": (5, 1), "task 2": (5, 3), "task 3": (5, 2)}


def test_the_same_seed_gives_the_same_network():
    tasks = stream_for(small_mlp(), "one output", "classes")

    def run(seed):
        learner = Joint(small_mlp(), QUICK, seed=seed)
        learner.learn_together(tasks)
        return contents(learner)

    assert same(run(1), run(1))
    assert not same(run(1), run(2))


def test_the_multi_task_network_takes_no_task_later():
    first, second = stream_for(small_mlp(), "one output", "one output")
    learner = Joint(small_mlp(), QUICK)
    learner.learn(first)
    with pytest.raises(TaskError, match=r"cannot take one more task; .*learn_together"):
        learner.learn(second)
    assert learner.tasks == ("task 1",)


def test_a_negative_strength_is_refused():
    with pytest.raises(SettingError, match=r"mu must be 0 or more and finite, not -0\.1"):
        TrainingSettings(mu=-0.1)
