"""Tables in files: CSV, Parquet, Arrow and npz, read by pyarrow a few rows at a time.

The types of a CSV file's columns are guessed from its first rows. If a later row does not fit, the
file is read again with a wider type for that column: a whole number, then any number, then text.
"""

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Literal, TypeAlias, final

import numpy as np

from lifelong.extras import require_extra
from lifelong.tables.frames import TableError

require_extra("pyarrow", extra="tables")

import pyarrow as pa  # noqa: E402
from pyarrow import csv, ipc, parquet  # noqa: E402

ColumnType: TypeAlias = Literal["number", "text"]
Types: TypeAlias = Mapping[str, ColumnType]
BLOCK = 1 << 20  # bytes of a CSV file at once
ROWS = 8192  # rows of another file at once
FORMATS = (".csv", ".tsv", ".parquet", ".arrow", ".feather", ".npz")
_ODD = re.compile(r"In CSV column #(\d+): .* to (\w+)")


def batches(file: Path, types: Types | None = None, *, thorough: bool = False) -> Iterator[Any]:
    """The rows of a file as Arrow tables, a few at a time, with the columns' known types.

    A CSV file is read twice if no types are known, or it is asked to be `thorough`: then columns
    of unknown types are right even if its first rows mislead.
    """
    form = _format(file)
    try:
        yield from _READERS[form](file, types or {}, thorough)
    except (pa.ArrowException, OSError, ValueError) as error:
        if isinstance(error, TableError | FileNotFoundError | PermissionError):
            raise
        raise TableError(f"{file}: cannot be read as {form[1:]}: {error}") from error


def _format(file: Path) -> str:
    form = file.suffix.lower()
    if form not in FORMATS:
        raise TableError(f"{file}: give a file named {', '.join(FORMATS)}, not {file.suffix!r}")
    return form


def column_types(file: Path, known: Types | None = None) -> dict[str, pa.DataType]:
    """Types of a CSV file's columns that all of its rows fit; other files tell their own.

    A column of a known type has that one, whatever this file alone would suggest.
    """
    if _format(file) not in (".csv", ".tsv"):
        return {}
    types: dict[str, pa.DataType] = _known_types(file, known) if known else {}
    while True:
        try:
            with _csv(file, types) as reader:
                names = reader.schema.names
                for _ in reader:
                    pass
        except pa.ArrowInvalid as error:
            odd = _ODD.search(str(error))
            if odd is None:
                raise TableError(f"{file}: cannot be read as csv: {error}") from error
            with _csv(file, dict.fromkeys(_names(file), pa.string())) as reader:
                names = reader.schema.names
            name = names[int(odd[1])]
            if known and known.get(name) == "number" and types.get(name) == pa.float64():
                raise _odd_number(file, name, error) from error
            # A column that is empty at first may be anything.
            whole = odd[2].startswith(("int", "null")) and types.get(name) != pa.float64()
            if types.get(name) == pa.string():
                raise TableError(f"{file}: column {name!r} cannot be read: {error}") from error
            types[name] = pa.float64() if whole else pa.string()
        else:
            return {**dict.fromkeys(names), **types}


def _names(file: Path) -> list[str]:
    with file.open("rb") as stream:
        first = stream.readline(1 << 20)
    table = csv.read_csv(pa.BufferReader(first), parse_options=_parse(file))
    return list(table.schema.names)


def _parse(file: Path) -> Any:
    return csv.ParseOptions(
        delimiter="\t" if file.suffix.lower() == ".tsv" else ",", newlines_in_values=True
    )


@contextmanager
def _csv(file: Path, types: Mapping[str, Any]) -> Iterator[Any]:
    known = {name: kind for name, kind in types.items() if kind is not None}
    convert = csv.ConvertOptions(column_types=known, strings_can_be_null=True)
    reading = csv.ReadOptions(block_size=BLOCK, use_threads=False)
    with csv.open_csv(
        file, read_options=reading, parse_options=_parse(file), convert_options=convert
    ) as reader:
        yield reader


def _read_csv(file: Path, types: Types, thorough: bool) -> Iterator[Any]:
    if file.stat().st_size == 0:
        raise TableError(f"{file}: is empty; its first line must name the columns")
    guess = thorough or not types
    known = column_types(file, types) if guess else _known_types(file, types)
    try:
        with _csv(file, known) as reader:
            for batch in reader:
                yield _in_utf8(pa.table(batch), file)
    except pa.ArrowInvalid as error:
        odd = _ODD.search(str(error))
        if odd is None or not types:
            raise
        raise _odd_number(file, _names(file)[int(odd[1])], error) from error


def _in_utf8(table: Any, file: Path) -> Any:
    for field in table.schema:
        if pa.types.is_binary(field.type):
            raise TableError(f"{file}: column {field.name!r} is not UTF-8; save the file as UTF-8")
    return table


def _odd_number(file: Path, name: str, error: Exception) -> TableError:
    return TableError(
        f"{file}: column {name!r} was learned as numbers, but the file has another value there: "
        f"{error}"
    )


