"""What each tensor of a network is: over which units its axes run, its kind, and whose it is.

A hidden *unit* (a neuron, or the filter of a convolution) belongs to a *group*: the outputs of one
layer. Every tensor declares its axes; nothing else is assumed about it. Surgery, selection, drift,
pruning, initialisation and penalties read these declarations, and so are the same for a linear
layer, a convolution, or whatever else says what its tensors are.
"""

import math
from collections.abc import Iterator, Mapping, Sequence
from functools import cached_property
from typing import Literal, Protocol, TypeAlias, final, runtime_checkable

import msgspec
import torch
import torch.nn.functional as F
from torch import Tensor

INPUTS = "inputs"  # the group of input features or channels: it is selected from, and never grows
OUTPUTS = "outputs"  # the group of a task's outputs, which a head computes
HEAD = ("head.weight", "head.bias")
NEW_TO_OLD = " new-to-old"  # behind a tensor's name: what older units receive from newcomers

Tensors: TypeAlias = Mapping[str, Tensor]
Widths: TypeAlias = Mapping[str, int]  # units of each group
Units: TypeAlias = Mapping[str, Tensor]  # for each group, indices of some of its units
Region: TypeAlias = tuple[slice | Tensor, ...]  # places on each axis of a tensor
EVERYTHING = slice(None)


class NetworkError(ValueError):
    """A network that cannot be built; the message says what came and what is allowed."""


@final
class Segment(msgspec.Struct, frozen=True):
    """Neighbouring places of one group on an axis; of no group, `span` places that never grow.

    Each unit has `span` neighbouring places (after a flatten, or the size of an attention head),
    and all units come `repeat` times in a row (fused queries, keys and values).
    """

    group: str | None
    repeat: int = 1
    span: int = 1

    def width(self, widths: Widths) -> int:
        return 1 if self.group is None else widths[self.group]

    def size(self, widths: Widths) -> int:
        return self.repeat * self.width(widths) * self.span


@final
class Axis(msgspec.Struct, frozen=True):
    """What one axis of a tensor runs over; several segments are a concatenation.

    Units on an axis of role "out" compute with the entries, units on one of role "in" are read by
    them; a "fixed" axis, such as a kernel's height, runs over no units.
    """

    segments: tuple[Segment, ...]
    role: Literal["out", "in", "fixed"]

    @property
    def groups(self) -> tuple[str, ...]:
        return tuple(s.group for s in self.segments if s.group is not None)

    def size(self, widths: Widths) -> int:
        return sum(segment.size(widths) for segment in self.segments)

    def places(self, units: Units, widths: Widths) -> Tensor:
        """Where these units lie; all places of groups that are not named."""
        found: list[Tensor] = []
        start = 0
        for segment in self.segments:
            width = segment.width(widths)
            chosen = units.get(segment.group or "", torch.arange(width)).cpu()
            for passed in range(segment.repeat):
                first = start + (passed * width + chosen) * segment.span
                found.append((first[:, None] + torch.arange(segment.span)).flatten())
            start += segment.size(widths)
        return torch.cat(found)

    def fold(self, tensor: Tensor, dim: int, widths: Widths) -> Iterator[tuple[str, Tensor]]:
        """For each segment with a group, its part of a tensor with the units on `dim` and what
        belongs to the same unit on two axes behind.
        """
        start = 0
        for segment in self.segments:
            size = segment.size(widths)
            if segment.group is not None:
                shape = (segment.repeat, segment.width(widths), segment.span)
                part = tensor.narrow(dim, start, size).unflatten(dim, shape)
                yield segment.group, part.movedim((dim, dim + 2), (-2, -1))
            start += size


def units_axis(group: str, role: Literal["out", "in"], span: int = 1) -> Axis:
    """An axis over the units of one group."""
    return Axis((Segment(group, span=span),), role)


def fixed_axis(size: int) -> Axis:
    """An axis that never grows."""
    return Axis((Segment(None, span=size),), "fixed")


@final
class TensorSpec(msgspec.Struct, frozen=True, dict=True):
    """What a tensor is.

    Attributes:
        axes: one for each dim; at most one of role "out" and one of role "in".
        kind: decides initialisation, penalties and what a useless unit is.
        owner: "shared" by all tasks, or each "task"'s own, such as its head.
    """

    axes: tuple[Axis, ...]
    kind: Literal["weight", "bias"]
    owner: Literal["shared", "task"] = "shared"

    def shape(self, widths: Widths) -> tuple[int, ...]:
        return tuple(axis.size(widths) for axis in self.axes)

    @cached_property
    def out(self) -> int | None:
        """The dim of the units that compute with this tensor."""
        return self._dim("out")

    @cached_property
    def into(self) -> int | None:
        """The dim of the units that are read."""
        return self._dim("in")

    @cached_property
    def kernel(self) -> tuple[int, ...]:
        """The dims that run over no units."""
        return tuple(dim for dim, axis in enumerate(self.axes) if axis.role == "fixed")

    def reads(self, groups: Mapping[str, object]) -> bool:
        """Whether the units that are read are of one of these groups."""
        return self.into is not None and any(g in groups for g in self.axes[self.into].groups)

    def _dim(self, role: str) -> int | None:
        return next((dim for dim, axis in enumerate(self.axes) if axis.role == role), None)

    def region(
        self, widths: Widths, *, out: Units | None = None, into: Units | None = None
    ) -> Region:
        """The entries with which these units compute, and which read those units."""
        chosen = {"out": out, "in": into}
        return tuple(_on_axis(axis, chosen.get(axis.role), widths) for axis in self.axes)


