"""DNN-Progressive: progressive networks (Rusu et al., 2016).

Every task adds a column, a base network of reduced width. Each layer reads the layer below in its
own column and, by lateral connections, in all earlier columns, which are frozen, so nothing is
forgotten. The laterals are plain weights, without the authors' adapters for reinforcement learning.
The columns of a traced module meet at the head only, which reads the features of all of them.
"""

from dataclasses import dataclass, field
from math import ceil
from typing import ClassVar, final

import torch
from torch import Tensor

from lifelong.learners.base import Learner
from lifelong.networks.columns import Columns, column_shape
from lifelong.networks.growing import GrowingNetwork, Network
from lifelong.networks.initial import uniform
from lifelong.networks.layout import NetworkError, Tensors, trainable
from lifelong.records import GroupRecord, TaskRecord
from lifelong.tasks.examples import to_device
from lifelong.tasks.task import Task
from lifelong.training.budget import Budget, plain_numbers, require
from lifelong.training.loop import Problem, TaskObjective, TrainingContext, solve
from lifelong.training.losses import loss_of
from lifelong.training.penalties import sparse_weights


@final
@dataclass(frozen=True)
class ProgressiveSettings:
    """Symbols of progressive networks.

    Attributes:
        width: of a column, as a share of the base network's width.
        mu: strength of l1 on the column in training (Equation 2).
        budget: of each training.
    """

    width: float = 0.25
    mu: float = 0.1
    budget: Budget = field(default_factory=Budget)

    def __post_init__(self) -> None:
        plain_numbers(self)
        require("width", self.width, "above 0 and at most 10", lambda v: 0 < v <= 10)
        require("mu", self.mu, "0 or more", lambda v: v >= 0)


@final
class Progressive(Learner[ProgressiveSettings]):
    """The tensors of a column are private to its task, and its units are born with the task."""

    method: ClassVar[str] = "DNN-Progressive"
    settings_type = ProgressiveSettings

    def _require_usable(self) -> None:
        self._require_network(self.network.architecture.layout.tensors, grows=True)
        if any(len(at.unique()) < len(self.tasks) for at in self.network.born.values()):
            raise NetworkError("there is a column without units")

    def _learn(
        self, task: Task, generator: torch.Generator, context: TrainingContext
    ) -> tuple[GrowingNetwork, TaskRecord]:
        number = len(self.tasks) + 1
        architecture, born = self.network.architecture, self._born(number)
        layout = architecture.layout
        make = uniform(generator, self.device)
        column = {
            name: make(spec, column_shape(architecture, born, number, name, task.outputs))
            for name, spec in layout.tensors.items()
        } | self._pretrained()
        earlier = tuple(known.private for known in self.network.tasks)
        train, valid = (to_device(rows, self.device) for rows in (task.train, task.valid))

        def forward(
            tensors: Tensors, x: Tensor, generator: torch.Generator | None = None
        ) -> Tensor:
            return Columns(architecture, (*earlier, tensors)).logits(x, generator)

        problem = Problem(
            f"{task.name}: column {number}",
            column,
            [TaskObjective(forward, loss_of(task), train, valid, training=forward)],
            movable=trainable(layout.tensors),
            penalties=sparse_weights(layout.tensors, self.settings.mu),
            buffers=layout.buffers,
        )
        solution = solve(problem, self.settings.budget, generator, context)
        trained = Network(architecture, solution.tensors, born)
        known = self.network.remember(task, trained, private=tuple(column))
        groups = {g: GroupRecord(len(b), added=int((b == number).sum())) for g, b in born.items()}
        return known, TaskRecord(task.name, number, groups, (solution.record("column"),))

    def _pretrained(self) -> dict[str, Tensor]:
        """The values of a pretrained module, where a column is as wide as that."""
        architecture = self.network.architecture
        if any(ceil(self.settings.width * w) != w for w in architecture.layout.groups.values()):
            return {}
        return {name: t.to(self.device, copy=True) for name, t in architecture.start.items()}

    def _view(self, network: GrowingNetwork, number: int) -> Columns:
        columns = tuple(known.private for known in network.tasks[:number])
        return Columns(network.architecture, columns)

    @staticmethod
    def _private_shape(network: GrowingNetwork, number: int, name: str) -> tuple[int, ...]:
        outputs = network.tasks[number - 1].outputs
        return column_shape(network.architecture, network.born, number, name, outputs)

    def _born(self, number: int) -> dict[str, Tensor]:
        """Births of all units, including those of the new column."""
        widths = self.network.architecture.layout.groups
        new = {g: torch.full((ceil(self.settings.width * w),), number) for g, w in widths.items()}
        return {g: torch.cat([self.network.born.get(g, n[:0]), n]) for g, n in new.items()}
