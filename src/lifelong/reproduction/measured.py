"""The runs of a recipe, each with its place in it: the input of figures and tables."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import final

import numpy as np
from numpy.typing import NDArray

from lifelong.evaluation.runs import Run
from lifelong.extras import require_extra

TASKS, CAPACITY = "tasks", "capacity"


@final
@dataclass(frozen=True)
class Published:
    """A published accuracy in the same set-up.

    Attributes:
        accuracy: mean over tasks after the last.
        error: what stands after its ±, taken as the standard error of the mean; None if nothing
            does.
        capacity: published size relative to one network for all tasks, if there is one.
        source: who published it.
    """

    accuracy: float
    error: float | None = None
    capacity: float | None = None
    source: str = ""

    def __str__(self) -> str:
        return f"{self.accuracy:.4f}" + ("" if self.error is None else f" ± {self.error:.4f}")


@final
@dataclass(frozen=True)
class Measured:
    """One run.

    Attributes:
        method: whose run it is.
        label: the method, and what this entry changes about it.
        part: of the figure.
        plain: whether it is the method itself, on all tasks and on the base network.
        published: the published figure that it is to be compared with, if there is one.
    """

    method: str
    label: str
    part: str
    plain: bool
    run: Run
    published: Published | None = None


@final
@dataclass(frozen=True)
class Mean:
    """A mean over seeds with its standard error, which is None for a single seed."""

    value: float
    error: float | None
    seeds: int

    def __str__(self) -> str:
        return f"{self.value:.4f}" + ("" if self.error is None else f" ± {self.error:.4f}")


def mean(values: Iterable[float]) -> Mean:
    """The mean of one number per seed."""
    numbers = np.array(list(values), np.float64)
    several = len(numbers) > 1
    error = float(numbers.std(ddof=1) / len(numbers) ** 0.5) if several else None
    return Mean(float(numbers.mean()), error, len(numbers))


@final
@dataclass(frozen=True)
class Row:
    """One method over its seeds."""

    method: str
    label: str
    part: str
    plain: bool
    runs: tuple[Run, ...]
    published: Published | None = None

    @property
    def verdict(self) -> str:
        """Whether the accuracy agrees with the published one: within two standard errors of the
        difference. A single seed has no error, so it is not judged.
        """
        ours = self.mean(lambda run: run.summary.accuracy)
        if self.published is None or ours is None:
            return ""
        distance = ours.value - self.published.accuracy
        if ours.error is None:
            return f"not judged: one seed, {100 * distance:+.2f} points"
        error = float(np.hypot(ours.error, self.published.error or 0.0))
        if abs(distance) <= 2 * error:
            return "agrees"
        return f"{100 * distance:+.2f} points, {abs(distance) / error:.1f} standard errors"

    def mean(self, of: Callable[[Run], float | None]) -> Mean | None:
        """The mean over runs; None if no run has this number."""
        values = [value for value in map(of, self.runs) if value is not None]
        return mean(values) if values else None

    @property
    def auroc(self) -> Mean:
        found = self.mean(lambda run: run.summary.auroc)
        assert found is not None  # runs stored by the runner are always scored
        return found

    @property
    def capacity(self) -> Mean:
        found = self.mean(lambda run: run.summary.capacity)
        assert found is not None
        return found

    @property
    def forgetting(self) -> Mean | None:
        return self.mean(lambda run: run.summary.forgetting)


@final
@dataclass(frozen=True)
class Difference:
    """Mean difference of AUROC over the seeds that both have, and its p-value by a t-test that is
    paired over seeds: None for fewer than two seeds, or if all differences are the same.
    """

    value: float
    p: float | None
    seeds: int

    def __str__(self) -> str:
        points = f"{100 * self.value:+.2f}"
        return points if self.p is None else f"{points} (p = {self.p:.2g})"


def difference(row: Row, other: Row) -> Difference | None:
    """How much better the one is than the other; None if they have no seed in common."""
    ours, theirs = _by_seed(row), _by_seed(other)
    apart = np.array([ours[seed] - theirs[seed] for seed in ours if seed in theirs], np.float64)
    if not len(apart):
        return None
    several = len(apart) > 1 and float(apart.std()) > 1e-12
    return Difference(float(apart.mean()), _p_value(apart) if several else None, len(apart))


def _by_seed(row: Row) -> dict[int, float]:
    return {run.seed: run.summary.auroc for run in row.runs if run.summary.auroc is not None}


def _p_value(apart: NDArray[np.float64]) -> float:
    """Of a mean of zero, by Student's t-test."""
    require_extra("scipy", extra="evaluation")
    from scipy import stats

    return float(stats.ttest_1samp(apart, 0.0).pvalue)


def rows(measured: Sequence[Measured]) -> tuple[Row, ...]:
    """The runs of each label together, in the order in which labels appear."""
    by_label: dict[tuple[str, str], list[Measured]] = {}
    for each in measured:
        by_label.setdefault((each.part, each.label), []).append(each)
    return tuple(
        Row(
            found[0].method,
            label,
            part,
            found[0].plain,
            tuple(one.run for one in found),
            found[0].published,
        )
        for (part, label), found in by_label.items()
    )


def look_alike(measured: Iterable[Measured]) -> bool:
    """Whether any of the runs is on data that only imitates the data set of that name."""
    return any(each.run.look_alike for each in measured)


def plain(measured: Sequence[Measured]) -> dict[str, Row]:
    """The plain runs of each method."""
    return {row.method: row for row in rows(measured) if row.plain}
