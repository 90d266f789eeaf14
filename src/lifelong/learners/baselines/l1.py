"""DNN-L1: fine-tuning with the l1 penalty of Equation 2 on the whole network, for every task."""

from dataclasses import dataclass
from typing import ClassVar, final

from lifelong.learners.baselines.sequential import SequentialLearner
from lifelong.learners.baselines.settings import SequentialSettings
from lifelong.networks.growing import GrowingNetwork
from lifelong.training.penalties import Penalty, sparse_weights


@final
@dataclass(frozen=True)
class L1Settings(SequentialSettings):
    """`mu` applies to all weights, for every task."""

    mu: float = 0.1


@final
class L1(SequentialLearner[L1Settings]):
    """Stays sparse, but weights that only earlier tasks need decay to zero."""

    method: ClassVar[str] = "DNN-L1"
    settings_type = L1Settings

    def _penalties(self, known: GrowingNetwork) -> dict[str, Penalty]:
        return sparse_weights(known.architecture.layout.tensors, self.settings.mu)
