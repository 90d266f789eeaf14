"""The methods that DEN is measured against, one file each."""

from lifelong.baselines.ewc import EWC, EWCSettings
from lifelong.baselines.finetune import Finetuning
from lifelong.baselines.imm import IMM, IMMSettings
from lifelong.baselines.joint import Joint
from lifelong.baselines.l1 import L1, L1Settings
from lifelong.baselines.l2 import L2, L2Settings
from lifelong.baselines.progressive import Progressive, ProgressiveSettings
from lifelong.baselines.si import SI, SISettings
from lifelong.baselines.single import Single
from lifelong.baselines.training import Training, Turns

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
    "Single",
    "Training",
    "Turns",
]
