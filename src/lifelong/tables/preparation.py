"""What is learned of a table's columns: how they become inputs of a network.

Fitted on the first task. A later task extends it, by categories that are new and by the scales of
columns that had none, and what it adds is stamped with its number: an earlier task's inputs are
made as when it was learned, to the bit. Plain data, to and from JSON.

Inputs are, in order: the numbers, scaled to mean 0 and standard deviation 1 (and squeezed beyond 5
of these); for each column of numbers some ramps, each of which rises from 0 to 1 between two
neighbouring quantiles, so that steps and waves are easy to learn (Gorishniy, Rubachev and Babenko,
2022); for each column of numbers with missing values in the first task, whether it is missing; and
for each column of categories a place for missing, for other, and for each category, with spare
places for categories to come.
"""

import math
import re
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping
from functools import cached_property
from itertools import pairwise
from typing import Any, Generic, TypeAlias, TypeVar, final, overload

import msgspec
import numpy as np
from numpy.typing import NDArray

from lifelong.tables.frames import Column, Table, TableError

Value: TypeAlias = str | int | float | bool
T = TypeVar("T")
_NUMBER = re.compile(r"-?(0|[1-9][0-9]{0,14})(\.[0-9]{1,15})?", re.ASCII)
FAR = 5.0  # standard deviations from which on a number is squeezed
RAMPS = 8
MOST_RAMPED = 100  # columns of numbers that get ramps; more are an image or a spectrum
MOST_CATEGORIES, SPARE = 50, 8  # places of a column of categories at first, and for later ones
MOST_SLOTS = 100_000
_MISSING, _OTHER, _VALUES = 0, 1, 2  # places of a column of categories


