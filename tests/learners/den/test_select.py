"""Selection against a search for paths, one unit at a time."""

import pytest
import torch
from hypothesis import given
from hypothesis import settings as runs
from hypothesis import strategies as st

from builders import ARCHITECTURES, in_double, inputs_for, random, random_network, small_mlp
from lifelong.learners.den.retrain import select
from lifelong.networks.growing import GrowingNetwork
from lifelong.networks.surgery import gather

# Of each small network, from the inputs up: group, the weight that reads it, places of one unit.
READERS = {
    "mlp": [
        ("inputs", "hidden1.weight", 1),
        ("hidden1", "hidden2.weight", 1),
        ("hidden2", "head.weight", 1),
    ],
    "convnet": [
        ("inputs", "conv1.weight", 1),
        ("conv1", "conv2.weight", 1),
        ("conv2", "hidden1.weight", 9),
        ("hidden1", "head.weight", 1),
    ],
}


def has_path(network, sequential, unit):
    """Whether a walk over non-zero weights, upwards from this unit, ends in the head."""
    _, weight, span = sequential[0]
    matrix = network.tensors[weight]
    for receiver in range(len(matrix)):
        if any(matrix[receiver, unit * span + place].any() for place in range(span)) and (
            len(sequential) == 1 or has_path(network, sequential[1:], receiver)
        ):
            return True
    return False


@given(
    st.sampled_from(list(ARCHITECTURES)),
    st.integers(0, 999),
    st.sampled_from([0.05, 0.15, 0.3, 0.6]),
)
@runs(max_examples=60)
def test_selected_are_exactly_the_units_with_a_path_to_the_head(name, seed, density):
    network = random_network(ARCHITECTURES[name](), random(seed), 2, density)
    found = {group: units.tolist() for group, units in select(network).items()}
    sequential = READERS[name]
    expected = {
        group: [u for u in range(network.width(group)) if has_path(network, sequential[place:], u)]
        for place, (group, _, _) in enumerate(sequential)
    }
    assert found == expected


@given(st.sampled_from(list(ARCHITECTURES)), st.integers(0, 999), st.sampled_from([0.3, 0.6]))
@runs(max_examples=30)
def test_the_selected_part_answers_like_the_whole(name, seed, density):
    network = in_double(random_network(ARCHITECTURES[name](), random(seed), 2, density))
    selected = select(network)
    if any(len(units) == 0 for units in selected.values()):
        return
    x = inputs_for(network.architecture, 4).double()
    part = gather(network, selected)
    torch.testing.assert_close(part.logits(x[:, selected["inputs"]]), network.logits(x))


@pytest.mark.parametrize("name", ARCHITECTURES)
def test_some_networks_above_are_partly_selected(name):
    """That the searches above have something to find."""
    sizes = set()
    for seed in range(20):
        network = random_network(ARCHITECTURES[name](), random(seed), 2, 0.15)
        selected = select(network)
        sizes |= {(group, len(units)) for group, units in selected.items()}
    for group in READERS[name]:
        counts = {count for named, count in sizes if named == group[0]}
        assert len(counts) > 1


def test_an_all_zero_head_selects_nothing_and_a_full_one_everything():
    network = random_network(small_mlp(), random(0), 2)
    assert all(len(units) == network.width(group) for group, units in select(network).items())
    known = GrowingNetwork(network.architecture, network.tensors, network.born)
    silent = known.with_head(torch.zeros(2, 7), torch.ones(2))
    assert all(len(units) == 0 for units in select(silent).values())


def test_one_output_that_uses_a_unit_is_enough():
    network = random_network(small_mlp(), random(0), 3)
    head = torch.zeros(3, 7)
    head[2, 4] = 1e-30
    chosen = select(network.with_tensors({**network.tensors, "head.weight": head}))
    assert chosen["hidden2"].tolist() == [4]
