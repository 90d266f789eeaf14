"""Algorithm 2: only what is selected moves, and it moves as if the rest were not there."""

from dataclasses import replace

import pytest
import torch
from hypothesis import given
from hypothesis import settings as runs
from hypothesis import strategies as st

from builders import (
    ARCHITECTURES,
    in_double,
    inputs_for,
    quick,
    random,
    random_network,
    same,
    task_for,
    units_on,
)
from lifelong.learners.den import Settings
from lifelong.learners.den.retrain import select, selective_retraining, with_sparse_head
from lifelong.learners.den.task_training import TaskTraining, movement
from lifelong.networks.growing import GrowingNetwork
from lifelong.networks.surgery import gather, scatter
from lifelong.tasks.examples import TensorExamples, to_device
from lifelong.tasks.kinds import Kind
from lifelong.tasks.task import Task
from lifelong.training.budget import Budget
from lifelong.training.loop import Problem, objective, solve
from lifelong.training.sparse_head import fit_sparse_head

CPU = torch.device("cpu")


def inside(network, selected):
    """For each tensor, which entries lie between selected units (all of the head's outputs)."""
    marks = {}
    for name, tensor in network.tensors.items():
        mark = torch.ones(tensor.shape, dtype=torch.bool)
        for dim, group, _, span in units_on(network.architecture, name):
            chosen = torch.zeros(network.width(group), dtype=torch.bool)
            chosen[selected[group]] = True
            chosen = chosen.repeat_interleave(span)
            mark &= chosen.reshape([-1 if d == dim else 1 for d in range(tensor.ndim)])
        marks[name] = mark
    return marks


@given(
    st.sampled_from(list(ARCHITECTURES)),
    st.integers(0, 999),
    st.sampled_from([0.0, 0.1]),
    st.data(),
)
@runs(max_examples=15)
def test_training_the_part_is_training_the_whole_with_all_else_masked(name, seed, lam, data):
    """Close, in double precision, and not to the bit: sums over fewer terms round otherwise."""
    architecture = ARCHITECTURES[name]()
    network = in_double(random_network(architecture, random(seed), 2, 0.4))
    selected = select(network)
    if any(len(units) == 0 for units in selected.values()):
        return
    x = inputs_for(architecture, 40, seed).double()
    y = (torch.rand(40, 2, generator=random(seed)) < 0.5).double()
    rows, columns = TensorExamples(x, y), selected["inputs"]
    settings = quick(mu=data.draw(st.sampled_from([0.0, 0.3])), lam=lam)
    budget = Budget(steps=12, batch_size=16, learning_rate=0.01, check_every=4)

    objectives = [objective(architecture, Kind.BINARY, rows, rows)]
    marks, penalties = (
        inside(network, selected),
        movement(settings, architecture.layout, network.tensors),
    )
    whole = solve(
        Problem("whole", network.tensors, objectives, marks, penalties), budget, random(7)
    )

    part = gather(network, selected)
    cut = to_device(rows, CPU, columns)
    objectives = [objective(architecture, Kind.BINARY, cut, cut)]
    movable, penalties = (
        dict.fromkeys(part.tensors),
        movement(settings, architecture.layout, part.tensors),
    )
    small = solve(Problem("part", part.tensors, objectives, movable, penalties), budget, random(7))
    back = scatter(network, part.with_tensors(small.tensors), selected)

    assert small.loss == pytest.approx(whole.loss, rel=1e-9)
    assert small.steps == whole.steps
    for key, tensor in whole.tensors.items():
        torch.testing.assert_close(back.tensors[key], tensor, rtol=1e-7, atol=1e-9)
        assert torch.equal(back.tensors[key][~marks[key]], network.tensors[key][~marks[key]])


def known_and_training(name, kind, density=0.25, seed=0, **settings):
    architecture = ARCHITECTURES[name]()
    network = random_network(architecture, random(seed), 1, density)
    known = GrowingNetwork(architecture).remember(task_for(architecture, name="before"), network)
    training = TaskTraining(task_for(architecture, kind, 5), 2, quick(**settings), random(1), CPU)
    return known, training


@pytest.mark.parametrize("kind", ["one output", "subtasks", "classes"])
@pytest.mark.parametrize("name", ARCHITECTURES)
def test_retraining_moves_only_what_lies_between_selected_units(name, kind):
    known, training = known_and_training(name, kind, 0.7, head_l1=0.3, mu=0.01)
    before = {key: tensor.clone() for key, tensor in known.shared.items()}
    selected = select(with_sparse_head(known, training).network)
    result = selective_retraining(known, training)
    marks = inside(result.network, selected)
    moved = 0
    for key, old in known.shared.items():
        new = result.network.tensors[key]
        assert torch.equal(new[~marks[key]], old[~marks[key]])
        moved += int((new != old).sum())
    assert moved > 0
    top = list(known.born)[-1]
    assert 0 < len(selected[top]) < result.network.width(top)
    assert same(known.shared, before)
    assert same(result.network.born, known.born)
    assert result.loss == pytest.approx(training.loss(result.network), rel=1e-5)
    assert [stage.name for stage in result.stages] == ["head", "retrain"]
    for group in known.born:
        assert result.groups[group].selected == len(selected[group])


