"""The methods that DEN is compared with, one per file."""

from lifelong.learners.baselines.ewc import EWC, EWCSettings
from lifelong.learners.baselines.finetune import Finetuning
from lifelong.learners.baselines.imm import IMM, IMMSettings
from lifelong.learners.baselines.joint import Joint
from lifelong.learners.baselines.l1 import L1, L1Settings
from lifelong.learners.baselines.l2 import L2, L2Settings
from lifelong.learners.baselines.progressive import Progressive, ProgressiveSettings
from lifelong.learners.baselines.settings import SequentialSettings, TrainingSettings
from lifelong.learners.baselines.si import SI, SISettings
from lifelong.learners.baselines.single import Single

__all__ = [
    "EWC",
    "IMM",
    "L1",
    "L2",
    "SI",
    "EWCSettings",
    "Finetuning",
    "IMMSettings",
    "Joint",
    "L1Settings",
    "L2Settings",
    "Progressive",
    "ProgressiveSettings",
    "SISettings",
    "SequentialSettings",
    "Single",
    "TrainingSettings",
]
