"""How fast data sets are decoded and made, and how much a stream holds.

Run: `python benchmarks/data.py`, with the files of MNIST and CIFAR-100 in the data directory.
Ratios are of the best of several turns taken in alternation, so that a busy machine slows both.
"""

import hashlib
import time
import tracemalloc
from collections.abc import Callable
from typing import Any

import numpy as np

from lifelong.tasks.datasets import load
from lifelong.tasks.datasets.cifar100 import DIRECTORY, TRAIN, read_bin
from lifelong.tasks.datasets.files import data_directory
from lifelong.tasks.scaling import Scale, inputs_of
from lifelong.tasks.splits import Subset

TURNS = 5


def seconds(call: Callable[[], Any]) -> float:
    start = time.perf_counter()
    call()
    return time.perf_counter() - start


def best(*calls: Callable[[], Any]) -> list[float]:
    turns = [[seconds(call) for call in calls] for _ in range(TURNS)]
    return [min(times) for times in zip(*turns, strict=True)]


def cifar_100() -> None:
    path = data_directory() / DIRECTORY / TRAIN

    def plain() -> Any:
        return np.fromfile(path, np.uint8).astype(np.float32)

    def decode() -> Any:
        images, labels = read_bin(path)
        return images.astype(np.float32), labels.astype(np.int64)

    def standardise() -> Any:
        images, labels = read_bin(path)
        part = Subset(images, labels.astype(np.int64), np.arange(len(labels)))
        mean = np.full((3, 1, 1), 120, np.float32)
        return inputs_of(part, Scale(mean, mean / 2))

    reference, decoded, standardised = best(plain, decode, standardise)
    print(f"CIFAR-100 train, numpy.fromfile and one float32 conversion: {reference:.3f} s")
    print(f"  decoded to float32 images and labels: {decoded / reference:.2f} x")
    print(f"  decoded and standardised into tensors: {standardised / reference:.2f} x")


def variation() -> None:
    start = time.perf_counter()
    stream = load("mnist-variation", seed=0)
    made = time.perf_counter() - start
    digests = {_digest(load("mnist-variation", seed=0)) for _ in range(2)} | {_digest(stream)}
    print(f"look-alike of MNIST-Variation, 62,000 images: {made:.1f} s")
    print(f"  the same bytes for the same seed: {len(digests) == 1}")


def _digest(stream: Any) -> str:
    task = next(iter(stream))
    content = [rows.x.numpy().tobytes() for rows in (task.train, task.valid, task.test)]
    return hashlib.sha256(b"".join(content)).hexdigest()


def permuted() -> None:
    tracemalloc.start()
    stream = load("permuted-mnist", seed=0)
    held, _ = tracemalloc.get_traced_memory()
    for task in stream:
        del task
    after, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    copy = 70_000 * 784
    print(f"permuted MNIST of {len(stream)} tasks holds {held / copy:.2f} x the bytes of MNIST")
    print(f"  after all tasks were made and let go: {after / copy:.2f} x")


if __name__ == "__main__":
    cifar_100()
    variation()
    permuted()
