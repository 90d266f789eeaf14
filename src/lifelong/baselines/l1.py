"""DNN-L1: fine-tuning with the l1 penalty of Equation 2 on the whole network, for every task."""

from typing import ClassVar, final

from lifelong.baselines.in_turn import InTurn
from lifelong.baselines.training import Turns
from lifelong.network import Tensors
from lifelong.penalties import Penalty, sparsity


@final
class L1(InTurn[Turns]):
    """A sparse network; what a task does not need fades, whether or not an earlier one did."""

    method: ClassVar[str] = "DNN-L1"
    settings_type = Turns

    def _penalties(self, new: Tensors, old: Tensors) -> dict[str, Penalty]:
        tensors = {**old, **new}
        return {n: sparsity(t, self.settings.mu) for n, t in tensors.items() if t.ndim > 1}
