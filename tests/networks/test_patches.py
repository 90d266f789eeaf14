"""Patches: places and values come back to the bit, at any later width, and in few bytes."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from builders import ARCHITECTURES, random, random_network, small_mlp, task_for
from lifelong.networks.growing import ROOT, GrowingNetwork
from lifelong.networks.initial import root_tensors
from lifelong.networks.layout import Axis, NetworkError, Segment, TensorSpec
from lifelong.networks.patches import Patch, apply, decode, difference, encode, of_one_size
from lifelong.networks.surgery import append_units

SHARED = "hidden1.weight"
FIRST_BITS = [0.3545897901058197, -0.34361323714256287, -0.09567058831453323]


def fresh(_spec, size):
    return torch.ones(size)


@given(st.integers(1, 3000), st.data())
def test_places_come_back_and_take_the_fewest_bytes(entries, data):
    places = sorted(data.draw(st.sets(st.integers(0, entries - 1), max_size=200)))
    encoded = encode(torch.tensor(places, dtype=torch.long), entries)
    assert decode(encoded, entries).tolist() == places
    assert len(encoded) <= 1 + -(-entries // 8)
    assert len(encoded) <= 1 + len(places) + entries // 255


@given(st.lists(st.tuples(st.floats(width=32), st.floats(width=32)), min_size=1, max_size=50))
def test_a_difference_holds_every_bit_that_differs(pairs):
    before, after = (torch.tensor(column) for column in zip(*pairs, strict=True))
    patch = difference(before, after)
    patch.require_within(len(pairs))
    result = applied(patch, before)
    assert torch.equal(result.view(torch.int32), after.view(torch.int32))
    same = before.view(torch.int32) == after.view(torch.int32)
    # Where only signs and one size are left, zeros that stay are set too.
    signs = bool(len(patch)) and int(patch.places[0]) == 3
    assert patch.overwritten(len(pairs)) == (len(pairs) if signs else int((~same).sum()))
    assert (len(patch) == 0) == bool(same.all())


def applied(patch, before):
    """The patch on a tensor of its own shape."""
    spec = TensorSpec((Axis((Segment(None, span=len(before)),), "fixed"),), "weight")
    result = before.clone()
    apply(patch, result, spec, {}, {})
    return result


@given(st.integers(1, 400), st.floats(0, 1), st.integers(0, 99))
def test_zeros_of_a_whole_tensor_take_a_bit(entries, share, seed):
    before = torch.rand(entries, generator=random(seed)) + 1
    kept = torch.rand(entries, generator=random(seed + 1)) >= share
    after = torch.where(kept, -0.5, 0.0)
    patch = difference(before, after)
    patch.require_within(entries)
    assert torch.equal(applied(patch, before), after)
    assert patch.overwritten(entries) == entries
    valued, bits = int(kept.sum()), -(-entries // 8)
    # Without any value they are a mask of nothing.
    assert patch.nbytes == 1 + min(2 * entries, 2 * max(1, valued) + bits)


@given(st.integers(1, 300), st.floats(0, 1), st.floats(2**-10, 100), st.integers(0, 99))
def test_a_mask_of_signs_takes_a_bit_per_entry(entries, share, size, seed):
    before = torch.randn(entries, generator=random(seed))
    before[torch.rand(entries, generator=random(seed + 2)) < 0.1] = 0.0  # no part of the network
    kept = (torch.rand(entries, generator=random(seed + 1)) < share) & (before != 0)
    size = torch.tensor(size).half().float()
    after = of_one_size(before, kept, size)
    patch = difference(before, after)
    patch.require_within(entries)
    assert torch.equal(applied(patch, before).view(torch.int32), after.view(torch.int32))
    assert patch.nbytes <= 1 + 2 + -(-entries // 8)


def test_values_take_two_bytes_where_that_loses_nothing():
    before = torch.zeros(40)
    half, single = before.clone(), before.clone()
    half[3], single[3] = 0.5, 0.1
    assert difference(before, half).values.dtype == torch.float16
    assert difference(before, single).values.dtype == torch.float32
    assert difference(before, half).nbytes == 1 + 1 + 2  # how places are told, a gap, a value


@pytest.mark.parametrize(
    ("places", "values"),
    [
        (torch.tensor([1, 9], dtype=torch.uint8), torch.ones(1)),  # entry 9 of 5
        (torch.tensor([1, 0], dtype=torch.uint8), torch.ones(2)),  # one place, two values
        (torch.tensor([0, 255], dtype=torch.uint8), torch.ones(8)),  # bits beyond the last entry
        (torch.tensor([0, 1, 1], dtype=torch.uint8), torch.ones(2)),  # bitmap of another tensor
        (torch.tensor([7, 0], dtype=torch.uint8), torch.ones(1)),  # neither gaps nor a bitmap
        (torch.tensor([2], dtype=torch.uint8), torch.ones(4)),  # all five entries, four values
        (torch.tensor([2, 128], dtype=torch.uint8), torch.ones(5)),  # one value, five are given
        (torch.tensor([2, 255], dtype=torch.uint8), torch.ones(8)),  # bits beyond the last entry
        (torch.tensor([3, 160], dtype=torch.uint8), torch.ones(2)),  # signs, and two sizes
        (torch.tensor([3, 160, 0], dtype=torch.uint8), torch.ones(1)),  # signs of another tensor
        (torch.tensor([3, 255], dtype=torch.uint8), torch.ones(1)),  # bits beyond the last entry
        (torch.tensor([3, 160], dtype=torch.uint8), torch.zeros(0)),  # signs without a size
        (torch.zeros(0, dtype=torch.uint8), torch.ones(0)),
        (torch.tensor([1.0, 0.0]), torch.ones(1)),
        (torch.tensor([1, 0], dtype=torch.uint8), torch.ones(1, dtype=torch.float64)),
        (torch.tensor([1, 0], dtype=torch.uint8), torch.ones(1, 1)),
    ],
)
def test_damaged_patches_are_refused(places, values):
    with pytest.raises(NetworkError):
        Patch(places, values).require_within(5)


def changed(network, seed, share=0.3):
    """The network with a share of its entries moved."""
    tensors = {}
    for n, (name, tensor) in enumerate(network.tensors.items()):
        moved = torch.rand(tensor.shape, generator=random(seed + n)) < share
        tensors[name] = torch.where(moved, tensor + 1.5, tensor)
    return network.with_tensors(tensors)


@given(
    st.sampled_from(list(ARCHITECTURES)),
    st.lists(st.tuples(st.booleans(), st.sampled_from([0, 1, None])), min_size=1, max_size=4),
    st.sampled_from([0.0, 0.3, 1.0]),
)
def test_each_task_keeps_its_network_to_the_bit_in_any_tree(name, steps, share):
    """Patches and new units in any order, from the last task, from the first, or from the root."""
    architecture = ARCHITECTURES[name]()
    first = random_network(architecture, random(0), outputs=1)
    known = GrowingNetwork(architecture, root=5)
    known = known.patched_by(task_for(architecture, name="1"), first)
    learned = [first]
    for number, (grows, parent) in enumerate(steps, 2):
        head = known.as_of(number - 1)
        start = known.start_from(number - 1 if parent is None else parent)
        widths = {group: len(born) for group, born in known.born.items()}
        shape = architecture.layout.shape("head.weight", widths, 1)
        tensors = {**head.tensors, **start, "head.weight": torch.zeros(shape)}
        network = type(first)(architecture, tensors, known.born)
        if grows:
            network = append_units(network, {next(iter(known.born)): 2}, number, fresh)
        network = changed(network, number, share)
        known = known.patched_by(task_for(architecture, name=str(number)), network, parent)
        learned.append(network)
        for task, expected in enumerate(learned, 1):
            found = known.as_of(task).tensors
            assert found.keys() == expected.tensors.keys()
            assert all(torch.equal(found[n], t) for n, t in expected.tensors.items())
    if share == 0.0:
        assert all(not task.patches for task in known.tasks[1:])


def test_a_task_from_the_root_starts_from_the_untrained_network():
    architecture = small_mlp()
    known = GrowingNetwork(architecture, root=5)
    known = known.patched_by(task_for(architecture), random_network(architecture, random(0)))
    start = known.start_from(ROOT)
    untrained = root_tensors(
        architecture,
        list(start),
        architecture.layout.widths({group: len(born) for group, born in known.born.items()}, 1),
        5,
    )
    assert all(torch.equal(start[name], untrained[name]) for name in start)
    assert not torch.equal(start[SHARED], known.as_of(1).tensors[SHARED])


def test_the_untrained_network_is_the_same_bits_on_every_machine():
    tensors = root_tensors(small_mlp(), [SHARED], {"inputs": 6, "hidden1": 10, "hidden2": 7}, 3)
    assert tensors[SHARED].shape == (10, 6)
    assert float(tensors[SHARED].abs().max()) <= 6**-0.5
    assert tensors[SHARED].flatten()[:3].tolist() == FIRST_BITS
