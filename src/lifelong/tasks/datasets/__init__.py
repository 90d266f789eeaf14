"""Data sets by name: each is a function from a seed and a data directory to a `Stream`.

`register_dataset` adds one, and so does an entry point of the group `lifelong.datasets`.
"""

import inspect
import os
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, final

from lifelong.plugins import Registry, did_you_mean
from lifelong.tasks.datasets import (
    awa,
    cifar100,
    digits,
    features,
    mnist,
    presence,
    source_lines,
    variation,
)
from lifelong.tasks.datasets.files import DataError, data_directory
from lifelong.tasks.streams import Stream

__all__ = ["DATASETS", "DataError", "DataSet", "files_present", "load", "names", "register_dataset"]


@final
@dataclass(frozen=True)
class DataSet:
    """One row of the table.

    Attributes:
        name: on the command line and in recipes.
        load: takes a seed, a data directory (or None) and, as keyword-only arguments, the options
            of the data set.
        about: a short description.
        present: whether its files are in a data directory, without reading or fetching any.
    """

    name: str
    load: Callable[..., Stream]
    about: str = ""
    present: Callable[[Path], bool] = presence.no_files_needed


DATASETS = Registry(
    "data set",
    DataSet,
    DataError,
    (
        DataSet("digits", digits.digits, "scikit-learn's digits, each against the rest"),
        DataSet("mnist", mnist.mnist, "MNIST, each digit against the rest", presence.mnist),
        DataSet(
            "permuted-mnist",
            mnist.permuted_mnist,
            "MNIST, the pixels in another order for each task",
            presence.mnist,
        ),
        DataSet("split-mnist", mnist.split_mnist, "MNIST in pairs of digits", presence.mnist),
        DataSet(
            "mnist-variation",
            variation.mnist_variation,
            "rotated digits on backgrounds, each against the rest",
            presence.mnist_variation,
        ),
        DataSet("cifar-100", cifar100.cifar_100, "CIFAR-100 in groups", presence.cifar_100),
        DataSet(
            "source-lines",
            source_lines.source_lines,
            "lines of the standard library, each package against the rest",
        ),
        DataSet("awa", awa.awa, "Animals with Attributes, each against the rest", presence.awa),
    ),
)
register_dataset = DATASETS.add
_FEATURES = "features:"


def names() -> tuple[str, ...]:
    """Names that `load` accepts; `features:PATH.npz` stands for any path."""
    return (*DATASETS, f"{_FEATURES}PATH.npz")


def files_present(name: str, data_dir: str | os.PathLike[str] | None = None) -> bool:
    """Whether the files of a data set are present, without reading or fetching any."""
    return _named(name).present(data_directory(data_dir))


def load(
    name: str, seed: int = 0, data_dir: str | os.PathLike[str] | None = None, **options: Any
) -> Stream:
    """The stream of a data set; `options` are those of the data set's own function."""
    make = _named(name).load
    allowed = [
        option.name
        for option in inspect.signature(make).parameters.values()
        if option.kind is option.KEYWORD_ONLY
    ]
    unknown = [option for option in options if option not in allowed]
    if unknown:
        raise DataError(
            f"data set {name!r} has no option {unknown[0]!r}; {did_you_mean(unknown[0], allowed)}"
            f"its options are {', '.join(allowed) or 'none'}"
        )
    return make(seed, data_dir, **options)


def _named(name: str) -> DataSet:
    if not name.startswith(_FEATURES):
        return DATASETS.named(name)
    path = name.removeprefix(_FEATURES)
    return DataSet(
        name,
        partial(features.features, path),
        "a table of features and classes",
        partial(presence.features, path),
    )
