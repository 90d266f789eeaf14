"""Masks over tensors: packed into bits, spread from units to entries, sparse values beside them."""

from collections.abc import Mapping
from math import prod

import numpy as np
import torch
from torch import Tensor

from lifelong.networks.layout import Axis, NetworkError, TensorSpec


def pack_bits(mask: Tensor) -> Tensor:
    """The entries of a boolean tensor in order, eight to a byte."""
    flat = mask.detach().cpu().numpy().reshape(-1)
    return torch.from_numpy(np.packbits(flat)).to(mask.device)


def unpack_bits(bits: Tensor, shape: tuple[int, ...]) -> Tensor:
    """The boolean tensor of this shape that `pack_bits` packed."""
    require_bits(bits, shape)
    flat = np.unpackbits(bits.cpu().numpy(), count=prod(shape)).astype(np.bool_)
    return torch.from_numpy(flat.reshape(shape)).to(bits.device)


def require_bits(bits: Tensor, shape: tuple[int, ...]) -> None:
    """Refuse bits that are not those of a mask of this shape."""
    size = bytes_for(prod(shape))
    if bits.dtype != torch.uint8 or tuple(bits.shape) != (size,):
        raise NetworkError(
            f"a mask of shape {shape} takes {size:,} bytes, not {bits.dtype} of shape "
            f"{tuple(bits.shape)}"
        )


def bytes_for(entries: int) -> int:
    """Bytes that a packed mask takes."""
    return -(-entries // 8)


def spread(axis: Axis, units: Mapping[str, Tensor]) -> Tensor:
    """Values of the units on the places of an axis, each of whose groups must have values; places
    that belong to no unit have 1.
    """
    like = next(iter(units.values()))
    parts = [
        (like.new_ones(1) if segment.group is None else units[segment.group])
        .repeat_interleave(segment.span)
        .repeat(segment.repeat)
        for segment in axis.segments
    ]
    return parts[0] if len(parts) == 1 else torch.cat(parts)


def on_dim(values: Tensor, dim: int, dims: int) -> Tensor:
    """The values shaped so that they multiply dim `dim` of a tensor of `dims` dims."""
    return values.reshape([-1 if each == dim else 1 for each in range(dims)])


def between(spec: TensorSpec, units: Mapping[str, Tensor], shape: tuple[int, ...]) -> Tensor:
    """Which entries of a tensor lie between chosen units: of each axis over groups of units, the
    places of those that are true. Inputs and outputs are all chosen.
    """
    chosen = torch.ones(shape, dtype=torch.bool, device=next(iter(units.values())).device)
    for dim, axis in enumerate(spec.axes):
        if any(group in units for group in axis.groups):
            chosen &= on_dim(spread(axis, units), dim, len(shape))
    return chosen


def split_sparse(values: Tensor) -> tuple[Tensor, Tensor]:
    """A tensor as the packed mask of its non-zero entries, and their values in order."""
    mask = values != 0
    return pack_bits(mask), values[mask]


def join_sparse(bits: Tensor, values: Tensor, shape: tuple[int, ...]) -> Tensor:
    """The inverse of `split_sparse`."""
    mask = unpack_bits(bits, shape)
    if values.shape != (int(mask.sum()),):
        raise NetworkError(f"{int(mask.sum())} entries are not zero, but there are {len(values)}")
    whole = torch.zeros(shape, dtype=values.dtype, device=values.device)
    whole[mask] = values
    return whole
