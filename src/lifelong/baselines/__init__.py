"""The methods that DEN is measured against, one file each."""

from lifelong.baselines.joint import Joint
from lifelong.baselines.single import Single
from lifelong.baselines.training import Training

__all__ = ["Joint", "Single", "Training"]
