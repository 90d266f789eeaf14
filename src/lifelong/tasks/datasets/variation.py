"""MNIST-Variation: 62,000 rotated digits of 28 × 28 on photographs.

The files of 2007 are used if they are present. Otherwise a look-alike is generated from MNIST as
their authors describe: each digit is rotated by an angle drawn uniformly from 0 to 2π, and a patch
of a grey photograph with enough texture becomes its background. The photographs are the two sample
images of scikit-learn, so that the result is the same everywhere. The `source` of the stream says
which of the two it is.

Departs from the paper: the paper takes 1,000 / 200 / 5,000 images per class, but the files of 2007
may hold fewer than 6,200 of some digits; then each class has as many test rows as the rarest one
has left.

Inputs are standardised by one mean and one standard deviation, those of all training pixels.
"""

import os
import warnings
from pathlib import Path
from typing import Literal, TypeAlias

import numpy as np
import torch
from numpy.lib.stride_tricks import sliding_window_view
from numpy.typing import NDArray
from torch import Tensor
from torch.nn.functional import grid_sample

from lifelong.extras import require_extra
from lifelong.tasks.datasets.files import DataError, data_directory, present, readable
from lifelong.tasks.datasets.mnist import read_mnist
from lifelong.tasks.splits import Splits, consecutive, generator_for, split_table
from lifelong.tasks.streams import Order, Stream, one_versus_rest

Variation: TypeAlias = Literal["rotation-background", "rotation", "background", "noise"]
Pixels: TypeAlias = NDArray[np.uint8]

PAPER = (1000, 200, 5000)
SIDE = 28
TEXTURE = 25.0  # minimum standard deviation of a background patch, in grey levels
CHUNK = 1000  # images rotated at once, so that temporary arrays fit in the cache
DIRECTORY = "mnist-variation"
FILES_2007: dict[Variation, tuple[str, str]] = {
    "rotation-background": (
        "mnist_all_background_images_rotation_normalized_train_valid.amat",
        "mnist_all_background_images_rotation_normalized_test.amat",
    ),
    "rotation": (
        "mnist_all_rotation_normalized_float_train_valid.amat",
        "mnist_all_rotation_normalized_float_test.amat",
    ),
    "background": ("mnist_background_images_train.amat", "mnist_background_images_test.amat"),
    "noise": ("mnist_background_random_train.amat", "mnist_background_random_test.amat"),
}


def mnist_variation(
    seed: int = 0,
    data_dir: str | os.PathLike[str] | None = None,
    *,
    variation: Variation = "rotation-background",
    per_class: tuple[int, int, int] | None = None,
    order: Order = "drawn",
) -> Stream:
    """Ten one-versus-rest tasks, `digit 0` to `digit 9`, in an order drawn from the seed.

    `per_class` are the numbers of training, validation and test images per digit: by default the
    paper's 1,000 / 200 / 5,000, as far as the files of 2007 have so many.
    """
    if variation not in FILES_2007:
        allowed = ", ".join(repr(name) for name in FILES_2007)
        raise DataError(f"variation must be one of {allowed}, not {variation!r}")
    found = _files_of_2007(data_directory(data_dir), variation)
    if found:
        (train_x, train_y), (test_x, test_y) = (read_amat(path) for path in found)
        x, y = np.concatenate([train_x, test_x]), np.concatenate([train_y, test_y])
        sizes = per_class or _affordable(y)
        splits = split_table(x, y, sizes, seed=seed)
        source = f"MNIST-Variation ({variation}), files of 2007"
    else:
        sizes = per_class or PAPER
        splits = _look_alike_splits(data_dir, variation, sizes, seed)
        source = f"MNIST-Variation ({variation}), look-alike made from MNIST"
    source += ", {} / {} / {} images a class".format(*sizes)
    return one_versus_rest(
        splits,
        seed=seed,
        order=order,
        standardise="whole",
        source=source,
        prefix="digit ",
        look_alike=not found,
    )


def read_amat(path: Path) -> tuple[NDArray[np.float32], NDArray[np.int64]]:
    """Rows of 784 numbers and a label, as text."""
    try:
        with readable(path), warnings.catch_warnings():
            warnings.simplefilter("ignore")  # an empty file is an error below
            rows = np.loadtxt(path, dtype=np.float32, ndmin=2)
    except ValueError as error:
        raise DataError(
            f"{path}: every line must hold {SIDE**2} numbers and a label ({error}); the file is "
            "cut off or another one: get it again"
        ) from error
    if rows.shape[1] != SIDE**2 + 1:
        raise DataError(
            f"{path}: every line must hold {SIDE**2} numbers and a label, that is {SIDE**2 + 1}, "
            f"but the lines hold {rows.shape[1]}; it is another file"
        )
    pixels, labels = rows[:, :-1], rows[:, -1]
    if not np.isin(labels, np.arange(10)).all():
        raise DataError(f"{path}: the last number of a line must be a digit from 0 to 9")
    return pixels, labels.astype(np.int64)


