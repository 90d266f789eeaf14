"""Networks as data: an architecture, tensors by name, and the task at which each unit was born.

Units are only ever appended, so the network as of a task is a prefix of every axis.
"""

import math
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import TypeAlias, final

import torch
from torch import Tensor

from lifelong.networks.layout import (
    HEAD,
    Architecture,
    Region,
    Tensors,
    TensorSpec,
    Widths,
    logits,
    put,
    take,
)
from lifelong.tasks.task import Kind, Task

OWN = "own/"  # prefix of tensors in a method's memory that belong to no shared tensor


@final
@dataclass(frozen=True, eq=False)
class Network:
    """A network as one task sees it: everything that a prediction for this task needs.

    `born` holds, per hidden group, the number of the task at which each unit was added. Values
    are never changed in place: surgery and training return new networks.
    """

    architecture: Architecture
    tensors: Tensors
    born: Mapping[str, Tensor]

    def width(self, group: str) -> int:
        return self.widths[group]

    @cached_property
    def widths(self) -> dict[str, int]:
        """Units per group, including inputs and outputs."""
        outputs = len(self.tensors[HEAD[1]])
        return self.architecture.layout.widths(_hidden(self.born), outputs)

    @property
    def inputs(self) -> tuple[int, ...]:
        """Shape of one input."""
        return self.architecture.layout.inputs

    def multiply_adds(self) -> int:
        """Per row."""
        return self.architecture.multiply_adds(self.tensors)

    def with_tensors(self, tensors: Tensors) -> "Network":
        return replace(self, tensors=tensors)

    def only(self, names: Collection[str]) -> dict[str, Tensor]:
        """The tensors of these names."""
        return {name: self.tensors[name] for name in names}

    def logits(self, x: Tensor) -> Tensor:
        return logits(self.architecture, self.tensors, x)


def first_network(
    architecture: Architecture, widths: Mapping[str, int], outputs: int, make: "Initialise"
) -> Network:
    """A network of these widths whose units are all born with task 1.

    At the widths of a pretrained module it has that module's values.
    """
    layout = architecture.layout
    tensors = {
        name: make(spec, layout.shape(name, widths, outputs))
        for name, spec in layout.tensors.items()
    }
    if widths == layout.groups:
        device = tensors[HEAD[1]].device
        tensors |= {name: t.to(device, copy=True) for name, t in architecture.start.items()}
    born = {group: torch.ones(widths[group], dtype=torch.long) for group in layout.groups}
    return Network(architecture, tensors, born)


Initialise: TypeAlias = Callable[[TensorSpec, tuple[int, ...]], Tensor]


def uniform(generator: torch.Generator, device: torch.device | str = "cpu") -> Initialise:
    """Weights uniform within ±1/sqrt(fan-in), biases zero, scales one, others as declared.

    Drawn on the CPU, so that a seed gives the same weights on every device.
    """

    def make(spec: TensorSpec, size: tuple[int, ...]) -> Tensor:
        if spec.kind != "weight":
            return torch.full(size, resting_value(spec), dtype=torch.float32, device=device)
        bound = 1 / math.sqrt(math.prod(n for dim, n in enumerate(size) if dim != spec.out))
        drawn = torch.rand(size, dtype=torch.float32, generator=generator)
        return ((drawn * 2 - 1) * bound).to(device)

    return make


def resting_value(spec: TensorSpec) -> float:
    """Of a new entry of a tensor that is no weight."""
    if spec.initial is not None:
        return spec.initial
    return 1.0 if spec.kind == "scale" else 0.0


@final
@dataclass(frozen=True, eq=False)
class LearnedTask:
    """A learned task: the meaning of its outputs, and its private tensors."""

    name: str
    kind: Kind
    outputs: int
    private: Tensors


