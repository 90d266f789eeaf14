"""What holds for every method of the table, on every network, for every kind of task."""

import pytest
import torch

from builders import (
    ARCHITECTURES,
    BUDGET,
    KINDS,
    CountedExamples,
    answers,
    contents,
    inputs_for,
    same,
    small_mlp,
    stored_tensors,
    stream_for,
    task_for,
    with_rows,
)
from lifelong.learners.baselines import Joint
from lifelong.learners.den import DEN
from lifelong.learners.registry import METHODS
from lifelong.networks.sequential import mlp
from lifelong.tasks.kinds import TaskError
from lifelong.training.budget import Budget

IN_TURN = (
    *("DNN", "DNN-L1", "DNN-L2", "DNN-EWC", "SI", "IMM-mean", "IMM-mode"),
    *("LwF", "ER", "GPM"),
)
TRAIN_OLD_HEADS = ("LwF", "ER")
LEARNING = Budget(steps=400, batch_size=32, learning_rate=0.02, check_every=20)

every_method = pytest.mark.parametrize("method", METHODS.values(), ids=list(METHODS))
every_network = pytest.mark.parametrize("network", ARCHITECTURES)
# Other settings of DEN, which do not care for the kind of layers.
VARIANTS = ("DEN-Constant-13", "DEN-Constant-20", "DEN-Dynamic", "DEN-No-Stamp", "DEN (paper)")
PAIRS = [
    (method, network)
    for method in METHODS.values()
    for network in ARCHITECTURES
    if network == "mlp" or method.name not in VARIANTS
]


def pairs(wanted=lambda _: True):
    """Methods, each with every network."""
    chosen = [pair for pair in PAIRS if wanted(pair[0])]
    ids = [f"{network}-{method.name}" for method, network in chosen]
    return pytest.mark.parametrize(("method", "network"), chosen, ids=ids)


one_by_one = pytest.mark.parametrize(
    "method", [m for m in METHODS.values() if m.learner is not Joint], ids=lambda m: m.name
)


def taught(method, network, tasks, *, seed=0, **changes):
    """A learner of this method that has learned these tasks."""
    learner = method.make(ARCHITECTURES[network](), budget=BUDGET, seed=seed, changes=changes)
    teach(method, learner, tasks)
    return learner


def teach(method, learner, tasks):
    if isinstance(learner, Joint):
        learner.learn_together(tasks)
        return
    for task in tasks:
        learner.learn(task)
    if method.finetunes:
        assert isinstance(learner, DEN)
        learner.finetune(tasks)


@every_method
@pytest.mark.parametrize("kind", KINDS)
def test_it_learns(method, kind):
    architecture = mlp(6, [24, 16])
    task = task_for(architecture, kind, rows=100)
    learner = method.make(architecture, budget=LEARNING)
    teach(method, learner, [task])
    right = learner.predict(task.train.x, task=task.name).reshape(100, -1)
    truth = task.train.y.reshape(100, -1)
    assert (right == truth).float().mean() > 0.8


@every_method
def test_it_learns_a_regression_and_answers_the_same_when_loaded(method, tmp_path):
    architecture = mlp(6, [24, 16])
    task = task_for(architecture, "regression", rows=100)
    learner = method.make(architecture, budget=LEARNING)
    teach(method, learner, [task])
    predicted = learner.predict(task.train.x, task=task.name)
    assert predicted.shape == (100, 2)
    assert (predicted - task.train.y).square().mean() < 0.5 * task.train.y.var()
    learner.save(tmp_path)
    assert torch.equal(
        method.learner.load(tmp_path).predict(task.train.x, task=task.name), predicted
    )


@every_method
def test_a_second_regression_by_absolute_error(method):
    tasks = [task_for(small_mlp(), "median regression", n, f"task {n}") for n in (1, 2)]
    learner = taught(method, "mlp", tasks)
    x = inputs_for(small_mlp(), 5)
    answer = learner.predict(x, task="task 2")
    assert answer.shape == (5, 2)
    assert torch.equal(answer, learner.decision_function(x, task="task 2"))
    with pytest.raises(TaskError, match="is a median regression, which has no probabilities; pred"):
        learner.predict_proba(x, task="task 1")


@pairs()
def test_saved_and_loaded_it_answers_the_same_and_goes_on_the_same(method, network, tmp_path):
    *tasks, last = stream_for(ARCHITECTURES[network](), *KINDS)
    learner = taught(method, network, tasks)
    learner.save(tmp_path)
    loaded = method.learner.load(tmp_path)
    assert same(contents(loaded), contents(learner))
    assert loaded.settings == learner.settings
    x = inputs_for(ARCHITECTURES[network](), 7)
    assert same(answers(loaded, x), answers(learner, x))
    if method.learner is not Joint:
        learner.learn(last)
        loaded.learn(last)
        assert same(contents(loaded), contents(learner))
        learner.save(tmp_path)
        assert same(answers(method.learner.load(tmp_path), x), answers(learner, x))


@pairs()
def test_the_same_seed_gives_the_same_result_and_another_does_not(method, network):
    tasks = stream_for(ARCHITECTURES[network](), "one output", "classes")
    first = contents(taught(method, network, tasks, seed=1))
    torch.rand(3)  # whatever else draws from the global generator must not matter
    assert same(first, contents(taught(method, network, tasks, seed=1)))
    assert not same(first, contents(taught(method, network, tasks, seed=2)))


