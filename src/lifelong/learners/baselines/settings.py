"""Settings of the baselines that only train."""

from dataclasses import dataclass, field
from typing import Literal, final

from lifelong.training.budget import Budget, require, require_one_of


@final
@dataclass(frozen=True)
class TrainingSettings:
    """Strength of the l1 penalty (Equation 2), and the budget of each training."""

    mu: float = 0.1
    budget: Budget = field(default_factory=Budget)

    def __post_init__(self) -> None:
        require("mu", self.mu, "0 or more", lambda v: v >= 0)


@dataclass(frozen=True)
class SequentialSettings:
    """Settings of every method that trains one network on each task in turn.

    Attributes:
        mu: strength of l1 on what is new: the whole network for the first task (Equation 2), and
            then each task's head. Small: a unit that the first task leaves without weights is lost
            for the next ones where old weights are held.
        heads: "own", a head for each task; or "one" for all, where the tasks differ in their inputs
            and not in what is asked (domain-incremental learning).
        budget: of each training.
    """

    mu: float = 0.01
    heads: Literal["own", "one"] = "own"
    budget: Budget = field(default_factory=Budget)

    def __post_init__(self) -> None:
        require("mu", self.mu, "0 or more", lambda v: v >= 0)
        require_one_of("heads", self.heads, ("own", "one"))
