"""All tasks at once: the structure stays, each task on what it knows, and what is refused."""

import pytest
import torch

from builders import (
    ARCHITECTURES,
    BUDGET,
    CountedExamples,
    answers,
    contents,
    inputs_for,
    learned,
    quick,
    random,
    same,
    small_mlp,
    stream_for,
    task_for,
    with_rows,
)
from lifelong.learners.baselines import Joint, Single, TrainingSettings
from lifelong.tasks.kinds import TaskError
from lifelong.training.budget import Budget
from lifelong.training.loop import STANDALONE, validation_loss
from lifelong.training.loop import objective as asked
from lifelong.training.multitask import share_all_units, shrink_and_perturb, train_multitask

MIXED = ("one output", "classes", "subtasks")
STILL = Budget(steps=2, batch_size=16, learning_rate=1e-12, check_every=1)


def mean_loss(network, tasks):
    """Of each task on the network as it knows it."""
    losses = [
        validation_loss(
            [asked(network.architecture, task.kind, task.train, task.valid)],
            network.as_of(network.numbers[task.name]).tensors,
        )
        for task in tasks
    ]
    return sum(losses) / len(losses)


@pytest.mark.parametrize("name", ARCHITECTURES)
def test_the_loss_is_the_mean_over_tasks_each_as_of_itself(name):
    architecture = ARCHITECTURES[name]()
    tasks = stream_for(architecture, *MIXED)
    known = learned(architecture, tasks, quick(gamma=0.01, mu=0.01)).network
    assert all(len(born) > int((born == 1).sum()) for born in known.born.values())
    for order in (tasks, tasks[::-1]):
        _, solution = train_multitask(known, order, STILL, 0.0, random(0))
        assert solution.loss == pytest.approx(mean_loss(known, tasks), rel=1e-5)


@pytest.mark.parametrize("name", ARCHITECTURES)
def test_finetuning_keeps_the_structure_and_lowers_the_loss(name):
    architecture = ARCHITECTURES[name]()
    tasks = stream_for(architecture, *MIXED)
    learner = learned(architecture, tasks, quick(shrink=1.0, perturb=0.0))
    before, network, records = contents(learner), learner.network, learner.records
    old = mean_loss(network, tasks)
    stage = learner.finetune(tasks)
    assert stage.name == "finetune"
    assert 0 < stage.steps <= BUDGET.steps
    assert stage.loss < old
    assert stage.loss == pytest.approx(mean_loss(learner.network, tasks), rel=1e-5)
    after = learner.network
    assert {n: t.shape for n, t in after.shared.items()} == {
        n: t.shape for n, t in network.shared.items()
    }
    assert any(not torch.equal(after.shared[n], t) for n, t in network.shared.items())
    for group, stamps in after.born.items():
        assert stamps.tolist() == [1] * len(network.born[group])
    widest = network.tasks[-1].private["head.weight"].shape[1]
    assert all(known.private["head.weight"].shape[1] == widest for known in after.tasks)
    # The network of before is a value of its own.
    shared = {key: before[key] for key in network.shared}
    assert same(dict(network.shared), shared)
    assert learner.records == records
    assert learner.tasks == tuple(task.name for task in tasks)


def test_finetuning_is_the_same_for_the_same_seed_and_goes_on_learning():
    architecture = small_mlp()
    tasks = stream_for(architecture, *MIXED)
    one, two = (learned(architecture, tasks, quick(), seed=2) for _ in range(2))
    for learner in (one, two):
        learner.finetune(tasks)
    assert same(contents(one), contents(two))
    x = inputs_for(architecture, 9)
    before = answers(one, x)
    one.learn(task_for(architecture, name="one more"))
    assert same({name: one.predict_proba(x, task=name) for name in before}, before)


def test_finetuning_needs_every_task_and_no_other():
    architecture = small_mlp()
    tasks = stream_for(architecture, *MIXED)
    learner = learned(architecture, tasks, quick())
    network = learner.network
    stranger = task_for(architecture, name="stranger")
    for given in (tasks[:2], [], [*tasks, stranger], [*tasks[:2], stranger], [*tasks, tasks[0]]):
        with pytest.raises(TaskError, match="takes the data of every task that was learned"):
            learner.finetune(given)
    assert learner.network is network


@pytest.mark.parametrize(
    "other",
    [
        task_for(small_mlp(), "classes", name="task 1"),
        task_for(small_mlp(), "subtasks", name="task 1"),
        task_for(ARCHITECTURES["convnet"](), name="task 1"),
    ],
    ids=["kind", "outputs", "shape"],
)
def test_finetuning_refuses_a_task_of_the_same_name_that_is_another(other):
    architecture = small_mlp()
    tasks = stream_for(architecture, "one output", "classes")
    learner = learned(architecture, tasks, quick())
    network = learner.network
    with pytest.raises(TaskError, match="task 'task 1'"):
        learner.finetune([other, tasks[1]])
    assert learner.network is network


