"""LoRA per task: the network of the first task plus a low-rank change of each weight for each task.

After Hu et al., 2022: a weight of a later task is `W + scale * B A`, where W is that of the first
task and never changes, and A and B have `rank` rows and columns. B starts at zero, so each task
starts from the first one's network. The kernels of a convolution count as columns.
"""

from collections.abc import Iterable
from dataclasses import dataclass, field
from math import prod, sqrt
from typing import ClassVar, final

import torch
from torch import Tensor

from lifelong.learners.baselines.views import ViewLearner, movable_all, movable_own
from lifelong.networks.growing import OWN, GrowingNetwork
from lifelong.networks.layout import Tensors, logits
from lifelong.records import TaskRecord
from lifelong.tasks.examples import to_device
from lifelong.tasks.task import Task
from lifelong.training.budget import Budget, require
from lifelong.training.loop import Problem, TaskObjective, TrainingContext, solve
from lifelong.training.losses import loss_of


@final
@dataclass(frozen=True)
class LoRASettings:
    """Symbols of LoRA.

    Attributes:
        rank: r; of a weight with fewer rows or columns, as many as it has.
        scale: alpha / r.
        budget: of each training.
    """

    rank: int = 4
    scale: float = 1.0
    budget: Budget = field(default_factory=Budget)

    def __post_init__(self) -> None:
        whole = "a whole number above 0"
        require("rank", self.rank, whole, lambda v: isinstance(v, int) and v > 0)
        require("scale", self.scale, "above 0", lambda v: v > 0)


@final
class LoRA(ViewLearner[LoRASettings]):
    """Tasks share only what no later task changes, so nothing is forgotten."""

    method: ClassVar[str] = "LoRA"
    settings_type = LoRASettings

    def _weights(self, network: GrowingNetwork, number: int) -> Tensors:
        return self._changed(network.shared, _factors(network, number))

    def _changed(self, shared: Tensors, factors: Tensors) -> dict[str, Tensor]:
        """The shared weights plus the changes that these factors make."""
        changed = dict(shared)
        for name in {name.rpartition("/")[0] for name in factors}:
            change = factors[f"{name}/b"] @ factors[f"{name}/a"]
            changed[name] = shared[name] + self.settings.scale * change.reshape(shared[name].shape)
        return changed

    def _memory_of(self, network: GrowingNetwork) -> Iterable[tuple[str, tuple[int, ...]]]:
        for number in range(2, len(network.tasks) + 1):
            for name, shape in self._shapes(network.shared):
                yield f"{OWN}{number}/{name}", shape

    def _shapes(self, shared: Tensors) -> Iterable[tuple[str, tuple[int, int]]]:
        """Names and shapes of the factors of one task."""
        for name, tensor in shared.items():
            rows, columns = len(tensor), prod(tensor.shape[1:])
            rank = min(self.settings.rank, rows, columns)
            yield f"{name}/a", (rank, columns)
            yield f"{name}/b", (rows, rank)

    def _learn(
        self, task: Task, generator: torch.Generator, context: TrainingContext
    ) -> tuple[GrowingNetwork, TaskRecord]:
        known, start = self.network, self._start(task, generator)
        factors = {
            name: torch.zeros(shape, device=self.device)
            if name.endswith("/b")
            else _drawn(shape, generator).to(self.device)
            for name, shape in self._shapes(known.shared)
        }

        def forward(
            tensors: Tensors, x: Tensor, generator: torch.Generator | None = None
        ) -> Tensor:
            weights = self._changed(known.shared, {name: tensors[name] for name in factors})
            return logits(start.architecture, {**tensors, **weights}, x, generator)

        rows = (to_device(rows, self.device) for rows in (task.train, task.valid))
        own = {**movable_own(start.architecture), **dict.fromkeys(factors)}
        problem = Problem(
            f"{task.name}: low rank" if known.tasks else f"{task.name}: network",
            {**start.tensors, **factors},
            [TaskObjective(forward, loss_of(task), *rows, training=forward)],
            movable=own if known.tasks else movable_all(start.architecture),
            buffers=start.architecture.layout.buffers,
        )
        solution = solve(problem, self.settings.budget, generator, context)
        number = len(known.tasks) + 1
        kept = {f"{OWN}{number}/{name}": solution.tensors[name] for name in factors}
        after = self._after(task, start, solution.tensors, {**known.memory, **kept})
        return after, self._record(task, start, adapted=solution)


def _factors(network: GrowingNetwork, number: int) -> dict[str, Tensor]:
    """The factors of a task; none of the first."""
    start = f"{OWN}{number}/"
    memory = network.memory.items()
    return {name.removeprefix(start): t for name, t in memory if name.startswith(start)}


def _drawn(shape: tuple[int, int], generator: torch.Generator) -> Tensor:
    """Uniform within ±1/sqrt(columns), as fresh weights are."""
    bound = 1 / sqrt(shape[1])
    return (torch.rand(shape, generator=generator) * 2 - 1) * bound