@every_method
def test_predicting_changes_nothing(method):
    learner = taught(method, "mlp", stream_for(small_mlp(), *KINDS))
    before, records = contents(learner), learner.records
    state = torch.random.get_rng_state()
    x = inputs_for(small_mlp(), 11)
    once = answers(learner, x)
    assert same(once, answers(learner, x))
    learner.capacity()
    assert same(before, contents(learner))
    assert learner.records == records
    assert torch.equal(state, torch.random.get_rng_state())


@pairs(lambda method: method.learner is not Joint and method.name not in TRAIN_OLD_HEADS)
def test_the_heads_of_earlier_tasks_stay(method, network):
    *tasks, last = stream_for(ARCHITECTURES[network](), *KINDS)
    learner = method.make(ARCHITECTURES[network](), budget=BUDGET)
    for task in tasks:
        learner.learn(task)
    heads = [known.private for known in learner.network.tasks]
    learner.learn(last)
    for before, known in zip(heads, learner.network.tasks, strict=False):
        assert torch.equal(before["head.weight"], known.private["head.weight"])
        assert torch.equal(before["head.bias"], known.private["head.bias"])


@one_by_one
@pytest.mark.parametrize("error", [RuntimeError, KeyboardInterrupt])
def test_a_task_that_fails_changes_nothing(method, error):
    first, second = stream_for(small_mlp(), "one output", "one output")
    learner = method.make(small_mlp(), budget=BUDGET)
    learner.learn(first)
    before, records = contents(learner), learner.records
    broken = CountedExamples(second.train, breaks_at=3, error=error)
    with pytest.raises(error, match="the rows broke"):
        learner.learn(with_rows(second, train=broken))
    assert same(before, contents(learner))
    assert learner.records == records
    learner.learn(second)
    untroubled = method.make(small_mlp(), budget=BUDGET)
    untroubled.learn(first)
    untroubled.learn(second)
    assert same(contents(untroubled), contents(learner))


@pytest.mark.parametrize("name", IN_TURN)
@every_network
def test_one_head_may_serve_all_tasks(name, network, tmp_path):
    tasks = stream_for(ARCHITECTURES[network](), "classes", "classes", "classes")
    learner = taught(METHODS[name], network, tasks, heads="one")
    assert all(not known.private for known in learner.network.tasks)
    x = inputs_for(ARCHITECTURES[network](), 5)
    by_task = list(answers(learner, x).values())
    assert torch.equal(by_task[0], by_task[2])
    learner.save(tmp_path)
    assert same(contents(METHODS[name].learner.load(tmp_path)), contents(learner))


@pytest.mark.parametrize(
    ("name", "strength"),
    [("DNN-L2", "strength"), ("DNN-EWC", "strength"), ("SI", "strength"), ("LwF", "strength")],
)
@pytest.mark.parametrize("heads", ["own", "one"])
@every_network
def test_without_strength_it_is_fine_tuning_to_the_bit(name, strength, heads, network):
    kind = "classes"
    tasks = stream_for(ARCHITECTURES[network](), kind, kind, kind)
    plain = taught(METHODS["DNN"], network, tasks, heads=heads)
    without = taught(METHODS[name], network, tasks, heads=heads, **{strength: 0.0})
    held = taught(METHODS[name], network, tasks, heads=heads, **{strength: 10.0})
    x = inputs_for(ARCHITECTURES[network](), 9)
    assert same(answers(without, x), answers(plain, x))
    assert same(without.network.shared, plain.network.shared)
    assert not same(held.network.shared, plain.network.shared)


@pytest.mark.parametrize("name", ["DNN-L2", "DNN-EWC", "SI"])
def test_a_stronger_pull_moves_the_weights_less(name):
    first, second = stream_for(small_mlp(), "one output", "one output")

    def moved(strength):
        learner = METHODS[name].make(small_mlp(), budget=BUDGET, changes={"strength": strength})
        learner.learn(first)
        before = dict(learner.network.shared)
        learner.learn(second)
        now = learner.network.shared
        return sum(float((now[n] - before[n]).square().sum()) for n in before)

    assert moved(1e4) < 0.5 * moved(0.0)


@pairs(lambda method: not method.forgets)
def test_what_does_not_forget_answers_the_same_to_the_bit_after_later_tasks(method, network):
    architecture = ARCHITECTURES[network]()
    learner = method.make(architecture, budget=BUDGET, seed=2)
    x, before = inputs_for(architecture, 9), {}
    for task in stream_for(architecture, *KINDS, "one output"):
        learner.learn(task)
        now = answers(learner, x)
        assert same({name: now[name] for name in before}, before)
        before = now


@pytest.mark.parametrize("method", [m for m in METHODS.values() if m.forgets], ids=lambda m: m.name)
def test_what_may_forget_does_so_if_nothing_holds_it(method):
    """The flag is no excuse: of a method that never forgets it must be false."""
    if method.learner is Joint or method.finetunes:
        pytest.skip("it learns all tasks at once")
    first, second = stream_for(small_mlp(), "one output", "classes")
    grows = {"k": 2, "tau": 0.0, "initial_width": 0.5} if method.learner is DEN else {}
    learner = method.make(small_mlp(), budget=BUDGET, changes=grows)
    learner.learn(first)
    x = inputs_for(small_mlp(), 9)
    before = answers(learner, x)
    learner.learn(second)
    assert not torch.equal(answers(learner, x)[first.name], before[first.name])


@every_method
def test_the_bytes_are_those_of_the_file(method, tmp_path):
    learner = taught(method, "mlp", stream_for(small_mlp(), "classes", "subtasks"))
    learner.save(tmp_path)
    data = sum(tensor.nbytes for tensor in stored_tensors(tmp_path).values())
    assert learner.capacity().bytes + learner.learning_bytes() == data
    assert learner.capacity().bytes > 0
