"""HAT: hard attention to the task (Serrà et al., 2018).

Each task has a gate for each unit, the sigmoid of s times an embedding. While a task is learned,
s rises in each epoch from almost zero, where all gates are half open, to `s_max`, where they are
open or shut. A weight between units that earlier tasks use gets no gradient, so nothing is
forgotten. A penalty on the gates of units that no earlier task uses leaves room for later ones.

Departs from the paper: at the end gates are rounded to 0 or 1 (the authors leave them at
`sigmoid(s_max * e)`, which is only nearly so), and validated as such; biases are each task's own;
the embeddings have a learning rate of their own, since Adam moves all numbers equally fast and
embeddings are larger than weights.
"""

from collections.abc import Iterable
from dataclasses import dataclass, field
from math import ceil, sqrt
from typing import ClassVar, final

import torch
from torch import Tensor

from lifelong.learners.baselines.subnetworks import SubnetworkLearner
from lifelong.learners.baselines.views import movable_all, own_tensors, shared_weights
from lifelong.networks.growing import BITS, GrowingNetwork
from lifelong.networks.layout import INPUTS, Architecture, NetworkError, Tensors, logits
from lifelong.networks.masks import between, bytes_for, on_dim, pack_bits, spread, unpack_bits
from lifelong.networks.sharing import Sharing
from lifelong.records import TaskRecord
from lifelong.tasks.examples import to_device
from lifelong.tasks.task import Task
from lifelong.training.budget import Budget, require
from lifelong.training.loop import Problem, TaskObjective, TrainingContext, solve
from lifelong.training.losses import loss_of
from lifelong.training.optimizer import gradient_of

_LARGEST = 6.0  # of an embedding
_STEEPEST = 50.0  # of s times an embedding, where its hyperbolic cosine is taken
_SHORTEST = 20  # steps over which s rises, if an epoch has fewer
GATE = "gate/"


@final
@dataclass(frozen=True)
class HATSettings:
    """Symbols of HAT.

    Attributes:
        s_max: steepness of the gates at the end of an epoch.
        c: strength of the penalty on gates of units that no earlier task uses.
        gate_learning_rate: of the embeddings; it decays like that of the weights.
        budget: of each training.
    """

    s_max: float = 400.0
    c: float = 0.75
    gate_learning_rate: float = 0.05
    budget: Budget = field(default_factory=Budget)

    def __post_init__(self) -> None:
        require("s_max", self.s_max, "above 1", lambda v: v > 1)
        require("c", self.c, "0 or more", lambda v: v >= 0)
        require("gate_learning_rate", self.gate_learning_rate, "above 0", lambda v: v > 0)

    @property
    def stretch(self) -> float:
        """An embedding is so many times the number that is trained at the learning rate of the
        weights: a step of Adam is then longer by this factor, a step of SGD by its square.
        """
        ratio = self.gate_learning_rate / self.budget.learning_rate
        return ratio if self.budget.optimizer == "adam" else sqrt(ratio)


@final
class HAT(SubnetworkLearner[HATSettings]):
    """A task uses the weights between its units; one bit for each unit says which these are."""

    method: ClassVar[str] = "HAT"
    settings_type = HATSettings

    def _require_fit(self, architecture: Architecture) -> None:
        if not architecture.layout.groups:
            raise NetworkError(
                "HAT gates units, but this network has none that are known: trace the module by "
                "grow instead of adapt, or take another method"
            )

    def _masks(self, network: GrowingNetwork, number: int) -> Tensors:
        return _between(network.architecture, network.shared, _units(network, number))

    def _memory_of(self, network: GrowingNetwork) -> Iterable[tuple[str, tuple[int, ...]]]:
        for number in range(1, len(network.tasks) + 1):
            for group, born in network.born.items():
                yield _bits(number, group), (bytes_for(len(born)),)

    def sharing(self) -> Sharing:
        """Which units each task uses."""
        by_task = [_units(self.network, number) for number in range(1, len(self.tasks) + 1)]
        used = {group: torch.stack([u[group] for u in by_task]) for group in self.network.born}
        return Sharing(self.tasks, {group: units.cpu() for group, units in used.items()})

    def _learn(
        self, task: Task, generator: torch.Generator, context: TrainingContext
    ) -> tuple[GrowingNetwork, TaskRecord]:
        known, start = self.network, self._start(task, generator)
        architecture, widths = known.architecture, known.architecture.layout.groups
        stretch = self.settings.stretch
        drawn = {
            g: torch.randn(width, generator=generator) / stretch for g, width in widths.items()
        }
        embeddings = {GATE + group: e.to(self.device) for group, e in drawn.items()}
        used = self._units_so_far()
        batches = ceil(len(task.train) / self.settings.budget.batch_size)
        gates = Gates(self.settings, architecture, used, batches, self.device)
        weights = start.only(shared_weights(architecture))
        free = {n: ~mask for n, mask in _between(architecture, weights, used).items()}
        train, valid = (to_device(rows, self.device) for rows in (task.train, task.valid))
        tensors = {**start.tensors, **embeddings}
        problem = Problem(
            f"{task.name}: attention",
            tensors,
            [
                TaskObjective(
                    gates.relaxed,
                    loss_of(task),
                    train,
                    valid,
                    validated=gates.rounded,
                    training=gates.relaxed,
                )
            ],
            movable={**movable_all(architecture, embeddings), **free},
            buffers=architecture.layout.buffers,
            hook=gates,
        )
        solution = solve(problem, self.settings.budget, generator, context)
        number = len(known.tasks) + 1
        units = {group: is_open(solution.tensors[GATE + group]) for group in widths}
        bits = {_bits(number, group): pack_bits(mask) for group, mask in units.items()}
        # A shut unit sends nothing, so that the biases that the task keeps for it are zero too.
        shut = gates.rounded_own(solution.tensors)
        after = self._after(task, start, {**solution.tensors, **shut}, {**known.memory, **bits})
        return after, self._record(task, start, attention=solution)

    def _units_so_far(self) -> dict[str, Tensor]:
        """Per group, the units that any task uses."""
        widths = self.network.architecture.layout.groups
        used = {g: torch.zeros(n, dtype=torch.bool, device=self.device) for g, n in widths.items()}
        for number in range(1, len(self.tasks) + 1):
            for group, units in _units(self.network, number).items():
                used[group] |= units
        return used


