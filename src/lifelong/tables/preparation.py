"""What is learned of a table's columns: how they become inputs of a network.

Fitted on the first task. A later task extends it, by categories that are new and by the scales of
columns that had none, and what it adds is stamped with its number: an earlier task's inputs are
made as when it was learned, to the bit. Plain data, to and from JSON.

Inputs are, in order: the numbers, scaled to mean 0 and standard deviation 1 (and squeezed beyond 5
of these); for each column of numbers with missing values in the first task, whether it is missing;
and for each column of categories a place for missing, for other, and for each category, with spare
places for categories to come.
"""

import math
from collections import Counter
from collections.abc import Collection, Iterable, Iterator
from functools import cached_property
from typing import Any, TypeAlias, final

import msgspec
import numpy as np
from numpy.typing import NDArray

from lifelong.tables.frames import Column, Table, TableError

Value: TypeAlias = str | int | float | bool
FAR = 5.0  # standard deviations from which on a number is squeezed
_MISSING, _OTHER, _VALUES = 0, 1, 2  # places of a column of categories


@final
class Scale(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Of a column of numbers, from task `since` on; a deviation of 0 if it never varied."""

    since: int
    median: float
    mean: float
    deviation: float


@final
class Number(msgspec.Struct, frozen=True, tag="number", forbid_unknown_fields=True):
    """A column of numbers; `missing` if an input says whether it is missing."""

    name: str
    scales: tuple[Scale, ...]
    missing: bool

    def scale(self, task: int) -> Scale:
        return next(scale for scale in reversed(self.scales) if scale.since <= task)


@final
class Category(msgspec.Struct, frozen=True, tag="category", forbid_unknown_fields=True):
    """A column of categories.

    Attributes:
        values: known ones, each with the number of the task that brought it in `since`.
        slots: places for values, used and spare.
        other: number of the task from which on values without a place share one; 0 for none.
    """

    name: str
    values: tuple[Value, ...]
    since: tuple[int, ...]
    slots: int
    other: int = 0

    @property
    def width(self) -> int:
        return _VALUES + self.slots

    def places(self, task: int) -> dict[Value, int]:
        """Where each value goes that the task knows."""
        pairs = enumerate(zip(self.values, self.since, strict=True), _VALUES)
        return {value: place for place, (value, since) in pairs if since <= task}


@final
class Preparation(msgspec.Struct, frozen=True, dict=True, forbid_unknown_fields=True):
    """The columns in their order; `named` if they were given by name."""

    columns: tuple[Number | Category, ...]
    named: bool

    @classmethod
    def fit(
        cls, table: Table, *, categorical: Collection[str], max_categories: int, spare: int
    ) -> "Preparation":
        """Fit to the training rows of the first task."""
        unknown = [name for name in categorical if name not in table.columns]
        if unknown:
            raise TableError(
                f"categorical names the column {unknown[0]!r}, but the table has "
                f"{', '.join(table.names)}"
            )
        columns = tuple(
            _fit_category(name, column, max_categories, spare)
            if column.dtype == object or name in categorical
            else _fit_number(name, column)
            for name, column in table.columns.items()
        )
        return cls(columns, table.named)

    def extended(self, table: Table, task: int) -> "Preparation":
        """With what the training rows of task `task` add."""
        columns = tuple(
            _extend_number(column, table.columns[column.name], task)
            if isinstance(column, Number)
            else _extend_category(column, table.columns[column.name], task)
            for column in self.columns
        )
        return Preparation(columns, self.named)

    @cached_property
    def names(self) -> tuple[str, ...]:
        return tuple(column.name for column in self.columns)

    @cached_property
    def inputs(self) -> int:
        """Number of inputs."""
        flags = sum(number.missing for number in self._numbers)
        return len(self._numbers) + flags + sum(column.width for column in self._categories)

    def transform(self, table: Table, task: int) -> NDArray[np.float32]:
        """The inputs of a table's rows, as task `task` sees them."""
        if table.matrix is not None and not self._categories:
            return self._scaled(table.matrix, task)
        out = np.zeros((table.rows, self.inputs), np.float32)
        count = len(self._numbers)
        if count:
            flags = sum(number.missing for number in self._numbers)
            values = np.stack([_as_numbers(table, n.name) for n in self._numbers], axis=1)
            out[:, : count + flags] = self._scaled(values, task)
            count += flags
        for column in self._categories:
            _mark(out[:, count : count + column.width], column, table.columns[column.name], task)
            count += column.width
        return out

    @cached_property
    def plain_numbers(self) -> int:
        """Number of columns if all are numbers, else -1."""
        return -1 if self._categories else len(self._numbers)

    def of_matrix(self, matrix: NDArray[Any], task: int) -> NDArray[np.float32]:
        """`transform` for an array, if all columns are numbers."""
        return self._scaled(matrix.astype(np.float64), task)

    def _scaled(self, values: NDArray[np.float64], task: int) -> NDArray[np.float32]:
        median, mean, deviation = self._statistics(task)
        missing = np.isnan(values)
        some = bool(missing.any())
        filled = np.where(missing, median, values) if some else values
        z = (filled - mean) / deviation
        far = np.abs(z) > FAR
        if far.any():
            if not np.isfinite(z).all():
                name = self._numbers[int(np.isinf(z).any(axis=0).argmax())].name
                raise TableError(f"column {name!r}: holds infinity, or a number too large")
            z[far] = np.sign(z[far]) * (FAR + np.log1p(np.abs(z[far]) - FAR))
        flags = missing[:, self._flagged]
        return np.concatenate([z, flags], axis=1).astype(np.float32)

    def _statistics(self, task: int) -> NDArray[np.float64]:
        cache: dict[int, NDArray[np.float64]] = self._cache
        if task not in cache:
            scales = [number.scale(task) for number in self._numbers]
            cache[task] = np.array([[s.median, s.mean, s.deviation or 1.0] for s in scales]).T
        return cache[task]

    @cached_property
    def _cache(self) -> dict[int, Any]:
        return {}

    @cached_property
    def _numbers(self) -> tuple[Number, ...]:
        return tuple(column for column in self.columns if isinstance(column, Number))

    @cached_property
    def _categories(self) -> tuple[Category, ...]:
        return tuple(column for column in self.columns if isinstance(column, Category))

    @cached_property
    def _flagged(self) -> list[int]:
        return [place for place, number in enumerate(self._numbers) if number.missing]

    def check(self, tasks: int) -> None:
        """Refuse, by a `ValueError`, what was not made here: from a file anything may come."""
        if len(set(self.names)) < len(self.columns) or not self.columns:
            raise ValueError("columns must have names that differ, and there must be one")
        for column in self.columns:
            if isinstance(column, Number):
                stamps = [scale.since for scale in column.scales]
                numbers = [n for s in column.scales for n in (s.median, s.mean, s.deviation)]
                fine = all(map(math.isfinite, numbers)) and stamps[:1] == [1]
                fine = fine and all(scale.deviation >= 0 for scale in column.scales)
            else:
                stamps = [*column.since]
                fine = len(stamps) == len(column.values) <= column.slots <= MOST_SLOTS
                fine = fine and 0 <= column.other <= tasks
            if not fine or stamps != sorted(stamps) or any(not 1 <= s <= tasks for s in stamps):
                raise ValueError(f"what is known of column {column.name!r} is damaged")


MOST_SLOTS = 100_000


def _fit_number(name: str, column: Column) -> Number:
    return Number(name, (_scale_of(name, column, 1),), bool(np.isnan(column).any()))


def _scale_of(name: str, column: NDArray[np.float64], task: int) -> Scale:
    there = column[~np.isnan(column)]
    if not np.isfinite(there).all():
        raise TableError(f"column {name!r}: holds infinity; its numbers must be finite")
    if len(there) == 0:
        return Scale(task, 0.0, 0.0, 0.0)
    with np.errstate(over="ignore"):
        mean, deviation = float(there.mean()), float(there.std())
    if not math.isfinite(deviation):
        raise TableError(f"column {name!r}: holds numbers too large to be scaled")
    # A constant becomes 0; otherwise the rounding error of its mean would be scaled up.
    deviation = deviation if deviation > 1e-12 * abs(mean) else 0.0
    return Scale(task, float(np.median(there)), mean, deviation)


def _extend_number(number: Number, column: Column, task: int) -> Number:
    if number.scales[-1].deviation or column.dtype == object:
        return number
    scale = _scale_of(number.name, column, task)
    if not scale.deviation:
        return number
    return msgspec.structs.replace(number, scales=(*number.scales, scale))


def _as_numbers(table: Table, name: str) -> NDArray[np.float64]:
    column = table.columns[name]
    if column.dtype == object:
        odd = next((value for value in column if isinstance(value, str)), None)
        raise TableError(
            f"column {name!r}: holds text ({odd!r}), but it was learned as numbers; convert it, or "
            "name it in `categorical` when the first task is learned"
        )
    return column


def _fit_category(name: str, column: Column, most: int, spare: int) -> Category:
    counted = Counter(_values(column))
    kept = sorted(_most_frequent(counted, most), key=_order)
    return Category(
        name, tuple(kept), (1,) * len(kept), len(kept) + spare, int(len(kept) < len(counted))
    )


def _extend_category(category: Category, column: Column, task: int) -> Category:
    known = set(category.values)
    counted = Counter(value for value in _values(column) if value not in known)
    free = category.slots - len(category.values)
    new = sorted(_most_frequent(counted, free), key=_order)
    return msgspec.structs.replace(
        category,
        values=(*category.values, *new),
        since=(*category.since, *[task] * len(new)),
        other=category.other or (task if len(new) < len(counted) else 0),
    )


def _most_frequent(counted: "Counter[Value]", most: int) -> list[Value]:
    by_count = sorted(counted.items(), key=lambda item: (-item[1], _order(item[0])))
    return [value for value, _ in by_count[:most]]


def _order(value: Value) -> tuple[bool, Value]:
    """Numbers before text."""
    return isinstance(value, str), value


def _values(column: Column) -> Iterator[Value]:
    """The values of a column that are not missing; of floats, whole ones as integers."""
    if column.dtype == object:
        yield from (value for value in column if value is not None)
        return
    for value in column[~np.isnan(column)].tolist():
        yield int(value) if value.is_integer() else value


def _mark(out: NDArray[np.float32], category: Category, column: Column, task: int) -> None:
    """Set the place of each row's value; of a value that the task does not know, none."""
    known = category.places(task)
    other = _OTHER if 0 < category.other <= task else -1
    if column.dtype == object:
        places = [_MISSING if value is None else known.get(value, other) for value in column]
    else:
        places = [_MISSING if v != v else known.get(v, other) for v in column.tolist()]
    at = np.array(places, np.int64)
    rows = np.flatnonzero(at >= 0)
    out[rows, at[rows]] = 1


def labels_as_values(classes: Iterable[Any]) -> list[Value]:
    """Classes as plain data."""
    return [value.item() if isinstance(value, np.generic) else value for value in classes]
