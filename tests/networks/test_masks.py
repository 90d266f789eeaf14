"""Masks as bits, masks from units, sparse tensors."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from builders import ARCHITECTURES, random, random_network, units_on
from lifelong.networks.layout import NetworkError
from lifelong.networks.masks import between, join_sparse, pack_bits, split_sparse, unpack_bits

shapes = st.lists(st.integers(0, 5), min_size=0, max_size=4).map(tuple)


@given(shapes, st.integers(0, 99))
def test_a_mask_is_unpacked_as_it_was_and_takes_a_bit_for_each_entry(shape, seed):
    mask = torch.rand(shape, generator=random(seed)) < 0.5
    bits = pack_bits(mask)
    assert torch.equal(unpack_bits(bits, shape), mask)
    assert 8 * bits.numel() * bits.element_size() < mask.numel() + 8


@given(shapes, st.integers(0, 99), st.floats(0, 1))
def test_a_sparse_tensor_is_joined_as_it_was(shape, seed, density):
    made = random(seed)
    kept = torch.rand(shape, generator=made) < density
    tensor = torch.where(kept, torch.randn(shape, generator=made), 0.0)
    bits, values = split_sparse(tensor)
    assert torch.equal(join_sparse(bits, values, shape), tensor)
    assert len(values) == torch.count_nonzero(tensor)


def test_bits_of_another_shape_are_refused():
    with pytest.raises(NetworkError, match=r"a mask of shape \(3, 3\) takes 2 bytes, not"):
        unpack_bits(torch.zeros(1, dtype=torch.uint8), (3, 3))
    with pytest.raises(NetworkError, match=r"takes 2 bytes, not torch.float32"):
        unpack_bits(torch.zeros(2), (3, 3))
    bits, values = split_sparse(torch.ones(4))
    with pytest.raises(NetworkError, match="4 entries are not zero, but there are 3"):
        join_sparse(bits, values[:3], (4,))


@settings(max_examples=6)
@given(st.sampled_from(list(ARCHITECTURES)), st.integers(0, 99))
def test_between_is_where_both_ends_are_chosen(name, seed):
    architecture = ARCHITECTURES[name]()
    network, made = random_network(architecture, random(seed)), random(seed)
    chosen = {g: torch.rand(n, generator=made) < 0.5 for g, n in architecture.layout.groups.items()}
    for tensor, spec in architecture.layout.tensors.items():
        shape = tuple(network.tensors[tensor].shape)
        found = between(spec, chosen, shape)
        for place in torch.cartesian_prod(*map(torch.arange, shape)).reshape(-1, len(shape)):
            wanted = all(
                chosen[group][place[dim] // span]
                for dim, group, _, span in units_on(architecture, tensor)
                if group in chosen
            )
            assert bool(found[tuple(place)]) == bool(wanted)
