"""Newcomers beside frozen units: the same training as of the whole network, at a lower cost."""

from dataclasses import replace

import pytest
import torch
from hypothesis import given
from hypothesis import settings as runs
from hypothesis import strategies as st

from builders import (
    ARCHITECTURES,
    CountedExamples,
    in_double,
    inputs_for,
    quick,
    random,
    random_network,
    touching_newcomers,
)
from lifelong.learners.den import frozen_cache
from lifelong.learners.den.frozen_cache import newcomers_objective
from lifelong.learners.den.task_training import growth, movement
from lifelong.networks.layout import HEAD, FrozenCache
from lifelong.networks.sequential import mlp
from lifelong.networks.surgery import append_units, newcomers, with_newcomers
from lifelong.tasks.examples import TensorExamples
from lifelong.tasks.kinds import Kind
from lifelong.training.budget import Budget
from lifelong.training.loop import Problem, objective, solve, validation_loss
from lifelong.training.penalties import Around, L1Norm, SparseGroup

DEPTHS = {"one layer": lambda: mlp(6, [9]), "four layers": lambda: mlp(6, [7, 6, 5, 4])}
CHAINS = {**ARCHITECTURES, **DEPTHS}
BUDGET = Budget(steps=12, batch_size=16, learning_rate=0.01, check_every=4)


def grown(name, counts, seed=0):
    """A network with newcomers, as many in each layer as `counts` gives in turn."""
    old = random_network(CHAINS[name](), random(seed), 2)
    generator = random(seed + 1)
    more = dict(zip(old.born, counts * len(old.born), strict=False))
    return in_double(
        append_units(old, more, 2, lambda _, size: 0.5 * torch.randn(size, generator=generator))
    )


def rows_for(network, seed=0):
    x = inputs_for(network.architecture, 40, seed).double()
    return TensorExamples(x, (torch.rand(40, 2, generator=random(seed)) < 0.5).double())


def penalties_of_the_whole(stage, settings, network, centers, marks):
    """As the equations have them: on the distance from centers, of all entries together."""
    if stage == "split":
        return movement(settings, network.architecture.layout, centers.tensors)
    penalty = SparseGroup(settings.mu, settings.gamma)
    around = {
        name: Around(torch.where(marks[name], 0.0, tensor), penalty)
        for name, tensor in network.tensors.items()
        if tensor.ndim > 1 and name not in HEAD
    }
    return {**around, "head.weight": L1Norm(settings.mu)}


@given(
    st.sampled_from(list(CHAINS)),
    st.lists(st.integers(0, 3), min_size=4, max_size=4),
    st.integers(0, 999),
    st.sampled_from(["expand", "split"]),
    st.sampled_from([0.0, 0.1]),
)
@runs(max_examples=30)
def test_training_newcomers_is_training_the_whole_with_all_else_masked(
    name, counts, seed, stage, lam
):
    """Close, in double precision, and not to the bit: sums are added up in another order."""
    network, centers = grown(name, counts, seed), grown(name, counts, seed + 5)
    rows, settings = rows_for(network, seed), quick(mu=0.3, gamma=0.3, lam=lam)

    marks = touching_newcomers(network, 2)
    objectives = [objective(network.architecture, Kind.BINARY, rows, rows)]
    penalties = penalties_of_the_whole(stage, settings, network, centers, marks)
    whole = solve(
        Problem("whole", network.tensors, objectives, marks, penalties), BUDGET, random(7)
    )

    new = newcomers(network, 2)
    penalties = growth(settings, network.architecture.layout, new)
    if stage == "split":
        penalties = movement(settings, network.architecture.layout, newcomers(centers, 2))
    objectives = [newcomers_objective(network, 2, Kind.BINARY, rows, rows)]
    small = solve(Problem("new", new, objectives, dict.fromkeys(new), penalties), BUDGET, random(7))
    back = with_newcomers(network, 2, small.tensors).tensors

    assert small.loss == pytest.approx(whole.loss, rel=1e-9)
    assert small.steps == whole.steps
    for key, tensor in whole.tensors.items():
        torch.testing.assert_close(back[key], tensor, rtol=1e-7, atol=1e-9)
        assert torch.equal(back[key][~marks[key]], network.tensors[key][~marks[key]])


class Plain:
    """An architecture without the speed-up for newcomers beside frozen units."""

    def __init__(self, sequential):
        self.layout = sequential.layout
        self.features = sequential.features
        self.multiply_adds = sequential.multiply_adds


@given(
    st.sampled_from(list(CHAINS)),
    st.lists(st.integers(0, 3), min_size=4, max_size=4),
    st.integers(0, 999),
)
@runs(max_examples=20)
def test_without_the_speed_up_the_same_is_learned(name, counts, seed):
    network = grown(name, counts, seed)
    plain = replace(network, architecture=Plain(network.architecture))
    assert isinstance(network.architecture, FrozenCache)
    assert not isinstance(plain.architecture, FrozenCache)
    rows, settings, new = rows_for(network, seed), quick(mu=0.3, gamma=0.3), newcomers(network, 2)
    penalties = growth(settings, network.architecture.layout, new)
    fast, slow = (
        solve(
            Problem(
                "new",
                new,
                [newcomers_objective(each, 2, Kind.BINARY, rows, rows)],
                dict.fromkeys(new),
                penalties,
            ),
            BUDGET,
            random(7),
        )
        for each in (network, plain)
    )
    assert fast.steps == slow.steps
    assert fast.loss == pytest.approx(slow.loss, rel=1e-9)
    for block, entries in fast.tensors.items():
        torch.testing.assert_close(entries, slow.tensors[block], rtol=1e-7, atol=1e-9)


@pytest.mark.parametrize("name", CHAINS)
def test_what_is_kept_of_older_units_is_what_is_computed_for_each_batch(name):
    network = grown(name, [2])
    rows, new = rows_for(network), newcomers(network, 2)
    counted = CountedExamples(rows)
    losses = [
        validation_loss([newcomers_objective(network, 2, Kind.BINARY, held, held)], new)
        for held in (rows, counted)
    ]
    assert counted.served == 1
    assert losses[0] == pytest.approx(losses[1], rel=1e-12)
    expected = validation_loss(
        [objective(network.architecture, Kind.BINARY, rows, rows)], network.tensors
    )
    assert losses[0] == pytest.approx(expected, rel=1e-12)


def test_features_are_kept_only_while_they_take_no_more_memory_than_allowed(monkeypatch):
    rows = TensorExamples(torch.ones(5, 4), torch.zeros(5, 1))
    calls = []

    def freeze(x, width):
        calls.append(len(x))
        return (x.repeat(1, 2)[:, :width],)

    for keep, width, seen in ((0, 4, [1, 5]), (0, 5, [1]), (100, 5, [1, 5]), (99, 5, [1])):
        monkeypatch.setattr(frozen_cache, "KEEP", keep)
        calls.clear()
        held = frozen_cache._with_frozen(rows, lambda x, width=width: freeze(x, width))
        assert calls == seen
        assert len(held) == 5
        (_, (features,)), y = next(held.batches(3, random(0)))
        assert features.shape == (3, width)
        assert y.shape == (3, 1)
