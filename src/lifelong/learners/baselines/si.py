"""SI: synaptic intelligence (Zenke, Poole and Ganguli, 2017).

A step lowers the loss by each weight's gradient times its change; the sum over the steps of a
training is the weight's contribution. Its importance is that contribution over the squared distance
it moved, summed over tasks. The penalty on the next task is
`strength * sum importance * (w - w_before)^2`.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar, Literal, final

import torch
from msgspec import UNSET, UnsetType
from torch import Tensor

from lifelong.learners.baselines.sequential import MethodMemory, SequentialLearner, TaskOutcome
from lifelong.learners.baselines.settings import SequentialSettings
from lifelong.networks.growing import GrowingNetwork
from lifelong.networks.layout import Tensors
from lifelong.training.budget import require, require_one_of
from lifelong.training.optimizer import gradient_of
from lifelong.training.penalties import Quadratic


@final
@dataclass(frozen=True)
class SISettings(SequentialSettings):
    """Symbols of SI.

    Attributes:
        strength: c.
        damping: xi, added to the squared distance, so that a weight that hardly moved gets little
            importance.
        below_zero: of importances, which a weight has that raised the loss: "cut" off, or "kept",
            so that it is pushed away from where it was. Left out, cut off.
    """

    strength: float = 1.0
    damping: float = 0.1
    # Not stored if it is left out, so that the keys of runs without it stay what they were.
    below_zero: Literal["cut", "kept"] | UnsetType = UNSET

    def __post_init__(self) -> None:
        super().__post_init__()
        require("strength", self.strength, "0 or more", lambda v: v >= 0)
        require("damping", self.damping, "above 0", lambda v: v > 0)
        if self.below_zero is not UNSET:
            require_one_of("below_zero", self.below_zero, ("cut", "kept"))


@final
class SI(SequentialLearner[SISettings]):
    """Measures the importance of each weight during training, by a few sums per step."""

    method: ClassVar[str] = "SI"
    remembers = ("importance",)
    settings_type = SISettings

    def _pulls(self, known: GrowingNetwork) -> Mapping[str, Quadratic]:
        twice = 2 * self.settings.strength  # Quadratic halves it
        return {
            name: Quadratic(twice * known.memory[f"importance/{name}"], tensor)
            for name, tensor in known.shared.items()
        }

    def _hook(self, start: Tensors) -> "PathIntegral":
        return PathIntegral(start)

    def _keep(self, outcome: TaskOutcome) -> MethodMemory:
        memory, kept = outcome.before.memory, {}
        assert isinstance(outcome.hook, PathIntegral)
        path = outcome.hook.state()
        for name, now in outcome.shared.items():
            distance = now - outcome.start[name]
            earned = path[name] / (distance.square() + self.settings.damping)
            total = memory.get(f"importance/{name}", torch.zeros_like(now)) + earned
            cut = self.settings.below_zero != "kept"
            kept[f"importance/{name}"] = total.clamp_min(0) if cut else total
        return MethodMemory(outcome.shared, kept)


@final
class PathIntegral:
    """Per entry, the decrease of the loss that it caused: minus the sum over steps of its gradient,
    without penalties, times its change.
    """

    def __init__(self, start: Tensors) -> None:
        self._saved = {name: torch.zeros_like(tensor) for name, tensor in start.items()}
        self._before: dict[str, Tensor] = {}
        self._gradients: dict[str, Tensor] = {}

    def state(self) -> dict[str, Tensor]:
        return self._saved

    def before_step(self, tensors: Tensors) -> None:
        self._before = {name: tensor.clone() for name, tensor in tensors.items()}
        self._gradients = {name: gradient_of(tensor).clone() for name, tensor in tensors.items()}

    def after_step(self, tensors: Tensors) -> None:
        for name, saved in self._saved.items():
            saved.addcmul_(self._gradients[name], self._before[name].sub_(tensors[name]))
