"""Dropping useless units changes no output."""

import torch
from hypothesis import given
from hypothesis import strategies as st

from builders import ARCHITECTURES, inputs_for, random, random_network, touching_newcomers
from lifelong.learners.den.draft import Draft
from lifelong.learners.den.prune import prune_useless
from lifelong.networks.surgery import append_units


@given(
    kind=st.sampled_from(sorted(ARCHITECTURES)),
    seed=st.integers(0, 10_000),
    density=st.sampled_from([0.0, 0.1, 0.3]),
)
def test_what_is_dropped_changed_no_output(kind, seed, density):
    architecture = ARCHITECTURES[kind]()
    old = random_network(architecture, random(seed))
    make = lambda _, size: torch.randn(size, generator=random(seed + len(size)))  # noqa: E731
    grown = append_units(old, dict.fromkeys(architecture.layout.groups, 4), 2, make)
    thin = torch.Generator().manual_seed(seed + 1)
    marks = touching_newcomers(grown, 2)
    sparse = {
        name: torch.where(marks[name] & (torch.rand(t.shape, generator=thin) > density), 0.0, t)
        if t.ndim > 1
        else t
        for name, t in grown.tensors.items()
    }
    network = grown.with_tensors(sparse)
    draft = prune_useless(Draft(network, 0.0), 2)
    kept = draft.network
    x = inputs_for(architecture, 20)
    assert torch.allclose(kept.logits(x), network.logits(x), atol=1e-4, rtol=1e-4)
    for group in architecture.layout.groups:
        assert draft.groups[group].dropped == network.width(group) - kept.width(group)
        assert kept.width(group) >= old.width(group)


def test_units_that_nothing_hears_are_dropped_from_the_top_down():
    architecture = ARCHITECTURES["mlp"]()
    old = random_network(architecture, random(0))
    grown = append_units(old, {"hidden1": 2, "hidden2": 2}, 2, lambda _, size: torch.ones(size))
    tensors = {name: t.clone() for name, t in grown.tensors.items()}
    tensors["head.weight"][:, -2:] = 0  # so that the newcomers of hidden2 are heard by nothing
    tensors["hidden2.weight"][: old.width("hidden2"), -2:] = 0  # and hear those of hidden1 alone
    kept = prune_useless(Draft(grown.with_tensors(tensors), 0.0), 2).network
    assert kept.width("hidden2") == old.width("hidden2")
    assert kept.width("hidden1") == old.width("hidden1")


def test_a_unit_that_only_its_bias_keeps_on_stays_unless_constants_go():
    architecture = ARCHITECTURES["mlp"]()
    old = random_network(architecture, random(0))
    grown = append_units(old, {"hidden1": 1}, 2, lambda _, size: torch.ones(size))
    tensors = {name: t.clone() for name, t in grown.tensors.items()}
    tensors["hidden1.weight"][-1] = 0
    network = grown.with_tensors(tensors)
    assert prune_useless(Draft(network, 0.0), 2).network.width("hidden1") == grown.width("hidden1")
    dropped = prune_useless(Draft(network, 0.0), 2, constants=True).network
    assert dropped.width("hidden1") == old.width("hidden1")
