"""Algorithm 2: only what is selected moves, and it moves as if the rest were not there."""

import pytest
import torch
from hypothesis import given
from hypothesis import settings as runs
from hypothesis import strategies as st

from builders import (
    SKELETONS,
    in_double,
    inputs_for,
    quick,
    random,
    random_network,
    same,
    task_for,
)
from lifelong.budget import Budget
from lifelong.den.lesson import Lesson, movement
from lifelong.den.retrain import select, selective_retraining, with_sparse_head
from lifelong.network import GrowingNetwork
from lifelong.solve import Problem, ask, solve
from lifelong.sparse_head import fit_sparse_head
from lifelong.surgery import gather, scatter
from lifelong.tasks import Kind, Task, TensorRows, prepared

CPU = torch.device("cpu")


def inside(network, selected):
    """For each tensor, which entries lie between selected units (all of the head's outputs)."""
    marks = {}
    for name, tensor in network.tensors.items():
        mark = torch.ones(tensor.shape, dtype=torch.bool)
        for dim, axis in enumerate(network.skeleton.axes[name]):
            if axis is not None:
                chosen = torch.zeros(network.width(axis.group), dtype=torch.bool)
                chosen[selected[axis.group]] = True
                chosen = chosen.repeat_interleave(axis.span)
                mark &= chosen.reshape([-1 if d == dim else 1 for d in range(tensor.ndim)])
        marks[name] = mark
    return marks


@given(
    st.sampled_from(list(SKELETONS)), st.integers(0, 999), st.sampled_from([0.0, 0.1]), st.data()
)
@runs(max_examples=15)
def test_training_the_part_is_training_the_whole_with_all_else_masked(name, seed, lam, data):
    """Close, in double precision, and not to the bit: sums over fewer terms round otherwise."""
    skeleton = SKELETONS[name]()
    network = in_double(random_network(skeleton, random(seed), 2, 0.4))
    selected = select(network)
    if any(len(units) == 0 for units in selected.values()):
        return
    x = inputs_for(skeleton, 40, seed).double()
    y = (torch.rand(40, 2, generator=random(seed)) < 0.5).double()
    rows, columns = TensorRows(x, y), selected["inputs"]
    settings = quick(mu=data.draw(st.sampled_from([0.0, 0.3])), lam=lam)
    budget = Budget(steps=12, batch=16, learning_rate=0.01, check_every=4)

    asks = [ask(skeleton, Kind.BINARY, rows, rows)]
    marks, penalties = inside(network, selected), movement(settings, network.tensors)
    whole = solve(Problem("whole", network.tensors, asks, marks, penalties), budget, random(7))

    part = gather(network, selected)
    cut = prepared(rows, CPU, columns)
    asks = [ask(skeleton, Kind.BINARY, cut, cut)]
    movable, penalties = dict.fromkeys(part.tensors), movement(settings, part.tensors)
    small = solve(Problem("part", part.tensors, asks, movable, penalties), budget, random(7))
    back = scatter(network, part.with_tensors(small.tensors), selected)

    assert small.loss == pytest.approx(whole.loss, rel=1e-9)
    assert small.steps == whole.steps
    for key, tensor in whole.tensors.items():
        torch.testing.assert_close(back.tensors[key], tensor, rtol=1e-7, atol=1e-9)
        assert torch.equal(back.tensors[key][~marks[key]], network.tensors[key][~marks[key]])


def known_and_lesson(name, kind, density=0.25, seed=0, **settings):
    skeleton = SKELETONS[name]()
    network = random_network(skeleton, random(seed), 1, density)
    known = GrowingNetwork(skeleton).remember(task_for(skeleton, name="before"), network)
    lesson = Lesson(task_for(skeleton, kind, 5), 2, quick(**settings), random(1), CPU)
    return known, lesson


@pytest.mark.parametrize("kind", ["one output", "subtasks", "classes"])
@pytest.mark.parametrize("name", SKELETONS)
def test_retraining_moves_only_what_lies_between_selected_units(name, kind):
    known, lesson = known_and_lesson(name, kind, 0.7, head=0.3, mu=0.01)
    before = {key: tensor.clone() for key, tensor in known.shared.items()}
    result = selective_retraining(known, lesson)
    marks = inside(result.network, result.selected)
    moved = 0
    for key, old in known.shared.items():
        new = result.network.tensors[key]
        assert torch.equal(new[~marks[key]], old[~marks[key]])
        moved += int((new != old).sum())
    assert moved > 0
    top = list(known.born)[-1]
    assert 0 < len(result.selected[top]) < result.network.width(top)
    assert same(known.shared, before)
    assert same(result.network.born, known.born)
    assert result.loss == pytest.approx(lesson.loss(result.network), rel=1e-5)
    assert [stage.name for stage in lesson.stages] == ["retrain"]
    for group in known.born:
        assert lesson.events[group].selected == len(result.selected[group])


