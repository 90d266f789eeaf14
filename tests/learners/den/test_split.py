"""Algorithm 4: who is split, what is given back, and what the copies do."""

import pytest
import torch
from hypothesis import given
from hypothesis import settings as runs
from hypothesis import strategies as st

from builders import (
    ARCHITECTURES,
    KINDS,
    CountedExamples,
    inputs_for,
    quick,
    random,
    random_network,
    same,
    task_for,
)
from lifelong.learners.den import split as algorithm
from lifelong.learners.den.draft import Draft
from lifelong.learners.den.split import drifts
from lifelong.learners.den.task_training import TaskTraining
from lifelong.networks.growing import GrowingNetwork
from lifelong.networks.surgery import append_units
from lifelong.training.budget import Budget
from lifelong.training.distill import distilled

CPU = torch.device("cpu")
STILL = Budget(steps=4, batch_size=16, learning_rate=1e-9, check_every=4)


def filled(seed):
    generator = random(seed)
    return lambda _, size: 0.5 * torch.randn(size, generator=generator)


def known_and_moved(name, moves, added=0):
    """A network of one task, and what became of it: units moved by these distances, others added.

    `moves` gives for some groups how far each of some units moved, in its incoming weights.
    """
    architecture = ARCHITECTURES[name]()
    network = random_network(architecture, random(0), 1)
    known = GrowingNetwork(architecture).remember(task_for(architecture, name="before"), network)
    width = network.tensors["head.weight"].shape[1]
    head = torch.randn(1, width, generator=random(3)), torch.zeros(1)
    tensors = dict(known.with_head(*head).tensors)
    for group, units in moves.items():
        for unit, distance in units.items():
            weight = tensors[f"{group}.weight"] = tensors[f"{group}.weight"].clone()
            bias = tensors[f"{group}.bias"] = tensors[f"{group}.bias"].clone()
            weight[unit] += distance * (0.64 / weight[unit].numel()) ** 0.5
            bias[unit] -= 0.6 * distance
    moved = known.with_head(*head).with_tensors(tensors)
    counts = dict.fromkeys(known.born, added)
    return known, append_units(moved, counts, 2, filled(4)) if added else moved


def split(known, network, training):
    """The draft after Algorithm 4, and its network."""
    draft = algorithm.split(known, Draft(network, training.loss(network)), training)
    return draft, draft.network


def training_for(architecture, **settings):
    return TaskTraining(task_for(architecture, seed=5), 2, quick(**settings), random(1), CPU)


def old_part(network, known):
    return {
        name: network.tensors[name][tuple(slice(n) for n in old.shape)]
        for name, old in known.shared.items()
    }


MOVES = {
    "mlp": {"hidden1": {2: 0.5, 7: 2.0}, "hidden2": {0: 1.0, 3: 0.05}},
    "convnet": {"conv1": {1: 2.0}, "conv2": {0: 0.5, 3: 0.05}, "hidden1": {5: 1.0}},
}


@pytest.mark.parametrize("name", ARCHITECTURES)
def test_drift_is_the_distance_of_what_a_unit_receives_bias_included(name):
    known, network = known_and_moved(name, MOVES[name], added=2)
    absolute = drifts(known, network, relative=False)
    relative = drifts(known, network, relative=True)
    for group, born in known.born.items():
        weight, bias = known.shared[f"{group}.weight"], known.shared[f"{group}.bias"]
        assert len(absolute[group]) == len(relative[group]) == len(born)
        for unit in range(len(born)):
            expected = MOVES[name].get(group, {}).get(unit, 0.0)
            norm = float((weight[unit].square().sum() + bias[unit].square()).sqrt())
            assert float(absolute[group][unit]) == pytest.approx(expected, rel=1e-5)
            assert float(relative[group][unit]) == pytest.approx(expected / norm, rel=1e-5)