def _known_types(file: Path, types: Types) -> dict[str, Any]:
    """The types to read known columns by: booleans and dates tell themselves, and are numbers."""
    with _csv(file, {}) as reader:
        schema = reader.schema
    found: dict[str, Any] = {}
    for name, kind in types.items():
        there = schema.field(name).type if name in schema.names else None
        own = there is not None and (pa.types.is_boolean(there) or pa.types.is_temporal(there))
        if kind == "text":
            found[name] = pa.string()
        elif not own:
            found[name] = pa.float64()
    return found


def _read_parquet(file: Path, _types: Types, _thorough: bool) -> Iterator[Any]:
    with parquet.ParquetFile(file) as whole:
        for batch in whole.iter_batches(batch_size=ROWS, use_threads=False):
            yield pa.table(batch)


def _read_arrow(file: Path, _types: Types, _thorough: bool) -> Iterator[Any]:
    with pa.memory_map(str(file)) as source:
        try:
            whole = ipc.open_file(source)
            parts = (whole.get_batch(number) for number in range(whole.num_record_batches))
        except pa.ArrowInvalid:
            source.seek(0)
            parts = iter(ipc.open_stream(source))
        for batch in parts:
            yield pa.table(batch)


def _read_npz(file: Path, _types: Types, _thorough: bool) -> Iterator[Any]:
    """Arrays of one column each, or x with several: then its columns are x0, x1, …"""
    with np.load(file, allow_pickle=False) as arrays:
        columns: dict[str, Any] = {}
        for name in arrays.files:
            array = arrays[name]
            if array.ndim > 2 or array.ndim == 0:
                raise TableError(f"{file}: {name} has shape {array.shape}, not rows and columns")
            several = array if array.ndim == 2 else array[:, None]
            wide = array.ndim == 2
            columns |= {f"{name}{i}" if wide else name: c for i, c in enumerate(several.T)}
    table = pa.table({name: np.ascontiguousarray(column) for name, column in columns.items()})
    for start in range(0, table.num_rows, ROWS):
        yield table.slice(start, ROWS)


_READERS: Mapping[str, Callable[[Path, Types, bool], Iterator[Any]]] = {
    ".csv": _read_csv,
    ".tsv": _read_csv,
    ".parquet": _read_parquet,
    ".arrow": _read_arrow,
    ".feather": _read_arrow,
    ".npz": _read_npz,
}


def sample(file: Path, most: int, seed: int, known: Types | None = None) -> tuple[Any, int]:
    """All rows of a file if there are at most `most`, else as many drawn from it; and their count.

    Columns of known types are read by these.

    Each batch keeps the rows with the smallest of random keys so far, so that memory is bounded.
    """
    generator = np.random.default_rng([seed, 11])
    kept: Any = None
    keys = np.array([])
    count = 0
    for batch in batches(file, known, thorough=True):
        count += batch.num_rows
        kept = batch if kept is None else pa.concat_tables([kept, batch], promote_options="default")
        keys = np.concatenate([keys, generator.random(batch.num_rows)])
        if len(keys) > 2 * most:
            kept, keys = _smallest(kept, keys, most)
    if kept is None:
        raise TableError(f"{file}: has no rows")
    if len(keys) > most:
        kept, keys = _smallest(kept, keys, most)
    return kept, count


def _smallest(table: Any, keys: Any, most: int) -> tuple[Any, Any]:
    rows = np.sort(np.argpartition(keys, most)[:most])
    return table.take(pa.array(rows)).combine_chunks(), keys[rows]


@final
class Writer:
    """Writes Arrow tables to a CSV or Parquet file, one after another; as a context manager."""

    def __init__(self, file: Path) -> None:
        if file.suffix.lower() not in (".csv", ".parquet"):
            raise TableError(f"{file}: answers are written to .csv or .parquet files")
        self._file = file
        self._aside = file.with_name(f".{file.name}.incoming")
        self._writer: Any = None

    def __enter__(self) -> "Writer":
        return self

    def write(self, table: Any) -> None:
        if self._writer is None:
            whole = self._file.suffix.lower() == ".parquet"
            make = parquet.ParquetWriter if whole else csv.CSVWriter
            self._writer = make(self._aside, table.schema)
        self._writer.write_table(table)

    def __exit__(self, kind: object, *_: object) -> None:
        if self._writer is not None:
            self._writer.close()
            if kind is None:
                self._aside.replace(self._file)
        if kind is not None:
            self._aside.unlink(missing_ok=True)


def taken_out(table: Any, names: Sequence[str], where: str) -> Any:
    """The table without these columns; they must be there, and each once."""
    twice = [name for name in names if table.column_names.count(name) > 1]
    if twice:
        raise TableError(f"{where}: has more than one column {twice[0]!r}; name them apart")
    missing = [name for name in names if name not in table.column_names]
    if missing:
        raise TableError(
            f"{where}: no column {missing[0]!r}; its columns are {', '.join(table.column_names)}"
        )
    return table.drop_columns(list(dict.fromkeys(names)))
