"""Whether the files of a data set are in a directory, without reading or fetching any."""

from pathlib import Path

from lifelong.tasks.datasets import awa as animals
from lifelong.tasks.datasets import cifar100, variation
from lifelong.tasks.datasets import mnist as digits
from lifelong.tasks.datasets.files import present

_CIFAR = (cifar100.TRAIN, cifar100.TEST, cifar100.NAMES)
_AWA2 = (animals.FEATURES, animals.LABELS, animals.CLASSES)


def no_files_needed(_directory: Path) -> bool:
    return True


def mnist(directory: Path) -> bool:
    home = directory / "mnist"
    return all(present(home, f"{name}.gz", name) is not None for name in digits.FILES)


def mnist_variation(directory: Path) -> bool:
    """The files of 2007, or those of MNIST, which the look-alike is made from."""
    files = variation.FILES_2007["rotation-background"]
    return mnist(directory) or _all(directory / variation.DIRECTORY, *files)


def cifar_100(directory: Path) -> bool:
    return _all(directory / cifar100.DIRECTORY, *_CIFAR)


def awa(directory: Path) -> bool:
    return (directory / animals.DECAF).is_dir() or _all(directory / animals.AWA2, *_AWA2)


def features(path: str, directory: Path) -> bool:
    return any(place.is_file() for place in (Path(path).expanduser(), directory / path))


def _all(directory: Path, *names: str) -> bool:
    return all((directory / name).is_file() for name in names)
