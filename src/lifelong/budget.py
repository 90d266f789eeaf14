"""How long a training may take; and what a setting may be, whoever has it."""

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import final


class SettingError(ValueError):
    """A setting out of its range; the message names it, what came and what is allowed."""


def require(name: str, value: float, allowed: str, holds: Callable[[float], bool]) -> None:
    """Refuse a setting that is not a finite number for which `holds` is true."""
    number = isinstance(value, int | float) and not isinstance(value, bool)
    if not number or not math.isfinite(value) or not holds(value):
        raise SettingError(f"{name} must be {allowed} and finite, not {value!r}")


def _whole(value: float) -> bool:
    return isinstance(value, int)


@final
@dataclass(frozen=True)
class Budget:
    """How long a training may take, and how it goes.

    Attributes:
        steps: at the most.
        batch: rows a step; all rows where there are fewer.
        learning_rate: of Adam, and the step of the proximal maps.
        check_every: steps between two looks at the validation loss.
        patience: looks without a better validation loss before the learning rate is cut.
        cuts: how often it is cut; after the last, training ends.
        cut: factor of a cut.
    """

    steps: int = 6000
    batch: int = 256
    learning_rate: float = 1e-3
    check_every: int = 40
    patience: int = 5
    cuts: int = 1
    cut: float = 0.3

    def __post_init__(self) -> None:
        for name in ("steps", "batch", "check_every", "patience"):
            require(
                name, getattr(self, name), "a whole number above 0", lambda v: _whole(v) and v > 0
            )
        require("cuts", self.cuts, "a whole number, 0 or more", lambda v: _whole(v) and v >= 0)
        require("learning_rate", self.learning_rate, "above 0", lambda v: v > 0)
        require("cut", self.cut, "above 0 and below 1", lambda v: 0 < v < 1)


def require_one_of(name: str, value: str, allowed: tuple[str, ...]) -> None:
    """Refuse a setting that is none of these words."""
    if value not in allowed:
        raise SettingError(f"{name} must be one of {', '.join(map(repr, allowed))}, not {value!r}")