def test_the_head_has_one_row_an_output_of_the_task():
    for kind, outputs in (("one output", 1), ("subtasks", 2), ("classes", 3)):
        known, training = known_and_training("mlp", kind, 1.0)
        result = selective_retraining(known, training)
        assert result.network.tensors["head.weight"].shape == (outputs, 7)


@pytest.mark.parametrize("lam", [0.0, 0.5])
@pytest.mark.parametrize("name", ARCHITECTURES)
def test_what_need_not_move_stays_exactly_where_it_was(name, lam):
    known, training = known_and_training(name, "one output", 1.0, mu=0.5, lam=lam)
    selected = select(with_sparse_head(known, training).network)
    result = selective_retraining(known, training)
    marks = inside(result.network, selected)
    still, moved = 0, 0
    for key, old in known.shared.items():
        new, there = result.network.tensors[key][marks[key]], old[marks[key]]
        still += int((new == there)[there != 0].sum())
        moved += int((new != there).sum())
    assert moved > 0
    assert still > 0.1 * moved
    for key, penalty in movement(
        training.settings, known.architecture.layout, known.shared
    ).items():
        if not key.startswith("head."):
            assert torch.equal(penalty.prox(known.shared[key], 0.1), known.shared[key])
            assert penalty.value(known.shared[key]) == 0


def test_old_features_that_are_no_use_are_not_retrained():
    known, training = known_and_training("mlp", "one output", 1.0, head_l1=1.0)
    result = selective_retraining(known, training)
    assert all(group.selected == 0 for group in result.groups.values())
    assert [stage.name for stage in result.stages] == ["head"]
    assert not result.network.tensors["head.weight"].any()
    assert result.loss == pytest.approx(training.loss(result.network))
    assert same({key: result.network.tensors[key] for key in known.shared}, known.shared)


def noise_for(architecture, kind, seed):
    """A task with nothing to learn: the best head is that of no weights."""
    x = inputs_for(architecture, 40, seed)
    y = torch.randint(3 if kind == "classes" else 2, (40,), generator=random(seed))
    other = inputs_for(architecture, 400, seed + 1)
    labels = torch.randint(3 if kind == "classes" else 2, (400,), generator=random(seed + 1))
    rows = (x, y), (other, labels), (other, labels)
    return Task("noise", *rows, kind=Kind.CLASSES if kind == "classes" else Kind.BINARY)


@given(st.sampled_from(list(ARCHITECTURES)), st.integers(0, 999))
@runs(max_examples=15)
def test_a_head_is_made_sparser_only_where_that_helps(name, seed):
    for kind in ("one output", "classes"):
        as_given, sparser, training = heads_of_noise(name, kind, seed)
        assert training.loss(sparser) <= training.loss(as_given)
        if not same(as_given.tensors, sparser.tensors):
            assert training.loss(sparser) <= 0.99 * training.loss(as_given)
            assert size_of_head(sparser) <= size_of_head(as_given)


def test_a_head_that_fits_few_rows_by_heart_is_made_sparser():
    as_given, sparser, training = heads_of_noise("mlp", "one output", 0)
    assert training.loss(sparser) < training.loss(as_given)
    assert size_of_head(sparser) < size_of_head(as_given)


def heads_of_noise(name, kind, seed):
    known, training = known_and_training(name, kind, 1.0, head_l1=0.02, min_improvement=1.0)
    training = replace(training, task=noise_for(known.architecture, kind, seed))
    as_given = with_sparse_head(known, training).network
    training = replace(training, settings=quick(head_l1=0.02, min_improvement=0.01))
    return as_given, with_sparse_head(known, training).network, training


def size_of_head(network):
    return int(network.tensors["head.weight"].count_nonzero())


@pytest.mark.parametrize("kind", ["one output", "subtasks", "classes"])
@pytest.mark.parametrize("name", ARCHITECTURES)
@pytest.mark.parametrize("worth", [0.0, 1.0])
def test_a_sparser_head_has_to_be_worth_it(name, kind, worth):
    known, training = known_and_training(name, kind, 1.0, head_l1=0.05, min_improvement=worth)
    network, task = with_sparse_head(known, training).network, training.task
    with torch.no_grad():
        features = known.architecture.features(known.shared, task.train.x)
    head = fit_sparse_head(features, task.train.y, task.kind, task.outputs, 0.05)
    assert torch.equal(network.tensors["head.weight"], head.weight)


@pytest.mark.parametrize(("lam", "cost"), [(0.0, 2 * 7), (0.5, 2 * 7 + 0.5 * (4 + 25))])
def test_moving_away_costs_the_distance_and_with_lam_its_square(lam, cost):
    before, now = torch.ones(2, 2), torch.tensor([[3.0, -4.0], [1.0, 1.0]])
    layout = ARCHITECTURES["mlp"]().layout
    penalties = movement(Settings(mu=2.0, lam=lam), layout, {"hidden1.weight": before})
    assert penalties["hidden1.weight"].value(now) == cost