def test_finetuning_that_is_broken_off_leaves_no_trace():
    architecture = small_mlp()
    tasks = stream_for(architecture, *MIXED)
    learner = learned(architecture, tasks, quick())
    network, before = learner.network, contents(learner)
    broken = with_rows(tasks[1], CountedExamples(tasks[1].train, 5, KeyboardInterrupt))
    with pytest.raises(KeyboardInterrupt):
        learner.finetune([tasks[0], broken, tasks[2]])
    assert learner.network is network
    assert same(contents(learner), before)


def test_joint_learns_all_tasks_on_one_base_network():
    architecture = small_mlp()
    tasks = stream_for(architecture, *MIXED)
    learner = Joint(architecture, TrainingSettings(mu=0.01, budget=BUDGET))
    learner.learn_together(tasks)
    assert learner.tasks == ("task 1", "task 2", "task 3")
    assert learner.relative_capacity() == 1.0
    assert all(born.eq(1).all() for born in learner.network.born.values())
    x = inputs_for(architecture, 4)
    assert [answer.shape[1] for answer in answers(learner, x).values()] == [1, 3, 2]


@pytest.mark.parametrize("twice", [True, False], ids=["repeated", "none"])
def test_joint_refuses_a_repeated_name_and_no_task_at_all(twice):
    architecture = small_mlp()
    one, two = task_for(architecture, name="same"), task_for(architecture, seed=9, name="same")
    learner = Joint(architecture, TrainingSettings(budget=BUDGET))
    with pytest.raises(TaskError):
        learner.learn_together([one, two] if twice else [])
    assert learner.tasks == ()


def test_single_has_a_network_for_each_task():
    architecture = small_mlp()
    learner = Single(architecture, TrainingSettings(budget=BUDGET))
    x = inputs_for(architecture, 4)
    expected = {}
    for task in stream_for(architecture, *MIXED):
        learner.learn(task)
        expected[task.name] = learner.predict_proba(x, task=task.name)
    assert same(answers(learner, x), expected)
    body = 6 * 10 + 10 + 10 * 7 + 7
    assert learner.capacity().parameters == 3 * body + 8 * (1 + 3 + 2)
    assert learner.capacity(as_of="task 1").parameters == body + 8


def test_finetuning_that_does_not_help_changes_nothing():
    architecture = small_mlp()
    tasks = stream_for(architecture, *MIXED)
    learner = learned(architecture, tasks, quick(shrink=0.0, perturb=1.0, budget=Budget(steps=1)))
    network = learner.network
    before = mean_loss(network, tasks)
    trained, _ = train_multitask(network, tasks, BUDGET, 0.0, random(0))
    learner._commit(STANDALONE, trained, learner.records)
    assert mean_loss(trained, tasks) < before
    stage = learner.finetune(tasks)
    assert learner.network is trained
    assert stage.loss == pytest.approx(mean_loss(trained, tasks))


@pytest.mark.parametrize("name", ARCHITECTURES)
def test_an_opened_network_serves_every_task_with_all_its_units(name):
    architecture = ARCHITECTURES[name]()
    tasks = stream_for(architecture, *MIXED)
    network = learned(architecture, tasks, quick(gamma=0.01, mu=0.01)).network
    whole = share_all_units(network)
    x = inputs_for(architecture, 8)
    for number in (1, 2, 3):
        assert torch.equal(whole.as_of(number).logits(x), network.without_stamps(number).logits(x))
    assert same(dict(whole.shared), dict(network.shared))
    assert torch.equal(whole.as_of(3).logits(x), network.as_of(3).logits(x))


def test_a_shaken_network_is_part_of_what_it_was_and_part_fresh():
    architecture = small_mlp()
    network = learned(
        architecture, stream_for(architecture, "one output", "classes"), quick()
    ).network
    ones = lambda _, size: torch.ones(size)  # noqa: E731
    moved = shrink_and_perturb(network, ones, shrink=0.5, perturb=0.25)
    for name, tensor in network.shared.items():
        torch.testing.assert_close(moved.shared[name], 0.5 * tensor + 0.25)
    for old, new in zip(network.tasks, moved.tasks, strict=True):
        for name, tensor in old.private.items():
            torch.testing.assert_close(new.private[name], 0.5 * tensor + 0.25)
    assert moved.born is network.born
