"""The methods that DEN is compared with, one per file."""

from lifelong.learners.baselines.apd import APD, APDSettings
from lifelong.learners.baselines.er import ER, ERSettings
from lifelong.learners.baselines.ewc import EWC, EWCSettings
from lifelong.learners.baselines.finetune import Finetuning
from lifelong.learners.baselines.gpm import GPM, GPMSettings
from lifelong.learners.baselines.hat import HAT, HATSettings
from lifelong.learners.baselines.imm import IMM, IMMSettings
from lifelong.learners.baselines.joint import Joint
from lifelong.learners.baselines.l1 import L1, L1Settings
from lifelong.learners.baselines.l2 import L2, L2Settings
from lifelong.learners.baselines.lora import LoRA, LoRASettings
from lifelong.learners.baselines.lpf import LPF, LPFSettings
from lifelong.learners.baselines.lwf import LwF, LwFSettings
from lifelong.learners.baselines.packnet import PackNet, PackNetSettings
from lifelong.learners.baselines.piggyback import Piggyback, PiggybackSettings
from lifelong.learners.baselines.progressive import Progressive, ProgressiveSettings
from lifelong.learners.baselines.settings import SequentialSettings, TrainingSettings
from lifelong.learners.baselines.si import SI, SISettings
from lifelong.learners.baselines.single import Single
from lifelong.learners.baselines.supsup import SupSup, SupSupSettings
from lifelong.learners.baselines.wsn import WSN, WSNSettings

__all__ = [
    "APD",
    "ER",
    "EWC",
    "GPM",
    "HAT",
    "IMM",
    "L1",
    "L2",
    "LPF",
    "SI",
    "WSN",
    "APDSettings",
    "ERSettings",
    "EWCSettings",
    "Finetuning",
    "GPMSettings",
    "HATSettings",
    "IMMSettings",
    "Joint",
    "L1Settings",
    "L2Settings",
    "LPFSettings",
    "LoRA",
    "LoRASettings",
    "LwF",
    "LwFSettings",
    "PackNet",
    "PackNetSettings",
    "Piggyback",
    "PiggybackSettings",
    "Progressive",
    "ProgressiveSettings",
    "SISettings",
    "SequentialSettings",
    "Single",
    "SupSup",
    "SupSupSettings",
    "TrainingSettings",
    "WSNSettings",
]
