"""Data sets by name: each is a function of a seed and a data directory that returns a `Stream`."""

import difflib
import inspect
import os
from collections.abc import Callable
from functools import partial
from typing import Any

from lifelong.tasks.datasets import awa, cifar100, digits, features, mnist, variation
from lifelong.tasks.datasets.files import DataError
from lifelong.tasks.streams import Stream

__all__ = ["DataError", "load", "names"]

_DATA_SETS: dict[str, Callable[..., Stream]] = {
    "digits": digits.digits,
    "mnist": mnist.mnist,
    "permuted-mnist": mnist.permuted_mnist,
    "mnist-variation": variation.mnist_variation,
    "cifar-100": cifar100.cifar_100,
    "awa": awa.awa,
}
_FEATURES = "features:"


def names() -> tuple[str, ...]:
    """Names that `load` knows; `features:PATH.npz` stands for any path."""
    return (*_DATA_SETS, f"{_FEATURES}PATH.npz")


def load(
    name: str, seed: int = 0, data_dir: str | os.PathLike[str] | None = None, **options: Any
) -> Stream:
    """The stream of a data set; `options` are those of the data set's own function."""
    make = _maker(name)
    allowed = [
        option.name
        for option in inspect.signature(make).parameters.values()
        if option.kind is option.KEYWORD_ONLY
    ]
    unknown = [option for option in options if option not in allowed]
    if unknown:
        raise DataError(
            f"data set {name!r} has no option {unknown[0]!r}{_nearest(unknown[0], allowed)}; "
            f"its options are {', '.join(allowed)}"
        )
    return make(seed, data_dir, **options)


def _maker(name: str) -> Callable[..., Stream]:
    if name.startswith(_FEATURES):
        return partial(features.features, name.removeprefix(_FEATURES))
    if name not in _DATA_SETS:
        raise DataError(
            f"no data set {name!r}{_nearest(name, list(names()))}; there are {', '.join(names())}"
        )
    return _DATA_SETS[name]


def _nearest(given: str, known: list[str]) -> str:
    near = difflib.get_close_matches(given, known, n=1, cutoff=0.4)
    return f", did you mean {near[0]!r}?" if near else ""
