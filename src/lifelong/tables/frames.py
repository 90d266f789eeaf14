"""Tables of any library as columns of NumPy: pandas, polars and Arrow by narwhals, and arrays.

A column is an array of float64, with NaN for a missing number; or an array of objects, with None
for a missing value. Booleans are numbers 0 and 1, dates are days since 1970.
"""

import math
import warnings
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import date
from typing import Any, TypeAlias, final

import numpy as np
from numpy.typing import NDArray

from lifelong.extras import require_extra
from lifelong.tasks.kinds import TaskError

Column: TypeAlias = NDArray[Any]
_DAY = 86_400_000  # milliseconds


class TableError(TaskError):
    """A table that cannot be used; the message says what came, what is allowed and what to do."""


@final
@dataclass(frozen=True, eq=False)
class Table:
    """Columns by name, all of the same length.

    Attributes:
        named: whether the names came with the table; those of an array are x0, x1, …
        matrix: all columns in one array, if the table came as an array of numbers.
    """

    columns: Mapping[str, Column]
    rows: int
    named: bool
    matrix: NDArray[np.float64] | None = None

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(self.columns)

    def of(self, names: Sequence[str], where: str) -> "Table":
        """The same table with exactly these columns, in this order."""
        if self.names == tuple(names):
            return self
        if not self.named and len(names) == len(self.columns):
            return Table(
                dict(zip(names, self.columns.values(), strict=True)), self.rows, True, self.matrix
            )
        missing = [name for name in names if name not in self.columns]
        known = set(names)
        new = [name for name in self.columns if name not in known]
        if missing or new:
            raise TableError(f"{where}: {_difference(missing, new)}")
        return Table({name: self.columns[name] for name in names}, self.rows, True)

    def take(self, rows: NDArray[np.int64]) -> "Table":
        """The same columns with these rows."""
        matrix = None if self.matrix is None else self.matrix[rows]
        if matrix is not None:
            return _of_numbers(matrix, self.names, self.named)
        columns = {name: column[rows] for name, column in self.columns.items()}
        return Table(columns, len(rows), self.named)


def _difference(missing: Sequence[str], new: Sequence[str]) -> str:
    told = [f"columns are missing: {_listed(missing)}"] if missing else []
    told += [f"columns are new: {_listed(new)}"] if new else []
    advice = "leave the new ones out" if new and not missing else "give the columns by their names"
    return f"{'; '.join(told)}; {advice}, as when the first task was learned"


def _listed(names: Sequence[str], most: int = 12) -> str:
    shown = ", ".join(repr(name) for name in names[:most])
    return shown if len(names) <= most else f"{shown} and {len(names) - most} more"


def read_table(given: Any, where: str = "X") -> Table:
    """A table from an array, or a frame of pandas, polars, Arrow or whatever narwhals knows."""
    if isinstance(given, Table):
        return given
    if hasattr(given, "toarray") and hasattr(given, "nnz"):
        raise TableError(f"{where}: sparse input is not supported; give X.toarray()")
    if hasattr(given, "collect") and not hasattr(given, "to_numpy"):
        raise TableError(f"{where}: a lazy frame holds no rows yet; give X.collect()")
    if hasattr(given, "columns") or hasattr(given, "column_names"):
        return _of_frame(given, where)
    if hasattr(given, "__arrow_c_stream__"):
        import pyarrow

        return _of_frame(pyarrow.table(given), where)
    return _of_array(given, where)


def _of_frame(given: Any, where: str) -> Table:
    require_extra("narwhals", extra="tables")
    import narwhals as nw

    try:
        frame: Any = nw.from_native(given, eager_only=True)
        names = [str(name) for name in frame.columns]
    except nw.exceptions.DuplicateError as error:
        raise TableError(f"{where}: columns must have names that differ: {error}") from error
    except TypeError as error:
        raise TableError(
            f"{where}: a {type(given).__name__} cannot be read as a table; give an array, or a "
            f"frame of pandas, polars or Arrow: {error}"
        ) from error
    columns = {
        name: _of_series(series, f"{where}, column {name!r}")
        for name, series in zip(names, frame.iter_columns(), strict=True)
    }
    if set(frame.columns) == set(range(len(names))):  # as of a frame that was made of an array
        ordered = [columns[str(place)] for place in range(len(names))]
        return Table(dict(zip(_numbered(len(names)), ordered, strict=True)), len(frame), False)
    if len(columns) < len(names):
        raise TableError(f"{where}: columns must have names that differ as text: {names}")
    return Table(columns, len(frame), True)


def _of_series(series: Any, where: str) -> Column:
    import narwhals as nw

    dtype = series.dtype
    if dtype.is_numeric() or dtype == nw.Boolean:
        values = series.cast(nw.Float64).to_numpy() if not series.null_count() else series.to_list()
        return _floats(values)
    if dtype == nw.Date:
        series = series.cast(nw.Datetime)
        dtype = series.dtype
    if dtype == nw.Datetime:
        return _floats(series.dt.timestamp("ms").to_list()) / _DAY
    if dtype == nw.Unknown and series.null_count() == len(series):  # Arrow's type of nothing
        return np.full(len(series), math.nan)
    if dtype in (nw.String, nw.Categorical, nw.Enum, nw.Object) or dtype == nw.Unknown:
        return of_objects(series.to_list(), where, text=dtype != nw.Object)
    raise TableError(
        f"{where}: has values of type {dtype}; columns may hold numbers, text, booleans, "
        "categories and dates: convert it, or leave it out"
    )


