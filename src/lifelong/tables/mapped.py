"""Files of numbers (Parquet, Arrow, CSV) as one memory-mapped array, for tasks larger than memory.

Shuffled rows are read one by one, which files of columns are slow at: they are copied once, a few
rows at a time, into a file of rows.
"""

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import IO, Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from lifelong.extras import require_extra
from lifelong.tables.frames import TableError

MappedRows: TypeAlias = "np.memmap[Any, np.dtype[np.float32]]"


def map_rows(
    files: Sequence[str | Path], into: str | Path, *, labels: Sequence[str]
) -> tuple[MappedRows, NDArray[np.float64]]:
    """Inputs, mapped from the file `into`, and labels of the rows of all files, in their order.

    All columns but `labels` are inputs, in the order of the first file. The file `into` is made
    anew; remove it when the task is learned.
    """
    require_extra("pyarrow", extra="tables")
    target = Path(into)
    aside = target.with_name(f"{target.name}.incoming")
    found: list[NDArray[np.float64]] = []
    columns: list[str] = []
    with aside.open("wb") as stream:
        for x, y in _batches([Path(file) for file in files], list(labels), columns):
            _append(stream, x)
            found.append(y)
    if not found:
        raise TableError(f"{', '.join(map(str, files)) or 'no files'}: there are no rows to map")
    aside.replace(target)
    answers = np.concatenate(found)
    rows: MappedRows = np.memmap(
        target, dtype=np.float32, mode="r", shape=(len(answers), len(columns))
    )
    return rows, answers[:, 0] if len(labels) == 1 else answers


def _batches(
    files: Sequence[Path], labels: list[str], columns: list[str]
) -> Iterator[tuple[NDArray[np.float64], NDArray[np.float64]]]:
    """Inputs and labels, a few rows at a time; `columns` becomes the names of the inputs."""
    from lifelong.tables.files import batches

    for file in files:
        for table in batches(file):
            if not columns:
                columns += [name for name in table.column_names if name not in labels]
            missing = [name for name in (*columns, *labels) if name not in table.column_names]
            if missing or not columns:
                raise TableError(
                    f"{file}: has no column {missing[0] if missing else 'but labels'!r}; every "
                    f"file needs the inputs of the first one and {', '.join(labels)}"
                )
            yield _numbers(file, table, columns), _numbers(file, table, labels)


def _numbers(file: Path, table: Any, names: Sequence[str]) -> NDArray[np.float64]:
    found = np.empty((table.num_rows, len(names)))
    for place, name in enumerate(names):
        column = table[name]
        if column.null_count:
            raise TableError(f"{file}: column {name!r} has missing values; fill or drop them first")
        try:
            found[:, place] = column.to_numpy()
        except (TypeError, ValueError) as error:
            raise TableError(
                f"{file}: column {name!r} holds {column.type}, not numbers; encode it first, or "
                "use lifelong.LifelongClassifier, which takes text"
            ) from error
    return found


def _append(stream: IO[bytes], rows: NDArray[np.float64]) -> None:
    rows.astype(np.float32).tofile(stream)
