"""Points of a figure with their spread over seeds, as drawn and as written to CSV."""

import csv
import io
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import final

import numpy as np
from numpy.typing import NDArray

from lifelong.evaluation.results import ResultMatrix
from lifelong.evaluation.runs import Run
from lifelong.reproduction.measured import Row, mean

Curve = Callable[[ResultMatrix], NDArray[np.float64]]


@final
@dataclass(frozen=True)
class Point:
    """A mean over seeds at one position, with its standard error (0 for a single seed)."""

    x: float
    y: float
    error: float
    seeds: int


@final
@dataclass(frozen=True)
class Series:
    """One method in one panel."""

    panel: str
    method: str
    label: str
    points: tuple[Point, ...]

    @property
    def x(self) -> list[float]:
        return [point.x for point in self.points]

    @property
    def y(self) -> list[float]:
        return [point.y for point in self.points]

    @property
    def low(self) -> list[float]:
        return [point.y - point.error for point in self.points]

    @property
    def high(self) -> list[float]:
        return [point.y + point.error for point in self.points]


def point(x: float, values: Sequence[float]) -> Point:
    """The point of one number per seed."""
    found = mean(values)
    return Point(x, found.value, found.error or 0.0, found.seeds)


def curve(row: Row, of: Curve, first: int = 1) -> tuple[Point, ...]:
    """One point per stage, from one row of numbers per seed; `first` is the number of stage one."""
    matrices = [run.results for run in row.runs]
    values = [of(matrix) for matrix in matrices if matrix is not None]
    if not values:
        return ()
    shortest = min(len(each) for each in values)
    stages = np.stack([each[:shortest] for each in values], axis=1)
    return tuple(point(first + number, list(stage)) for number, stage in enumerate(stages))


def as_csv(series: Sequence[Series]) -> str:
    """One line per point."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(["panel", "method", "label", "x", "mean", "standard error", "seeds"])
    for each in series:
        for one in each.points:
            numbers = [f"{number:.6g}" for number in (one.x, one.y, one.error)]
            writer.writerow([each.panel, each.method, each.label, *numbers, one.seeds])
    return text.getvalue()


def auroc_of(run: Run) -> float:
    """At the end, over all tasks."""
    assert run.summary.auroc is not None  # runs stored by the runner are always scored
    return run.summary.auroc
