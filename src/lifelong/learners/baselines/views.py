"""One network of constant size that each task sees in its own way.

What a task sees is made of the shared weights and of what is kept for it. Biases, scales, running
statistics and head are its own: they are few beside the weights, and so nothing that a later task
trains reaches an earlier one but by the shared weights.
"""

from abc import abstractmethod
from collections.abc import Iterable
from dataclasses import replace
from typing import ClassVar, TypeVar, final

import torch
from torch import Tensor

from lifelong.learners.base import Learner
from lifelong.networks.growing import OWN, GrowingNetwork, Network, first_network
from lifelong.networks.initial import uniform
from lifelong.networks.layout import Architecture, NetworkError, Tensors, trainable
from lifelong.records import GroupRecord, TaskRecord
from lifelong.tasks.task import Task
from lifelong.training.loop import Solution

S = TypeVar("S")


class ViewLearner(Learner[S]):
    """Base class: a method says what the weights of a task are."""

    remembers: ClassVar[tuple[str, ...]] = ()  # of each shared tensor, in a network's memory

    @abstractmethod
    def _weights(self, network: GrowingNetwork, number: int) -> Tensors:
        """The weights with which task `number` predicts."""

    def _memory_of(self, network: GrowingNetwork) -> Iterable[tuple[str, tuple[int, ...] | None]]:
        """Names of what predictions need of the network's memory, each with the shape that it must
        have, or None for any.
        """
        del network
        return ()

    @final
    def _view(self, network: GrowingNetwork, number: int) -> Network:
        return network.view(number, lambda number: self._made(network, number))

    def _made(self, network: GrowingNetwork, number: int) -> Network:
        tensors = {**self._weights(network, number), **network.tasks[number - 1].private}
        return Network(network.architecture, tensors, network.born)

    @final
    def _serving_memory(self) -> Tensors:
        return {name: self.network.memory[name] for name, _ in self._memory_of(self.network)}

    def _require_usable(self) -> None:
        network = self.network
        self._require_network(own_tensors(network.architecture), memory=self.remembers)
        for name, shape in self._memory_of(network):
            found = network.memory.get(name)
            if found is None or (shape is not None and tuple(found.shape) != shape):
                came = "nothing" if found is None else f"shape {tuple(found.shape)}"
                raise NetworkError(f"it remembers {came} as {name.removeprefix(OWN)}, not {shape}")

    @final
    def _fresh(self, task: Task, generator: torch.Generator) -> Network:
        """A freshly initialised network for the task."""
        architecture = self.network.architecture
        make = uniform(generator, self.device)
        return first_network(architecture, architecture.layout.groups, task.outputs, make)

    @final
    def _start(self, task: Task, generator: torch.Generator) -> Network:
        """The shared weights and the last statistics, with biases and a head that are fresh."""
        fresh = self._fresh(task, generator)
        known = {**self.network.shared, **self.network.statistics}
        return fresh.with_tensors({**fresh.tensors, **known})

    @final
    def _after(
        self, task: Task, network: Network, tensors: Tensors, memory: Tensors
    ) -> GrowingNetwork:
        """All that was learned, with the task as these tensors of the network, and this memory."""
        trained = network.with_tensors({name: tensors[name] for name in network.tensors})
        own = own_tensors(network.architecture)
        return replace(self.network.remember(task, trained, private=own), memory=memory)

    @final
    def _record(self, task: Task, network: Network, **trained: Solution) -> TaskRecord:
        groups = {group: GroupRecord(len(born)) for group, born in network.born.items()}
        stages = tuple(solution.record(stage) for stage, solution in trained.items())
        return TaskRecord(task.name, len(self.tasks) + 1, groups, stages)


def own_tensors(architecture: Architecture) -> tuple[str, ...]:
    """Names of what each task has for itself: biases, scales, statistics and head."""
    specs = architecture.layout.tensors
    return tuple(n for n, spec in specs.items() if spec.kind != "weight" or spec.owner == "task")


def shared_weights(architecture: Architecture) -> tuple[str, ...]:
    """Names of the weights that tasks share."""
    own = own_tensors(architecture)
    return tuple(name for name in architecture.layout.tensors if name not in own)


def movable_own(architecture: Architecture) -> dict[str, Tensor | None]:
    """Biases, scales and head as what a training may move."""
    own = own_tensors(architecture)
    return {**trainable({name: architecture.layout.tensors[name] for name in own})}


def movable_all(architecture: Architecture, others: Iterable[str] = ()) -> dict[str, Tensor | None]:
    """All that a training may move, and tensors of the method's own."""
    return {**trainable(architecture.layout.tensors), **dict.fromkeys(others)}
