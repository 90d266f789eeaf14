"""Finding the task of a row that comes without its name.

Of each task a density of its inputs is kept: a normal distribution whose covariance is a diagonal
plus a few directions (factor analysis by principal components), a few numbers per input. A row
belongs to the task under which it is most probable. Of the scores that were measured this one finds
the most rows (docs/tables.md). How sure it is: a softmax over the tasks' log-densities, with a
temperature at which it was as sure as it was right on validation rows of the tasks learned.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, final

import numpy as np
from numpy.typing import NDArray

DIRECTIONS = 16
MOST_ROWS = 2000  # that a density is fitted to
_FLOOR = 0.01  # least variance of an input, as a share of the mean variance of all
_TEMPERATURES = 2.0 ** np.arange(0, 21)

Rows = NDArray[np.floating[Any]]


@final
@dataclass(frozen=True, eq=False)
class Density:
    """A normal distribution: its mean, the variance of each input beside the directions, and the
    directions, each as long as its standard deviation.
    """

    mean: NDArray[np.float32]
    noise: NDArray[np.float32]
    directions: NDArray[np.float32]

    @classmethod
    def fit(cls, rows: Rows, seed: int = 0) -> "Density":
        """Fit to rows, or to a sample of them if they are many."""
        chosen = np.random.default_rng([seed, len(rows)]).permutation(len(rows))[:MOST_ROWS]
        x = np.asarray(rows, np.float64)[np.sort(chosen)]
        mean = x.mean(axis=0)
        centred = x - mean
        variance = centred.var(axis=0)
        floor = max(_FLOOR * float(variance.mean()), 1e-6)
        count = max(0, min(DIRECTIONS, len(x) // 4, x.shape[1] - 1))
        _, lengths, axes = np.linalg.svd(centred / np.sqrt(len(x)), full_matrices=False)
        directions = lengths[:count, None] * axes[:count]
        noise = np.maximum(variance - np.square(directions).sum(axis=0), floor)
        return cls(mean.astype(np.float32), noise.astype(np.float32), directions.astype(np.float32))

    def log(self, rows: Rows) -> NDArray[np.float64]:
        """Log-density of each row, by the identities of Woodbury and Sylvester."""
        weighted, factor, offset = self._factors
        centred = rows - self.mean
        far = np.square(centred / np.sqrt(self.noise)).sum(axis=1, dtype=np.float64)
        along = np.linalg.solve(factor, (centred @ weighted.T).T.astype(np.float64))
        return np.asarray(-(far - np.square(along).sum(axis=0)) / 2 - offset)

    @cached_property
    def _factors(self) -> tuple[NDArray[Any], NDArray[Any], float]:
        noise = self.noise.astype(np.float64)
        weighted = self.directions / noise
        inner = np.eye(len(self.directions)) + weighted @ self.directions.T.astype(np.float64)
        factor: NDArray[Any] = np.linalg.cholesky(inner)
        logarithm = float(np.log(noise).sum() + 2 * np.log(np.diag(factor)).sum())
        return weighted, factor, (logarithm + len(noise) * math.log(2 * math.pi)) / 2


@final
@dataclass(frozen=True)
class FoundTasks:
    """Of each row: the place of its task in the order learned, and how sure that is (0 to 1)."""

    places: NDArray[np.int64]
    sure: NDArray[np.float64]


@final
@dataclass(frozen=True, eq=False)
class TaskFinder:
    """The densities of the tasks learned, in order, and the temperature."""

    densities: tuple[Density, ...] = ()
    temperature: float = 1.0

    def with_task(self, train: Rows, valid: Sequence[Rows], seed: int = 0) -> "TaskFinder":
        """With one more task, from its training rows; `valid` has its validation rows as each of
        the tasks sees them, this one last.
        """
        grown = TaskFinder((*self.densities, Density.fit(train, seed)), self.temperature)
        if len(grown.densities) == 1:
            return grown
        found = grown.log(valid)
        right = float((found.argmax(axis=1) == len(self.densities)).mean())
        count = len(found)
        wanted = (right * count + 1) / (count + 2)  # of few rows nothing is certain
        sure = [float(_softmax(found / t).max(axis=1).mean()) for t in _TEMPERATURES]
        own = float(_TEMPERATURES[int(np.abs(np.array(sure) - wanted).argmin())])
        before = len(self.densities) - 1  # tasks that the temperature was measured on
        mixed = np.exp((before * np.log(self.temperature) + np.log(own)) / (before + 1))
        return TaskFinder(grown.densities, float(mixed))

    def log(self, views: Sequence[Rows]) -> NDArray[np.float64]:
        """Log-densities, one column per task; `views` has the rows as each task sees them."""
        pairs = zip(self.densities, views, strict=True)
        return np.stack([density.log(rows) for density, rows in pairs], axis=1)

    def find(self, views: Sequence[Rows]) -> FoundTasks:
        shares = _softmax(self.log(views) / self.temperature)
        return FoundTasks(shares.argmax(axis=1), shares.max(axis=1))


def _softmax(logits: NDArray[np.float64]) -> NDArray[np.float64]:
    raised = np.exp(logits - logits.max(axis=1, keepdims=True))
    return np.asarray(raised / raised.sum(axis=1, keepdims=True))
