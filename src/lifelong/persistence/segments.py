"""Segments: files of what new tasks have added to a model, which are never written again.

Each names the one before it by size and checksum, and the manifest names the last, so that all of
them are checked by it. Shared tensors that have only grown since are kept as slabs: what they have
beyond their former shape, dim by dim.
"""

import math
import operator
from collections.abc import Iterable, Mapping, Sequence
from typing import final

import msgspec
import torch
from torch import Tensor

from lifelong.persistence.files import (
    NOT_DECODED,
    TensorFileError,
    packed,
    require_decodable,
    unpacked,
)
from lifelong.records import TaskRecord
from lifelong.tasks.kinds import Kind

GROWN = "grown/"  # prefix of slabs
_ABOUT = "about"  # name of the facts among the tensors: JSON, as bytes


@final
class Pointer(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Size and checksum of a segment."""

    bytes: int
    sha256: str

    @property
    def file(self) -> str:
        return f"tasks-{self.sha256[:16]}.safetensors"


@final
class TaskFacts(msgspec.Struct, forbid_unknown_fields=True):
    """Everything about a learned task except its tensors."""

    name: str
    kind: Kind
    outputs: int
    private: list[str]
    first: int = 0
    patched: list[str] = []
    parent: int | None = None


@final
class SegmentFacts(msgspec.Struct, forbid_unknown_fields=True):
    """Everything in a segment except its tensors.

    Attributes:
        before: the segment before it.
        grown: shapes of the shared tensors of which there are slabs.
        era: of the file of shared tensors that the slabs belong to.
    """

    before: Pointer | None
    tasks: list[TaskFacts]
    records: list[TaskRecord]
    grown: dict[str, list[int]] = {}
    era: int = 0


@final
class Growth(msgspec.Struct, frozen=True):
    """How a tensor has grown: its shape now, and what is new on each dim."""

    shape: list[int]
    slabs: dict[int, Tensor]


@final
class Segment(msgspec.Struct, frozen=True):
    """What some tasks have added to a model."""

    facts: SegmentFacts
    tensors: dict[str, Tensor]
    growth: dict[str, Growth] = {}

    def with_growth(self, growth: dict[str, Growth], era: int) -> "Segment":
        shapes = {name: grown.shape for name, grown in growth.items()}
        facts = msgspec.structs.replace(self.facts, grown=shapes, era=era)
        return Segment(facts, self.tensors, growth)

    def packed(self) -> bytes:
        text = msgspec.json.encode(self.facts)
        require_decodable(text)
        slabs = {
            f"{GROWN}{name}/{dim}": slab
            for name, grown in self.growth.items()
            for dim, slab in grown.slabs.items()
        }
        about = torch.frombuffer(bytearray(text), dtype=torch.uint8)
        return packed({**self.tensors, **slabs, _ABOUT: about})


def segment_from(content: bytes) -> Segment:
    """What `packed` made; raises `TensorFileError`."""
    tensors = unpacked(content)
    facts = _facts(tensors.pop(_ABOUT, None))
    if not facts.tasks:
        raise TensorFileError("it holds no task")
    growth = {name: Growth(shape, {}) for name, shape in facts.grown.items()}
    for key in [key for key in tensors if key.startswith(GROWN)]:
        name, _, dim = key.removeprefix(GROWN).rpartition("/")
        if name not in growth or dim not in tuple("01234567"):
            raise TensorFileError(f"{key} belongs to no tensor that has grown")
        growth[name].slabs[int(dim)] = tensors.pop(key)
    return Segment(facts, tensors, growth)


def _facts(about: Tensor | None) -> SegmentFacts:
    if about is None or about.dtype != torch.uint8:
        raise TensorFileError("it does not say what it holds")
    try:
        text = about.numpy().tobytes()
        require_decodable(text)
        return msgspec.json.decode(text, type=SegmentFacts)
    except NOT_DECODED as error:
        raise TensorFileError(f"damaged: {error}") from error


def growth_between(before: Tensor, after: Tensor) -> Growth | None:
    """How a tensor has grown since; None if it has changed between what was there."""
    shape = list(after.shape)
    if before is after:
        return Growth(shape, {})
    if before.dtype != after.dtype or _expected(before.shape, shape, before.dtype) is None:
        return None
    if not _same_bits(before, after[_corner(before.shape)]):
        return None
    found = {dim: after[_beyond(before.shape, dim)] for dim in range(after.ndim)}
    return Growth(shape, {dim: slab for dim, slab in found.items() if slab.numel()})


def joined(
    tensors: Mapping[str, Tensor], growths: Iterable[Mapping[str, Growth]]
) -> dict[str, Tensor]:
    """The tensors that have grown, with all of their slabs in the order in which they came."""
    steps: dict[str, list[Growth]] = {}
    for growth in growths:
        for name, step in growth.items():
            steps.setdefault(name, []).append(step)
    if not steps.keys() <= tensors.keys():
        raise TensorFileError("a tensor has grown that was not there")
    return {name: _grown(name, tensors[name], found) for name, found in steps.items()}


def _grown(name: str, tensor: Tensor, steps: Sequence[Growth]) -> Tensor:
    shape = list(tensor.shape)
    for step in steps:
        came = {dim: (list(slab.shape), slab.dtype) for dim, slab in step.slabs.items()}
        if came != _expected(shape, step.shape, tensor.dtype):
            raise TensorFileError(f"{name} did not grow from {shape} to {step.shape}")
        shape = step.shape
    try:
        whole = torch.empty(shape, dtype=tensor.dtype)
    except RuntimeError as error:  # such as a size of 0 times one that is too large
        raise TensorFileError(f"{name} cannot have shape {shape}: {error}") from error
    whole[_corner(tensor.shape)] = tensor
    before: Sequence[int] = tensor.shape
    for step in steps:
        for dim, slab in step.slabs.items():
            whole[_corner(step.shape)][_beyond(before, dim)] = slab
        before = step.shape
    return whole


def _expected(
    before: Sequence[int], after: Sequence[int], dtype: torch.dtype
) -> dict[int, tuple[list[int], torch.dtype]] | None:
    """Shapes and type of the slabs between two shapes; None if one does not grow to the other."""
    if len(before) != len(after) or any(map(operator.gt, before, after)):
        return None
    shapes = {
        dim: [*before[:dim], after[dim] - before[dim], *after[dim + 1 :]]
        for dim in range(len(after))
    }
    return {dim: (shape, dtype) for dim, shape in shapes.items() if math.prod(shape)}


def _corner(shape: Sequence[int]) -> tuple[slice, ...]:
    return tuple(slice(size) for size in shape)


def _beyond(before: Sequence[int], dim: int) -> tuple[slice, ...]:
    """What is new on a dim, between what is old on those before it."""
    return (*_corner(before[:dim]), slice(before[dim], None))


def _same_bits(left: Tensor, right: Tensor) -> bool:
    return torch.equal(*(t.contiguous().reshape(-1).view(torch.uint8) for t in (left, right)))