@final
class Gates:
    """The gates of the task that is being learned: a hook of its training."""

    def __init__(
        self,
        settings: HATSettings,
        architecture: Architecture,
        used: Tensors,
        batches: int,
        device: torch.device,
    ) -> None:
        self._settings, self._architecture = settings, architecture
        self._inputs = {INPUTS: torch.ones(architecture.layout.inputs[0], device=device)}
        self._unused = {group: 1.0 - units.float() for group, units in used.items()}
        self._count = sum(float(unused.sum()) for unused in self._unused.values())
        self._period = max(batches, _SHORTEST)
        self._taken = torch.zeros((), device=device)

    def state(self) -> dict[str, Tensor]:
        return {"taken": self._taken}

    @property
    def steepness(self) -> float:
        """s: rises by equal steps over an epoch."""
        low, high = 1 / self._settings.s_max, self._settings.s_max
        return low + (high - low) * (int(self._taken) % self._period) / (self._period - 1)

    def relaxed(
        self, tensors: Tensors, x: Tensor, generator: torch.Generator | None = None
    ) -> Tensor:
        """The forward pass in training: what a unit computes is multiplied by its gate."""
        steep = self.steepness * self._settings.stretch
        gates = {g: torch.sigmoid(steep * tensors[GATE + g]) for g in self._unused}
        return logits(self._architecture, self._gated(tensors, gates), x, generator)

    def rounded(self, tensors: Tensors, x: Tensor) -> Tensor:
        """The forward pass with gates that are open or shut."""
        return logits(self._architecture, self._rounded(tensors), x)

    def rounded_own(self, tensors: Tensors) -> dict[str, Tensor]:
        """The task's own tensors with gates that are open or shut."""
        found = self._rounded(tensors)
        return {name: found[name] for name in own_tensors(self._architecture)}

    def _rounded(self, tensors: Tensors) -> dict[str, Tensor]:
        gates = {group: is_open(tensors[GATE + group]).float() for group in self._unused}
        return self._gated(tensors, gates)

    def _gated(self, tensors: Tensors, gates: Tensors) -> dict[str, Tensor]:
        """Incoming weights and biases times the gate of their unit: as good as its output times the
        gate, since a gate is not negative.
        """
        found = dict(tensors)
        for name, spec in self._architecture.layout.tensors.items():
            if spec.out is not None and spec.owner == "shared":
                gate = spread(spec.axes[spec.out], {**self._inputs, **gates})
                found[name] = tensors[name] * on_dim(gate, spec.out, len(spec.axes))
        return found

    def before_step(self, tensors: Tensors) -> None:
        """Add the penalty's gradient, and undo what the steepness did to the embeddings' ones."""
        s, settings = self.steepness, self._settings
        for group, unused in self._unused.items():
            embedding = tensors[GATE + group] * settings.stretch
            gate = torch.sigmoid(s * embedding)
            if self._count:
                slope = s * settings.stretch * gate * (1 - gate)
                gradient_of(tensors[GATE + group]).add_(settings.c * slope * unused / self._count)
            steep = torch.cosh((s * embedding).clamp(-_STEEPEST, _STEEPEST)) + 1
            undo = settings.s_max / s * steep / (torch.cosh(embedding) + 1)
            gradient_of(tensors[GATE + group]).mul_(undo)

    def after_step(self, tensors: Tensors) -> None:
        self._taken += 1
        most = _LARGEST / self._settings.stretch
        for group in self._unused:
            tensors[GATE + group].clamp_(-most, most)


def is_open(embedding: Tensor) -> Tensor:
    """The gates that are open: those of positive embeddings, or else that of the largest."""
    return embedding >= embedding.max().clamp_max(torch.finfo(embedding.dtype).tiny)


def _between(architecture: Architecture, weights: Tensors, units: Tensors) -> dict[str, Tensor]:
    specs, like = architecture.layout.tensors, next(iter(units.values()))
    chosen = {INPUTS: like.new_ones(architecture.layout.inputs[0]), **units}
    return {name: between(specs[name], chosen, tuple(t.shape)) for name, t in weights.items()}


def _bits(number: int, group: str) -> str:
    return f"{BITS}{number}/{group}"


def _units(network: GrowingNetwork, number: int) -> dict[str, Tensor]:
    return {
        group: unpack_bits(network.memory[_bits(number, group)], (len(born),))
        for group, born in network.born.items()
    }
