"""Tasks from any table of features, made as the paper makes those of AWA.

One binary one-versus-rest task per class, 30 / 30 / 30 rows per class, features reduced to 500
dimensions by a principal component analysis fitted on training rows only. The result is
standardised by one mean and one standard deviation of all training values: one per component would
scale those that hardly vary up to the first ones.
"""

import io
import math
import os
import tokenize
import zipfile
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from lifelong.extras import require_extra
from lifelong.tasks.datasets.files import DataError, data_directory, readable, require_plausible
from lifelong.tasks.splits import consecutive, require_finite, split_table
from lifelong.tasks.streams import Order, Stream, one_versus_rest

PER_CLASS = (30, 30, 30)
DIMENSIONS = 500


def features(
    path: str | os.PathLike[str],
    seed: int = 0,
    data_dir: str | os.PathLike[str] | None = None,
    *,
    per_class: tuple[int, int, int] = PER_CLASS,
    dimensions: int = DIMENSIONS,
    order: Order = "drawn",
) -> Stream:
    """A stream from an npz file, looked for as given and then in the data directory.

    It holds `x` (rows, features), `y` (one label per row) and optionally `split` (0 for training
    and validation rows, 1 for test rows) and `names` (of the classes, in sorted order of labels).
    """
    places = [Path(path).expanduser(), data_directory(data_dir) / path]
    found = next((place for place in places if place.is_file()), None)
    if found is None:
        raise DataError(
            f"features: there is no file {places[0]} nor {places[1]}; give the path of an npz file "
            "with x and y. The data set 'digits' needs no files."
        )
    table = read_npz(found)
    x = table["x"]
    return animal_tasks(
        table["y"],
        lambda rows: x[rows],
        test=table["split"] == 1 if "split" in table else None,
        classes=[str(name) for name in table["names"]] if "names" in table else None,
        per_class=per_class,
        dimensions=dimensions,
        seed=seed,
        order=order,
        source=f"features of {found.parent.name}/{found.name}",
    )


def animal_tasks(
    labels: NDArray[Any],
    read: Callable[[NDArray[np.int64]], NDArray[Any]],
    *,
    test: NDArray[np.bool_] | None = None,
    classes: list[str] | None,
    per_class: tuple[int, int, int],
    dimensions: int,
    seed: int,
    order: Order,
    source: str,
) -> Stream:
    """One-versus-rest tasks over rows drawn by their labels; only these rows are read."""
    if dimensions < 1:
        raise DataError(f"dimensions must be at least 1, not {dimensions}")
    if len(labels) == 0:
        raise DataError(f"{source}: there are no rows in it; get the files again")
    numbers = np.arange(len(labels))[:, None]
    drawn = split_table(numbers, labels, per_class, seed=seed, test=test, classes=classes)
    rows = [part.rows for part in drawn.each]
    table = read(np.concatenate(rows)).astype(np.float32)
    require_finite("features", table)
    table = _reduced(table, len(rows[0]), dimensions)
    return one_versus_rest(
        consecutive(table, drawn), seed=seed, order=order, standardise="whole", source=source
    )


def read_npz(path: Path) -> dict[str, NDArray[Any]]:
    """The arrays of an npz file of features, checked; nothing is ever unpickled."""
    try:
        with readable(path), path.open("rb") as file, zipfile.ZipFile(file) as archive:
            members = {info.filename.removesuffix(".npy"): info for info in archive.infolist()}
            wanted = {name: members[name] for name in _KINDS if name in members}
            told = sum(_announced(archive, info, _KINDS[name]) for name, info in wanted.items())
            require_plausible(path, told)
            table = {name: _array(archive, info) for name, info in wanted.items()}
    except DataError:
        raise
    except _NOT_AN_NPZ as error:
        raise DataError(
            f"{path}: not a whole npz file of plain arrays ({error}); write it with "
            "numpy.savez(path, x=..., y=...)"
        ) from error
    _check_table(path, table)
    return table


# What zipfile, zlib and NumPy's array reader raise on damaged input.
_NOT_AN_NPZ = (
    zipfile.BadZipFile,
    zlib.error,
    EOFError,
    ValueError,
    TypeError,
    KeyError,
    IndexError,
    OverflowError,
    RuntimeError,  # includes RecursionError
    SyntaxError,
    MemoryError,
    tokenize.TokenError,
)
# The kinds of numbers and words that each array may hold.
_KINDS = {"x": "biuf", "y": "biufUS", "split": "biuf", "names": "biufUS"}
_HEADER = 12_000  # bytes of an array that its header is looked for in


def _announced(archive: zipfile.ZipFile, info: zipfile.ZipInfo, kinds: str) -> int:
    """The bytes that an array says it has, and each of its rows has some."""
    if info.compress_type not in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED):
        raise ValueError(f"{info.filename} is packed in a way that numpy does not use")
    with archive.open(info) as member:
        head = io.BytesIO(member.read(_HEADER))
    version = np.lib.format.read_magic(head)
    if version not in _HEADERS:
        raise ValueError(f"arrays of version {version} are not read")
    shape, _, dtype = _HEADERS[version](head)
    if dtype.kind not in kinds or dtype.itemsize == 0 or min(shape, default=1) < 1:
        raise ValueError(
            f"{info.filename} is of type {dtype} and shape {shape}; it must hold numbers, or in y "
            "and names text, and no axis may be empty"
        )
    told = math.prod(shape) * dtype.itemsize
    if told > info.file_size:
        raise ValueError(f"{info.filename} announces {told:,} bytes, more than it can have")
    return told


def _array(archive: zipfile.ZipFile, info: zipfile.ZipInfo) -> NDArray[Any]:
    with archive.open(info) as member:
        return np.asarray(np.lib.format.read_array(member, allow_pickle=False))


_HEADERS = {
    (1, 0): np.lib.format.read_array_header_1_0,
    (2, 0): np.lib.format.read_array_header_2_0,
}


def _check_table(path: Path, table: dict[str, NDArray[Any]]) -> None:
    absent = [name for name in ("x", "y") if name not in table]
    if absent:
        raise DataError(
            f"{path}: no array {' and no '.join(absent)} in it; it must hold x (rows, features) "
            "and y (one label per row)"
        )
    x, y = table["x"], table["y"]
    if x.ndim != 2 or x.dtype.kind not in "biuf" or y.shape != x.shape[:1]:
        raise DataError(
            f"{path}: x must be numbers of shape (rows, features) and y one label per row, not "
            f"{x.dtype} of shape {x.shape} and y of shape {y.shape}"
        )
    if table.get("names", y).ndim != 1:
        raise DataError(
            f"{path}: names must be a list, a name for each class, not of shape "
            f"{table['names'].shape}"
        )
    split = table.get("split")
    if split is not None and (split.shape != y.shape or not np.isin(split, (0, 1)).all()):
        raise DataError(
            f"{path}: split must be 0 (to train and validate on) or 1 (to test on) for each of the "
            f"{len(y)} rows; this one has shape {split.shape} and values "
            f"{np.unique(split)[:5].tolist()}"
        )


def _reduced(table: NDArray[np.float32], train: int, dimensions: int) -> NDArray[np.float32]:
    """Principal components of the first `train` rows, at most as many as these rows."""
    if table.shape[1] <= dimensions:
        return table
    require_extra("sklearn", extra="data")
    from sklearn.decomposition import PCA

    components = PCA(min(dimensions, train), svd_solver="full").fit(table[:train])
    return np.asarray(components.transform(table), np.float32)
