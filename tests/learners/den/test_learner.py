"""Algorithm 1 and the learner: nothing is forgotten, nothing is lost, and a seed says it all."""

import gc
import math
import weakref

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import settings as runs
from hypothesis import strategies as st

from builders import (
    ARCHITECTURES,
    BUDGET,
    KINDS,
    CountedExamples,
    answers,
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
from lifelong.learners import predicting
from lifelong.learners.den import DEN, Settings
from lifelong.networks.sequential import mlp
from lifelong.networks.sharing import Sharing
from lifelong.tasks.examples import DatasetExamples, TensorExamples
from lifelong.tasks.kinds import Kind, TaskError
from lifelong.training.budget import Budget, SettingError
from lifelong.training.loop import TrainingError

MIXED = ("one output", "classes", "subtasks", "one output")
lossless = st.one_of(
    st.builds(lambda sigma: {"sigma": sigma}, st.sampled_from([0.0, 0.05, 1.0])),
    st.just({"sigma": 0.0, "below_sigma": "keep"}),
    st.just(
        {"sigma": 0.0, "below_sigma": "keep", "drift": "absolute", "lam": 0.1, "distillation": 0}
    ),
    st.builds(
        lambda keep, expand: {"split": "weights", "keep": keep, "expand": expand},
        st.sampled_from([0.0, 0.05, 1.0]),
        st.booleans(),
    ),
    st.builds(
        lambda price, tau: {"split": "auto", "price": price, "tau": tau},
        st.sampled_from([0.0, 0.15, 100.0]),
        st.sampled_from([0.0, 100.0]),
    ),
)


def validation_loss(learner, task):
    """Of what `predict_proba` answers."""
    p = learner.predict_proba(task.valid.x, task=task.name).double()
    if task.kind is Kind.CLASSES:
        return float(torch.nn.functional.nll_loss(p.log(), task.valid.y))
    return float(torch.nn.functional.binary_cross_entropy(p, task.valid.y.double()))


@given(
    st.sampled_from(list(ARCHITECTURES)),
    st.lists(st.sampled_from(KINDS), min_size=2, max_size=4),
    lossless,
    st.integers(0, 99),
)
@runs(max_examples=30)
def test_later_tasks_leave_earlier_answers_as_they_were_to_the_bit(name, kinds, settings, seed):
    architecture = ARCHITECTURES[name]()
    learner = DEN(architecture, quick(**settings), seed=seed)
    x = inputs_for(architecture, 9)
    expected, shapes, stamps = {}, {}, {}
    for number, task in enumerate(stream_for(architecture, *kinds, seed=seed), 1):
        learner.learn(task)
        for earlier, answer in expected.items():
            assert torch.equal(learner.predict_proba(x, task=earlier), answer)
        expected[task.name] = learner.predict_proba(x, task=task.name)
        born = learner.network.born
        for group, old in stamps.items():
            assert torch.equal(born[group][: len(old)], old)
        assert all(bool((b.diff() >= 0).all()) and int(b.max()) <= number for b in born.values())
        stamps = dict(born)
        shapes[number] = {n: t.shape for n, t in learner.network.as_of(number).tensors.items()}
        for earlier, known in shapes.items():
            view = learner.network.as_of(earlier)
            assert {n: t.shape for n, t in view.tensors.items()} == known


def test_many_tasks_are_served_in_any_order_and_their_data_is_not_kept():
    architecture = small_mlp()
    learner = DEN(architecture, quick(max_new_units=2))
    x = inputs_for(architecture, 9)
    expected, rows = {}, []
    for number in range(9):
        task = task_for(architecture, KINDS[number % 3], number, f"task {number}")
        learner.learn(task)
        expected[task.name] = learner.predict_proba(x, task=task.name)
        rows += [weakref.ref(task.train.x), weakref.ref(task)]
    del task
    gc.collect()
    assert all(row() is None for row in rows)
    for name in [*expected, *reversed(expected)]:
        assert torch.equal(learner.predict_proba(x, task=name), expected[name])


@pytest.mark.parametrize("below", ["restore", "keep"])
@pytest.mark.parametrize("name", ARCHITECTURES)
def test_the_streams_above_select_grow_and_split(name, below):
    """That there was something to forget."""
    architecture = ARCHITECTURES[name]()
    learner = learned(
        architecture, stream_for(architecture, *MIXED), quick(sigma=0.0, below_sigma=below)
    )
    groups = [record.groups.values() for record in learner.records[1:]]
    for event in ("selected", "added", "split"):
        assert all(sum(getattr(one, event) for one in record) > 0 for record in groups)
    assert all(max(one.drift) > 0 for record in groups for one in record if one.split)
    assert [[stage.name for stage in record.stages] for record in learner.records] == [
        ["first"],
        *[["head", "retrain", "expand", "split"]] * 3,
    ]


@pytest.mark.parametrize("name", ARCHITECTURES)
def test_sigma_zero_forgets_nothing_even_where_a_limit_leaves_no_room_to_split(name):
    architecture = ARCHITECTURES[name]()
    first, *later = stream_for(architecture, *MIXED)
    learner = DEN(architecture, quick(sigma=0.0, below_sigma="keep", max_new_units=1))
    learner.learn(first)
    x = inputs_for(architecture, 9)
    before = learner.predict_proba(x, task=first.name)
    for task in later:
        learner.learn(task)
    assert torch.equal(learner.predict_proba(x, task=first.name), before)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("name", ARCHITECTURES)
def test_a_task_is_learned_and_its_record_is_true(name, kind):
    architecture = ARCHITECTURES[name]()
    tasks = stream_for(architecture, "one output", kind)
    budget = Budget(steps=80, batch_size=20, learning_rate=0.02, check_every=10)
    learner = DEN(architecture, quick(budget=budget, mu=0.01, k=3))
    for number, task in enumerate(tasks, 1):
        record = learner.learn(task)
        assert (record.task, record.number) == (task.name, number)
        assert record.steps == sum(stage.steps for stage in record.stages) > 0
        assert record.seconds > 0
        for group, event in record.groups.items():
            assert event.units == len(learner.network.born[group])
        if number > 1:
            for group, event in record.groups.items():
                before = learner.records[0].groups[group].units
                assert event.units == before + event.added + event.split - event.dropped
                assert len(event.drift) == before
        truth = task.valid.y.squeeze(1) if task.outputs == 1 else task.valid.y
        right = learner.predict(task.valid.x, task=task.name) == truth
        assert float(right.double().mean()) > 0.85
    assert learner.tasks == tuple(task.name for task in tasks)
    assert learner.records[-1] is record


@given(st.sampled_from(list(ARCHITECTURES)), st.sampled_from(KINDS), st.integers(0, 99))
@runs(max_examples=8)
def test_the_loss_of_a_record_is_that_of_the_network_that_is_kept(name, kind, seed):
    architecture = ARCHITECTURES[name]()
    learner = DEN(architecture, quick(mu=0.3), seed=seed)
    for task in stream_for(architecture, "one output", kind, seed=seed):
        record = learner.learn(task)
        assert record.loss == pytest.approx(validation_loss(learner, task), rel=1e-3)


@pytest.mark.parametrize("name", ARCHITECTURES)
def test_a_seed_gives_the_same_network_whatever_the_global_random_state(name):
    architecture = ARCHITECTURES[name]()
    tasks = stream_for(architecture, "one output", "classes", "subtasks")
    torch.manual_seed(1)
    one = learned(architecture, tasks, quick(), seed=3)
    torch.manual_seed(2)
    state, noise = torch.get_rng_state(), np.random.get_state()  # noqa: NPY002
    two = learned(architecture, tasks, quick(), seed=3)
    assert torch.equal(torch.get_rng_state(), state)
    now = np.random.get_state()  # noqa: NPY002
    assert now[2] == noise[2]
    assert np.array_equal(now[1], noise[1])
    assert same(contents(one), contents(two))
    other = learned(architecture, tasks, quick(), seed=4)
    mine, theirs = one.network.shared, other.network.shared
    assert any(
        mine[key].shape != theirs[key].shape or not torch.equal(mine[key], theirs[key])
        for key in mine
    )


@pytest.mark.parametrize("name", ARCHITECTURES)
def test_predicting_changes_nothing(name):
    architecture = ARCHITECTURES[name]()
    learner = learned(architecture, stream_for(architecture, *MIXED), quick())
    before, network, records = contents(learner), learner.network, learner.records
    x = inputs_for(architecture, 9)
    given_x = x.clone()
    first = answers(learner, x)
    for task in reversed(learner.tasks):
        learner.predict(x, task=task)
    learner.capacity()
    learner.sharing()
    assert same(answers(learner, x), first)
    assert same(contents(learner), before)
    assert learner.network is network
    assert learner.records is records
    assert torch.equal(x, given_x)


@pytest.mark.parametrize("name", ARCHITECTURES)
def test_predicting_in_chunks_is_predicting_at_once(name, monkeypatch):
    """Close, not to the bit: a product of more rows may be summed in another order."""
    architecture = ARCHITECTURES[name]()
    learner = learned(architecture, stream_for(architecture, "classes", "subtasks"), quick())
    x = inputs_for(architecture, 23)
    whole = answers(learner, x)
    monkeypatch.setattr(predicting, "CHUNK", 5)
    for task, expected in whole.items():
        torch.testing.assert_close(learner.predict_proba(x, task=task), expected)
    rows = [learner.predict_proba(x[n : n + 1], task="task 1") for n in range(23)]
    torch.testing.assert_close(torch.cat(rows), whole["task 1"])


def test_probabilities_and_labels_of_each_kind():
    architecture = small_mlp()
    learner = learned(architecture, stream_for(architecture, *KINDS), quick())
    x = inputs_for(architecture, 50)
    one, subtasks, classes = (learner.predict_proba(x, task=name) for name in learner.tasks)
    assert (one.shape, subtasks.shape, classes.shape) == ((50, 1), (50, 2), (50, 3))
    torch.testing.assert_close(classes.sum(1), torch.ones(50))
    for p in (one, subtasks, classes):
        assert p.min() >= 0
        assert p.max() <= 1
    assert torch.equal(learner.predict(x, task="task 1"), (one[:, 0] >= 0.5).long())
    assert torch.equal(learner.predict(x, task="task 2"), (subtasks >= 0.5).long())
    assert torch.equal(learner.predict(x, task="task 3"), classes.argmax(1))
    for same_x in (x.numpy(), x.double().numpy(), x.tolist()):
        assert torch.equal(learner.predict_proba(same_x, task="task 3"), classes)
    assert learner.predict_proba(x[:0], task="task 2").shape == (0, 2)
    assert learner.predict(x[:0], task="task 1").shape == (0,)


@pytest.mark.parametrize("error", [KeyboardInterrupt, RuntimeError])
@pytest.mark.parametrize("split", ["train", "valid"])
def test_a_lesson_that_is_broken_off_in_any_stage_leaves_no_trace(error, split):
    architecture = small_mlp()
    first, second, third = stream_for(architecture, "one output", "classes", "subtasks")
    steady = Budget(steps=8, batch_size=64, learning_rate=0.02, check_every=2, patience=99)
    settings = quick(budget=steady)
    control = learned(architecture, [first, second], settings)
    rows = CountedExamples(getattr(third, split))
    record = control.learn(with_rows(third, **{split: rows}))
    assert [stage.name for stage in record.stages] == ["head", "retrain", "expand", "split"]
    assert all(stage.steps == 8 for stage in record.stages[1:])
    assert rows.served > 12

    learner = learned(architecture, [first, second], settings)
    network, records, before = learner.network, learner.records, contents(learner)
    x = inputs_for(architecture, 9)
    expected = answers(learner, x)
    for place in range(0, rows.served, 2):
        broken = CountedExamples(getattr(third, split), place, error)
        with pytest.raises(error, match="the rows broke"):
            learner.learn(with_rows(third, **{split: broken}))
        assert learner.network is network
        assert learner.records is records
    assert same(contents(learner), before)
    assert same(answers(learner, x), expected)
    learner.learn(with_rows(third, **{split: CountedExamples(getattr(third, split))}))
    assert same(contents(learner), contents(control))


@pytest.mark.parametrize("place", [0, 3, 7])
def test_a_first_lesson_that_is_broken_off_leaves_no_trace(place):
    architecture = ARCHITECTURES["convnet"]()
    task = task_for(architecture)
    learner = DEN(architecture, quick())
    network = learner.network
    with pytest.raises(KeyboardInterrupt):
        learner.learn(with_rows(task, CountedExamples(task.train, place, KeyboardInterrupt)))
    assert learner.network is network
    assert (learner.tasks, learner.records) == ((), ())
    learner.learn(task)
    assert same(contents(learner), contents(learned(architecture, [task], quick())))


def test_bad_tasks_are_refused_and_leave_no_trace():
    architecture = small_mlp()
    first, second = stream_for(architecture, "one output", "classes")
    learner = learned(architecture, [first], quick())
    network = learner.network
    wide = task_for(mlp(9, [2]), name="wide")
    flat = task_for(ARCHITECTURES["convnet"](), name="image")
    for task, message in (
        (wide, r"task 'wide': inputs of shape \(9,\), but the network takes \(6,\)"),
        (flat, r"task 'image': inputs of shape \(2, 6, 6\), but the network takes \(6,\)"),
        (first, "a task named 'task 1' was learned already; names must differ"),
    ):
        with pytest.raises(TaskError, match=message):
            learner.learn(task)
    bad = DatasetExamples([(row, 7) for row in second.train.x], "classes", 3)
    with pytest.raises(TaskError, match="whole numbers from 0 to 2, but 7 is among them"):
        learner.learn(with_rows(second, bad))
    assert learner.network is network
    learner.learn(second)
    assert same(contents(learner), contents(learned(architecture, [first, second], quick())))


def test_bad_inputs_to_predict_are_refused():
    architecture = small_mlp()
    learner = DEN(architecture, quick())
    with pytest.raises(TaskError, match="no task named 'a' was learned; learned so far: none yet"):
        learner.predict(inputs_for(architecture, 2), task="a")
    learner.learn(task_for(architecture, name="a"))
    with pytest.raises(TaskError, match="no task named 'b' was learned; learned so far: 'a'"):
        learner.predict_proba(inputs_for(architecture, 2), task="b")
    for shape in ((2, 5), (6,), (), (2, 6, 1)):
        with pytest.raises(TaskError, match=r"rows first and then shape \(6,\), not"):
            learner.predict_proba(torch.zeros(shape), task="a")
    for value in (math.nan, math.inf, 1e300):
        with pytest.raises(TaskError, match="inputs must be finite in float32"):
            learner.predict_proba(np.full((2, 6), value), task="a")


@pytest.mark.parametrize("stage", ["first", "later"])
def test_a_training_that_diverges_says_in_which_stage(stage):
    architecture = small_mlp()
    first, second = stream_for(architecture, "one output", "classes")
    wild = quick(budget=Budget(steps=8, batch_size=16, learning_rate=1e15, check_every=4))
    if stage == "first":
        learner, task, message = (
            DEN(architecture, wild),
            first,
            "task 1: first: the validation loss",
        )
    else:
        learner, task = learned(architecture, [first], quick()), second
        learner.settings = wild
        message = r"task 2: (retrain|expand|split): the validation loss"
    network = learner.network
    with pytest.raises(TrainingError, match=message):
        learner.learn(task)
    assert learner.network is network


def test_inputs_too_large_for_the_network_are_a_training_error_in_any_task():
    architecture = small_mlp()
    first, second = stream_for(architecture, "one output", "one output")
    huge = with_rows(
        second,
        TensorExamples(second.train.x.sign() * 3e38, second.train.y),
        TensorExamples(second.valid.x.sign() * 3e38, second.valid.y),
    )
    for before in ([], [first]):
        learner = learned(architecture, before, quick())
        network = learner.network
        with pytest.raises(TrainingError, match="task 2: "):
            learner.learn(huge)
        assert learner.network is network


@pytest.mark.parametrize("kind", KINDS)
def test_rows_of_a_dataset_are_learned_like_arrays(kind):
    architecture = small_mlp()
    first, second = stream_for(architecture, "one output", kind)
    whole = quick(budget=Budget(steps=8, batch_size=64, learning_rate=0.02, check_every=4))

    def read(task):
        parts = [
            DatasetExamples(list(zip(r.x, r.y, strict=True)), task.kind, task.outputs)
            for r in (task.train, task.valid)
        ]
        return with_rows(task, *parts)

    one = learned(architecture, [first, second], whole)
    two = learned(architecture, [read(first), read(second)], whole)
    # The first task starts from the same weights, and each step takes all rows, in some order.
    assert two.records[0].loss == pytest.approx(one.records[0].loss, rel=1e-3)
    assert two.records[1].loss < math.log(3 if kind == "classes" else 2)
    three = learned(architecture, [read(first), read(second)], whole)
    assert same(contents(two), contents(three))


@pytest.mark.parametrize("name", ARCHITECTURES)
def test_a_batch_larger_than_the_data_works(name):
    architecture = ARCHITECTURES[name]()
    large = Budget(steps=8, batch_size=10**6, learning_rate=0.02, check_every=4)
    exact = Budget(steps=8, batch_size=40, learning_rate=0.02, check_every=4)
    tasks = stream_for(architecture, "one output", "classes")
    one, two = (learned(architecture, tasks, quick(budget=budget)) for budget in (large, exact))
    assert same(contents(one), contents(two))


def test_selective_retraining_alone_never_grows_and_forgets():
    architecture = small_mlp()
    tasks = stream_for(architecture, "one output", "classes")
    x = inputs_for(architecture, 9)
    learner = learned(architecture, tasks[:1], quick(expand=False, split=False))
    before, widths = learner.predict_proba(x, task="task 1"), learner.network.born
    record = learner.learn(tasks[1])
    assert [stage.name for stage in record.stages] == ["head", "retrain"]
    assert same(learner.network.born, widths)
    assert not torch.equal(learner.predict_proba(x, task="task 1"), before)


def test_without_split_newcomers_join_and_without_expansion_only_copies_do():
    architecture = small_mlp()
    tasks = stream_for(architecture, "one output", "classes")
    grown = learned(architecture, tasks, quick(split=False, gamma=0.01, mu=0.01)).records[1]
    assert [stage.name for stage in grown.stages] == ["head", "retrain", "expand"]
    assert sum(one.added - one.dropped for one in grown.groups.values()) > 0
    assert sum(one.split for one in grown.groups.values()) == 0
    parted = learned(architecture, tasks, quick(expand=False, sigma=0.0)).records[1]
    assert [stage.name for stage in parted.stages] == ["head", "retrain", "split"]
    assert sum(one.added for one in parted.groups.values()) == 0
    assert sum(one.split for one in parted.groups.values()) > 0


def test_a_task_that_is_solved_by_retraining_does_not_expand():
    architecture = small_mlp()
    tasks = stream_for(architecture, "one output", "classes")
    record = learned(architecture, tasks, quick(tau=100.0)).records[1]
    assert [stage.name for stage in record.stages] == ["head", "retrain", "split"]


def test_without_dropping_every_unit_stays():
    architecture = small_mlp()
    tasks = stream_for(architecture, "one output", "classes", "subtasks")
    learner = learned(
        architecture, tasks, quick(prune=False, initial_width=1.0, k=2, split=False, mu=50.0)
    )
    widths = {group: len(born) for group, born in learner.network.born.items()}
    assert widths == {"hidden1": 10 + 4, "hidden2": 7 + 4}


def test_without_timestamps_a_task_is_served_by_the_whole_network():
    architecture = small_mlp()
    tasks = stream_for(architecture, "one output", "classes", "subtasks")
    learner = learned(architecture, tasks, quick(timestamps=False, gamma=0.01, mu=0.01))
    x = inputs_for(architecture, 9)
    logits = learner.network.without_stamps(1).logits(x)
    assert torch.equal(learner.predict_proba(x, task="task 1"), logits.sigmoid())
    stamped = learned(architecture, tasks, quick(gamma=0.01, mu=0.01))
    assert same(contents(stamped), contents(learner))
    assert not torch.allclose(stamped.predict_proba(x, task="task 1"), logits.sigmoid())
    last = stamped.predict_proba(x, task="task 3")
    torch.testing.assert_close(learner.predict_proba(x, task="task 3"), last)


def test_the_first_task_gets_its_share_of_the_units():
    architecture = small_mlp()
    for start, widths in ((1.0, [10, 7]), (0.5, [5, 4]), (0.01, [1, 1])):
        learner = learned(
            architecture, [task_for(architecture)], quick(initial_width=start, prune=False)
        )
        assert [len(born) for born in learner.network.born.values()] == widths
    strong = learned(architecture, [task_for(architecture)], quick(initial_width=1.0, mu=3.0))
    weights = strong.network.shared["hidden1.weight"]
    assert (weights == 0).any()


def test_the_first_task_gets_as_many_units_as_it_has_outputs():
    """A layer that is narrower could not tell them apart."""
    architecture = mlp(6, [40, 4, 12])
    task = task_for(architecture, "classes")
    assert task.outputs == 3
    learner = learned(architecture, [task], quick(initial_width=0.1, prune=False))
    assert [len(born) for born in learner.network.born.values()] == [4, 3, 3]
    learner = learned(mlp(6, [2]), [task], quick(initial_width=0.1, prune=False))
    assert [len(born) for born in learner.network.born.values()] == [2]  # the whole base network


def test_capacity_counted_by_hand():
    architecture = mlp(6, [4, 3])
    learner = DEN(architecture, quick(prune=False, initial_width=1.0, k=[2, 1], split=False))
    assert learner.capacity().parameters == 0
    one, two = stream_for(architecture, "one output", "classes")
    learner.learn(one)
    base = 6 * 4 + 4 + 4 * 3 + 3
    assert learner.capacity().parameters == base + 3 + 1
    assert learner.relative_capacity() == 1.0
    learner.learn(two)
    grown = 6 * 6 + 6 + 6 * 4 + 4
    heads = (3 + 1) + 3 * (4 + 1)
    now = learner.capacity()
    assert now.parameters == grown + heads
    assert now.multiply_adds == 36 + 24 + 12
    assert learner.relative_capacity() == (grown + heads) / (base + 4 + 3 * 3 + 3)
    tensors = contents(learner)
    zeros = sum(int((t == 0).sum()) for name, t in tensors.items() if not name.startswith("born"))
    assert now.nonzero == now.parameters - zeros
    assert zeros > 0
    served = learner.capacity(as_of="task 1")
    assert (served.parameters, served.multiply_adds) == (base + 4, 24 + 12 + 3)
    assert learner.capacity(as_of="task 2").parameters == grown + 15
    with pytest.raises(TaskError, match="no task named 'task 3'"):
        learner.capacity(as_of="task 3")


@pytest.mark.parametrize("name", ARCHITECTURES)
def test_sharing_is_symmetric_and_agrees_with_a_count_by_hand(name):
    architecture = ARCHITECTURES[name]()
    learner = learned(architecture, stream_for(architecture, *MIXED), quick(head_l1=0.2, mu=0.3))
    sharing = learner.sharing()
    assert sharing.tasks == learner.tasks
    sets = [
        {
            (group, unit)
            for group, used in sharing.used.items()
            for unit in used[row].nonzero()[:, 0].tolist()
        }
        for row in range(4)
    ]
    overlap = sharing.overlap()
    for i, mine in enumerate(sets):
        assert overlap[i, i] == 1
        for j, theirs in enumerate(sets):
            assert overlap[i, j] == overlap[j, i]
            assert float(overlap[i, j]) == pytest.approx(len(mine & theirs) / len(mine | theirs))
    assert 0 < float(overlap.min()) < 1
    x = inputs_for(architecture, 5)
    for row in range(4):  # what a task does not use it can do without
        view = learner.network.as_of(row + 1)
        tensors = dict(view.tensors)
        for group, used in sharing.used.items():
            assert not used[row, view.width(group) :].any()
            idle = ~used[row, : view.width(group)]
            tensors[f"{group}.bias"] = torch.where(idle, 9.0, tensors[f"{group}.bias"])
        torch.testing.assert_close(view.with_tensors(tensors).logits(x), view.logits(x))


def test_overlap_by_hand():
    used = {
        "a": torch.tensor([[True, True], [True, False], [False, False]]),
        "b": torch.tensor([[True], [False], [False]]),
    }
    third = 1 / 3
    expected = torch.tensor([[1, third, 0], [third, 1, 0], [0, 0, 1]], dtype=torch.float64)
    torch.testing.assert_close(Sharing(("x", "y", "z"), used).overlap(), expected)


@pytest.mark.parametrize("setting", ["mu", "gamma", "lam", "tau", "sigma"])
@pytest.mark.parametrize("value", [-0.1, math.nan, math.inf, "1", None, True])
def test_a_strength_must_be_a_finite_number_not_below_zero(setting, value):
    with pytest.raises(SettingError, match=f"{setting} must be 0 or more and finite, not"):
        Settings(**{setting: value})


@pytest.mark.parametrize(
    ("setting", "value", "message"),
    [
        ("head_l1", 0.0, "head_l1 must be above 0 and finite, not 0.0"),
        ("min_improvement", 1.5, "min_improvement must be from 0 to 1"),
        ("distillation", -0.5, "distillation must be from 0 to 1"),
        ("initial_width", 0.0, "initial_width must be above 0 and at most 1"),
        ("initial_width", 1.01, "initial_width must be above 0 and at most 1"),
        ("k", -1, "k must be whole numbers or fractions below 1"),
        ("k", 1.5, "k must be whole numbers or fractions below 1, 0 or more and finite, not 1.5"),
        ("k", [2, -3], "k must be .* not -3"),
        ("k", math.nan, "k must be .* not nan"),
        ("max_new_units", math.inf, "max_new_units must be .* not inf"),
        ("max_new_units", -0.1, "max_new_units must be"),
        ("drift", "far", "drift must be one of 'relative', 'absolute', not 'far'"),
        ("below_sigma", "drop", "below_sigma must be one of 'restore', 'keep', not 'drop'"),
    ],
)
def test_a_setting_out_of_range_is_refused(setting, value, message):
    with pytest.raises(SettingError, match=message):
        Settings(**{setting: value})


def test_one_number_for_each_layer_or_one_for_all():
    widths = {"a": 100, "b": 7}
    assert Settings(k=3, max_new_units=None).offered(widths) == {"a": 3, "b": 3}
    assert Settings(k=0.1, max_new_units=None).offered(widths) == {"a": 10, "b": 1}
    assert Settings(k=[5, 0.5], max_new_units=None).offered(widths) == {"a": 5, "b": 4}
    assert Settings(k=8, max_new_units=[3, 20]).offered(widths) == {"a": 3, "b": 8}
    assert Settings(k=0, max_new_units=0).offered(widths) == {"a": 0, "b": 0}
    for wrong in ({"k": [1, 2, 3]}, {"k": []}, {"max_new_units": [1]}):
        name = next(iter(wrong))
        message = f"{name} must be one number, or one for each of the 2 hidden layers"
        with pytest.raises(SettingError, match=rf"{message} \(hidden1, hidden2\), not \["):
            DEN(small_mlp(), Settings(**wrong))


def test_the_default_settings_learn():
    architecture = mlp(6, [40, 30])
    tasks = stream_for(architecture, "one output", "classes")
    learner = DEN(architecture, Settings(budget=BUDGET))
    for task in tasks:
        learner.learn(task)
    assert learner.relative_capacity() < 1
    assert all(len(b) <= 8 + 5 for b in learner.network.born.values())


def test_a_progress_bar_changes_nothing():
    architecture = small_mlp()
    tasks = stream_for(architecture, "one output", "classes")
    shown = DEN(architecture, quick(), progress=True)
    for task in tasks:
        shown.learn(task)
    assert same(contents(shown), contents(learned(architecture, tasks, quick())))


def test_the_first_task_is_learned_with_l1_and_a_stronger_one_leaves_fewer_weights():
    task = task_for(small_mlp())
    sizes = [learned(small_mlp(), [task], quick(mu=mu)).capacity().nonzero for mu in (0, 0.1, 0.5)]
    assert sizes == sorted(sizes, reverse=True)
    assert sizes[-1] < sizes[0]
