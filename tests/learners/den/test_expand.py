"""Algorithm 3: newcomers learn alone, and the useless ones leave no trace."""

import pytest
import torch
from hypothesis import given
from hypothesis import settings as runs
from hypothesis import strategies as st

from builders import (
    ARCHITECTURES,
    inputs_for,
    quick,
    random,
    random_network,
    same,
    task_for,
    units_on,
)
from lifelong.learners.den.draft import Draft
from lifelong.learners.den.expand import dynamic_expansion
from lifelong.learners.den.prune import prune_useless
from lifelong.learners.den.task_training import TaskTraining
from lifelong.networks.surgery import append_units

CPU = torch.device("cpu")


def training_for(architecture, kind="one output", **settings):
    return TaskTraining(task_for(architecture, kind, 5), 2, quick(**settings), random(1), CPU)


def shared(network):
    return {name: t for name, t in network.tensors.items() if not name.startswith("head.")}


@pytest.mark.parametrize("worth", [0.0, 0.9999])
@pytest.mark.parametrize("name", ARCHITECTURES)
def test_newcomers_that_are_all_zeroed_leave_the_network_exactly_as_it_was(name, worth):
    architecture = ARCHITECTURES[name]()
    network = random_network(architecture, random(0), 1)
    training = training_for(architecture, gamma=1e6, min_improvement=worth)
    loss = training.loss(network)
    draft = dynamic_expansion(Draft(network, loss), training)
    result, result_loss = draft.network, draft.loss
    assert same(shared(result), shared(network))
    assert same(result.born, network.born)
    assert result.tensors["head.weight"].shape == network.tensors["head.weight"].shape
    assert result_loss <= loss
    assert result_loss == pytest.approx(training.loss(result), rel=1e-6)
    if worth:
        assert same(result.tensors, network.tensors)
    for group in network.born:
        assert draft.groups[group].added == draft.groups[group].dropped == 2


@pytest.mark.parametrize("kind", ["one output", "subtasks", "classes"])
@pytest.mark.parametrize("name", ARCHITECTURES)
def test_an_expansion_adds_units_and_changes_no_weight_between_old_ones(name, kind):
    architecture = ARCHITECTURES[name]()
    outputs = {"one output": 1, "subtasks": 2, "classes": 3}[kind]
    network = random_network(architecture, random(0), outputs)
    training = training_for(architecture, kind, gamma=0.01, mu=0.01, k=3)
    loss = training.loss(network)
    draft = dynamic_expansion(Draft(network, loss), training)
    result, result_loss = draft.network, draft.loss
    assert result_loss < loss
    grew = {group: result.width(group) - network.width(group) for group in network.born}
    assert sum(grew.values()) > 0
    for group, more in grew.items():
        assert 0 <= more <= 3
        assert result.born[group].tolist() == [1] * network.width(group) + [2] * more
        event = draft.groups[group]
        assert event.added - event.dropped == more
    for key, old in shared(network).items():
        assert torch.equal(result.tensors[key][tuple(slice(n) for n in old.shape)], old)


def test_without_dropping_all_k_stay_even_if_they_are_no_use():
    architecture = ARCHITECTURES["mlp"]()
    network = random_network(architecture, random(0), 1)
    training = training_for(architecture, gamma=1e6, prune=False, k=[3, 1])
    result = dynamic_expansion(Draft(network, training.loss(network)), training).network
    assert {group: result.width(group) for group in network.born} == {"hidden1": 13, "hidden2": 8}
    assert not result.tensors["hidden1.weight"][10:].any()


def test_no_more_are_offered_than_the_limit():
    architecture = ARCHITECTURES["mlp"]()
    network = random_network(architecture, random(0), 1)
    training = training_for(architecture, k=5, max_new_units=[2, 0.1], prune=False)
    result = dynamic_expansion(Draft(network, training.loss(network)), training).network
    assert {group: result.width(group) for group in network.born} == {"hidden1": 12, "hidden2": 8}


def test_a_gain_that_is_not_worth_it_is_undone():
    architecture = ARCHITECTURES["mlp"]()
    network = random_network(architecture, random(0), 1)
    for worth, kept in ((0.0, True), (0.99, False)):
        training = training_for(architecture, gamma=0.0, mu=0.0, min_improvement=worth)
        loss = training.loss(network)
        draft = dynamic_expansion(Draft(network, loss), training)
        result, result_loss = draft.network, draft.loss
        assert (result_loss < loss) is kept
        assert (result is network) is not kept
        assert all((result.width(g) > network.width(g)) is kept for g in network.born)


def lonely(network, group, unit):
    """Whether no weight leads to this unit, or none from it."""
    receives = sends = False
    for name, tensor in network.tensors.items():
        if tensor.ndim == 1:
            continue
        for dim, own, role, span in units_on(network.architecture, name):
            if own == group:
                touched = bool(tensor.narrow(dim, unit * span, span).any())
                receives, sends = (
                    receives or (role == "out" and touched),
                    sends or (role == "in" and touched),
                )
    return not (receives and sends)


@given(
    st.sampled_from(list(ARCHITECTURES)), st.integers(0, 999), st.sampled_from([0.05, 0.15, 0.4])
)
@runs(max_examples=40)
def test_what_is_dropped_are_the_newcomers_that_receive_or_send_nothing(name, seed, density):
    architecture = ARCHITECTURES[name]()
    generator = random(seed)
    network = random_network(architecture, generator, 1, density)

    def sparse(spec, size):
        if spec.kind == "bias":
            return torch.zeros(size)
        return torch.randn(size, generator=generator) * (
            torch.rand((*size[:2], *[1] * (len(size) - 2)), generator=generator) < density
        )

    grown = append_units(network, dict.fromkeys(network.born, 3), 2, sparse)
    kept = {group: list(range(grown.width(group))) for group in grown.born}
    gone = {name: t.clone() for name, t in grown.tensors.items()}
    progress = True
    while progress:  # silence one useless newcomer after another
        progress = False
        for group, units in kept.items():
            for unit in [u for u in units if u >= network.width(group)]:
                if lonely(grown.with_tensors(gone), group, unit):
                    units.remove(unit)
                    for key in gone:
                        for dim, own, _, span in units_on(architecture, key):
                            if own == group:
                                gone[key].narrow(dim, unit * span, span).zero_()
                    progress = True
    draft = prune_useless(Draft(grown, 0.0), 2)
    result = draft.network
    for group, units in kept.items():
        assert torch.equal(result.born[group], grown.born[group][units])
        assert draft.groups[group].dropped == grown.width(group) - len(units)
    x = inputs_for(architecture, 4)
    torch.testing.assert_close(result.logits(x), grown.logits(x), rtol=1e-4, atol=1e-5)


def test_a_first_task_without_any_use_for_a_layer_leaves_one_unit_to_grow_from():
    architecture = ARCHITECTURES["mlp"]()
    network = random_network(architecture, random(0), 1)
    silent = {name: torch.zeros_like(tensor) for name, tensor in network.tensors.items()}
    result = prune_useless(Draft(network.with_tensors(silent), 0.0), 1).network
    assert [len(born) for born in result.born.values()] == [1, 1]
