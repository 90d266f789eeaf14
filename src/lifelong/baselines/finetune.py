"""DNN: the base network, trained on each task in turn, with nothing done against forgetting."""

from typing import ClassVar, final

from lifelong.baselines.in_turn import InTurn
from lifelong.baselines.training import Turns


@final
class Finetuning(InTurn[Turns]):
    """Each task starts from the weights that the one before has left."""

    method: ClassVar[str] = "DNN"
    settings_type = Turns
