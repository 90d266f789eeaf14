"""Every symbol of the paper, once, with a default that is meant for all of its data sets."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal, final

from lifelong.solve import Budget, SettingError, require


@final
@dataclass(frozen=True)
class Settings:
    """How a DEN learns.

    The paper's variants are settings: `Settings.selective_only()` and its neighbours.

    Attributes:
        mu: strength of l1: of the weights of task 1 (Eq. 2), of newcomers (Eq. 5), and of what
            old weights move by (Eq. 4 and 6). Relative to a gradient of typical size, see `solve`.
        gamma: strength of the group penalty on newcomers (Eq. 5).
        lam: the paper's lambda, the squared anchor at the previous weights (Eq. 6).
        k: newcomers offered to each layer, one number or one a layer.
        tau: the network expands when the validation loss after retraining is above this.
        sigma: units that drifted further than this are split.
        drift: "relative" to the norm of the unit's old incoming weights, or "absolute" (the paper).
        splits: at most so many units of a layer are split for a task, those that drifted most; one
            number, one a layer, or None for no limit (the paper).
        below_sigma: what becomes of units that moved and are not split: "restore" gives them their
            old weights back, so that nothing is ever forgotten; "keep" leaves them (the paper).
        head: strength of the head's l1 in Eq. 3, as a share of mu_max.
        start: share of the base network's units that task 1 gets; the rest is for tasks to come.
        expand, split: whether Algorithms 3 and 4 run.
        drop: whether useless newcomers are removed (not by DEN-Constant).
        timestamps: whether a task is served by the network as it was known to it.
        budget: of each training.
    """

    mu: float = 0.1
    gamma: float = 1.0
    lam: float = 0.0
    k: int | Sequence[int] = 8
    tau: float = 0.02
    sigma: float = 0.05
    drift: Literal["relative", "absolute"] = "relative"
    splits: int | Sequence[int] | None = 24
    below_sigma: Literal["restore", "keep"] = "restore"
    head: float = 0.02
    start: float = 0.5
    expand: bool = True
    split: bool = True
    drop: bool = True
    timestamps: bool = True
    budget: Budget = field(default_factory=Budget)

    def __post_init__(self) -> None:
        for name in ("mu", "gamma", "lam", "tau", "sigma"):
            require(name, getattr(self, name), "0 or more", lambda v: v >= 0)
        require("head", self.head, "above 0", lambda v: v > 0)
        require("start", self.start, "above 0 and at most 1", lambda v: 0 < v <= 1)
        for name in ("k", "splits"):
            for number in _as_sequence(getattr(self, name)):
                require(name, number, "whole numbers, 0 or more", lambda v: v == int(v) and v >= 0)
        _one_of("drift", self.drift, ("relative", "absolute"))
        _one_of("below_sigma", self.below_sigma, ("restore", "keep"))

    def newcomers(self, groups: Sequence[str]) -> dict[str, int]:
        """The number k for each group."""
        return _each("k", self.k, groups)

    def most_splits(self, groups: Sequence[str]) -> Mapping[str, int | None]:
        """The limit of splits for each group."""
        if self.splits is None:
            return dict.fromkeys(groups)
        return _each("splits", self.splits, groups)


def _as_sequence(value: int | Sequence[int] | None) -> Sequence[int]:
    if value is None:
        return ()
    return value if isinstance(value, Sequence) else (value,)


def _each(name: str, value: int | Sequence[int], groups: Sequence[str]) -> dict[str, int]:
    numbers = value if isinstance(value, Sequence) else [value] * len(groups)
    if len(numbers) != len(groups):
        raise SettingError(
            f"{name} must be one number, or one for each of the {len(groups)} hidden layers "
            f"({', '.join(groups)}), not {value!r}"
        )
    return dict(zip(groups, numbers, strict=True))


def _one_of(name: str, value: str, allowed: tuple[str, ...]) -> None:
    if value not in allowed:
        raise SettingError(f"{name} must be one of {', '.join(map(repr, allowed))}, not {value!r}")