def test_the_head_has_one_row_an_output_of_the_task():
    for kind, outputs in (("one output", 1), ("subtasks", 2), ("classes", 3)):
        known, lesson = known_and_lesson("mlp", kind, 1.0)
        result = selective_retraining(known, lesson)
        assert result.network.tensors["head.weight"].shape == (outputs, 7)


@pytest.mark.parametrize("lam", [0.0, 0.5])
@pytest.mark.parametrize("name", SKELETONS)
def test_what_need_not_move_stays_exactly_where_it_was(name, lam):
    known, lesson = known_and_lesson(name, "one output", 1.0, mu=0.5, lam=lam)
    result = selective_retraining(known, lesson)
    marks = inside(result.network, result.selected)
    still, moved = 0, 0
    for key, old in known.shared.items():
        new, there = result.network.tensors[key][marks[key]], old[marks[key]]
        still += int((new == there)[there != 0].sum())
        moved += int((new != there).sum())
    assert moved > 0
    assert still > 0.1 * moved
    for key, penalty in movement(lesson.settings, known.shared).items():
        if not key.startswith("head."):
            assert torch.equal(penalty.prox(known.shared[key], 0.1), known.shared[key])
            assert penalty.value(known.shared[key]) == 0


def test_old_features_that_are_no_use_are_not_retrained():
    known, lesson = known_and_lesson("mlp", "one output", 1.0, head=1.0)
    result = selective_retraining(known, lesson)
    assert all(len(units) == 0 for units in result.selected.values())
    assert lesson.stages == []
    assert not result.network.tensors["head.weight"].any()
    assert result.loss == pytest.approx(lesson.loss(result.network))
    assert same({key: result.network.tensors[key] for key in known.shared}, known.shared)


def noise_for(skeleton, kind, seed):
    """A task with nothing to learn: the best head is that of no weights."""
    x = inputs_for(skeleton, 40, seed)
    y = torch.randint(3 if kind == "classes" else 2, (40,), generator=random(seed))
    other = inputs_for(skeleton, 400, seed + 1)
    labels = torch.randint(3 if kind == "classes" else 2, (400,), generator=random(seed + 1))
    rows = (x, y), (other, labels), (other, labels)
    return Task("noise", *rows, kind=Kind.CLASSES if kind == "classes" else Kind.BINARY)


@given(st.sampled_from(list(SKELETONS)), st.integers(0, 999))
@runs(max_examples=15)
def test_a_head_is_made_sparser_only_where_that_helps(name, seed):
    for kind in ("one output", "classes"):
        as_given, sparser, lesson = heads_of_noise(name, kind, seed)
        assert lesson.loss(sparser) <= lesson.loss(as_given)
        if not same(as_given.tensors, sparser.tensors):
            assert lesson.loss(sparser) <= 0.99 * lesson.loss(as_given)
            assert size_of_head(sparser) <= size_of_head(as_given)


def test_a_head_that_fits_few_rows_by_heart_is_made_sparser():
    as_given, sparser, lesson = heads_of_noise("mlp", "one output", 0)
    assert lesson.loss(sparser) < lesson.loss(as_given)
    assert size_of_head(sparser) < size_of_head(as_given)


def heads_of_noise(name, kind, seed):
    known, lesson = known_and_lesson(name, kind, 1.0, head=0.02, worth=1.0)
    lesson.task = noise_for(known.skeleton, kind, seed)
    as_given = with_sparse_head(known, lesson)
    lesson.settings = quick(head=0.02, worth=0.01)
    return as_given, with_sparse_head(known, lesson), lesson


def size_of_head(network):
    return int(network.tensors["head.weight"].count_nonzero())


@pytest.mark.parametrize("kind", ["one output", "subtasks", "classes"])
@pytest.mark.parametrize("name", SKELETONS)
@pytest.mark.parametrize("worth", [0.0, 1.0])
def test_a_sparser_head_has_to_be_worth_it(name, kind, worth):
    known, lesson = known_and_lesson(name, kind, 1.0, head=0.05, worth=worth)
    network, task = with_sparse_head(known, lesson), lesson.task
    with torch.no_grad():
        features = known.skeleton.features(known.shared, task.train.x)
    head = fit_sparse_head(features, task.train.y, task.kind, task.outputs, 0.05)
    assert torch.equal(network.tensors["head.weight"], head.weight)
