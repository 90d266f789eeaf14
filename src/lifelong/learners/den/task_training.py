"""What the algorithms share while one task is learned: its rows, its trainings, its record."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, final

import msgspec
import torch
from torch import Tensor

from lifelong.learners.den.frozen_cache import newcomers_objective
from lifelong.learners.den.settings import Settings
from lifelong.networks.growing import Initialise, Network, uniform
from lifelong.networks.sequential import HEAD, Tensors
from lifelong.networks.surgery import newcomers, with_newcomers
from lifelong.records import GroupRecord, StageRecord, TaskRecord
from lifelong.tasks.task import Examples, Task, to_device
from lifelong.training.distill import distilled
from lifelong.training.loop import (
    STANDALONE,
    Problem,
    TaskObjective,
    TrainingContext,
    objective,
    require_finite,
    solve,
    validation_loss,
)
from lifelong.training.penalties import (
    Around,
    L1Norm,
    Penalty,
    SparseGroup,
    SquaredL2,
    Sum,
    sparsity,
)


@final
@dataclass(eq=False)
class TaskTraining:
    """One task being learned."""

    task: Task
    number: int
    settings: Settings
    generator: torch.Generator
    device: torch.device
    context: TrainingContext = STANDALONE
    stages: list[StageRecord] = field(default_factory=list)
    events: dict[str, GroupRecord] = field(default_factory=dict)

    def train(
        self,
        stage: str,
        network: Network,
        penalties: Mapping[str, Penalty],
        inputs: Tensor | None = None,
    ) -> tuple[Network, float]:
        """Solve Equation 2 or 4; `inputs` are the columns that the network takes, None for all."""
        objectives = objective(network.architecture, self.task.kind, *self.rows(inputs))
        tensors, loss = self._solve(stage, network.tensors, objectives, penalties)
        return network.with_tensors(tensors), loss

    def train_newcomers(
        self,
        stage: str,
        network: Network,
        penalties: Mapping[str, Penalty],
        teacher: Network | None = None,
    ) -> tuple[Network, float]:
        """Solve Equation 5 or 6, where only what touches a newcomer moves, at the cost of that.

        The penalties are those of the blocks that `newcomers` makes.
        """
        train, valid = self.rows()
        if teacher is not None:
            train = distilled(train, teacher, self.task.kind, self.settings.distillation)
        objectives = newcomers_objective(network, self.number, self.task.kind, train, valid)
        new = newcomers(network, self.number)
        tensors, loss = self._solve(stage, new, objectives, penalties)
        return with_newcomers(network, self.number, tensors), loss

    def _solve(
        self,
        stage: str,
        tensors: Tensors,
        objectives: TaskObjective,
        penalties: Mapping[str, Penalty],
    ) -> tuple[Tensors, float]:
        name = f"{self.task.name}: {stage}"
        problem = Problem(name, tensors, [objectives], dict.fromkeys(tensors), penalties)
        solution = solve(problem, self.settings.budget, self.generator, self.context)
        self.stages.append(StageRecord(stage, solution.loss, solution.steps, solution.seconds))
        return solution.tensors, solution.loss

    def loss(self, network: Network) -> float:
        """Validation loss: what tau is compared with."""
        objectives = [objective(network.architecture, self.task.kind, *self.rows())]
        loss = validation_loss(objectives, network.tensors)
        require_finite(loss, self.task.name, "between two trainings")
        return loss

    def rows(self, inputs: Tensor | None = None) -> tuple[Examples, Examples]:
        """Training and validation rows, on the device."""
        return (
            to_device(self.task.train, self.device, inputs),
            to_device(self.task.valid, self.device, inputs),
        )

    def fresh(self) -> Initialise:
        return uniform(self.generator, self.device)

    def note(self, group: str, **events: Any) -> None:
        """Keep for the record what happened to a group."""
        self.events[group] = msgspec.structs.replace(self._event(group), **events)

    def note_pruned(self, group: str, count: int) -> None:
        self.note(group, dropped=self._event(group).dropped + count)

    def _event(self, group: str) -> GroupRecord:
        return self.events.get(group, GroupRecord(0))

    def record(self, network: Network) -> TaskRecord:
        for group, stamps in network.born.items():
            self.note(group, units=len(stamps))
        groups = {group: self.events[group] for group in network.born}
        return TaskRecord(self.task.name, self.number, groups, tuple(self.stages))


def movement(settings: Settings, centers: Tensors) -> dict[str, Penalty]:
    """What it costs to move away from the previous weights (Equations 4 and 6).

    Departs from the paper: Equation 4 has an l2 penalty on the weights themselves and Equation 6 a
    squared distance from the previous ones. Neither keeps a single weight where it was, or a zero
    zero. An l1 penalty on the distance (the footnote of Equation 4 allows for l1) does both: what
    need not move stays exactly where it was, so that sparse networks stay sparse and drift belongs
    to few units. The squared anchor comes on top where `lam` is above 0.
    """
    return {
        name: Around(center, Sum(sparsity(center, settings.mu), SquaredL2(settings.lam)))
        if settings.lam
        else Around(center, sparsity(center, settings.mu))
        for name, center in centers.items()
        if name not in HEAD
    } | {"head.weight": L1Norm(settings.mu)}


def growth(settings: Settings, new: Tensors) -> dict[str, Penalty]:
    """The sparse-group penalty on what touches newcomers (Equation 5)."""
    penalty = SparseGroup(settings.mu, settings.gamma)
    weights = (name for name, tensor in new.items() if tensor.ndim > 1 and name not in HEAD)
    return {**dict.fromkeys(weights, penalty), "head.weight": L1Norm(settings.mu)}
