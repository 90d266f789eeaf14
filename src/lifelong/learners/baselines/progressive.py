"""DNN-Progressive: progressive networks (Rusu et al., 2016).

Every task adds a column of its own, a copy of the base network at some width. Each of its layers
reads the layer below in its own column and, by lateral connections, in all earlier columns; these
are fixed, so nothing is forgotten. The laterals are plain weights, without the adapters that the
authors add for reinforcement learning.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from math import ceil
from typing import ClassVar, final

import torch
import torch.nn.functional as F
from torch import Tensor

from lifelong.learners.base import Learner
from lifelong.networks.growing import GrowingNetwork, Network, uniform
from lifelong.networks.sequential import (
    HEAD,
    Architecture,
    Convolution,
    Linear,
    Sequential,
    Tensors,
    layer_output,
)
from lifelong.records import GroupRecord, StageRecord, TaskRecord
from lifelong.tasks.task import Task, to_device
from lifelong.training.budget import Budget, require
from lifelong.training.loop import Problem, TaskObjective, TrainingContext, loss_of, solve
from lifelong.training.penalties import sparsity


@final
@dataclass(frozen=True)
class ProgressiveSettings:
    """Symbols of progressive networks.

    Attributes:
        width: of a column, as a share of the base network's.
        mu: strength of l1 on a column while it is trained (Equation 2).
        budget: of each training.
    """

    width: float = 0.25
    mu: float = 0.1
    budget: Budget = field(default_factory=Budget)

    def __post_init__(self) -> None:
        require("width", self.width, "above 0", lambda v: v > 0)
        require("mu", self.mu, "0 or more", lambda v: v >= 0)


@final
@dataclass(frozen=True, eq=False)
class Columns:
    """The columns up to a task's own, which comes last and has the head."""

    sequential: Sequential
    columns: tuple[Tensors, ...]

    @property
    def inputs(self) -> tuple[int, ...]:
        return self.sequential.inputs

    @property
    def tensors(self) -> Tensors:
        return {
            f"{number}.{name}": tensor
            for number, column in enumerate(self.columns, 1)
            for name, tensor in column.items()
            if number == len(self.columns) or name not in HEAD
        }

    def logits(self, x: Tensor) -> Tensor:
        """All columns layer by layer; below the first layer with weights they are one."""
        states = [x]
        for layer in self.sequential.layers:
            if not isinstance(layer, Linear | Convolution):
                states = [layer_output(layer, {}, state) for state in states]
                continue
            below = [torch.cat(states[: number + 1], dim=1) for number in range(len(self.columns))]
            states = [
                layer_output(layer, column, read)
                for column, read in zip(self.columns, below, strict=True)
            ]
        head = self.columns[-1]
        return F.linear(torch.cat(states, dim=1), head["head.weight"], head["head.bias"])

    def multiply_adds(self) -> int:
        """Of one row; the heads of earlier columns are not asked."""
        heads = sum(column["head.weight"].numel() for column in self.columns[:-1])
        return sum(self.sequential.multiply_adds(column) for column in self.columns) - heads


@final
class Progressive(Learner[ProgressiveSettings]):
    """The tensors of a column are its task's own, and its units are born with the task."""

    method: ClassVar[str] = "DNN-Progressive"
    settings_type = ProgressiveSettings

    def _learn(
        self, task: Task, generator: torch.Generator, context: TrainingContext
    ) -> tuple[GrowingNetwork, TaskRecord]:
        number = len(self.tasks) + 1
        sequential, born = _sequential(self.network.architecture), self._born(number)
        make = uniform(generator, self.device)
        column = {
            name: make(axes, _shape(sequential, born, number, name, task.outputs))
            for name, axes in sequential.axes.items()
        }
        earlier = tuple(known.private for known in self.network.tasks)
        rows = (to_device(rows, self.device) for rows in (task.train, task.valid))
        problem = Problem(
            f"{task.name}: column {number}",
            column,
            [
                TaskObjective(
                    lambda tensors, x: Columns(sequential, (*earlier, tensors)).logits(x),
                    loss_of(task.kind),
                    *rows,
                )
            ],
            movable=dict.fromkeys(column),
            penalties={n: sparsity(t, self.settings.mu) for n, t in column.items() if t.ndim > 1},
        )
        solution = solve(problem, self.settings.budget, generator, context)
        trained = Network(sequential, solution.tensors, born)
        known = self.network.remember(task, trained, private=tuple(column))
        stage = StageRecord("column", solution.loss, solution.steps, solution.seconds)
        groups = {g: GroupRecord(len(b), added=int((b == number).sum())) for g, b in born.items()}
        return known, TaskRecord(task.name, number, groups, (stage,))

    def _view(self, network: GrowingNetwork, number: int) -> Columns:
        columns = tuple(known.private for known in network.tasks[:number])
        return Columns(_sequential(network.architecture), columns)

    @staticmethod
    def _private_shape(network: GrowingNetwork, number: int, name: str) -> tuple[int, ...]:
        outputs = network.tasks[number - 1].outputs
        return _shape(_sequential(network.architecture), network.born, number, name, outputs)

    def _born(self, number: int) -> dict[str, Tensor]:
        """When the units were born, with those of the column to come."""
        widths = self.network.architecture.widths
        new = {g: torch.full((ceil(self.settings.width * w),), number) for g, w in widths.items()}
        return {g: torch.cat([self.network.born.get(g, n[:0]), n]) for g, n in new.items()}


def _shape(
    sequential: Sequential, born: Mapping[str, Tensor], number: int, name: str, outputs: int
) -> tuple[int, ...]:
    """Of a tensor of a column: it reads all columns so far, and writes its own."""
    so_far = {group: int((stamps <= number).sum()) for group, stamps in born.items()}
    return tuple(
        int((born[axis.group] == number).sum()) if axis is not None and axis.receives else size
        for axis, size in zip(
            sequential.axes[name], sequential.shape(name, so_far, outputs), strict=True
        )
    )


def _sequential(architecture: Architecture) -> Sequential:
    if not isinstance(architecture, Sequential):
        raise TypeError(f"columns are made of mlp or convnet, not of {architecture!r}")
    return architecture