def _on_axis(axis: Axis, units: Units | None, widths: Widths) -> slice | Tensor:
    if units is None or not any(group in units for group in axis.groups):
        return EVERYTHING
    places = axis.places(units, widths)
    first = int(places[0]) if len(places) else 0
    if not torch.equal(places, torch.arange(first, first + len(places))):
        return places
    whole = len(places) == axis.size(widths)
    return EVERYTHING if whole else slice(first, first + len(places))


def take(tensor: Tensor, region: Region) -> Tensor:
    """The entries in a region: a view where they are neighbours."""
    for dim, places in enumerate(region):
        if not isinstance(places, slice):
            tensor = tensor.index_select(dim, places.to(tensor.device))
        elif places != EVERYTHING:
            tensor = tensor.narrow(dim, places.start, places.stop - places.start)
    return tensor


def put(tensor: Tensor, region: Region, values: Tensor | float) -> None:
    """Overwrite the entries in a region, in place."""
    if all(isinstance(places, slice) for places in region):
        tensor[region] = values
        return
    places = [
        torch.arange(size, device=tensor.device)[place].to(tensor.device)
        for size, place in zip(tensor.shape, region, strict=True)
    ]
    tensor[torch.meshgrid(*places, indexing="ij")] = values


@final
class Layout(msgspec.Struct, frozen=True):
    """All that the library needs to know of a network's tensors.

    Attributes:
        inputs: shape of one input.
        groups: units of each hidden group before any growth, in the order of computation.
        tensors: by name, in the order in which random numbers are drawn; the head's among them.
        fixed: groups that cannot grow, each with the reason.
    """

    inputs: tuple[int, ...]
    groups: dict[str, int]
    tensors: dict[str, TensorSpec]
    fixed: dict[str, str] = {}

    def widths(self, hidden: Widths, outputs: int) -> dict[str, int]:
        """Units of all groups, inputs and outputs among them."""
        return {INPUTS: self.inputs[0], OUTPUTS: outputs, **hidden}

    def shape(self, name: str, hidden: Widths, outputs: int) -> tuple[int, ...]:
        """Of a tensor in a network of these widths."""
        return self.tensors[name].shape(self.widths(hidden, outputs))

    @property
    def task_owned(self) -> tuple[str, ...]:
        """Names of the tensors that every task has for itself."""
        return tuple(name for name, spec in self.tensors.items() if spec.owner == "task")

    def parameters(self, outputs: list[int]) -> int:
        """Of the base network with a head for each of these numbers of outputs."""
        return sum(
            math.prod(self.shape(name, self.groups, count))
            for name, spec in self.tensors.items()
            for count in (outputs if spec.owner == "task" else [1])
        )


class Architecture(Protocol):
    """How to compute features from named tensors of whatever width, and what the tensors are."""

    @property
    def layout(self) -> Layout: ...

    def features(self, tensors: Tensors, x: Tensor) -> Tensor: ...

    def multiply_adds(self, tensors: Tensors) -> int:
        """Of one row."""
        ...


@runtime_checkable
class FrozenCache(Architecture, Protocol):
    """An architecture that trains newcomers beside frozen units at the cost of the newcomers.

    Optional: where an architecture is not such, frozen and new entries are merged.
    """

    def frozen_activations(self, old: Tensors, x: Tensor) -> tuple[Tensor, ...]:
        """What the units of these tensors compute that newcomers beside them cannot change."""
        ...

    def features_with_new(
        self, old: Tensors, new: Tensors, x: Tensor, frozen: Sequence[Tensor]
    ) -> Tensor:
        """The features of a network of older units and newcomers.

        Args:
            old: the entries between older units.
            new: the blocks that `surgery.newcomers` makes.
            x: inputs.
            frozen: what `frozen_activations` makes of `old` and these inputs.
        """
        ...


def logits(architecture: Architecture, tensors: Tensors, x: Tensor) -> Tensor:
    """The outputs of a task before the sigmoid or the softmax."""
    return apply_head(architecture.features(tensors, x), tensors)


def apply_head(features: Tensor, tensors: Tensors) -> Tensor:
    return F.linear(features, *(tensors[name] for name in HEAD))
