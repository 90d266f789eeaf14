"""Animals with Attributes: 50 classes of animals, as features of a convolutional network.

AwA's DECAF features are distributed as one directory per class with one text file per image, AwA2's
ResNet-101 features as one text file with one line per image. AwA2's are downloaded; AwA's have no
published hash and have to be put in place by hand.
"""

import os
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Literal, final

import numpy as np
from numpy.typing import NDArray

from lifelong.tasks.datasets.features import DIMENSIONS, PER_CLASS, animal_tasks
from lifelong.tasks.datasets.files import (
    UNCHECKED,
    DataError,
    Remote,
    absent,
    are_published,
    data_directory,
    fetch_archive,
    readable,
)
from lifelong.tasks.streams import Order, Stream

DECAF = "Animals_with_Attributes/Features/decaf"
AWA2 = "Animals_with_Attributes2"
RESNET = "Features/ResNet101"
FEATURES, LABELS, CLASSES = (
    f"{RESNET}/AwA2-features.txt",
    f"{RESNET}/AwA2-labels.txt",
    "classes.txt",
)
FEATURES_ARCHIVE = Remote(
    "https://cvml.ista.ac.at/AwA2/AwA2-features.zip", "md5:b1735c7b8a9044b1d51903b4c9e9fcd5"
)
CLASSES_ARCHIVE = Remote(
    "https://cvml.ista.ac.at/AwA2/AwA2-base.zip", "md5:27998437f72823d8ac314257682b57ca"
)


def awa(
    seed: int = 0,
    data_dir: str | os.PathLike[str] | None = None,
    *,
    version: Literal["awa", "awa2"] | None = None,
    per_class: tuple[int, int, int] = PER_CLASS,
    dimensions: int = DIMENSIONS,
    order: Order = "drawn",
) -> Stream:
    """Fifty one-versus-rest tasks, 30 / 30 / 30 images per class, features reduced to 500.

    Without a `version`, AwA is used if its features are present, else AwA2.
    """
    if version not in (None, "awa", "awa2"):
        raise DataError(f"version must be 'awa', 'awa2' or None, not {version!r}")
    directory = data_directory(data_dir)
    first = version == "awa" or (version is None and (directory / DECAF).is_dir())
    table = _decaf(directory) if first else _resnet(directory)
    return animal_tasks(
        table.labels,
        table.read,
        classes=table.classes,
        per_class=per_class,
        dimensions=dimensions,
        seed=seed,
        order=order,
        source=table.source,
    )


@final
@dataclass(frozen=True, eq=False)
class _Table:
    """All labels, and a function that reads the features of some rows, since text is slow."""

    labels: NDArray[np.int64]
    classes: list[str]
    read: Callable[[NDArray[np.int64]], NDArray[np.float32]]
    source: str


def _decaf(directory: Path) -> _Table:
    home = directory / DECAF
    classes = (
        sorted(entry.name for entry in home.iterdir() if entry.is_dir()) if home.is_dir() else []
    )
    images = [(label, path) for label, name in enumerate(classes) for path in _texts(home / name)]
    if not images:
        why = "one directory per class with one text file per image"
        raise absent("awa", home, ["AwA's DECAF features"], why)
    labels = np.array([label for label, _ in images])
    # A class whose directory is empty has no label, and its name must be left out.
    present = [classes[label] for label in np.unique(labels)]
    read = partial(_read_files, [path for _, path in images])
    return _Table(labels, present, read, f"AwA, DECAF features, {UNCHECKED}")


def _texts(directory: Path) -> list[Path]:
    return sorted(directory.glob("*.txt"))


def _read_files(paths: list[Path], rows: NDArray[np.int64]) -> NDArray[np.float32]:
    vectors = [_numbers(paths[row], _words(paths[row])) for row in rows]
    for row, vector in zip(rows, vectors, strict=True):
        _require_length(paths[row], vector, len(vectors[0]))
    return np.stack(vectors)


def _resnet(directory: Path) -> _Table:
    home = directory / AWA2
    features = {name: f"{AWA2}/{name}" for name in (FEATURES, LABELS)}
    fetch_archive("awa", home, features, FEATURES_ARCHIVE)
    fetch_archive("awa", home, {CLASSES: f"{AWA2}/{CLASSES}"}, CLASSES_ARCHIVE)
    labels = _numbers(home / LABELS, _words(home / LABELS)).astype(np.int64)
    names = _class_names(home / CLASSES)
    unnamed = sorted(set(labels.tolist()) - set(names))
    if unnamed:
        raise DataError(
            f"{home / LABELS}: label {unnamed[0]} has no name in {home / CLASSES}; get both again"
        )
    classes = [names[label] for label in np.unique(labels).tolist()]
    read = partial(_read_lines, home / FEATURES, len(labels))
    distributed = are_published(home, features, FEATURES_ARCHIVE)
    distributed = distributed and are_published(home, [CLASSES], CLASSES_ARCHIVE)
    told = "as distributed" if distributed else UNCHECKED
    return _Table(labels, classes, read, f"AwA2, ResNet-101 features, {told}")


def _class_names(path: Path) -> dict[int, str]:
    """Lines of a number and a name."""
    pairs = [line.split() for line in _text(path).splitlines() if line.strip()]
    if not all(len(pair) == 2 and pair[0].isdecimal() for pair in pairs):
        raise DataError(f"{path}: every line must hold a number and a name; get the file again")
    return {int(number): name for number, name in pairs}


def _read_lines(path: Path, count: int, rows: NDArray[np.int64]) -> NDArray[np.float32]:
    """These lines, in the order given, of a file that must have `count` lines."""
    place = {int(row): i for i, row in enumerate(rows)}
    vectors: list[NDArray[np.float32]] = [np.empty(0, np.float32)] * len(rows)
    lines = 0
    for row, line in _numbered(path):
        lines += 1
        if row in place:
            vectors[place[row]] = _numbers(path, line.split())
    if lines != count:
        raise DataError(
            f"{path} has {lines:,} lines for {count:,} labels; one of the two is cut off: get both "
            "again"
        )
    for vector in vectors:
        _require_length(path, vector, len(vectors[0]))
    return np.stack(vectors)


def _numbered(path: Path) -> Iterator[tuple[int, str]]:
    with readable(path), path.open(encoding="utf-8", errors="replace") as lines:
        yield from enumerate(line for line in lines if line.strip())


def _words(path: Path) -> list[str]:
    # Invalid bytes become a word that is not a number, which `_numbers` refuses.
    return _text(path).split()


def _text(path: Path) -> str:
    with readable(path):
        return path.read_text(encoding="utf-8", errors="replace")


def _numbers(path: Path, words: list[str]) -> NDArray[np.float32]:
    try:
        numbers = np.array(words, np.float64)
    except ValueError as error:
        raise DataError(f"{path}: holds something that is no number ({error})") from error
    if not (np.abs(numbers) <= np.finfo(np.float32).max).all():
        raise DataError(f"{path}: holds a number that is not finite in float32; get it again")
    return numbers.astype(np.float32)


def _require_length(path: Path, vector: NDArray[np.float32], length: int) -> None:
    if len(vector) != length or length == 0:
        raise DataError(
            f"{path}: {len(vector)} features where others have {length}; the file is cut off or "
            "another one: get it again"
        )