def is_missing(value: object) -> bool:
    """None, NaN, and what pandas has in their place."""
    return value is None or type(value).__name__ in ("NAType", "NaTType") or value != value


def _floats(values: Iterable[Any]) -> NDArray[np.float64]:
    if isinstance(values, np.ndarray) and values.dtype != object:
        return values.astype(np.float64)
    return np.array([math.nan if is_missing(value) else value for value in values], np.float64)


def of_objects(values: Iterable[Any], where: str, *, text: bool = False) -> Column:
    """A column of numbers if all that is there is numbers or dates, unless it is one of text; else
    of plain values.
    """
    plain = [
        None if is_missing(v) else v.item() if isinstance(v, np.generic) else v for v in values
    ]
    there = [value for value in plain if value is not None]
    if not text and there and all(isinstance(value, bool | int | float) for value in there):
        return _floats(plain)
    if not text and there and all(isinstance(value, date) for value in there):
        days = [None if value is None else np.datetime64(value, "ms") for value in plain]
        return _floats(None if day is None else float(day.astype(np.int64)) / _DAY for day in days)
    column = np.empty(len(plain), dtype=object)
    for place, value in enumerate(plain):
        if isinstance(value, complex):
            raise TableError(f"{where}: Complex data not supported, but {value} is among it")
        if isinstance(value, bytes):
            raise TableError(f"{where}: holds bytes ({value!r}); decode them to text")
        if isinstance(value, list | dict | tuple | set):
            raise TableError(
                f"{where}: holds a {type(value).__name__} (argument must be a string or a number)"
            )
        column[place] = value if isinstance(value, str) or value is None else _as_value(value)
    return column


def _as_value(value: object) -> str | int | float | bool:
    return value if isinstance(value, bool | int | float | str) else str(value)


def _of_array(given: Any, where: str) -> Table:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", np.exceptions.VisibleDeprecationWarning)
        array = np.asarray(given)
        if array.dtype.kind in "US" and not isinstance(given, np.ndarray):
            array = np.array(given, dtype=object)  # numbers beside text in lists stay numbers
    if array.dtype.kind == "c":
        raise TableError(f"{where}: Complex data not supported, but it is of type {array.dtype}")
    if array.ndim < 2:
        raise TableError(
            f"{where}: Expected 2D array, with rows first and then columns, got {array.ndim}D "
            "array. Reshape your data: one row is X[None] or X.reshape(1, -1), one column "
            "X.reshape(-1, 1)"
        )
    array = array.reshape(len(array), math.prod(array.shape[1:]))
    if array.shape[1] == 0:
        raise TableError(
            f"{where}: 0 feature(s) (shape={array.shape}) while a minimum of 1 is required."
        )
    if array.dtype.kind in "biuf":
        return _of_numbers(array.astype(np.float64), _numbered(array.shape[1]), False)
    columns = {
        name: of_objects(column.tolist(), f"{where}, column {name!r}")
        for name, column in zip(_numbered(array.shape[1]), array.T, strict=True)
    }
    return Table(columns, len(array), False)


def _numbered(count: int) -> tuple[str, ...]:
    return tuple(f"x{number}" for number in range(count))


def _of_numbers(matrix: NDArray[np.float64], names: Sequence[str], named: bool) -> Table:
    columns = dict(zip(names, matrix.T, strict=True))
    return Table(columns, len(matrix), named, matrix)


def read_labels(given: Any, where: str = "y") -> Column:
    """Labels in order, one per row: as an array of numbers, or of plain values."""
    array = np.asarray(given)
    if array.ndim == 2 and array.shape[1] == 1:
        from sklearn.exceptions import DataConversionWarning

        warnings.warn(
            "A column-vector y was passed when a 1d array was expected; it is read as y.ravel()",
            DataConversionWarning,
            stacklevel=4,
        )
        array = array.ravel()
    if array.ndim != 1:
        raise TableError(f"{where}: must be one label per row (1d), not an array of {array.shape}")
    if array.dtype.kind in "biu":
        return array
    if array.dtype.kind == "f":
        values: Column = array
    else:
        values = of_objects(array.tolist(), where)
    missing = sum(map(is_missing, values))
    if missing:
        raise TableError(
            f"{where}: contains NaN or None in {missing} of {len(values)} rows; leave out rows "
            "without a label"
        )
    if values.dtype == object and len({isinstance(value, str) for value in values}) > 1:
        raise TableError(
            f"{where}: mixes text and numbers ({', '.join(map(repr, _two(values)))}); make them "
            "all text or all numbers"
        )
    if values.dtype != object and not np.isfinite(values).all():
        raise TableError(f"{where}: contains infinity; labels must be finite")
    if array.dtype == object and values.dtype != object:  # whole numbers and booleans stay so
        return np.array(array.tolist())
    return values


def _two(values: Column) -> list[Any]:
    """A text and another value of a column that has both."""
    return [next(v for v in values if isinstance(v, str) is text) for text in (True, False)]
