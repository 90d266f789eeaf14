"""Standardisation of inputs by statistics of the training rows."""

from dataclasses import dataclass
from typing import Any, Literal, TypeAlias, final

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from lifelong.tasks.kinds import TaskError, aligned
from lifelong.tasks.splits import CHUNK, Subset

Standardise: TypeAlias = Literal["whole", "features", "channels", "range"] | None


@final
@dataclass(frozen=True, eq=False)
class Scale:
    """Scales inputs to float32 with mean 0 and standard deviation 1 over the training rows.

    `mean` and `deviation` broadcast over a row: one number for the whole table, one per feature, or
    one per channel (the first axis of a row). With "range" they are the minimum and the distance
    from it to the maximum, so that inputs go from 0 to 1.
    """

    mean: NDArray[np.floating[Any]]
    deviation: NDArray[np.floating[Any]]

    @classmethod
    def fit(cls, train: Subset, over: Standardise) -> "Scale":
        """Fit to training rows; never pass validation or test rows."""
        axes = axes_of(over, train.x.ndim)
        if over is None:
            return cls(np.zeros(1, np.float32), np.ones(1, np.float32))
        if over == "range":
            return cls._of_range(train)
        count, total, squares = 0, 0.0, 0.0
        # Squares are summed around a value near the mean, since a large mean would swamp them.
        pivot = next(train.chunks()).mean(axis=axes, keepdims=True, dtype=np.float64)
        for rows in train.chunks():
            centred = rows - pivot
            count += centred.size // pivot.size
            total = total + centred.sum(axis=axes, keepdims=True)
            squares = squares + np.square(centred, out=centred).sum(axis=axes, keepdims=True)
        offset = total / count
        mean = pivot + offset
        deviation = np.sqrt(np.maximum(squares / count - np.square(offset), 0.0))
        # A constant feature becomes 0; otherwise the rounding error of its mean would be scaled up.
        deviation = np.where(deviation > 1e-12 * np.abs(mean), deviation, 1.0)
        # In the precision of the rows, so that a large mean is subtracted before rounding.
        precision = np.result_type(train.x, np.float32)
        return cls(mean[0].astype(precision), deviation[0].astype(precision))

    @classmethod
    def _of_range(cls, train: Subset) -> "Scale":
        low = min(rows.min() for rows in train.chunks())
        high = max(rows.max() for rows in train.chunks())
        distance = float(high) - float(low)
        precision = np.result_type(train.x, np.float32)
        return cls(np.array([low], precision), np.array([distance or 1.0], precision))

    def apply(self, rows: NDArray[Any], into: NDArray[np.float32]) -> None:
        np.subtract(rows, self.mean, out=into, casting="same_kind")
        np.divide(into, self.deviation, out=into, casting="same_kind")


def inputs_of(part: Subset, scale: Scale, features: NDArray[np.int64] | None = None) -> Tensor:
    """The standardised inputs of a subset; with `features`, flattened and in that order."""
    # Allocated by NumPy, which requests huge pages: that saves a quarter of the time.
    inputs = np.empty((len(part.rows), *part.x.shape[1:]), np.float32)
    for number, rows in enumerate(part.chunks()):
        into = inputs[number * CHUNK : (number + 1) * CHUNK]
        scale.apply(rows, into)
        if features is not None:
            flat = into.reshape(len(into), -1)
            flat[:] = flat[:, features]
    shaped = inputs if features is None else inputs.reshape(len(inputs), -1)
    return aligned(torch.from_numpy(shaped))  # here, so that tasks can share them


def axes_of(over: Standardise, ndim: int) -> tuple[int, ...]:
    """The axes that statistics are taken over; refuses an unknown word."""
    if over in (None, "whole", "range"):
        return tuple(range(ndim))
    if over == "features":
        return (0,)
    if over == "channels":
        return (0, *range(2, ndim))
    allowed = "'whole', 'features', 'channels', 'range' or None"
    raise TaskError(f"standardise must be {allowed}, not {over!r}")