def look_alike(images: Pixels, variation: Variation, *, seed: int) -> Pixels:
    """The digits rotated, on photographs, or on noise; the same for the same seed.

    Angles and backgrounds are drawn separately, so that `rotation` and `rotation-background` of one
    seed rotate each digit by the same angle.
    """
    turning, behind = generator_for("variation", seed).spawn(2)
    digits = images
    if variation in ("rotation", "rotation-background"):
        digits = turned(digits, turning.uniform(0, 2 * np.pi, len(images)))
    if variation in ("background", "rotation-background"):
        return overlaid(digits, photograph_patches(len(images), behind))
    if variation == "noise":
        return overlaid(digits, behind.integers(0, 256, images.shape, dtype=np.uint8))
    return digits


def turned(images: Pixels, angles: NDArray[np.float64]) -> Pixels:
    """Each image rotated about its centre by its angle in radians, bilinearly, black outside."""
    result = np.empty_like(images)
    for start in range(0, len(images), CHUNK):
        some = slice(start, start + CHUNK)
        sampled = _turn(torch.from_numpy(images[some].astype(np.float32)), angles[some])
        result[some] = sampled.round().clamp(0, 255).numpy()
    return result


def overlaid(digits: Pixels, backgrounds: Pixels) -> Pixels:
    """White ink over a background, with the grey of each pixel as the opacity of the ink."""
    ink = digits.astype(np.uint16)
    # ink + (1 - ink) · background, in 255ths and rounded
    return (ink + ((255 - ink) * backgrounds + 127) // 255).astype(np.uint8)


def photograph_patches(count: int, generator: np.random.Generator) -> Pixels:
    """Patches drawn uniformly from all windows of the photographs with enough texture."""
    photographs = _photographs()
    places = np.concatenate([_textured_places(n, grey) for n, grey in enumerate(photographs)])
    drawn = places[generator.integers(len(places), size=count)]
    result = np.empty((count, SIDE, SIDE), np.uint8)
    for number, grey in enumerate(photographs):
        here = drawn[:, 0] == number
        windows = sliding_window_view(grey, (SIDE, SIDE))
        result[here] = windows[drawn[here, 1], drawn[here, 2]]
    return result


def _textured_places(number: int, photograph: Pixels) -> NDArray[np.int64]:
    """(photograph, row, column) of the windows with enough texture."""
    rows, columns = np.nonzero(_deviations(photograph) >= TEXTURE)
    return np.column_stack([np.full(len(rows), number), rows, columns])


def _deviations(photograph: Pixels) -> NDArray[np.float64]:
    """Standard deviation of each window, from exact integer sums."""
    pixels = SIDE * SIDE
    grey = photograph.astype(np.int64)
    variance = pixels * _window_sums(grey * grey) - _window_sums(grey) ** 2
    return np.asarray(np.sqrt(variance) / pixels)


def _window_sums(values: NDArray[np.int64]) -> NDArray[np.int64]:
    sums = np.pad(values.cumsum(axis=0).cumsum(axis=1), ((1, 0), (1, 0)))
    corners = sums[SIDE:, SIDE:] - sums[:-SIDE, SIDE:] - sums[SIDE:, :-SIDE]
    return np.asarray(corners + sums[:-SIDE, :-SIDE])


def _photographs() -> list[Pixels]:
    require_extra("sklearn", "PIL", extra="data")
    from sklearn.datasets import load_sample_images

    weights = np.array([299, 587, 114])  # luma of red, green and blue (ITU-R BT.601)
    return [
        ((image @ weights + 500) // 1000).astype(np.uint8) for image in load_sample_images().images
    ]


def _turn(images: Tensor, angles: NDArray[np.float64]) -> Tensor:
    # Coordinates run from -1 to 1. Elementwise, because the rounding of a matrix product may depend
    # on the number of threads.
    places = (torch.arange(SIDE) * 2 + 1) / SIDE - 1
    across, down = places[None, None, :], places[None, :, None]
    cos, sin = (torch.from_numpy(f(angles)).float()[:, None, None] for f in (np.cos, np.sin))
    grid = torch.stack([cos * across - sin * down, sin * across + cos * down], dim=-1)
    return grid_sample(images[:, None], grid, mode="bilinear", align_corners=False)[:, 0]


def _look_alike_splits(
    data_dir: str | os.PathLike[str] | None,
    variation: Variation,
    sizes: tuple[int, int, int],
    seed: int,
) -> Splits:
    """Draw digits from all of MNIST, and vary only those drawn."""
    train, test = read_mnist(data_dir)
    images, labels = (np.concatenate(pair) for pair in zip(train, test, strict=True))
    drawn = split_table(images, labels, sizes, seed=seed)
    rows = np.concatenate([part.rows for part in drawn.each])
    varied = look_alike(images[rows], variation, seed=seed).reshape(len(rows), -1)
    return consecutive(varied, drawn)


def _files_of_2007(directory: Path, variation: Variation) -> list[Path] | None:
    found = [present(directory / DIRECTORY, name) for name in FILES_2007[variation]]
    both = [path for path in found if path]
    if len(both) == 1:
        raise DataError(
            f"mnist-variation: {both[0].name} is in {both[0].parent} but its other half is not; "
            f"put both of {', '.join(FILES_2007[variation])} there, or neither for the look-alike"
        )
    return both or None


def _affordable(labels: NDArray[np.int64]) -> tuple[int, int, int]:
    """The paper's sizes, with as many test rows per class as the rarest digit allows."""
    train, valid, test = PAPER
    rarest = int(np.bincount(labels, minlength=10).min())
    return train, valid, min(test, max(rarest - train - valid, 1))
