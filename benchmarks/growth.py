"""Growth of cost: a stream of 200 related tasks, and models of many tasks on disk.

    OMP_NUM_THREADS=1 python benchmarks/growth.py

All tasks ask for mixtures of the same few features of their inputs, so that what one task has
learned serves the next, and the network stops growing. Every training takes the same steps. Then
the same task is learned as the 20th and as the 200th, by the learner as it was after 19 and after
199 tasks, in turns, and so for several tasks; the ratio is of the time a training, since a task
that needs no newcomers has one less. Memory is what the process holds after a task.

Save and load are timed for a model of 50 tasks and for one of 200 tasks that is 16 times as large:
linear means that the time a byte does not grow.
"""

import copy
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
BUDGET = Budget(steps=100, batch_size=128, learning_rate=3e-3, check_every=50, patience=9)
SETTINGS = Settings(initial_width=1.0, tau=0.4, sigma=0.5, budget=BUDGET)
EARLY, LATE = 20, TASKS


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


class After(msgspec.Struct):
    """A learner after some tasks, and what it and its process have come to."""

    learner: DEN
    bytes: int
    units: int


def stream_of(stream: Stream, *stops: int) -> list[After]:
    """One learner, after each of these numbers of tasks."""
    learner, found = DEN(mlp(INPUTS, [32, 16]), SETTINGS), []
    for number in range(max(stops)):
        record = learner.learn(stream.task(number))
        if number + 1 in stops:
            units = sum(group.units for group in record.groups.values())
            # A shallow copy stays as it is: what was learned is a value.
            found.append(After(copy.copy(learner), resident(), units))
    return found


def seconds_a_training(learner: DEN, task: Task) -> float:
    start = time.process_time()
    record = copy.copy(learner).learn(task)
    return (time.process_time() - start) / len(record.stages)


def model_of(tasks: int, widths: tuple[int, int]) -> DEN:
    """A model of so many tasks, of which none was trained: its heads are zero."""
    still = Settings(
        initial_width=1.0,
        head_l1=1.0,
        expand=False,
        split=False,
        prune=False,
        budget=Budget(steps=1),
    )
    learner, stream = DEN(mlp(INPUTS, widths), still), Stream()
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
    stream = Stream()
    early, late = stream_of(stream, EARLY - 1, LATE - 1)
    ratios = []
    for number in range(TASKS, TASKS + 25):
        task = stream.task(number)
        ours = seconds_a_training(late.learner, task)
        ratios.append(ours / seconds_a_training(early.learner, task))
    for one, count in ((early, EARLY), (late, LATE)):
        print(f"before task {count}: {one.units} units, {one.bytes / 2**20:.0f} MB")
    found = [
        figure("growth of cost: a task as the 200th / as the 20th", median(ratios), 1.3),
        figure(
            "growth of memory: before task 200 / before task 20", late.bytes / early.bytes, None
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
