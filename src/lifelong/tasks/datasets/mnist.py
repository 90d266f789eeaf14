"""MNIST: 60,000 and 10,000 handwritten digits of 28 × 28, as four idx files.

Pixels are standardised by the mean and standard deviation of all pixels of the training rows:
pixels at the border are nearly constant, and their own deviation would scale them up.
"""

import gzip
import hashlib
import math
import os
import zlib
from functools import lru_cache
from pathlib import Path
from typing import Any, BinaryIO, cast

import numpy as np
from numpy.typing import NDArray

from lifelong.tasks.datasets.files import (
    DataError,
    Remote,
    data_directory,
    fetch,
    present,
    readable,
    require_plausible,
)
from lifelong.tasks.kinds import Kind
from lifelong.tasks.scaling import Standardise
from lifelong.tasks.splits import Splits, hold_out
from lifelong.tasks.streams import (
    Order,
    Scenario,
    Stream,
    class_groups,
    one_versus_rest,
    permutations,
)

# The publisher's server no longer offers the files; this is the mirror that torchvision uses, and
# the hashes are those of the files as published.
MIRROR = "https://ossci-datasets.s3.amazonaws.com/mnist/"
FILES = {
    "train-images-idx3-ubyte": "440fcabf73cc546fa21475e81ea370265605f56be210a4024d2ca8f203523609",
    "train-labels-idx1-ubyte": "3552534a0a558bbed6aed32b30c495cca23d567ec52cac8be1a0730e8010255c",
    "t10k-images-idx3-ubyte": "8d422c7b0a1c1c79245a5bcf07fe86e33eeafee792b84584aec276f5a2dbc4e6",
    "t10k-labels-idx1-ubyte": "f7ae60f92e00ec6debd23a6088c31dbd2371eca3ffa0defaefb259924204aec6",
}
# The same of the files within, which people keep unpacked or packed anew.
CONTENTS = {
    "train-images-idx3-ubyte": "ba891046e6505d7aadcbbe25680a0738ad16aec93bde7f9b65e87a2fc25776db",
    "train-labels-idx1-ubyte": "65a50cbbf4e906d70832878ad85ccda5333a97f0f4c3dd2ef09a8a9eef7101c5",
    "t10k-images-idx3-ubyte": "0fa7898d509279e482958e8ce81c8e77db3f2f8254e26661ceb7762c4d494ce7",
    "t10k-labels-idx1-ubyte": "ff7bcfd416de33731a308c3f266cc351222c34898ecbeaf847f06e48f7ec33f2",
}
UNSIGNED_BYTE = 0x08  # the idx format's code for the type of its numbers


def mnist(
    seed: int = 0,
    data_dir: str | os.PathLike[str] | None = None,
    *,
    valid: int = 5000,
    order: Order = "drawn",
) -> Stream:
    """Ten one-versus-rest tasks, `digit 0` to `digit 9`, in an order drawn from the seed.

    `valid` images are held out of the 60,000 training images, stratified by class.
    """
    return one_versus_rest(
        _parts(data_dir, valid, seed),
        seed=seed,
        order=order,
        standardise="whole",
        source=source(data_dir),
        prefix="digit ",
    )


def permuted_mnist(
    seed: int = 0,
    data_dir: str | os.PathLike[str] | None = None,
    *,
    tasks: int = 10,
    valid: int = 5000,
    keep_first: bool = False,
    standardise: Standardise = "whole",
    padding: int = 0,
) -> Stream:
    """Ten digits under softmax, with the pixels permuted per task.

    55,000 training, 5,000 validation and 10,000 test images, the same in each task. With
    `standardise="range"` pixels go from 0 to 1, so that black ones are 0; `padding` adds that many
    black pixels on each side before the permutation.
    """
    return permutations(
        _parts(data_dir, valid, seed, padding),
        tasks,
        seed=seed,
        keep_first=keep_first,
        standardise=standardise,
        source=f"{source(data_dir)}, pixels permuted",
    )


def split_mnist(
    seed: int = 0,
    data_dir: str | os.PathLike[str] | None = None,
    *,
    scenario: Scenario = "task",
    valid: int = 5000,
    order: Order = "given",
    standardise: Standardise = "range",
    padding: int = 0,
) -> Stream:
    """Five tasks of two digits each, 0 and 1 first, as one softmax.

    In the scenario "domain" the question is whether it is the first or the second of its pair, by
    one head for all; in "class" which of the ten digits it is. `standardise` and `padding` are
    those of `permuted_mnist`.
    """
    return class_groups(
        _parts(data_dir, valid, seed, padding),
        2,
        seed=seed,
        kind=Kind.CLASSES,
        order=order,
        standardise=standardise,
        source=f"{source(data_dir)}, in pairs of digits",
        scenario=scenario,
    )


