"""DNN-L2: fine-tuning anchored at the weights after the previous task."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar, final

import torch

from lifelong.learners.baselines.sequential import SequentialLearner
from lifelong.learners.baselines.settings import SequentialSettings
from lifelong.networks.growing import GrowingNetwork
from lifelong.training.budget import require
from lifelong.training.penalties import Quadratic


@final
@dataclass(frozen=True)
class L2Settings(SequentialSettings):
    """The anchor is `strength * |w - w_before|^2`, as in Equation 6."""

    strength: float = 0.1

    def __post_init__(self) -> None:
        super().__post_init__()
        require("strength", self.strength, "0 or more", lambda v: v >= 0)


@final
class L2(SequentialLearner[L2Settings]):
    """Holds every weight equally, whatever its importance to earlier tasks."""

    method: ClassVar[str] = "DNN-L2"
    settings_type = L2Settings

    def _pulls(self, known: GrowingNetwork) -> Mapping[str, Quadratic]:
        twice = 2 * self.settings.strength  # Quadratic halves it
        return {n: Quadratic(torch.full_like(t, twice), t) for n, t in known.shared.items()}