@final
class Scale(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Of a column of numbers, from task `since` on; a deviation of 0 if it never varied.

    Ramps lie between neighbouring `edges`; there are fewer if the column has few values.
    """

    since: int
    median: float
    mean: float
    deviation: float
    edges: tuple[float, ...] = ()


@final
class Number(msgspec.Struct, frozen=True, tag="number", forbid_unknown_fields=True):
    """A column of numbers; `missing` if an input says whether it is missing."""

    name: str
    scales: tuple[Scale, ...]
    missing: bool
    ramps: int = 0

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
        cls,
        table: Table,
        *,
        categorical: Collection[str] = (),
        max_categories: int = MOST_CATEGORIES,
        spare: int = SPARE,
        ramps: int = RAMPS,
    ) -> "Preparation":
        """Fit to the training rows of the first task; a wide table gets no ramps."""
        unknown = [name for name in categorical if name not in table.columns]
        if unknown:
            raise TableError(
                f"categorical names the column {unknown[0]!r}, but the table has "
                f"{', '.join(table.names)}"
            )
        words = {name for name, c in table.columns.items() if c.dtype == object}
        words |= set(categorical)
        ramps = ramps if len(table.columns) - len(words) <= MOST_RAMPED else 0
        columns = tuple(
            _fit_category(name, column, max_categories, spare)
            if name in words
            else _fit_number(name, column, ramps)
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
        return self._of_numbers + sum(column.width for column in self._categories)

    @cached_property
    def _of_numbers(self) -> int:
        """Number of inputs that columns of numbers make."""
        return sum(1 + number.ramps + number.missing for number in self._numbers)

    def transform(self, table: Table, task: int) -> NDArray[np.float32]:
        """The inputs of a table's rows, as task `task` sees them."""
        if table.matrix is not None and not self._categories:
            return self._scaled(table.matrix, task)
        out = np.zeros((table.rows, self.inputs), np.float32)
        count = self._of_numbers
        if count:
            values = np.stack([_as_numbers(table, n.name) for n in self._numbers], axis=1)
            out[:, :count] = self._scaled(values, task)
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
        return self._scaled(matrix.astype(np.float64, copy=False), task)

    def _scaled(self, values: NDArray[np.float64], task: int) -> NDArray[np.float32]:
        """The inputs that columns of numbers make; in few operations, for single rows."""
        columns, offset, width = self._columns, *self._affine(task)
        count = len(self._numbers)
        moved = (values[:, columns] - offset) / width
        ordinary = np.abs(moved[:, :count]).max(initial=0.0) <= FAR  # and nothing is missing
        missing = None if ordinary else np.isnan(values)
        if missing is not None:
            filled = np.where(missing, self._medians(task), values)
            moved = (filled[:, columns] - offset) / width
            self._squeeze(moved[:, :count])
        ramps = moved[:, count:]
        np.minimum(np.maximum(ramps, 0, out=ramps), 1, out=ramps)
        if not self._flagged:
            return np.asarray(moved, np.float32)
        out = np.zeros((len(values), self._of_numbers), np.float32)
        out[:, : moved.shape[1]] = moved
        if missing is not None:
            out[:, moved.shape[1] :] = missing[:, self._flagged]
        return out

    def _squeeze(self, z: NDArray[np.float64]) -> None:
        """Bring far numbers nearer, in place; those that are too far to tell are refused."""
        if not np.isfinite(z).all():
            name = self._numbers[int((~np.isfinite(z)).any(axis=0).argmax())].name
            raise TableError(f"column {name!r}: holds infinity, or a number too large")
        far = np.abs(z) > FAR
        z[far] = np.sign(z[far]) * (FAR + np.log1p(np.abs(z[far]) - FAR))

    def _affine(self, task: int) -> NDArray[np.float64]:
        """What is subtracted from, and divided by, for each number and then for each ramp.

        A ramp that the task does not have is infinitely wide, so that it is 0.
        """
        if task not in self._cache:
            scales = [number.scale(task) for number in self._numbers]
            rows = [(scale.mean, scale.deviation or 1.0) for scale in scales]
            for number, scale in zip(self._numbers, scales, strict=True):
                there = [(low, high - low) for low, high in pairwise(scale.edges)]
                rows += there + [(0.0, math.inf)] * (number.ramps - len(there))
            self._cache[task] = np.array(rows, np.float64).reshape(-1, 2).T
        return self._cache[task]

    def _medians(self, task: int) -> NDArray[np.float64]:
        return np.array([number.scale(task).median for number in self._numbers])

    @cached_property
    def _columns(self) -> NDArray[np.int64]:
        """The column of each number, and then of each ramp."""
        count = len(self._numbers)
        ramped = np.repeat(np.arange(count), [number.ramps for number in self._numbers])
        return np.concatenate([np.arange(count), ramped])

    @cached_property
    def _cache(self) -> dict[int, NDArray[np.float64]]:
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
                numbers += [edge for scale in column.scales for edge in scale.edges]
                fine = all(map(math.isfinite, numbers)) and stamps[:1] == [1]
                fine = fine and all(scale.deviation >= 0 for scale in column.scales)
                fine = fine and 0 <= column.ramps <= MOST_SLOTS
                fine = fine and all(
                    len(scale.edges) <= column.ramps + 1
                    and all(low < high for low, high in pairwise(scale.edges))
                    for scale in column.scales
                )
            else:
                stamps = [*column.since]
                fine = len(stamps) == len(column.values) <= column.slots <= MOST_SLOTS
                fine = fine and 0 <= column.other <= tasks
            if not fine or stamps != sorted(stamps) or any(not 1 <= s <= tasks for s in stamps):
                raise ValueError(f"what is known of column {column.name!r} is damaged")


def _fit_number(name: str, column: Column, ramps: int) -> Number:
    missing = np.isnan(column)
    few = len(np.unique(column[~missing])) == 2  # a ramp would say what the number says
    ramps = 0 if few else ramps
    return Number(name, (_scale_of(name, column, 1, ramps),), bool(missing.any()), ramps)


def _scale_of(name: str, column: NDArray[np.float64], task: int, ramps: int) -> Scale:
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
    return Scale(task, float(np.median(there)), mean, deviation, _edges(there, deviation, ramps))


def _edges(there: NDArray[np.float64], deviation: float, ramps: int) -> tuple[float, ...]:
    """Quantiles, none nearer to the one before than rounding errors are."""
    if not ramps or not deviation:
        return ()
    edges: list[float] = []
    for edge in np.quantile(there, np.linspace(0, 1, ramps + 1)).tolist():
        if not edges or edge - edges[-1] > 1e-9 * deviation:
            edges.append(edge)
    return tuple(edges)


def _extend_number(number: Number, column: Column, task: int) -> Number:
    if number.scales[-1].deviation or column.dtype == object:
        return number
    scale = _scale_of(number.name, column, task, number.ramps)
    if not scale.deviation:
        return number
    return msgspec.structs.replace(number, scales=(*number.scales, scale))


def _as_numbers(table: Table, name: str) -> NDArray[np.float64]:
    column = table.columns[name]
    if column.dtype == object:
        odd = next((value for value in column if value is not None), None)
        if odd is None:  # of a few rows, none may have it
            return np.full(len(column), math.nan)
        raise TableError(
            f"column {name!r}: holds text ({odd!r}), but it was learned as numbers; convert it, or "
            "name it in `categorical` when the first task is learned"
        )
    return column


def _fit_category(name: str, column: Column, most: int, spare: int) -> Category:
    counted = Counter(_values(column, name))
    kept = sorted(_most_frequent(counted, most), key=_order)
    return Category(
        name, tuple(kept), (1,) * len(kept), len(kept) + spare, int(len(kept) < len(counted))
    )


def _extend_category(category: Category, column: Column, task: int) -> Category:
    known = Known(dict.fromkeys(category.values, True))
    every = Counter(_values(column, category.name))
    counted = Counter({value: count for value, count in every.items() if not known.get(value)})
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


def _values(column: Column, name: str) -> Iterator[Value]:
    """The values of a column that are not missing; of floats, whole ones as integers."""
    if column.dtype == object:
        yield from (value for value in column if value is not None)
        return
    if np.abs(column[~np.isnan(column)]).max(initial=0) > 2**53:
        raise TableError(
            f"column {name!r}: is one of categories, but holds numbers above 2**53, which cannot "
            "be told apart; give them as text"
        )
    for value in column[~np.isnan(column)].tolist():
        yield int(value) if value.is_integer() else value


def _mark(out: NDArray[np.float32], category: Category, column: Column, task: int) -> None:
    """Set the place of each row's value; of a value that the task does not know, none."""
    known = Known(category.places(task))
    other = _OTHER if 0 < category.other <= task else -1
    values = column.tolist()
    places = {v: _MISSING if v is None or v != v else known.get(v, other) for v in set(values)}
    at = np.array([places[value] for value in values], np.int64)
    rows = np.flatnonzero(at >= 0)
    out[rows, at[rows]] = 1


def number_of(value: Value) -> Value:
    """Of text that is a number as one writes it, the number: files say 7 where frames have "7"."""
    if not isinstance(value, str) or not _NUMBER.fullmatch(value):
        return value
    number = float(value) if "." in value else int(value)
    return int(number) if isinstance(number, float) and number.is_integer() else number


@final
class Known(Generic[T]):
    """What is known of values: of exactly this one, else of the number or text that says it."""

    def __init__(self, exactly: Mapping[Value, T]) -> None:
        self._exactly = exactly

    @cached_property
    def _by_number(self) -> dict[Value, T]:
        """Made for the first value that is not known exactly: most tables have none."""
        return {number_of(value): found for value, found in self._exactly.items()}

    @overload
    def get(self, value: Value) -> T | None: ...
    @overload
    def get(self, value: Value, default: T) -> T: ...
    def get(self, value: Value, default: T | None = None) -> T | None:
        found = self._exactly.get(value)
        return self._by_number.get(number_of(value), default) if found is None else found


def labels_as_values(classes: Iterable[Any]) -> list[Value]:
    """Classes as plain data."""
    return [value.item() if isinstance(value, np.generic) else value for value in classes]
