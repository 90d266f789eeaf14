"""SupSup: supermasks in superposition (Wortsman et al., 2020), with the task given.

The weights are random and never trained: in each layer all have the same size and a random sign. A
task finds, by scores of weights, the subnetwork that solves it.

Departs from the paper: biases and head of a task are trained, as those of every method here; and a
task starts from fresh scores instead of the mean of the earlier ones.
"""

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import ClassVar, final

import torch

from lifelong.learners.baselines.subnetworks import (
    SubnetworkLearner,
    pack_masks,
    packed_shapes,
    unpack_masks,
)
from lifelong.learners.baselines.views import movable_own, shared_weights
from lifelong.networks.growing import GrowingNetwork
from lifelong.networks.initial import all_of_one_size
from lifelong.networks.layout import Tensors
from lifelong.records import TaskRecord
from lifelong.tasks.task import Task
from lifelong.training.budget import Budget, require
from lifelong.training.loop import Problem, TrainingContext, solve
from lifelong.training.optimizer import under
from lifelong.training.scores import TopScores


@final
@dataclass(frozen=True)
class SupSupSettings:
    """Symbols of SupSup.

    Attributes:
        share: of the weights of each layer that a task uses.
        budget: of each training.
    """

    share: float = 0.5
    budget: Budget = field(default_factory=Budget)

    def __post_init__(self) -> None:
        require("share", self.share, "above 0 and up to 1", lambda v: 0 < v <= 1)


@final
class SupSup(SubnetworkLearner[SupSupSettings]):
    """Tasks share only what no task changes, so nothing is forgotten."""

    method: ClassVar[str] = "SupSup"
    settings_type = SupSupSettings

    def _masks(self, network: GrowingNetwork, number: int) -> Tensors:
        return unpack_masks(network, number)

    def _memory_of(self, network: GrowingNetwork) -> Iterable[tuple[str, tuple[int, ...]]]:
        return packed_shapes(network)

    def _learn(
        self, task: Task, generator: torch.Generator, context: TrainingContext
    ) -> tuple[GrowingNetwork, TaskRecord]:
        known, start = self.network, self._start(task, generator)
        names, specs = shared_weights(known.architecture), known.architecture.layout.tensors
        if not known.tasks:
            signed = {name: all_of_one_size(specs[name], start.tensors[name]) for name in names}
            start = start.with_tensors({**start.tensors, **signed})
        scores = self._fresh(task, generator).only(names)
        chosen = TopScores(scores, self.settings.share)
        problem = Problem(
            f"{task.name}: supermask",
            {**start.tensors, **under("score", scores)},
            [chosen.objective(known.architecture, task, self.device)],
            movable={**movable_own(known.architecture), **dict.fromkeys(under("score", scores))},
            buffers=known.architecture.layout.buffers,
            hook=chosen,
        )
        solution = solve(problem, self.settings.budget, generator, context)
        masks = pack_masks(len(known.tasks) + 1, chosen.masks(solution.tensors))
        after = self._after(task, start, solution.tensors, {**known.memory, **masks})
        return after, self._record(task, start, supermask=solution)
