"""A data set for experiments: a table in a file, parted into tasks by one of its columns."""

import hashlib
import os
from dataclasses import dataclass
from functools import cached_property, partial
from pathlib import Path
from typing import Any, final

import numpy as np
from numpy.typing import NDArray

from lifelong.extras import require_extra
from lifelong.tables.frames import Column, Table, TableError, read_labels, read_table
from lifelong.tables.preparation import Preparation
from lifelong.tasks.datasets import DataError, DataSet, register_dataset
from lifelong.tasks.kinds import Kind
from lifelong.tasks.streams import Stream
from lifelong.tasks.task import Task

SHARES = (0.6, 0.2, 0.2)
Rows = NDArray[np.int64]


def digest_of_file(file: Path) -> str:
    """Checksum of a file: a changed file is another data set."""
    with file.open("rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()


def table(
    seed: int = 0,
    _data_dir: str | os.PathLike[str] | None = None,
    *,
    path: str = "",
    target: str = "",
    task_column: str = "",
    regression: bool = False,
    leave_out: tuple[str, ...] = (),
    sha256: str = "",
) -> Stream:
    """One task per value of a column, in the order in which the values appear.

    Of each task's rows 60 / 20 / 20 % train, validate and test, drawn by class. Columns are
    prepared as by the estimators: fitted on the first task, extended by later ones. Labels of a
    regression are scaled by those that a task trains on.
    """
    if not (path and target and task_column):
        raise DataError(
            "the data set 'table' needs the options path, target and task_column; `lifelong "
            "compare FILE --target ... --task-column ...` gives them"
        )
    file = Path(path)
    if sha256 and digest_of_file(file) != sha256:
        raise DataError(f"{file}: has changed since these runs were begun; begin them again")
    parted = _Parted.read(file, target, task_column, regression, tuple(leave_out), seed)
    makers = {name: partial(parted.task, number) for number, name in enumerate(parted.names, 1)}
    classes = {name: parted.classes(name) for name in parted.names}
    outputs = {} if regression else {n: [str(v) for v in each] for n, each in classes.items()}
    return Stream(makers, source=f"table {file.name}", outputs=outputs)


@final
@dataclass(frozen=True, eq=False)
class _Parted:
    """Rows with their labels and the names of their tasks."""

    columns: Table
    labels: Column
    tasks: NDArray[Any]
    regression: bool
    seed: int

    @classmethod
    def read(
        cls,
        file: Path,
        target: str,
        task_column: str,
        regression: bool,
        leave_out: tuple[str, ...],
        seed: int,
    ) -> "_Parted":
        require_extra("pyarrow", extra="tables")
        import pyarrow

        from lifelong.tables.files import batches, taken_out

        whole = pyarrow.concat_tables(list(batches(file)), promote_options="default")
        columns = read_table(taken_out(whole, [target, task_column, *leave_out], str(file)))
        labels = read_labels(_objects(whole[target]), f"{file}, column {target!r}")
        if not regression and labels.dtype.kind == "f" and (labels != labels.round()).any():
            raise TableError(
                f"{file}: column {target!r} holds measurements, not classes; learn them as a "
                "regression (--regression)"
            )
        tasks = _objects(whole[task_column])
        if any(value is None for value in tasks):
            raise TableError(
                f"{file}: column {task_column!r} is missing in some rows; leave them out"
            )
        return cls(columns, labels, np.array([str(v) for v in tasks]), regression, seed)

    @cached_property
    def names(self) -> list[str]:
        return list(dict.fromkeys(self.tasks.tolist()))

    def classes(self, name: str) -> NDArray[Any]:
        return np.unique(self.labels[self.tasks == name])

    @cached_property
    def splits(self) -> dict[str, list[Rows]]:
        """Rows to train, validate and test on, by task."""
        return {name: self._split(number, name) for number, name in enumerate(self.names, 1)}

    def _split(self, number: int, name: str) -> list[Rows]:
        generator = np.random.default_rng([self.seed, number])
        rows = np.flatnonzero(self.tasks == name)
        strata = np.zeros(len(rows)) if self.regression else self.labels[rows]
        parts: list[list[Rows]] = [[], [], []]
        for stratum in np.unique(strata):
            mixed = generator.permutation(rows[strata == stratum])
            ends = np.floor(np.cumsum(SHARES) * len(mixed) + 1e-9).astype(np.int64)[:2]
            for part, chosen in zip(parts, np.split(mixed, ends), strict=True):
                part.append(chosen)
        return [np.sort(np.concatenate(part)) for part in parts]

    @cached_property
    def prepared(self) -> Preparation:
        """After all tasks; an earlier one sees what it saw."""
        own = [self.columns.take(self.splits[name][0]) for name in self.names]
        prepared = Preparation.fit(own[0])
        for number, rows in enumerate(own[1:], 2):
            prepared = prepared.extended(rows, number)
        return prepared

    def task(self, number: int) -> Task:
        name = self.names[number - 1]
        classes = self.classes(name)
        if self.regression:
            kind = Kind.REGRESSION
        else:
            kind = Kind.BINARY if len(classes) == 2 else Kind.CLASSES
        parts = [
            (self.prepared.transform(self.columns.take(rows), number), self._coded(name, rows))
            for rows in self.splits[name]
        ]
        outputs = len(classes) if kind is Kind.CLASSES else 1
        return Task(name, *parts, kind=kind, outputs=outputs)

    def _coded(self, name: str, rows: Rows) -> NDArray[Any]:
        if not self.regression:
            return np.searchsorted(self.classes(name), self.labels[rows])
        train = self.labels[self.splits[name][0]].astype(np.float64)
        return np.asarray((self.labels[rows] - train.mean()) / (train.std() or 1.0))


def _objects(column: Any) -> NDArray[Any]:
    return np.array(column.to_pylist(), dtype=object)


TABLE = DataSet("table", table, "a table in a file, a task per value of a column; for `compare`")
register_dataset(TABLE)
