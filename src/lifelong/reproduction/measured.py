"""The runs of a recipe, each with its place in it: the input of figures and tables."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import final

import numpy as np

from lifelong.evaluation.runs import Run

TASKS, CAPACITY = "tasks", "capacity"


@final
@dataclass(frozen=True)
class Measured:
    """One run.

    Attributes:
        method: whose run it is.
        label: the method, and what this entry changes about it.
        part: of the figure.
        plain: whether it is the method itself, on all tasks and on the base network.
    """

    method: str
    label: str
    part: str
    plain: bool
    run: Run


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


def rows(measured: Sequence[Measured]) -> tuple[Row, ...]:
    """The runs of each label together, in the order in which labels appear."""
    by_label: dict[tuple[str, str], list[Measured]] = {}
    for each in measured:
        by_label.setdefault((each.part, each.label), []).append(each)
    return tuple(
        Row(found[0].method, label, part, found[0].plain, tuple(one.run for one in found))
        for (part, label), found in by_label.items()
    )


def look_alike(measured: Iterable[Measured]) -> bool:
    """Whether any of the runs is on data that only imitates the data set of that name."""
    return any(each.run.look_alike for each in measured)


def plain(measured: Sequence[Measured]) -> dict[str, Row]:
    """The plain runs of each method."""
    return {row.method: row for row in rows(measured) if row.plain}
