"""The settings of DEN: every symbol of the paper, with one default for all of its data sets."""

import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from math import ceil
from typing import Literal, TypeAlias, final

from lifelong.training.budget import (
    Budget,
    SettingError,
    plain_numbers,
    renamed,
    require,
    require_one_of,
)

Count: TypeAlias = int | float
MOST_UNITS = 10_000  # that may join a layer with one task


@renamed(
    worth="min_improvement",
    start="initial_width",
    limit="max_new_units",
    head="head_l1",
    keep="shrink",
    noise="perturb",
    drop="prune",
    teaching="distillation",
)
@final
@dataclass(frozen=True)
class Settings:
    """How a DEN learns.

    Numbers of units (`k`, `max_new_units`) are whole numbers, or fractions of the layer's width in
    the base network; a sequence gives one per layer.

    Attributes:
        mu: strength of l1 on the weights of task 1 (Eq. 2), on newcomers (Eq. 5), and on changes
            of old weights (Eq. 4 and 6). Relative to a gradient of typical size, see `solve`.
        gamma: strength of the group penalty on newcomers (Eq. 5).
        lam: the paper's lambda, the squared anchor at the previous weights (Eq. 6).
        k: newcomers per layer.
        tau: the network expands if the validation loss after retraining is above this.
        sigma: units that drifted further than this are split.
        drift: "relative" to the norm of the unit's old incoming weights, or "absolute" (the paper).
        max_new_units: maximum number of units that join a layer per task, newcomers and copies
            together; of the units over sigma those that drifted most are split. None for no limit
            (the paper).
        below_sigma: for units that changed but are not split: "restore" their old weights, so that
            nothing is forgotten while `split` is on; or "keep" the new ones (the paper).
        head_l1: strength of the head's l1 in Eq. 3, as a share of mu_max; doubled for as long as
            the validation loss falls.
        initial_width: share of the base network's units that task 1 gets, and at least as many
            per layer as it has outputs; the rest is left for later tasks.
        min_improvement: an expansion, or a sparser head, is kept if it lowers the validation loss
            by at least this share. With 0, an expansion is kept unless it raises the loss, and no
            sparser head is tried.
        distillation: weight of the retrained network's probabilities in the labels of the training
            after a split; 0 for labels alone (the paper).
        shrink, perturb: DEN-Finetune starts from `shrink` times the weights plus `perturb` times
            fresh ones; 1 and 0 leave the weights as they are (the paper).
        expand: whether Algorithm 3 runs.
        split: how Algorithm 4 runs: by "units" (the paper), by "weights", by what validation
            prefers and its bytes are worth ("auto"), or not at all (False).
        keep: with "weights", the share of the base network's weights that a task may overwrite.
        price: with "auto", by how much of the loss of a constant guess the validation loss must
            fall for a task to store as many bytes as the base network takes.
        prune: whether useless newcomers are removed (not by DEN-Constant).
        timestamps: whether a task is served by the network as of that task.
        budget: of each training.
    """

    mu: float = 0.1
    gamma: float = 1.0
    lam: float = 0.0
    k: Count | Sequence[Count] = 8
    tau: float = 0.02
    sigma: float = 0.05
    drift: Literal["relative", "absolute"] = "relative"
    max_new_units: Count | Sequence[Count] | None = 0.12
    below_sigma: Literal["restore", "keep"] = "restore"
    head_l1: float = 0.02
    initial_width: float = 0.2
    min_improvement: float = 0.01
    distillation: float = 0.7
    shrink: float = 0.4
    perturb: float = 0.5
    expand: bool = True
    split: Literal["units", "weights", "auto"] | bool = "units"
    keep: float = 0.04
    price: float = 0.15
    prune: bool = True
    timestamps: bool = True
    budget: Budget = field(default_factory=Budget)

    def __post_init__(self) -> None:
        plain_numbers(self)
        if self.split is True:  # as it was called before there was a choice
            object.__setattr__(self, "split", "units")
        for name in ("mu", "gamma", "lam", "tau", "sigma", "price"):
            require(name, getattr(self, name), "0 or more", lambda v: v >= 0)
        require("head_l1", self.head_l1, "above 0", lambda v: v > 0)
        for name in ("min_improvement", "distillation", "shrink", "perturb", "keep"):
            require(name, getattr(self, name), "from 0 to 1", lambda v: 0 <= v <= 1)
        require("initial_width", self.initial_width, "above 0 and at most 1", lambda v: 0 < v <= 1)
        for name in ("k", "max_new_units"):
            for number in _as_sequence(getattr(self, name)):
                require(name, number, "whole numbers or fractions below 1, 0 or more", _count)
                require(name, number, f"at most {MOST_UNITS:,}", lambda v: v <= MOST_UNITS)
        if self.split is not False:
            require_one_of("split", str(self.split), ("units", "weights", "auto"))
        require_one_of("drift", self.drift, ("relative", "absolute"))
        require_one_of("below_sigma", self.below_sigma, ("restore", "keep"))

    def offered(self, widths: Mapping[str, int]) -> dict[str, int]:
        """Newcomers per group: k, within the limit."""
        limits = self.limits(widths)
        return {
            group: min(number, limits[group])
            for group, number in _units("k", self.k, widths).items()
        }

    def limits(self, widths: Mapping[str, int]) -> dict[str, int]:
        """Maximum number of new units per group and task."""
        if self.max_new_units is None:
            return dict.fromkeys(widths, sys.maxsize)
        return _units("max_new_units", self.max_new_units, widths)


def _count(value: float) -> bool:
    return value >= 0 and (value < 1 or value == int(value))


def _as_sequence(value: Count | Sequence[Count] | None) -> Sequence[Count]:
    if value is None:
        return ()
    return value if isinstance(value, Sequence) else (value,)


def _units(name: str, value: Count | Sequence[Count], widths: Mapping[str, int]) -> dict[str, int]:
    numbers = value if isinstance(value, Sequence) else [value] * len(widths)
    if len(numbers) != len(widths):
        raise SettingError(
            f"{name} must be one number, or one for each of the {len(widths)} hidden layers "
            f"({', '.join(widths)}), not {value!r}"
        )
    return {
        group: ceil(number * width) if number < 1 else int(number)
        for number, (group, width) in zip(numbers, widths.items(), strict=True)
    }
