"""PackNet (Mallya and Lazebnik, 2018): prune, freeze, reuse.

A task trains the weights that are still free, beside those of earlier tasks, which it reads and
does not change. Then the smallest of its weights are freed for later tasks, and the others are
trained once more and frozen.

Departs from the paper: free weights start from fresh random numbers instead of zeros, because units
without a kept weight would have no gradient; and biases are each task's own.
"""

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import ClassVar, Literal, final

import torch
from torch import Tensor

from lifelong.learners.baselines.subnetworks import SubnetworkLearner
from lifelong.learners.baselines.views import movable_own, shared_weights
from lifelong.networks.growing import BITS, GrowingNetwork, Network
from lifelong.networks.layout import Tensors
from lifelong.networks.masks import bytes_for, pack_bits, unpack_bits
from lifelong.records import TaskRecord
from lifelong.tasks.examples import to_device
from lifelong.tasks.task import Task
from lifelong.training.budget import Budget, require, require_one_of
from lifelong.training.loop import Problem, TrainingContext, objective, solve


@final
@dataclass(frozen=True)
class PackNetSettings:
    """Symbols of PackNet.

    Attributes:
        share: of the weights of each layer that a task keeps.
        of: of which weights: the "free" ones, as in the paper, so that a later task gets less; or
            "all", so that tasks get equal parts for as long as there are free weights.
        budget: of the training before pruning, and again of the one after it.
    """

    share: float = 0.25
    of: Literal["free", "all"] = "free"
    budget: Budget = field(default_factory=Budget)

    def __post_init__(self) -> None:
        require("share", self.share, "above 0 and up to 1", lambda v: 0 < v <= 1)
        require_one_of("of", self.of, ("free", "all"))


@final
class PackNet(SubnetworkLearner[PackNetSettings]):
    """Each weight belongs to one task at most, or is free; a task uses its own and older ones.

    The number of a weight's task is stored in binary: one bit for a single task, 6 bits for 50.
    """

    method: ClassVar[str] = "PackNet"
    settings_type = PackNetSettings

    def _masks(self, network: GrowingNetwork, number: int) -> Tensors:
        owners = _owners(network)
        return {name: (owner >= 1) & (owner <= number) for name, owner in owners.items()}

    def _memory_of(self, network: GrowingNetwork) -> Iterable[tuple[str, tuple[int, ...]]]:
        for digit in range(len(network.tasks).bit_length()):
            for name, tensor in network.shared.items():
                yield _digit(digit, name), (bytes_for(tensor.numel()),)

    def _learn(
        self, task: Task, generator: torch.Generator, context: TrainingContext
    ) -> tuple[GrowingNetwork, TaskRecord]:
        known, fresh = self.network, self._fresh(task, generator)
        owners = _owners(known) or {
            name: torch.zeros_like(tensor, dtype=torch.long)
            for name, tensor in fresh.tensors.items()
            if name in shared_weights(known.architecture)
        }
        free = {name: owner == 0 for name, owner in owners.items()}
        held = {n: torch.where(free[n], fresh.tensors[n], t) for n, t in known.shared.items()}
        start = fresh.with_tensors({**fresh.tensors, **held})
        first = self._problem(task, start, start.tensors, free, "trained")
        trained = solve(first, self.settings.budget, generator, context)
        kept = {name: self._largest(trained.tensors[name], free[name]) for name in owners}
        pruned = {n: torch.where(free[n] & ~kept[n], 0.0, trained.tensors[n]) for n in owners}
        second = self._problem(task, start, {**trained.tensors, **pruned}, kept, "kept")
        retrained = solve(second, self.settings.budget, generator, context)
        number = len(known.tasks) + 1
        owners = {name: torch.where(kept[name], number, owner) for name, owner in owners.items()}
        after = self._after(task, start, retrained.tensors, _in_binary(owners, number))
        return after, self._record(task, start, trained=trained, kept=retrained)

    def _problem(
        self, task: Task, start: Network, tensors: Tensors, movable: Tensors, stage: str
    ) -> Problem:
        rows = (to_device(rows, self.device) for rows in (task.train, task.valid))
        return Problem(
            f"{task.name}: {stage}",
            tensors,
            [objective(start.architecture, task, *rows)],
            movable={**movable_own(start.architecture), **movable},
            buffers=start.architecture.layout.buffers,
        )

    def _largest(self, weight: Tensor, free: Tensor) -> Tensor:
        """The free entries that the task keeps."""
        left, settings = int(free.sum()), self.settings
        whole = left if settings.of == "free" else weight.numel()
        count = min(left, max(1, round(settings.share * whole)))
        sizes = torch.where(free, weight.abs(), -1.0).flatten()
        kept = torch.zeros(weight.numel(), dtype=torch.bool, device=weight.device)
        kept[sizes.topk(count).indices] = True
        return kept.reshape(weight.shape)


def _digit(digit: int, name: str) -> str:
    return f"{BITS}{digit}/{name}"


def _in_binary(owners: Tensors, tasks: int) -> dict[str, Tensor]:
    """The numbers of the owners, one packed mask for each binary digit, the lowest first."""
    return {
        _digit(digit, name): pack_bits((owner >> digit) % 2 == 1)
        for digit in range(tasks.bit_length())
        for name, owner in owners.items()
    }


def _owners(network: GrowingNetwork) -> dict[str, Tensor]:
    """Per shared weight, the number of the task that each entry belongs to, or 0."""
    digits = range(len(network.tasks).bit_length())
    owners = {n: torch.zeros_like(t, dtype=torch.long) for n, t in network.shared.items()}
    for name, owner in owners.items():
        for digit in digits:
            bits = network.memory[_digit(digit, name)]
            owner += unpack_bits(bits, tuple(owner.shape)).long() << digit
    return owners
