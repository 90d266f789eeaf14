"""Settings that several baselines share."""

from dataclasses import dataclass, field
from typing import Literal, final

from msgspec import UNSET, UnsetType

from lifelong.training.budget import Budget, plain_numbers, require, require_one_of


@final
@dataclass(frozen=True)
class TrainingSettings:
    """Strength of the l1 penalty (Equation 2), and the budget of each training."""

    mu: float = 0.1
    budget: Budget = field(default_factory=Budget)

    def __post_init__(self) -> None:
        plain_numbers(self)
        require("mu", self.mu, "0 or more", lambda v: v >= 0)


@dataclass(frozen=True)
class SequentialSettings:
    """Settings of every method that trains one network on the tasks one after another.

    Attributes:
        mu: strength of l1 on what is new: the whole network for the first task (Equation 2), then
            each task's head. Small, because a unit without weights after the first task is lost for
            later ones if old weights are held.
        heads: "own" for one head per task, or "one" head for all tasks (domain-incremental
            learning: tasks that differ in their inputs and not in their labels).
        budget: of each training.
        adam: "anew" for each task, or "carried" over: the first steps of a fresh Adam are equally
            long for all weights, important or not, and part of that damage remains. Left out, anew.
    """

    mu: float = 0.01
    heads: Literal["own", "one"] = "own"
    budget: Budget = field(default_factory=Budget)
    # Not stored if it is left out, so that the keys of runs without it stay what they were.
    adam: Literal["anew", "carried"] | UnsetType = UNSET

    def __post_init__(self) -> None:
        plain_numbers(self)
        require("mu", self.mu, "0 or more", lambda v: v >= 0)
        require_one_of("heads", self.heads, ("own", "one"))
        if self.adam is not UNSET:
            require_one_of("adam", self.adam, ("anew", "carried"))
