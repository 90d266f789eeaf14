"""LPF: the network of the first task, frozen, and a linear head for each task.

The floor: a method that is not better, or smaller, than this one learns nothing from later tasks
but what any features would give.
"""

from dataclasses import dataclass, field, replace
from typing import ClassVar, final

import torch

from lifelong.learners.base import Learner
from lifelong.networks.growing import GrowingNetwork, first_network
from lifelong.networks.initial import uniform
from lifelong.networks.layout import trainable
from lifelong.records import GroupRecord, TaskRecord
from lifelong.tasks.examples import to_device
from lifelong.tasks.task import Task
from lifelong.training.budget import Budget, require
from lifelong.training.loop import Problem, TrainingContext, objective, solve
from lifelong.training.penalties import sparse_weights


@final
@dataclass(frozen=True)
class LPFSettings:
    """Strength of l1 on what a task trains (Equation 2), and the budget of each training."""

    mu: float = 0.01
    budget: Budget = field(default_factory=Budget)

    def __post_init__(self) -> None:
        require("mu", self.mu, "0 or more", lambda v: v >= 0)


@final
class LPF(Learner[LPFSettings]):
    """Tasks share what no later task changes, so nothing is forgotten."""

    method: ClassVar[str] = "LPF"
    settings_type = LPFSettings

    def _require_usable(self) -> None:
        self._require_network(self.network.architecture.layout.task_owned)

    def _learn(
        self, task: Task, generator: torch.Generator, context: TrainingContext
    ) -> tuple[GrowingNetwork, TaskRecord]:
        known, architecture = self.network, self.network.architecture
        make = uniform(generator, self.device)
        fresh = first_network(architecture, architecture.layout.groups, task.outputs, make)
        start = fresh.with_tensors({**fresh.tensors, **known.shared, **known.statistics})
        moving = {n: s for n, s in architecture.layout.tensors.items() if n not in known.shared}
        rows = (to_device(rows, self.device) for rows in (task.train, task.valid))
        goal = objective(architecture, task, *rows)
        if known.tasks:  # what is frozen runs as in predictions, with the first task's statistics
            goal = replace(goal, training=None)
        problem = Problem(
            f"{task.name}: head" if known.tasks else f"{task.name}: network",
            start.tensors,
            [goal],
            movable=trainable(moving),
            penalties=sparse_weights(moving, self.settings.mu),
            buffers=() if known.tasks else architecture.layout.buffers,
        )
        solution = solve(problem, self.settings.budget, generator, context)
        network = start.with_tensors(solution.tensors)
        groups = {group: GroupRecord(len(born)) for group, born in network.born.items()}
        stages = (solution.record("head" if known.tasks else "network"),)
        return known.remember(task, network), TaskRecord(
            task.name, len(known.tasks) + 1, groups, stages
        )
