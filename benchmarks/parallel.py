"""Several processes on one task, and a task that is larger than memory should be.

    OMP_NUM_THREADS=1 python benchmarks/parallel.py [DIRECTORY]

- Two processes against one: DEN learns a second task of 200,000 rows, with the same batches; each
  process has one thread. The ratio of the seconds of `learn`, the best of a few of each in turn.
- Memory of `learn` on a memory-mapped task of 4 GB, in a file of DIRECTORY (removed afterwards):
  the most that the process held meanwhile, less what it held before, over 600 MB.

Both ratios want two cores that have nothing else to do; the load is printed with them.
"""

import gc
import json
import os
import socket
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np
import torch
from memory import forget_peak, peak, resident
from numpy.typing import NDArray
from side_by_side import Figure, figure, publish

from lifelong import DEN, Budget, Settings, Task, mlp

ROWS, COLUMNS = 200_000, 784
MAPPED_ROWS, MAPPED_COLUMNS = 1_000_000, 1000  # 4 GB
ALLOWED = 600 * 2**20
BATCHES = (256, 1024, 4096)
TIMES = 3


def steps(batch_size: int) -> int:
    """So many that each case reads about as many rows."""
    return 400_000 // batch_size


def settings(batch_size: int, count: int) -> Settings:
    budget = Budget(steps=count, batch_size=batch_size, check_every=count // 4, patience=9)
    return Settings(budget=budget, initial_width=1.0)


def task(number: int, rows: int) -> Task:
    generator = torch.Generator().manual_seed(number)

    def part(count: int) -> tuple[torch.Tensor, torch.Tensor]:
        x = torch.randn(count, COLUMNS, generator=generator)
        return x, (x[:, : 50 * number].mean(dim=1) > 0).long()

    return Task(f"task {number}", part(rows), part(max(200, rows // 20)))


def learning(batch_size: int) -> None:
    """One of the processes; the first prints the seconds."""
    torch.set_num_threads(1)
    learner = DEN(
        mlp(COLUMNS, [312, 128]),
        settings(batch_size, steps(batch_size)),
        parallel="torch.distributed",
    )
    learner.learn(task(1, 2000))
    second = task(2, ROWS)
    learner.ranks.wait()
    began = time.perf_counter()
    learner.learn(second)
    if learner.ranks.first:
        print(time.perf_counter() - began)


def seconds(count: int, batch_size: int) -> float:
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        port = str(found.getsockname()[1])
    group = {"WORLD_SIZE": str(count), "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port}
    command = [sys.executable, __file__, "learning", str(batch_size)]
    members = [
        subprocess.Popen(
            command,
            env={**os.environ, **group, "RANK": str(rank), "OMP_NUM_THREADS": "1"},
            stdout=subprocess.PIPE,
            text=True,
        )
        for rank in range(count)
    ]
    said = [member.communicate()[0] for member in members]
    if any(member.returncode for member in members):
        raise RuntimeError(f"a process of {count} ended with an error")
    return float(said[0])


def two_against_one() -> list[Figure]:
    found = []
    for batch_size in BATCHES:
        taken: dict[int, list[float]] = {1: [], 2: []}
        for _ in range(TIMES):
            for count, times in taken.items():
                times.append(seconds(count, batch_size))
        one, two = min(taken[1]), min(taken[2])
        print(f"batches of {batch_size}: one process {one:.1f} s, two {two:.1f} s", flush=True)
        name = f"two processes / one, 200,000 rows, batches of {batch_size}"
        found.append(figure(name, two / one, 0.62))
    return found


def mapped_rows(file: Path, rows: int) -> "np.memmap[tuple[int, ...], np.dtype[np.float32]]":
    """Rows of normal noise, a thousandth of them drawn and the others these with another sign."""
    made = np.lib.format.open_memmap(
        file, mode="w+", dtype=np.float32, shape=(rows, MAPPED_COLUMNS)
    )
    generator = np.random.default_rng(0)
    block = generator.standard_normal((1000, MAPPED_COLUMNS), np.float32)
    for start in range(0, rows, len(block)):
        signs = generator.choice(np.array([-1, 1], np.float32), MAPPED_COLUMNS)
        made[start : start + len(block)] = (block * signs)[: rows - start]
    made.flush()
    return np.load(file, mmap_mode="r")


def labels(x: NDArray[np.float32]) -> NDArray[np.int64]:
    """From a few columns, a few rows at once."""
    parts = [x[start : start + 4096, :50].mean(axis=1) > 0 for start in range(0, len(x), 4096)]
    return np.concatenate(parts).astype(np.int64)


def measured(place: str) -> None:
    """In a process of its own: the bytes that `learn` takes on the mapped task."""
    torch.set_num_threads(1)
    parts = [np.load(f"{place}/{part}.npy", mmap_mode="r") for part in ("train", "valid")]
    answers = [np.load(f"{place}/{part}-labels.npy") for part in ("train", "valid")]
    few = (np.array(parts[1][:500]), answers[1][:500])
    learner = DEN(mlp(MAPPED_COLUMNS, [312, 128]), Settings(budget=Budget(steps=200)))
    learner.learn(Task("first", few, few))
    learner.learn(Task("warm", few, few))
    gc.collect()
    forget_peak()
    before, began = resident(), time.perf_counter()
    train, valid = zip(parts, answers, strict=True)
    learner.learn(Task("mapped", train, valid))
    taken = {"bytes": peak() - before, "seconds": time.perf_counter() - began}
    print(json.dumps({**taken, "stages": [s.name for s in learner.records[-1].stages]}))


def memory_of_a_mapped_task(directory: str | None) -> list[Figure]:
    with tempfile.TemporaryDirectory(dir=directory) as place:
        for part, rows in (("train", MAPPED_ROWS), ("valid", MAPPED_ROWS // 50)):
            x = mapped_rows(Path(place) / f"{part}.npy", rows)
            np.save(Path(place) / f"{part}-labels.npy", labels(x))
        command = [sys.executable, __file__, "mapped", place]
        said = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    took = json.loads(said)
    print(
        f"mapped task of {MAPPED_ROWS * MAPPED_COLUMNS * 4 / 1e9:.0f} GB: "
        f"{took['bytes'] / 2**20:.0f} MB, {took['seconds']:.0f} s, {' '.join(took['stages'])}"
    )
    return [figure("memory of learn on a mapped 4 GB task / 600 MB", took["bytes"] / ALLOWED, 1.0)]


def figures(directory: str | None = None) -> list[Figure]:
    print("load before:", *os.getloadavg(), flush=True)
    found = memory_of_a_mapped_task(directory) + two_against_one()
    print("load after:", *os.getloadavg())
    return found


if __name__ == "__main__":
    match sys.argv[1:]:
        case ["learning", size]:
            learning(int(size))
        case ["mapped", place]:
            measured(place)
        case given:
            publish(figures(given[0] if given else None))