@given(
    st.sampled_from([True, False]),
    st.floats(2**-100, 8, width=32),
    st.integers(0, 9),
    st.integers(0, 5),
)
@runs(max_examples=60)
def test_a_unit_drifted_if_and_only_if_one_of_its_weights_changed(relative, change, unit, column):
    """Else sigma = 0 would let a change pass, and an earlier task forget."""
    known, network = known_and_moved("mlp", {})
    old = dict(known.shared)
    old["hidden1.weight"] = old["hidden1.weight"].clone()
    old["hidden1.weight"][unit, column] = 0
    new = {**network.tensors, "hidden1.weight": old["hidden1.weight"].clone()}
    new["hidden1.weight"][unit, column] = change
    known = GrowingNetwork(known.architecture, old, known.born, known.tasks)
    drift = drifts(known, network.with_tensors(new), relative=relative)
    assert (drift["hidden1"] > 0).nonzero().flatten().tolist() == [unit]
    assert not drift["hidden2"].any()


@pytest.mark.parametrize("below", ["restore", "keep"])
@pytest.mark.parametrize("added", [0, 2])
@pytest.mark.parametrize("name", ARCHITECTURES)
def test_split_units_get_their_old_weights_back_and_have_copies(name, added, below):
    known, network = known_and_moved(name, MOVES[name], added)
    settings = {"sigma": 0.2, "drift": "absolute", "below_sigma": below, "prune": False}
    training = training_for(known.architecture, **settings)
    draft, result = split(known, network, training)
    for group, born in known.born.items():
        units = MOVES[name].get(group, {})
        over = sorted(unit for unit, distance in units.items() if distance > 0.2)
        assert draft.groups[group].split == len(over)
        new = added + len(over)
        assert result.born[group].tolist() == born.tolist() + [2] * new
        for part in ("weight", "bias"):
            key = f"{group}.{part}"
            now, old = old_part(result, known)[key], known.shared[key]
            then = old_part(network, known)[key]
            for unit in range(len(born)):
                kept = below == "keep" and unit in units and unit not in over
                assert torch.equal(now[unit], (then if kept else old)[unit])
                assert not kept or not torch.equal(now[unit], old[unit])
    x = inputs_for(known.architecture, 6)
    if below == "restore":
        after = known.remember(task_for(known.architecture, name="after"), result)
        assert torch.equal(after.as_of(1).logits(x), known.as_of(1).logits(x))


@pytest.mark.parametrize("name", ARCHITECTURES)
def test_copies_start_from_the_drifted_weights_and_stand_in_for_the_originals(name):
    """Only topmost units drifted: no other unit hears them, so the new task sees no change."""
    top = list(ARCHITECTURES[name]().layout.groups)[-1]
    known, network = known_and_moved(name, {top: {1: 2.0, 4: 1.0}}, added=2)
    training = training_for(known.architecture, budget=STILL, mu=0.0, drift="absolute", prune=False)
    draft, result = split(known, network, training)
    assert draft.groups[top].split == 2
    x = inputs_for(known.architecture, 6)
    torch.testing.assert_close(result.logits(x), network.logits(x), rtol=1e-4, atol=1e-5)
    rows = result.tensors[f"{top}.weight"][-2:]
    torch.testing.assert_close(rows, network.tensors[f"{top}.weight"][[1, 4]], atol=1e-6, rtol=0)
    head = result.tensors["head.weight"]
    assert not head[:, [1, 4]].abs().gt(1e-6).any()
    torch.testing.assert_close(
        head[:, -2:], network.tensors["head.weight"][:, [1, 4]], atol=1e-6, rtol=0
    )


@pytest.mark.parametrize("name", ARCHITECTURES)
def test_old_units_hear_the_originals_only_and_new_units_the_copies(name):
    first, second = list(ARCHITECTURES[name]().layout.groups)[:2]
    known, network = known_and_moved(name, {first: {1: 2.0}}, added=1)
    training = training_for(known.architecture, budget=STILL, mu=0.0, drift="absolute", prune=False)
    _, result = split(known, network, training)
    weight, before = result.tensors[f"{second}.weight"], network.tensors[f"{second}.weight"]
    old = len(known.born[second])
    assert weight[:old, -1].abs().max() < 1e-6  # the copy is last
    assert torch.equal(weight[:old, 1], before[:old, 1])
    assert weight[old:, 1].abs().max() < 1e-6
    torch.testing.assert_close(weight[old:, -1], before[old:, 1], atol=1e-6, rtol=0)


