"""Weights have birthdays too: what a task changes of the weights that it was given.

A patch overwrites entries, so that all others, and every task before it, stay exact. It is kept in
the form in which it is stored: values of 16 bits where they lose nothing, and their places as a
bitmap or as gaps of one byte each, whichever is smaller. Where a patch overwrites a whole tensor,
as the first task does with the untrained network, zeros take one bit each. Where all that is left
of a tensor has its signs and one size, as in a mask of the untrained network, a bit per entry and
that size are enough.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import final

import numpy as np
import torch
from torch import Tensor

from lifelong.networks.layout import NetworkError, Region, TensorSpec, Widths, put, take

_BITMAP, _GAPS = 0, 1  # the first byte of encoded places
_WHOLE = 2  # every entry is overwritten; a bitmap of those with a value, if others are zero
_SIGNS = 3  # every entry is overwritten: a bitmap of those that keep their sign, others are zero
_ESCAPE = 255  # a byte that skips as many entries and names none


@final
@dataclass(frozen=True, eq=False)
class Patch:
    """Entries of one tensor that a task overwrites.

    Attributes:
        places: of the entries in the flattened tensor as it was before that task, encoded.
        values: of these entries in increasing order of their places, in float32 or float16;
            without zeros where the whole tensor is overwritten; one size where signs are kept.
    """

    places: Tensor
    values: Tensor

    def __len__(self) -> int:
        """Number of stored values."""
        return len(self.values)

    def overwritten(self, entries: int) -> int:
        """How many of a tensor's entries it overwrites."""
        return entries if self.places[0] in (_WHOLE, _SIGNS) else len(self)

    @property
    def nbytes(self) -> int:
        return self.places.nbytes + self.values.nbytes

    def to(self, device: torch.device) -> "Patch":
        """The values are used on the device, the places are decoded on the CPU."""
        return Patch(self.places.cpu(), self.values.to(device))

    def require_within(self, entries: int) -> None:
        """Refuse places and values that do not fit, or do not fit a tensor of this size."""
        fits = self.values.dtype in (torch.float32, torch.float16) and self.values.ndim == 1
        if not fits or self.places.dtype != torch.uint8 or self.places.ndim != 1:
            raise NetworkError("a patch needs bytes as places and a row of numbers as values")
        decoded = decode(self.places, entries)
        wanted = 1 if self.places[0] == _SIGNS else len(decoded)
        if len(self) != wanted or (len(decoded) and int(decoded[-1]) >= entries):
            raise NetworkError(f"a patch has other places than values, or more than {entries:,}")


def encode(places: Tensor, entries: int) -> Tensor:
    """Increasing places below `entries` as bytes."""
    chosen = places.numpy()
    gaps = np.diff(chosen, prepend=-1) - 1
    ends = np.cumsum(gaps // _ESCAPE + 1)
    size = int(ends[-1]) if len(ends) else 0
    if size <= -(-entries // 8):
        encoded = np.full(size, _ESCAPE, dtype=np.uint8)
        encoded[ends - 1] = gaps % _ESCAPE
        return torch.from_numpy(np.append(np.uint8(_GAPS), encoded))
    bits = np.zeros(entries, dtype=bool)
    bits[chosen] = True
    return _bitmap(_BITMAP, bits)


def _bitmap(form: int, bits: "np.ndarray[tuple[int, ...], np.dtype[np.bool_]]") -> Tensor:
    return torch.from_numpy(np.append(np.uint8(form), np.packbits(bits)))


def decode(encoded: Tensor, entries: int) -> Tensor:
    """The places that have a value."""
    form, content = encoded[:1].tolist(), encoded[1:].numpy()
    if form == [_GAPS]:
        steps = np.where(content == _ESCAPE, _ESCAPE, content.astype(np.int64) + 1)
        return torch.from_numpy((np.cumsum(steps) - 1)[content != _ESCAPE])
    if form == [_WHOLE] and not len(content):
        return torch.arange(entries)
    if form in ([_BITMAP], [_WHOLE], [_SIGNS]) and len(content) == -(-entries // 8):
        return torch.from_numpy(np.unpackbits(content).nonzero()[0])
    raise NetworkError(f"places of a patch for {entries:,} entries are damaged")


def difference(before: Tensor, after: Tensor) -> Patch:
    """The entries in which two tensors of one shape differ, to the bit."""
    bits = (tensor.contiguous().view(torch.int32).flatten() for tensor in (before, after))
    places = torch.ne(*bits).nonzero().flatten()
    if len(places) == after.numel() > 0:
        usual = _whole(after.contiguous().flatten())
    else:
        usual = Patch(encode(places.cpu(), after.numel()), _smallest(after.flatten()[places]))
    found = [usual, *_signs(before, after)] if len(places) else [usual]
    return min(found, key=lambda patch: patch.nbytes)


def of_one_size(before: Tensor, kept: Tensor, size: float | Tensor) -> Tensor:
    """The entries of a mask with their signs and this size, the others zero."""
    signed = torch.copysign(torch.as_tensor(size).to(before), before)
    return torch.where(kept, signed, 0.0)


def _signs(before: Tensor, after: Tensor) -> Iterator[Patch]:
    """The tensor as signs of what was before and one size, if that is what it is, to the bit.

    Zeros, as between units that this network does not inherit, may stay.
    """
    size, kept = after.abs().max(), after != 0
    made = of_one_size(before, kept, size)
    if torch.equal(made.view(torch.int32), after.contiguous().view(torch.int32)):
        yield Patch(_bitmap(_SIGNS, kept.flatten().cpu().numpy()), _smallest(size[None]))


def _whole(after: Tensor) -> Patch:
    """Every entry, the zeros as bits where that is smaller."""
    valued = after.view(torch.int32) != 0
    dense = Patch(torch.tensor([_WHOLE], dtype=torch.uint8), _smallest(after))
    sparse = Patch(_bitmap(_WHOLE, valued.cpu().numpy()), _smallest(after[valued]))
    return sparse if len(sparse) and sparse.nbytes < dense.nbytes else dense


def _smallest(values: Tensor) -> Tensor:
    """In 16 bits if that loses nothing."""
    half = values.half()
    exact = torch.equal(half.float().view(torch.int32), values.contiguous().view(torch.int32))
    return half if exact else values


def apply(patch: Patch, tensor: Tensor, spec: TensorSpec, then: Widths, now: Widths) -> None:
    """Overwrite, in place, a tensor that has grown from the widths of `then` to those of `now`."""
    shape = spec.shape(then)
    whole = shape == tuple(tensor.shape)
    region = () if whole else old_region(spec, then, now)
    part = tensor if whole else take(tensor, region).contiguous()
    places, values = decode(patch.places, part.numel()).to(tensor.device), patch.values
    if patch.places[0] == _SIGNS:
        values = torch.copysign(values.to(part), part.view(-1)[places])
    if patch.places[0] in (_WHOLE, _SIGNS):
        part.zero_()
    part.view(-1)[places] = values.to(tensor.dtype)
    if not whole:
        put(tensor, region, part)


def old_region(spec: TensorSpec, then: Widths, now: Widths) -> Region:
    """The entries, at the widths of `now`, between units that were there at those of `then`."""
    units = {group: torch.arange(width) for group, width in then.items()}
    return spec.region(now, out=units, into=units)


def to_half(tensor: Tensor) -> Tensor:
    """The tensor with its entries rounded to 16 bits."""
    limit = torch.finfo(torch.float16).max
    return tensor.clamp(-limit, limit).half().float()
