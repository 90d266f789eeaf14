"""Declarations of a network's tensors: the units along each axis, the kind, and the owner.

A hidden *unit* (a neuron, or the filter of a convolution) belongs to a *group*: the outputs of one
layer. Surgery, selection, drift, pruning, initialisation and penalties read only these
declarations, so they work for any layer that declares its tensors.
"""

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import cached_property
from typing import Literal, Protocol, TypeAlias, final, runtime_checkable

import msgspec
import torch
import torch.nn.functional as F
from torch import Tensor

INPUTS = "inputs"  # the group of input features or channels, which never grows
OUTPUTS = "outputs"  # the group of a task's outputs
HEAD = ("head.weight", "head.bias")
FIXED = ""  # the "group" of the places of an axis that belong to no unit
NEW_TO_OLD = " new-to-old"  # suffix of a tensor's name: what older units receive from newcomers

Tensors: TypeAlias = Mapping[str, Tensor]
Widths: TypeAlias = Mapping[str, int]  # number of units per group
Units: TypeAlias = Mapping[str, Tensor]  # indices of some units per group
Region: TypeAlias = tuple[slice | Tensor, ...]  # indices per axis of a tensor
EVERYTHING = slice(None)


class NetworkError(ValueError):
    """A network that cannot be built; the message says what came and what is allowed."""


@final
class Segment(msgspec.Struct, frozen=True):
    """A contiguous range of an axis: the units of one group, or without a group a fixed `span`.

    Each unit takes `span` adjacent places (after a flatten, or the size of an attention head), and
    the sequence of all units comes `repeat` times (fused queries, keys and values).
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
    """One axis of a tensor; several segments are a concatenation.

    An "out" axis runs over the units that are computed, an "in" axis over the units that they
    read; a "fixed" axis, such as a kernel's height, runs over no units.
    """

    segments: tuple[Segment, ...]
    role: Literal["out", "in", "fixed"]

    @property
    def groups(self) -> tuple[str, ...]:
        return tuple(s.group for s in self.segments if s.group is not None)

    def size(self, widths: Widths) -> int:
        return sum(segment.size(widths) for segment in self.segments)

    def places(self, units: Units, widths: Widths) -> Tensor:
        """Indices of these units, and all indices of groups that are not named."""
        found: list[Tensor] = []
        start = 0
        for segment in self.segments:
            width = segment.width(widths)
            chosen = units.get(segment.group or FIXED, torch.arange(width)).cpu()
            for passed in range(segment.repeat):
                first = start + (passed * width + chosen) * segment.span
                found.append((first[:, None] + torch.arange(segment.span)).flatten())
            start += segment.size(widths)
        return torch.cat(found)

    def fold(self, tensor: Tensor, dim: int, widths: Widths) -> Iterator[tuple[str, Tensor]]:
        """For each segment with a group, its part of the tensor with the units on `dim` and the
        repeats and spans of a unit on two new last axes.
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
    """Declaration of a tensor.

    Attributes:
        axes: one per dim; at most one of role "out" and one of role "in".
        kind: decides initialisation, penalties and pruning. A "scale" multiplies what a unit
            computes; a "buffer" has no gradient: training passes change it, as statistics.
        owner: "shared" by all tasks, or private to each "task", such as its head.
        initial: of new entries, for tensors that do not start at random; None for the kind's own:
            0 for a bias, 1 for a scale.
    """

    axes: tuple[Axis, ...]
    kind: Literal["weight", "bias", "scale", "buffer"]
    owner: Literal["shared", "task"] = "shared"
    initial: float | None = None

    def shape(self, widths: Widths) -> tuple[int, ...]:
        return tuple(axis.size(widths) for axis in self.axes)

    @cached_property
    def out(self) -> int | None:
        """The dim of the units that are computed."""
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
        """Whether the tensor reads units of one of these groups."""
        return self.into is not None and any(g in groups for g in self.axes[self.into].groups)

    def _dim(self, role: str) -> int | None:
        return next((dim for dim, axis in enumerate(self.axes) if axis.role == role), None)

    def region(
        self, widths: Widths, *, out: Units | None = None, into: Units | None = None
    ) -> Region:
        """The entries with which the units `out` read the units `into`; None for all units."""
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
    """The entries in a region, as a view if all indices are slices."""
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
    """Declarations of all tensors of a network.

    Attributes:
        inputs: shape of one input.
        groups: units per hidden group before any growth, in the order of computation.
        tensors: by name, in the order in which they are initialised; includes the head.
        fixed: what cannot grow, each with the reason.
        silent: when a unit of a group sends nothing: if it has no incoming weights and its biases
            are "negative" or zero (the default: a ReLU follows), only if they are "zero", or
            "never".
    """

    inputs: tuple[int, ...]
    groups: dict[str, int]
    tensors: dict[str, TensorSpec]
    fixed: dict[str, str] = {}
    silent: dict[str, Literal["negative", "zero", "never"]] = {}

    def widths(self, hidden: Widths, outputs: int) -> dict[str, int]:
        """Units per group, including inputs and outputs."""
        return {INPUTS: self.inputs[0], OUTPUTS: outputs, **hidden}

    def shape(self, name: str, hidden: Widths, outputs: int) -> tuple[int, ...]:
        """Shape of a tensor in a network of these widths."""
        return self.tensors[name].shape(self.widths(hidden, outputs))

    @property
    def task_owned(self) -> tuple[str, ...]:
        """Names of the tensors that are private to each task."""
        return tuple(name for name, spec in self.tensors.items() if spec.owner == "task")

    @property
    def buffers(self) -> tuple[str, ...]:
        """Names of the tensors that have no gradient."""
        return statistics(self.tensors)

    def parameters(self, outputs: list[int]) -> int:
        """Parameters of the base network with one head per number of outputs."""
        return sum(
            math.prod(self.shape(name, self.groups, count))
            for name, spec in self.tensors.items()
            for count in (outputs if spec.owner == "task" else [1])
        )


