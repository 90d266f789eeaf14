"""Piggyback (Mallya, Davis and Lazebnik, 2018): masks over the weights of the first task.

The first task trains the whole network, which is then fixed: it takes the place of the authors'
network that was trained on ImageNet. Each later task learns one real number for each weight, and
uses the weights whose numbers are above a threshold.
"""

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import ClassVar, final

import torch
from torch import Tensor

from lifelong.learners.baselines.subnetworks import (
    SubnetworkLearner,
    pack_masks,
    packed_shapes,
    unpack_masks,
)
from lifelong.learners.baselines.views import movable_all, movable_own
from lifelong.networks.growing import GrowingNetwork
from lifelong.networks.layout import Tensors, logits
from lifelong.records import TaskRecord
from lifelong.tasks.examples import to_device
from lifelong.tasks.task import Task
from lifelong.training.budget import Budget, require
from lifelong.training.loop import Problem, TaskObjective, TrainingContext, solve
from lifelong.training.losses import loss_of
from lifelong.training.optimizer import under
from lifelong.training.scores import SCORE, straight_through


@final
@dataclass(frozen=True)
class PiggybackSettings:
    """Symbols of Piggyback.

    Attributes:
        initial: value of each real-valued mask before training.
        threshold: tau; a weight is used if its real-valued mask is at least this.
        budget: of each training.
    """

    initial: float = 0.01
    threshold: float = 0.005
    budget: Budget = field(default_factory=Budget)

    def __post_init__(self) -> None:
        require("threshold", self.threshold, "any number", lambda _: True)
        allowed = f"{self.threshold!r} (the threshold) or more"
        require("initial", self.initial, allowed, lambda v: v >= self.threshold)


@final
class Piggyback(SubnetworkLearner[PiggybackSettings]):
    """Tasks share only what no later task changes, so nothing is forgotten."""

    method: ClassVar[str] = "Piggyback"
    settings_type = PiggybackSettings

    def _masks(self, network: GrowingNetwork, number: int) -> Tensors:
        if number > 1:
            return unpack_masks(network, number)
        return {n: torch.ones_like(t, dtype=torch.bool) for n, t in network.shared.items()}

    def _memory_of(self, network: GrowingNetwork) -> Iterable[tuple[str, tuple[int, ...]]]:
        return packed_shapes(network, first=2)

    def _learn(
        self, task: Task, generator: torch.Generator, context: TrainingContext
    ) -> tuple[GrowingNetwork, TaskRecord]:
        known, start = self.network, self._start(task, generator)
        initial = self.settings.initial
        scores = {name: torch.full_like(t, initial) for name, t in known.shared.items()}
        real = under("score", scores)
        movable = {**movable_own(known.architecture), **dict.fromkeys(real)}
        problem = Problem(
            f"{task.name}: mask" if known.tasks else f"{task.name}: backbone",
            {**start.tensors, **real},
            [self._objective(task, tuple(scores))],
            movable=movable if known.tasks else movable_all(known.architecture),
            buffers=known.architecture.layout.buffers,
        )
        solution = solve(problem, self.settings.budget, generator, context)
        tau = self.settings.threshold
        masks = {name: solution.tensors[SCORE + name] >= tau for name in scores}
        memory = {**known.memory, **pack_masks(len(known.tasks) + 1, masks)}
        after = self._after(task, start, solution.tensors, memory)
        return after, self._record(task, start, mask=solution)

    def _objective(self, task: Task, masked: tuple[str, ...]) -> TaskObjective:
        architecture, tau = self.network.architecture, torch.tensor(self.settings.threshold)

        def forward(
            tensors: Tensors, x: Tensor, generator: torch.Generator | None = None
        ) -> Tensor:
            weights = {
                name: straight_through(tensors[name], tensors[SCORE + name], tau, by_size=False)
                for name in masked
            }
            return logits(architecture, {**tensors, **weights}, x, generator)

        rows = (to_device(rows, self.device) for rows in (task.train, task.valid))
        return TaskObjective(forward, loss_of(task), *rows, training=forward)
