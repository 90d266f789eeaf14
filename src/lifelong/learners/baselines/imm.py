"""IMM: incremental moment matching (Lee et al., 2017), by the mean or by the mode.

Each task starts from the weights of the previous task and is held near them by an l2 pull ("weight"
and "L2 transfer"). Then the weights of all tasks are merged for prediction: by their mean, or by
the mode of the product of Gaussians around each, with the Fisher information as precision,
`sum_t F_t w_t / sum_t F_t`.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar, Literal, final

import torch
from torch import Tensor

from lifelong.learners.baselines.fisher import Labels, fisher_after, require_fisher
from lifelong.learners.baselines.sequential import MethodMemory, SequentialLearner, TaskOutcome
from lifelong.learners.baselines.settings import SequentialSettings
from lifelong.networks.growing import GrowingNetwork
from lifelong.networks.layout import Tensors
from lifelong.training.budget import require, require_one_of
from lifelong.training.penalties import Quadratic


@final
@dataclass(frozen=True)
class IMMSettings(SequentialSettings):
    """Symbols of IMM.

    Attributes:
        merge: "mean" or "mode".
        transfer: strength of the pull `transfer * |w - w_before|^2` while a task is learned.
        labels: for the Fisher information (mode only), "all", "sampled" or "true".
        examples: number of rows that it is estimated from; all training rows if None.
        floor: added to the Fisher information, so that weights that no task depends on are
            averaged.
    """

    merge: Literal["mean", "mode"] = "mode"
    transfer: float = 0.01
    labels: Labels = "all"
    examples: int | None = None
    floor: float = 1e-6

    def __post_init__(self) -> None:
        super().__post_init__()
        require_one_of("merge", self.merge, ("mean", "mode"))
        require("transfer", self.transfer, "0 or more", lambda v: v >= 0)
        require("floor", self.floor, "above 0", lambda v: v > 0)
        require_fisher(self.labels, self.examples)


@final
class IMM(SequentialLearner[IMMSettings]):
    """Predicts with the merged network; the next task starts from the last, unmerged one."""

    method: ClassVar[str] = "IMM"
    remembers = ("precision", "last")
    settings_type = IMMSettings

    def _start(self, known: GrowingNetwork) -> Tensors:
        return {name: known.memory[f"last/{name}"] for name in known.shared}

    def _pulls(self, known: GrowingNetwork) -> Mapping[str, Quadratic]:
        twice = 2 * self.settings.transfer  # Quadratic halves it
        return {n: Quadratic(torch.full_like(t, twice), t) for n, t in self._start(known).items()}

    def _keep(self, outcome: TaskOutcome) -> MethodMemory:
        before, precision = outcome.before, self._precision(outcome)
        merged: dict[str, Tensor] = {}
        memory: dict[str, Tensor] = {}
        for name, now in outcome.shared.items():
            around = Quadratic(precision[name], now)
            if before.tasks:
                around = Quadratic(before.memory[f"precision/{name}"], before.shared[name]) + around
            merged[name] = around.center
            memory |= {f"precision/{name}": around.weight, f"last/{name}": now}
        return MethodMemory(merged, memory)

    def _precision(self, outcome: TaskOutcome) -> Mapping[str, Tensor]:
        """Precision of the Gaussian around this task's weights; 1 for all if merged by the mean."""
        tensors, settings = outcome.network.tensors, self.settings
        if settings.merge == "mean":
            return {name: torch.ones_like(tensor) for name, tensor in tensors.items()}
        information = fisher_after(outcome, settings.labels, settings.examples)
        return {name: tensor + settings.floor for name, tensor in information.items()}