def source(data_dir: str | os.PathLike[str] | None = None) -> str:
    """What the files are: MNIST's own only if their contents have the published hashes."""
    directory = data_directory(data_dir) / "mnist"
    for name, published in CONTENTS.items():
        path = _locate(directory, name)
        if _digest(path, path.stat().st_mtime_ns, path.stat().st_size) != published:
            return f"files in the place of MNIST's (not the published {name})"
    return "MNIST, original files"


@lru_cache(maxsize=64)
def _digest(path: Path, _written: int, _size: int) -> str:
    digest = hashlib.sha256()
    with readable(path), _opened(path) as stream:
        while content := _read(path, stream, 1 << 20):
            digest.update(content)
    return digest.hexdigest()


def read_mnist(
    data_dir: str | os.PathLike[str] | None = None,
) -> tuple[
    tuple[NDArray[np.uint8], NDArray[np.uint8]], tuple[NDArray[np.uint8], NDArray[np.uint8]]
]:
    """Training and test (images of shape (rows, 28, 28), labels) as stored; fetched if absent."""
    directory = data_directory(data_dir) / "mnist"
    paths = [_locate(directory, name) for name in FILES]
    return _read_pair(*paths[:2]), _read_pair(*paths[2:])


def read_idx(path: Path, dimensions: int) -> NDArray[np.uint8]:
    """The bytes of an idx file, plain or gzipped, checked against its own header."""
    header = 4 + 4 * dimensions
    with readable(path), _opened(path) as stream:
        content = _read(path, stream, header)
        shape = _idx_shape(path, content, dimensions)
        expected = header + math.prod(shape)
        require_plausible(path, expected)
        content += _read(path, stream, expected - len(content) + 1)
    if len(content) != expected:
        raise DataError(
            f"{path}: its header announces shape {shape}, that is {expected:,} bytes, but there "
            f"are {'at least ' if len(content) > expected else ''}{len(content):,}; the file is "
            "cut off or damaged: get it again"
        )
    return np.frombuffer(content, np.uint8, offset=header).reshape(shape)


def _idx_shape(path: Path, header: bytes, dimensions: int) -> tuple[int, ...]:
    magic = bytes([0, 0, UNSIGNED_BYTE, dimensions])
    if header[:4] != magic:
        raise DataError(
            f"{path}: an idx file of bytes in {dimensions} dimensions starts with {magic.hex()}, "
            f"this one with {header[:4].hex() or 'nothing'}; it is another file or not whole"
        )
    shape = tuple(int(n) for n in np.frombuffer(header[4:].ljust(4 * dimensions, b"\0"), ">u4"))
    if 0 in shape:
        raise DataError(
            f"{path}: its header announces shape {shape}, in which there is nothing; the file is "
            "cut off or damaged: get it again"
        )
    return shape


def _parts(
    data_dir: str | os.PathLike[str] | None, valid: int, seed: int, padding: int = 0
) -> Splits:
    if padding < 0:
        raise DataError(f"padding must be 0 or more pixels, not {padding}")
    train, test = read_mnist(data_dir)
    return hold_out(_flat(train, padding), _flat(test, padding), valid=valid, seed=seed)


def _flat(
    pair: tuple[NDArray[Any], NDArray[Any]], padding: int
) -> tuple[NDArray[Any], NDArray[Any]]:
    images, labels = pair
    if padding:
        images = np.pad(images, ((0, 0), (padding, padding), (padding, padding)))
    return images.reshape(len(images), -1), labels


def _locate(directory: Path, name: str) -> Path:
    packed = f"{name}.gz"
    remote = Remote(MIRROR + packed, f"sha256:{FILES[name]}")
    return present(directory, packed, name) or fetch("mnist", directory, packed, remote)


def _read_pair(images: Path, labels: Path) -> tuple[NDArray[np.uint8], NDArray[np.uint8]]:
    pixels, digits = read_idx(images, 3), read_idx(labels, 1)
    if len(pixels) != len(digits):
        raise DataError(
            f"{images.name} holds {len(pixels):,} images but {labels.name} {len(digits):,} labels; "
            f"get both files again and put them in {images.parent}"
        )
    return pixels, digits


def _opened(path: Path) -> BinaryIO:
    return cast(BinaryIO, gzip.open(path)) if path.suffix == ".gz" else path.open("rb")


def _read(path: Path, stream: BinaryIO, size: int) -> bytes:
    try:
        return stream.read(size)
    except (gzip.BadGzipFile, EOFError, zlib.error) as error:
        raise DataError(
            f"{path}: not a whole gzip file ({error}); remove it and get it again"
        ) from error
