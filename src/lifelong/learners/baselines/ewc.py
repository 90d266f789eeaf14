"""DNN-EWC: elastic weight consolidation (Kirkpatrick et al., 2017; online: Schwarz et al., 2018).

While a task is learned, each weight is held at its value after each earlier task t, by the Fisher
information F_t of that task: `strength / 2 * sum_t F_t (w - w_t)^2`.

The sum over tasks is again one quadratic: its weight is the sum of the F_t, its center the weighted
mean of the w_t. So the memory does not grow with the number of tasks.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar, Literal, final

from torch import Tensor

from lifelong.learners.baselines.fisher import Labels, fisher_after, require_fisher
from lifelong.learners.baselines.sequential import MethodMemory, SequentialLearner, TaskOutcome
from lifelong.learners.baselines.settings import SequentialSettings
from lifelong.networks.growing import GrowingNetwork
from lifelong.training.budget import require, require_one_of
from lifelong.training.penalties import Quadratic


@final
@dataclass(frozen=True)
class EWCSettings(SequentialSettings):
    """Symbols of EWC.

    Attributes:
        strength: lambda.
        labels: for the Fisher information: "all", weighted by the network's probabilities;
            "sampled" from these probabilities; the "true" ones; or the "predicted" ones.
        examples: number of rows that it is estimated from; all training rows if None.
        tasks: "separate" holds each task's own weights w_t; "online" holds the last weights, with
            decaying importance.
        decay: gamma of online EWC, the share of the importance that is left after each task.
    """

    strength: float = 100.0
    labels: Labels = "all"
    examples: int | None = None
    tasks: Literal["separate", "online"] = "separate"
    decay: float = 1.0
    adam: Literal["anew", "carried"] = "anew"

    def __post_init__(self) -> None:
        super().__post_init__()
        require("strength", self.strength, "0 or more", lambda v: v >= 0)
        require("decay", self.decay, "from 0 to 1", lambda v: 0 <= v <= 1)
        require_one_of("tasks", self.tasks, ("separate", "online"))
        require_fisher(self.labels, self.examples)


@final
class EWC(SequentialLearner[EWCSettings]):
    """Weights that earlier tasks depend on are held; the others are free to move."""

    method: ClassVar[str] = "DNN-EWC"
    remembers = ("importance", "center")
    settings_type = EWCSettings

    def _pulls(self, known: GrowingNetwork) -> Mapping[str, Quadratic]:
        strength = self.settings.strength
        held = {name: _held(known, name) for name in known.shared}
        return {n: Quadratic(strength * pull.weight, pull.center) for n, pull in held.items()}

    def _keep(self, outcome: TaskOutcome) -> MethodMemory:
        settings = self.settings
        importance = fisher_after(outcome, settings.labels, settings.examples)
        memory: dict[str, Tensor] = {}
        for name, now in outcome.shared.items():
            pull = Quadratic(importance[name], now)
            if outcome.before.tasks:
                old = _held(outcome.before, name)
                online = settings.tasks == "online"
                pull = (Quadratic(settings.decay * old.weight, now) if online else old) + pull
            memory |= {f"importance/{name}": pull.weight, f"center/{name}": pull.center}
        return MethodMemory(outcome.shared, memory)


def _held(known: GrowingNetwork, name: str) -> Quadratic:
    """The penalty of all earlier tasks on a tensor, before lambda."""
    return Quadratic(known.memory[f"importance/{name}"], known.memory[f"center/{name}"])
