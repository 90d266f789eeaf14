"""Networks as data: a skeleton that says how to compute, tensors by name, and when units were born.

Units are only ever appended, so the network as it was known to a task is a prefix of every axis.
"""

import math
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import TypeAlias, final

import torch
import torch.nn.functional as F
from torch import Tensor

from lifelong.networks.sequential import (
    HEAD,
    Architecture,
    Axes,
    Tensors,
    logits,
)
from lifelong.tasks.task import Kind, Task

OWN = "own/"  # begins the names of a method's memory that is about no tensor


@final
@dataclass(frozen=True, eq=False)
class Network:
    """A network as one task sees it: everything that a prediction for this task needs.

    `born` holds for each hidden group the number of the task at which each unit appeared. Values
    are never changed in place: surgery and training make new networks.
    """

    architecture: Architecture
    tensors: Tensors
    born: Mapping[str, Tensor]

    def width(self, group: str) -> int:
        return len(self.born[group]) if group in self.born else self.architecture.inputs[0]

    @property
    def inputs(self) -> tuple[int, ...]:
        """Shape of one input."""
        return tuple(self.architecture.inputs)

    def multiply_adds(self) -> int:
        """Of one row."""
        return self.architecture.multiply_adds(self.tensors)

    def with_tensors(self, tensors: Tensors) -> "Network":
        return replace(self, tensors=tensors)

    def logits(self, x: Tensor) -> Tensor:
        return logits(self.architecture, self.tensors, x)


def first_network(
    architecture: Architecture, widths: Mapping[str, int], outputs: int, make: "Initialise"
) -> Network:
    """A network of these widths, all of it born with task 1."""
    tensors = {
        name: make(architecture.axes[name], architecture.shape(name, widths, outputs))
        for name in architecture.axes
    }
    born = {group: torch.ones(widths[group], dtype=torch.long) for group in architecture.widths}
    return Network(architecture, tensors, born)


Initialise: TypeAlias = Callable[[Axes, tuple[int, ...]], Tensor]


def uniform(generator: torch.Generator, device: torch.device | str = "cpu") -> Initialise:
    """Weights uniform within ±1/sqrt(fan-in), biases zero.

    Drawn on the CPU, so that a seed means the same on every device.
    """

    def make(axes: Axes, size: tuple[int, ...]) -> Tensor:
        if len(axes) == 1:
            return torch.zeros(size, dtype=torch.float32, device=device)
        bound = 1 / math.sqrt(math.prod(size[1:]))
        drawn = torch.rand(size, dtype=torch.float32, generator=generator)
        return ((drawn * 2 - 1) * bound).to(device)

    return make


@final
@dataclass(frozen=True, eq=False)
class LearnedTask:
    """A task that was learned: what its outputs mean, and the tensors that are its own."""

    name: str
    kind: Kind
    outputs: int
    private: Tensors


@final
@dataclass(frozen=True, eq=False)
class GrowingNetwork:
    """All that was learned: the shared tensors, when their units were born, and each task's own.

    The task at position p of `tasks` has number p + 1. A value, like `Network`: learning a task
    makes a new one, so whoever holds this one can go on predicting with it.

    Attributes:
        memory: what a method needs to know of earlier tasks to learn the next one, such as the
            importance of each weight: by a word and the shared tensor that it is about, as in
            "importance/hidden1.weight"; or, of whatever shape, by a name that begins with "own/".
            Predictions do not need it.
    """

    architecture: Architecture
    shared: Tensors = field(default_factory=dict)
    born: Mapping[str, Tensor] = field(default_factory=dict)
    tasks: tuple[LearnedTask, ...] = ()
    memory: Tensors = field(default_factory=dict)
    _as_of: dict[int, Network] = field(default_factory=dict, repr=False)

    @cached_property
    def numbers(self) -> dict[str, int]:
        """Of the tasks, by name, from 1."""
        return {known.name: number for number, known in enumerate(self.tasks, 1)}

    def everything(self) -> dict[str, Tensor]:
        """All tensors: the shared ones by name, each task's own by its number and name."""
        private = {
            f"{number}.{name}": tensor
            for number, known in enumerate(self.tasks, 1)
            for name, tensor in known.private.items()
        }
        return {**self.shared, **private}

    def as_of(self, number: int) -> Network:
        """The network as task `number` knows it: a prefix of every axis, and its own head.

        The prefixes are made contiguous, so that a product rounds the same however much was
        appended since, and a few are kept for the next time.
        """
        found = self._as_of.get(number)
        if found is None:
            found = self._cut(number)
            if len(self._as_of) >= 4:
                self._as_of.clear()
            self._as_of[number] = found
        return found

    def _cut(self, number: int) -> Network:
        born = {group: stamps[stamps <= number] for group, stamps in self.born.items()}
        tensors = {
            name: prefix(tensor, self.architecture.axes[name], born).contiguous()
            for name, tensor in self.shared.items()
        }
        return Network(self.architecture, {**tensors, **self.tasks[number - 1].private}, born)

    def without_stamps(self, number: int) -> Network:
        """The network as it is now, read by the head of task `number` (DEN-No-Stamp)."""
        private = dict(self.tasks[number - 1].private)
        axes = self.architecture.axes["head.weight"]
        senders = next(axis for axis in axes if axis is not None)
        now = len(self.born[senders.group]) * senders.span
        weight = private["head.weight"]
        private["head.weight"] = F.pad(weight, (0, now - weight.shape[1]))
        return Network(self.architecture, {**self.shared, **private}, self.born)

    def with_head(self, weight: Tensor, bias: Tensor) -> Network:
        """The network as it is now, with the head of a task to come."""
        head = dict(zip(HEAD, (weight, bias), strict=True))
        return Network(self.architecture, {**self.shared, **head}, self.born)

    def remember(
        self, task: Task, network: Network, private: Collection[str] = HEAD
    ) -> "GrowingNetwork":
        """This network once `network` has been found for `task`, whose own the tensors named
        `private` become.
        """
        own = {name: network.tensors[name] for name in private}
        shared = {name: t for name, t in network.tensors.items() if name not in own}
        known = LearnedTask(task.name, task.kind, task.outputs, own)
        return replace(
            self, shared=shared, born=network.born, tasks=(*self.tasks, known), _as_of={}
        )


def prefix(tensor: Tensor, axes: Axes, born: Mapping[str, Tensor]) -> Tensor:
    """The entries between the units listed in `born`: a view."""
    for dim, axis in enumerate(axes):
        if axis is not None and axis.group in born:
            tensor = tensor.narrow(dim, 0, len(born[axis.group]) * axis.span)
    return tensor


def parameters(tensors: Tensors) -> int:
    return sum(tensor.numel() for tensor in tensors.values())


def nonzero(tensors: Tensors) -> int:
    return sum(int(torch.count_nonzero(tensor)) for tensor in tensors.values())
