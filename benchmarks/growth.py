"""Growth of cost: a stream of 200 related tasks, and models of many tasks on disk.

    OMP_NUM_THREADS=1 python benchmarks/growth.py

All tasks ask for mixtures of the same few features of their inputs, so that what one task has
learned serves the next, and the network stops growing. Every training takes the same steps. What is
compared is `learn`, by the median over the 20 tasks around task 20 and the last 20 before task 200,
each for as many trainings: a task that needs no newcomers has fewer. Seconds are the processor's.
Memory is what the process holds after a task.

Save and load are timed for a model of 50 tasks and for one of 200 tasks that is 16 times as large:
linear means that the time a byte does not grow.
"""

import gc
import tempfile
import time
from pathlib import Path
from statistics import median

import msgspec
import torch
from memory import resident
from side_by_side import Figure, figure, publish

from lifelong import DEN, Budget, Settings, Task, mlp

TASKS, INPUTS, HIDDEN = 200, 16, 4
BUDGET = Budget(steps=100, batch=128, learning_rate=3e-3, check_every=50, patience=9)
SETTINGS = Settings(start=1.0, tau=0.4, sigma=0.5, budget=BUDGET)
EARLY, LATE = slice(10, 30), slice(180, 200)


class Stream:
    """Binary tasks on the same hidden features."""

    def __init__(self) -> None:
        self._generator = torch.Generator().manual_seed(0)
        self._features = self._random(INPUTS, HIDDEN)

    def _random(self, *size: int) -> torch.Tensor:
        return torch.randn(*size, generator=self._generator)

    def task(self, number: int) -> Task:
        mixture = self._random(HIDDEN)
        parts = []
        for rows in (1500, 300):
            x = self._random(rows, INPUTS)
            score = torch.relu(x @ self._features) @ mixture
            parts.append((x, (score > score.median()).long()))
        return Task(f"task {number}", *parts)


class Learned(msgspec.Struct):
    """What a task took, and what there is after it."""

    seconds: float
    trainings: int
    bytes: int
    units: int


def stream_of(tasks: int) -> tuple[DEN, list[Learned]]:
    learner, stream, found = DEN(mlp(INPUTS, [32, 16]), SETTINGS), Stream(), []
    for number in range(tasks):
        task = stream.task(number)
        start = time.process_time()
        record = learner.learn(task)
        seconds = time.process_time() - start
        units = sum(group.units for group in record.groups.values())
        found.append(Learned(seconds, len(record.stages), resident(), units))
    return learner, found


def model_of(tasks: int, widths: tuple[int, int]) -> DEN:
    """A model of so many tasks of which none was trained for long."""
    short = Settings(start=1.0, tau=9.0, split=False, drop=False, budget=Budget(steps=1))
    learner, stream = DEN(mlp(INPUTS, widths), short), Stream()
    for number in range(tasks):
        learner.learn(stream.task(number))
    return learner


def seconds_a_byte(learner: DEN) -> tuple[float, float]:
    """Of saving and of loading: the least of a few, for the disk is not ours alone."""
    saves, loads = [], []
    for _ in range(7):
        with tempfile.TemporaryDirectory() as place:
            start = time.perf_counter()
            learner.save(f"{place}/model")
            saves.append(time.perf_counter() - start)
            size = sum(file.stat().st_size for file in Path(place).rglob("*") if file.is_file())
            start = time.perf_counter()
            DEN.load(f"{place}/model")
            loads.append(time.perf_counter() - start)
    return min(saves) / size, min(loads) / size


def figures() -> list[Figure]:
    _, learned = stream_of(TASKS)
    early, late = learned[EARLY], learned[LATE]
    for what, some in (("20", early), ("200", late)):
        seconds = median(one.seconds for one in some)
        print(
            f"around task {what}: {seconds:.3f} s, {median(one.trainings for one in some)} "
            f"trainings, {median(one.units for one in some)} units, "
            f"{median(one.bytes for one in some) / 2**20:.0f} MB"
        )

    def a_training(some: list[Learned]) -> float:
        return median(one.seconds / one.trainings for one in some)

    found = [
        figure("growth of cost: task 200 / task 20", a_training(late) / a_training(early), 1.3),
        figure(
            "growth of memory: after task 200 / after task 20",
            median(one.bytes for one in late) / median(one.bytes for one in early),
            None,
        ),
    ]
    gc.collect()
    small, large = model_of(50, (400, 200)), model_of(200, (1600, 800))
    for what, ours, theirs in zip(
        ("save", "load"), seconds_a_byte(large), seconds_a_byte(small), strict=True
    ):
        name = f"{what}: seconds a byte, 200 tasks / 50 tasks"
        found.append(figure(name, ours / theirs, 1.1))
    return found


if __name__ == "__main__":
    torch.set_num_threads(1)
    publish(figures())
