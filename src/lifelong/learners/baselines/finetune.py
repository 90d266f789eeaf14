"""DNN: the base network, fine-tuned on one task after another, without any defence."""

from typing import ClassVar, final

from lifelong.learners.baselines.sequential import SequentialLearner
from lifelong.learners.baselines.settings import SequentialSettings


@final
class Finetuning(SequentialLearner[SequentialSettings]):
    """Each task starts from the weights after the previous one."""

    method: ClassVar[str] = "DNN"
    settings_type = SequentialSettings
