"""Data sets by name: each is a function of a seed and a data directory that returns a `Stream`."""

import difflib
import os
from collections.abc import Callable
from typing import Any

from lifelong.data.files import DataError
from lifelong.data.mnist import mnist, permuted_mnist
from lifelong.data.variation import mnist_variation
from lifelong.streams import Stream

__all__ = ["DataError", "load", "names"]

_DATA_SETS: dict[str, Callable[..., Stream]] = {
    "mnist": mnist,
    "permuted-mnist": permuted_mnist,
    "mnist-variation": mnist_variation,
}


def names() -> tuple[str, ...]:
    """Names that `load` knows."""
    return tuple(_DATA_SETS)


def load(
    name: str, seed: int = 0, data_dir: str | os.PathLike[str] | None = None, **options: Any
) -> Stream:
    """The stream of a data set; `options` are those of the data set's own function."""
    if name not in _DATA_SETS:
        raise DataError(f"no data set {name!r}{_nearest(name)}; there are {', '.join(names())}")
    return _DATA_SETS[name](seed, data_dir, **options)


def _nearest(name: str) -> str:
    near = difflib.get_close_matches(name, names(), n=1, cutoff=0.4)
    return f", did you mean {near[0]!r}?" if near else ""
