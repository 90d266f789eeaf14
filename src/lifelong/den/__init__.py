"""Dynamically Expandable Networks (Yoon, Yang, Lee and Hwang, ICLR 2018)."""

from lifelong.den.learner import DEN
from lifelong.den.settings import Settings

__all__ = ["DEN", "Settings"]
