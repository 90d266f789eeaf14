"""Dynamically Expandable Networks (Yoon, Yang, Lee and Hwang, ICLR 2018)."""

from lifelong.learners.den.learner import DEN
from lifelong.learners.den.settings import Settings

__all__ = ["DEN", "Settings"]