def trainable(specs: Mapping[str, TensorSpec]) -> dict[str, None]:
    """Names of the tensors that training moves, with a mask of None for all their entries."""
    return {name: None for name, spec in specs.items() if spec.kind != "buffer"}


def statistics(specs: Mapping[str, TensorSpec]) -> tuple[str, ...]:
    """Names of the tensors that forward passes in training change."""
    return tuple(name for name, spec in specs.items() if spec.kind == "buffer")


class Architecture(Protocol):
    """Computes features from named tensors of any width, and declares these tensors."""

    @property
    def layout(self) -> Layout: ...

    @property
    def start(self) -> Tensors:
        """Values that training starts from, of a pretrained module; empty to start at random."""
        ...

    def features(
        self, tensors: Tensors, x: Tensor, generator: torch.Generator | None = None
    ) -> Tensor:
        """With a generator in training mode: dropout draws from it, and statistics among the
        tensors are updated in place.
        """
        ...

    def multiply_adds(self, tensors: Tensors) -> int:
        """Per row."""
        ...


@runtime_checkable
class FrozenCache(Architecture, Protocol):
    """An architecture that caches the activations of frozen units while newcomers are trained.

    Optional: for other architectures, frozen and new entries are merged in each step.
    """

    def frozen_activations(self, old: Tensors, x: Tensor) -> tuple[Tensor, ...]:
        """Activations of the older units that do not depend on newcomers."""
        ...

    def features_with_new(
        self, old: Tensors, new: Tensors, x: Tensor, frozen: Sequence[Tensor]
    ) -> Tensor:
        """The features of a network of older units and newcomers.

        Args:
            old: the entries between older units.
            new: the blocks that `surgery.newcomers` returns.
            x: inputs.
            frozen: what `frozen_activations` returns for `old` and these inputs.
        """
        ...


@runtime_checkable
class Normalising(Architecture, Protocol):
    """An architecture whose units may be normalised by running statistics. Optional, as above."""

    @property
    def scales(self) -> Mapping[str, str]:
        """By the name of a weight, the scale of the normalisation that follows it."""
        ...

    def features_holding(
        self, held: Tensors, tensors: Tensors, x: Tensor, generator: torch.Generator
    ) -> Tensor:
        """Features in training mode, with the units that `held` marks, by the name of a statistic,
        normalised as in evaluation mode. Their statistics stay as they are.
        """
        ...


@runtime_checkable
class KnownInputs(Architecture, Protocol):
    """An architecture that tells what its weights are multiplied with. Optional, as above."""

    @property
    def readers(self) -> Mapping[str, str | None]:
        """The weights whose inputs are known, each with the bias that is added to its products, if
        any; the head is one of them. Of such a weight, what it is multiplied with is all that its
        network does with it.
        """
        ...

    def show_inputs(self, tensors: Tensors, x: Tensor, see: Callable[[str, Tensor], None]) -> None:
        """Call `see` with the name of each such weight and its inputs in evaluation mode: one row
        for each row of x, and for each position or token, with as many columns as one unit has
        weights. A weight that is used several times is shown several times.
        """
        ...


def logits(
    architecture: Architecture,
    tensors: Tensors,
    x: Tensor,
    generator: torch.Generator | None = None,
) -> Tensor:
    """Outputs of a task before the sigmoid or softmax; in training mode with a generator."""
    return apply_head(architecture.features(tensors, x, generator), tensors)


def apply_head(features: Tensor, tensors: Tensors) -> Tensor:
    return F.linear(features, tensors[HEAD[0]], tensors[HEAD[1]])
