"""Settings of the baselines that only train."""

from dataclasses import dataclass, field
from typing import final

from lifelong.solve import Budget, require


@final
@dataclass(frozen=True)
class Training:
    """Strength of the l1 penalty (Equation 2), and the budget of each training."""

    mu: float = 0.1
    budget: Budget = field(default_factory=Budget)

    def __post_init__(self) -> None:
        require("mu", self.mu, "0 or more", lambda v: v >= 0)
