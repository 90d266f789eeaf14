"""The methods that DEN is measured against, one file each."""

from lifelong.baselines.joint import Joint
from lifelong.baselines.single import Single

__all__ = ["Joint", "Single"]