@final
@dataclass(frozen=True, eq=False)
class GrowingNetwork:
    """All that was learned: shared tensors, births of their units, and each task's own tensors.

    Tasks are numbered from 1. Immutable, like `Network`: learning a task returns a new value.

    Attributes:
        memory: what a method keeps of earlier tasks to learn the next one, such as the importance
            of each weight. A name is a word and the shared tensor whose shape it has, as in
            "importance/hidden1.weight"; or begins with "own/", for any shape. Predictions do not
            need it.
    """

    architecture: Architecture
    shared: Tensors = field(default_factory=dict)
    born: Mapping[str, Tensor] = field(default_factory=dict)
    tasks: tuple[LearnedTask, ...] = ()
    memory: Tensors = field(default_factory=dict)
    # Cached views. Not an argument of __init__, so that `replace` starts with an empty cache.
    _as_of: dict[int, Network] = field(init=False, default_factory=dict, repr=False)

    @cached_property
    def numbers(self) -> dict[str, int]:
        """Task numbers by name, from 1."""
        return {known.name: number for number, known in enumerate(self.tasks, 1)}

    def everything(self) -> dict[str, Tensor]:
        """All tensors: shared ones by name, private ones as "NUMBER.NAME"."""
        private = {
            f"{number}.{name}": tensor
            for number, known in enumerate(self.tasks, 1)
            for name, tensor in known.private.items()
        }
        return {**self.shared, **private}

    def specs(self) -> dict[str, TensorSpec]:
        """Declarations of the tensors of `everything`."""
        declared = self.architecture.layout.tensors
        private = {
            f"{number}.{name}": declared[name]
            for number, known in enumerate(self.tasks, 1)
            for name in known.private
        }
        return {**{name: declared[name] for name in self.shared}, **private}

    def base_parameters(self) -> int:
        """Parameters of the base network with one head per task: the size of DNN-MTL."""
        return self.architecture.layout.parameters([known.outputs for known in self.tasks])

    def as_of(self, number: int) -> Network:
        """The network as of task `number`: a prefix of every axis, and the task's own head.

        The prefixes are contiguous, so that rounding does not depend on what was appended since.
        A few views are cached.
        """
        found = self._as_of.get(number)
        if found is None:
            found = self._prefix(number)
            if len(self._as_of) >= 4:
                self._as_of.clear()
            self._as_of[number] = found
        return found

    def _prefix(self, number: int) -> Network:
        regions = self.regions(number)
        tensors = {name: take(t, regions[name]).contiguous() for name, t in self.shared.items()}
        private = self.tasks[number - 1].private
        return Network(self.architecture, {**tensors, **private}, self._born_by(number))

    def regions(self, number: int) -> dict[str, Region]:
        """Per shared tensor, the entries between units born up to task `number`."""
        known = _hidden(self._born_by(number))
        units = {group: torch.arange(width) for group, width in known.items()}
        specs, widths = self.architecture.layout.tensors, _hidden(self.born)
        return {name: specs[name].region(widths, out=units, into=units) for name in self.shared}

    def _born_by(self, number: int) -> dict[str, Tensor]:
        return {group: stamps[stamps <= number] for group, stamps in self.born.items()}

    def without_stamps(self, number: int) -> Network:
        """The whole network with the head of task `number` (DEN-No-Stamp)."""
        known, layout = self.tasks[number - 1], self.architecture.layout
        born = self._born_by(number)
        private = {
            name: enlarged(
                tensor,
                layout.tensors[name],
                layout.widths(_hidden(born), known.outputs),
                layout.widths(_hidden(self.born), known.outputs),
                lambda spec, size: torch.full(size, resting_value(spec)),
            )
            for name, tensor in known.private.items()
        }
        return Network(self.architecture, {**self.shared, **private}, self.born)

    @cached_property
    def statistics(self) -> dict[str, Tensor]:
        """The statistics of the last task, which a new task starts from."""
        last = self.tasks[-1].private if self.tasks else {}
        return {name: last[name] for name in self.architecture.layout.buffers if name in last}

    def with_head(self, weight: Tensor, bias: Tensor) -> Network:
        """The whole network with the head of a new task."""
        head = dict(zip(HEAD, (weight, bias), strict=True))
        return Network(self.architecture, {**self.shared, **self.statistics, **head}, self.born)

    def remember(
        self, task: Task, network: Network, private: Collection[str] | None = None
    ) -> "GrowingNetwork":
        """This network after `task` was learned as `network`.

        The tensors named `private` become the task's own; by default those that the layout says.
        """
        names = self.architecture.layout.task_owned if private is None else private
        own = network.only(names)
        shared = {name: t for name, t in network.tensors.items() if name not in own}
        known = LearnedTask(task.name, task.kind, task.outputs, own)
        return replace(self, shared=shared, born=network.born, tasks=(*self.tasks, known))


def _hidden(born: Mapping[str, Tensor]) -> dict[str, int]:
    return {group: len(stamps) for group, stamps in born.items()}


def enlarged(
    tensor: Tensor, spec: TensorSpec, before: Widths, after: Widths, make: Initialise
) -> Tensor:
    """The tensor at larger widths: entries between existing units are kept, others are made."""
    if before == after or tuple(tensor.shape) == spec.shape(after):
        return tensor
    grown = make(spec, spec.shape(after)).to(tensor.device)
    units = {group: torch.arange(width) for group, width in before.items()}
    put(grown, spec.region(after, out=units, into=units), tensor)
    return grown


def parameters(tensors: Tensors) -> int:
    return sum(tensor.numel() for tensor in tensors.values())


def nonzero(tensors: Tensors) -> int:
    return sum(int(torch.count_nonzero(tensor)) for tensor in tensors.values())
