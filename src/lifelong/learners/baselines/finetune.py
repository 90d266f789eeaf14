"""DNN: the base network, trained on each task in turn, with nothing done against forgetting."""

from typing import ClassVar, final

from lifelong.learners.baselines.sequential import SequentialLearner
from lifelong.learners.baselines.settings import SequentialSettings


@final
class Finetuning(SequentialLearner[SequentialSettings]):
    """Each task starts from the weights that the one before has left."""

    method: ClassVar[str] = "DNN"
    settings_type = SequentialSettings
