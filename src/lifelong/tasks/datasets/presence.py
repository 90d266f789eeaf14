"""Whether the files of a data set are in place, without reading or fetching any."""

import os
from pathlib import Path

from lifelong.tasks.datasets import _maker, awa, cifar100, mnist, variation
from lifelong.tasks.datasets.files import data_directory, present


def files_present(name: str, data_dir: str | os.PathLike[str] | None = None) -> bool:
    """Of a data set that `load` knows; `features:PATH.npz` is looked for where `load` does."""
    directory = data_directory(data_dir)
    if name.startswith("features:"):
        path = name.removeprefix("features:")
        return any(place.is_file() for place in (Path(path).expanduser(), directory / path))
    _maker(name)  # refuses a name that is no data set's
    has_mnist = _mnist(directory)
    return {
        "digits": True,
        "mnist": has_mnist,
        "permuted-mnist": has_mnist,
        "mnist-variation": has_mnist or _all(directory, *_variation_files()),
        "cifar-100": _all(directory / cifar100.DIRECTORY, *_CIFAR),
        "awa": (directory / awa.DECAF).is_dir() or _all(directory / awa.AWA2, *_AWA2),
    }[name]


_CIFAR = (cifar100.TRAIN, cifar100.TEST, cifar100.NAMES)
_AWA2 = (awa.FEATURES, awa.LABELS, awa.CLASSES)


def _variation_files() -> list[str]:
    files = variation.FILES_2007["rotation-background"]
    return [f"{variation.DIRECTORY}/{file}" for file in files]


def _mnist(directory: Path) -> bool:
    home = directory / "mnist"
    return all(present(home, f"{name}.gz", name) is not None for name in mnist.FILES)


def _all(directory: Path, *names: str) -> bool:
    return all((directory / name).is_file() for name in names)