@pytest.mark.parametrize("below", ["restore", "keep"])
@pytest.mark.parametrize(("limit", "copies"), [(None, 3), (3, 2), (2, 1), (1, 0), (0.2, 1)])
def test_no_more_join_than_the_limit_and_those_that_drifted_most_are_split(limit, copies, below):
    known, network = known_and_moved("mlp", {"hidden1": {2: 0.5, 7: 2.0, 8: 1.0}}, added=1)
    training = training_for(
        known.architecture,
        max_new_units=limit,
        sigma=0.2,
        drift="absolute",
        prune=False,
        below_sigma=below,
    )
    draft, result = split(known, network, training)
    assert draft.groups["hidden1"].split == copies
    assert result.width("hidden1") == 10 + 1 + copies
    restored = [7, 8, 2][:copies]
    for unit in restored if below == "keep" else range(10):
        now = result.tensors["hidden1.weight"][unit]
        assert torch.equal(now, known.shared["hidden1.weight"][unit])


@pytest.mark.parametrize("limit", [None, 1])
@pytest.mark.parametrize("name", ARCHITECTURES)
@pytest.mark.parametrize("sigma", [0.0, 0.2, 0.7])
def test_no_old_unit_ends_further_than_sigma_from_where_it_was(name, sigma, limit):
    known, network = known_and_moved(name, MOVES[name])
    settings = {"sigma": sigma, "drift": "absolute", "below_sigma": "keep", "max_new_units": limit}
    _, result = split(known, network, training_for(known.architecture, **settings))
    for group, amounts in drifts(known, result, relative=False).items():
        assert amounts.max() <= sigma, group


def test_below_sigma_nothing_is_split():
    known, network = known_and_moved("mlp", MOVES["mlp"])
    training = training_for(known.architecture, sigma=1e9, below_sigma="keep")
    _, result = split(known, network, training)
    assert same(old_part(result, known), old_part(network, known))
    assert same(result.born, known.born)
    assert not torch.equal(result.tensors["head.weight"], network.tensors["head.weight"])


@pytest.mark.parametrize("name", ARCHITECTURES)
def test_the_record_tells_the_drift_of_every_old_unit(name):
    known, network = known_and_moved(name, MOVES[name], added=1)
    training = training_for(known.architecture, drift="absolute")
    draft, _ = split(known, network, training)
    record = draft.record("a task", 2)
    for group, amounts in drifts(known, network, relative=False).items():
        assert record.groups[group].drift == tuple(amounts.tolist())
    assert [stage.name for stage in record.stages] == ["split"]


def test_split_leaves_what_it_is_given_alone():
    known, network = known_and_moved("convnet", MOVES["convnet"], added=1)
    shared = {name: tensor.clone() for name, tensor in known.shared.items()}
    tensors = {name: tensor.clone() for name, tensor in network.tensors.items()}
    split(known, network, training_for(known.architecture))
    assert same(known.shared, shared)
    assert same(network.tensors, tensors)


@pytest.mark.parametrize("kind", KINDS)
def test_copies_are_taught_by_labels_mixed_with_the_answers_of_before(kind):
    architecture = ARCHITECTURES["mlp"]()
    task = task_for(architecture, kind)
    teacher = random_network(architecture, random(0), task.outputs)
    answer = teacher.logits(task.train.x)
    hits, p = task.train.y, answer.sigmoid()
    if kind == "classes":
        hits, p = torch.nn.functional.one_hot(task.train.y, 3).float(), answer.softmax(1)
    for rows in (task.train, CountedExamples(task.train)):
        mixed = distilled(rows, teacher, task.kind, 0.7)
        assert (len(mixed), mixed.shape) == (len(rows), rows.shape)
        x, y = (torch.cat(part) for part in zip(*mixed.batches(16), strict=True))
        assert torch.equal(x, task.train.x)
        torch.testing.assert_close(y, 0.3 * hits + 0.7 * p)
        shuffled = next(iter(mixed.batches(40, random(3))))
        order = next(iter(task.train.batches(40, random(3))))[0]
        assert torch.equal(shuffled[0], order)
        assert distilled(rows, teacher, task.kind, 0.0) is rows
