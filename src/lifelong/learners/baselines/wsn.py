"""WSN: winning subnetworks (Kang et al., 2022).

Weights and scores of weights are trained together. A task uses the weights of the highest scores,
those of earlier tasks among them, and what it uses is never trained again. Scores are carried from
task to task, as in the authors' code.
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
from lifelong.learners.baselines.views import movable_all, shared_weights
from lifelong.networks.growing import GrowingNetwork
from lifelong.networks.layout import Tensors
from lifelong.records import TaskRecord
from lifelong.tasks.task import Task
from lifelong.training.budget import Budget, require
from lifelong.training.loop import Problem, TrainingContext, solve
from lifelong.training.optimizer import under
from lifelong.training.scores import SCORE, TopScores


@final
@dataclass(frozen=True)
class WSNSettings:
    """Symbols of WSN.

    Attributes:
        share: c, of the weights of each layer that a task uses.
        budget: of each training.
    """

    share: float = 0.3
    budget: Budget = field(default_factory=Budget)

    def __post_init__(self) -> None:
        require("share", self.share, "above 0 and up to 1", lambda v: 0 < v <= 1)


@final
class WSN(SubnetworkLearner[WSNSettings]):
    """What a task uses is frozen, so nothing is forgotten; what none uses is free to move."""

    method: ClassVar[str] = "WSN"
    remembers = ("score",)
    settings_type = WSNSettings

    def _masks(self, network: GrowingNetwork, number: int) -> Tensors:
        return unpack_masks(network, number)

    def _memory_of(self, network: GrowingNetwork) -> Iterable[tuple[str, tuple[int, ...]]]:
        return packed_shapes(network)

    def _learn(
        self, task: Task, generator: torch.Generator, context: TrainingContext
    ) -> tuple[GrowingNetwork, TaskRecord]:
        known, start = self.network, self._start(task, generator)
        fresh = self._fresh(task, generator).only(shared_weights(known.architecture))
        scores = {name: known.memory.get(SCORE + name, fresh[name]) for name in fresh}
        chosen = TopScores(scores, self.settings.share)
        tensors = {**start.tensors, **under("score", scores)}
        free = {name: ~used for name, used in self._used_so_far().items()}
        problem = Problem(
            f"{task.name}: winning subnetwork",
            tensors,
            [chosen.objective(known.architecture, task, self.device)],
            movable={**movable_all(known.architecture, under("score", scores)), **free},
            buffers=known.architecture.layout.buffers,
            hook=chosen,
        )
        solution = solve(problem, self.settings.budget, generator, context)
        found = solution.tensors
        memory = {
            **known.memory,
            **pack_masks(len(known.tasks) + 1, chosen.masks(found)),
            **{SCORE + name: found[SCORE + name] for name in scores},
        }
        after = self._after(task, start, found, memory)
        return after, self._record(task, start, subnetwork=solution)
