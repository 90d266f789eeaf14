"""DNN-L2: fine-tuning anchored at the weights after the previous task."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar, Literal, final

import torch
from msgspec import UNSET, UnsetType

from lifelong.learners.baselines.sequential import SequentialLearner
from lifelong.learners.baselines.settings import SequentialSettings
from lifelong.networks.growing import GrowingNetwork
from lifelong.networks.layout import Tensors
from lifelong.training.budget import require, require_one_of
from lifelong.training.penalties import Quadratic


@final
@dataclass(frozen=True)
class L2Settings(SequentialSettings):
    """The anchor is `strength * |w - w_before|^2`, as in Equation 6.

    Attributes:
        strength: of the anchor.
        holds: "old" weights, or "all": a new head too, at its random values, as where all heads
            are there from the start. Left out, the old ones.
    """

    strength: float = 0.1
    # Not stored if it is left out, so that the keys of runs without it stay what they were.
    holds: Literal["old", "all"] | UnsetType = UNSET

    def __post_init__(self) -> None:
        super().__post_init__()
        require("strength", self.strength, "0 or more", lambda v: v >= 0)
        if self.holds is not UNSET:
            require_one_of("holds", self.holds, ("old", "all"))


@final
class L2(SequentialLearner[L2Settings]):
    """Holds every weight equally, whatever its importance to earlier tasks."""

    method: ClassVar[str] = "DNN-L2"
    settings_type = L2Settings

    def _pulls(self, known: GrowingNetwork) -> Mapping[str, Quadratic]:
        return self._anchored(known.shared)

    def _pulls_on_new(self, new: Tensors) -> Mapping[str, Quadratic]:
        return self._anchored(new) if self.settings.holds == "all" else {}

    def _anchored(self, tensors: Tensors) -> dict[str, Quadratic]:
        twice = 2 * self.settings.strength  # Quadratic halves it
        return {n: Quadratic(torch.full_like(t, twice), t) for n, t in tensors.items()}
