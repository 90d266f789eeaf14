"""CIFAR-100: 50,000 and 10,000 colour images of 32 × 32 in 100 classes, the binary version.

Each channel is standardised by its mean and deviation over the training rows of all classes.
"""

import os
from pathlib import Path
from typing import Literal, TypeAlias, get_args

import numpy as np
from numpy.typing import NDArray

from lifelong.tasks.datasets.files import (
    UNCHECKED,
    DataError,
    Remote,
    are_published,
    data_directory,
    fetch_archive,
    readable,
)
from lifelong.tasks.kinds import Kind
from lifelong.tasks.splits import hold_out
from lifelong.tasks.streams import Order, Stream, class_groups

DIRECTORY = "cifar-100-binary"
ARCHIVE = Remote(
    "https://www.cs.toronto.edu/~kriz/cifar-100-binary.tar.gz",
    "sha256:58a81ae192c23a4be8b1804d68e518ed807d710a4eb253b1f2a199162a40d8ec",
)
TRAIN, TEST, NAMES = "train.bin", "test.bin", "fine_label_names.txt"
SUPERCLASSES = "coarse_label_names.txt"
SHAPE = (3, 32, 32)
LABELS = 2  # bytes before the pixels of a row: the coarse label, then the fine one
ROW = LABELS + 3 * 32 * 32
Half: TypeAlias = Literal["first", "second"]


def cifar_100(
    seed: int = 0,
    data_dir: str | os.PathLike[str] | None = None,
    *,
    group: int = 10,
    kind: Kind | str = Kind.BINARY,
    valid: int = 5000,
    order: Order = "drawn",
    superclasses: bool = False,
    half: Half | None = None,
) -> Stream:
    """Ten tasks of ten classes drawn from the seed, each class a binary subtask.

    With `superclasses` there are 20 tasks of five classes, the publisher's superclasses, in an
    order drawn from the seed; `group` is of no effect then. With `half` there are only the classes
    0 to 49 ("first") or 50 to 99 ("second") of the publisher's numbers, whatever the seed.

    With kind="classes" each task is one softmax over its ten classes. `valid` images are held out
    of the training images, stratified by class: 50 of 500.
    """
    directory = data_directory(data_dir) / DIRECTORY
    files = (TRAIN, TEST, NAMES, *([SUPERCLASSES] if superclasses else []))
    members = {name: f"{DIRECTORY}/{name}" for name in files}
    fetch_archive("cifar-100", directory, members, ARCHIVE)
    original = are_published(directory, files, ARCHIVE)
    train, test = (_half(read_bin(directory / file), half) for file in (TRAIN, TEST))
    names = read_names(directory / NAMES)
    labels = np.unique(np.concatenate([train[1], test[1]]))
    if labels[-1] >= len(names):
        raise DataError(
            f"{directory / NAMES}: {len(names)} names, but there is an image of class {labels[-1]}"
            "; the file is cut off: get it again"
        )
    splits = hold_out(
        train, test, valid=valid, seed=seed, classes=[names[label] for label in labels]
    )
    together = read_superclasses(directory, labels) if superclasses else None
    return class_groups(
        splits,
        group if together is None else len(labels) // len(together),
        seed=seed,
        kind=kind,
        order=order,
        standardise="channels",
        source=f"CIFAR-100, {'original files' if original else UNCHECKED}"
        + (", superclasses" if superclasses else "")
        + ("" if half is None else f", {half} half of the classes"),
        groups=together,
    )


def _half(
    rows: tuple[NDArray[np.uint8], NDArray[np.uint8]], half: Half | None
) -> tuple[NDArray[np.uint8], NDArray[np.uint8]]:
    if half is None:
        return rows
    if half not in get_args(Half):
        raise DataError(f"half must be 'first', 'second' or None, not {half!r}")
    x, labels = rows
    chosen = (labels < 50) == (half == "first")
    return x[chosen], labels[chosen]


def read_bin(path: Path) -> tuple[NDArray[np.uint8], NDArray[np.uint8]]:
    """Images of shape (rows, 3, 32, 32) and their fine labels, without a copy."""
    with readable(path):
        content = np.fromfile(path, np.uint8)
    if len(content) == 0 or len(content) % ROW:
        raise DataError(
            f"{path}: a row is {ROW:,} bytes, but {len(content):,} bytes are not a whole number of "
            "rows; the file is cut off or another one: get it again"
        )
    rows = content.reshape(-1, ROW)
    fine = rows[:, LABELS - 1]
    if fine.max() >= 100:
        raise DataError(
            f"{path}: fine labels must be from 0 to 99, but row {int(fine.argmax())} has "
            f"{fine.max()}; it is another file, perhaps CIFAR-10: get the binary CIFAR-100"
        )
    return rows[:, LABELS:].reshape(-1, *SHAPE), fine


def read_superclasses(directory: Path, labels: NDArray[np.uint8]) -> dict[str, list[int]]:
    """By name of a superclass, the places of its classes among these labels."""
    names = read_names(directory / SUPERCLASSES)
    with readable(directory / TRAIN):
        rows = np.fromfile(directory / TRAIN, np.uint8).reshape(-1, ROW)
    coarse, fine = rows[:, 0], rows[:, LABELS - 1]
    if coarse.max() >= len(names):
        raise DataError(
            f"{directory / SUPERCLASSES}: {len(names)} names, but there is an image of superclass "
            f"{coarse.max()}; the file is cut off: get it again"
        )
    groups: dict[str, list[int]] = {}
    for place, label in enumerate(labels):
        groups.setdefault(names[coarse[fine == label][0]], []).append(place)
    return groups


def read_names(path: Path) -> list[str]:
    """Names of the classes, one per line, in the order of their labels."""
    with readable(path):
        return path.read_text(encoding="utf-8", errors="replace").split()
