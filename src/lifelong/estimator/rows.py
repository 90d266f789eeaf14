"""Rows of a table with their labels: which are trained on, which validate, what weights make."""

from dataclasses import dataclass
from typing import Any, final

import numpy as np
from numpy.typing import NDArray

from lifelong.tables.frames import Column, Table, TableError, read_labels, read_table

Places = NDArray[np.int64]


def part(
    strata: NDArray[Any], share: float, generator: np.random.Generator
) -> tuple[Places, Places]:
    """Training and validation rows, `share` of each stratum to validate on.

    Each stratum keeps a row to train on. If none is left to validate on, all rows do both.
    """
    held: list[Places] = []
    for stratum in np.unique(strata):
        rows = np.flatnonzero(strata == stratum)
        count = min(len(rows) - 1, round(share * len(rows)))
        held.append(generator.permutation(rows)[:count])
    valid = np.sort(np.concatenate(held))
    if len(valid) == 0:
        return np.arange(len(strata)), np.arange(len(strata))
    return np.setdiff1d(np.arange(len(strata)), valid), valid


def by_size(y: NDArray[Any]) -> NDArray[np.int64]:
    """Strata of numbers: ten or fewer parts of the sorted labels, of 20 rows or more each."""
    parts = max(1, min(10, len(y) // 20))
    order = np.argsort(y, kind="stable")
    strata = np.empty(len(y), np.int64)
    strata[order] = np.arange(len(y)) * parts // len(y)
    return strata


def weights_of(given: Any, rows: int, where: str) -> NDArray[np.float64] | None:
    """One weight per row, as `sample_weight` gives them; None if it gives none."""
    if given is None:
        return None
    weights = np.asarray(given, np.float64)
    weights = np.full(rows, weights) if weights.ndim == 0 else weights
    if weights.shape != (rows,):
        raise TableError(
            f"{where}: sample_weight must be one weight per row (1D array or scalar), "
            f"{rows} of them, not of shape {weights.shape}"
        )
    if not (np.isfinite(weights).all() and (weights >= 0).all() and weights.any()):
        raise TableError(f"{where}: sample_weight must be finite, not below 0 and not all zero")
    return weights


def repeated(
    weights: NDArray[np.float64], strata: NDArray[Any], generator: np.random.Generator
) -> Places:
    """Rows, each as often as its weight says: exactly for whole weights, else systematically drawn.

    Every method, loss and head then learns with weights, and none has to know of them. Rows of
    mean weight come about four times, so that lighter ones are not lost; of a stratum that would
    be lost all the same, one row stays.
    """
    if np.allclose(weights, weights.round()) and weights.sum() <= 10 * len(weights):
        return np.repeat(np.arange(len(weights)), weights.round().astype(np.int64))
    if np.ptp(weights) <= 1e-12 * weights.max():
        return np.arange(len(weights))
    count = 4 * len(weights)
    ends = np.cumsum(weights) / weights.sum() * count
    drawn = np.searchsorted(ends, np.arange(count) + generator.random(), side="right")
    drawn = drawn.clip(0, len(weights) - 1)
    lost = np.setdiff1d(strata, strata[drawn])
    kept = [np.flatnonzero(strata == stratum)[:1] for stratum in lost]
    return np.concatenate([drawn, *kept])


@final
@dataclass(frozen=True, eq=False)
class Rows:
    """Rows of a table with their labels and, if they have any, their weights."""

    table: Table
    labels: Column
    weights: NDArray[np.float64] | None = None

    def take(self, rows: NDArray[np.int64]) -> "Rows":
        weights = None if self.weights is None else self.weights[rows]
        return Rows(self.table.take(rows), self.labels[rows], weights)


def read_rows(X: Any, y: Any, where: str) -> Rows:
    """The rows of X with the labels y; refuses what does not fit together."""
    table, labels = read_table(X, where), read_labels(y, f"{where}, y")
    if table.rows != len(labels):
        raise TableError(
            f"{where}: {table.rows} rows of X but {len(labels)} labels; there must be one for each "
            "row (inconsistent numbers of samples)"
        )
    if table.rows == 0:
        raise TableError(
            f"{where}: Found array with 0 sample(s) (shape=(0, {len(table.columns)})) while a "
            "minimum of 1 is required."
        )
    return Rows(table, labels)
