"""Many tasks in one learner: what learning, saving, loading and serving one more task cost.

    OMP_NUM_THREADS=1 python benchmarks/store.py [--tasks 2000]

A DEN learns a stream of small tasks and is saved after each. After 19 and after 1,999 tasks a copy
is kept, and both go on in turns with the same tasks, each with a directory of its own. Seconds are
of the clock, for saving waits for the disk; bytes are those of the files that a save has made.
"""

import argparse
import copy
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from statistics import median

import torch
from side_by_side import Figure, figure, publish

from lifelong import DEN, Budget, Settings, Task, mlp
from lifelong.evaluation.measure import model_run
from lifelong.learners.baselines import EWC, EWCSettings
from lifelong.report.page import page

INPUTS, TURNS, EARLY = 16, 15, 20
BUDGET = Budget(steps=2, batch_size=16, check_every=2, patience=1)
# All tasks share the units of the first.
SETTLED = Settings(initial_width=1.0, expand=False, split=False, prune=False, budget=BUDGET)


def task(number: int) -> Task:
    draw = torch.Generator().manual_seed(number)
    x = torch.randn(40, INPUTS, generator=draw)
    y = (x @ torch.randn(INPUTS, generator=draw) > 0).long()
    return Task(f"task {number}", (x, y), (x, y))


def seconds(work: Callable[[], object]) -> float:
    start = time.perf_counter()
    work()
    return time.perf_counter() - start


def written(path: Path, save: Callable[[], object]) -> tuple[float, int]:
    """Seconds of a save, and bytes of the files that it made."""
    before = {file.name: file.stat().st_ino for file in path.iterdir()}
    took = seconds(save)
    now = [(file.name, file.stat()) for file in path.iterdir()]
    return took, sum(s.st_size for name, s in now if before.get(name) != s.st_ino)


class Stop:
    """A learner after so many tasks, in a directory of its own, which goes on from there."""

    def __init__(self, learner: DEN | EWC, place: Path) -> None:
        self.learner, self.place = copy.copy(learner), place
        self.learner._directories = {}
        self.learner.save(place)
        self.count = len(learner.tasks)

    def next(self, number: int) -> dict[str, float]:
        name, x = f"task {number}", torch.ones(1, INPUTS)
        learn = seconds(lambda: self.learner.learn(task(number)))
        save, size = written(self.place, lambda: self.learner.save(self.place))
        first = seconds(lambda: self.learner.predict(x, task=name))
        predict = seconds(lambda: self.learner.predict(x, task=name))
        load = seconds(lambda: type(self.learner).load(self.place))
        return {
            "learn": learn,
            "save": save,
            "bytes written": size,
            "first prediction": first,
            "prediction": predict,
            "load, per task": load / len(self.learner.tasks),
        }

    def report(self) -> float:
        """Seconds per task of the page about a saved model."""
        return seconds(lambda: page([model_run(self.place)])) / len(self.learner.tasks)


def stops(learner: DEN | EWC, root: Path, tasks: int) -> tuple[Stop, Stop]:
    """The learner after 19 tasks, and after all but one; it is saved after each."""
    found = []
    for number in range(tasks - 1):
        learner.learn(task(number))
        learner.save(root / "all")
        if len(learner.tasks) in (EARLY - 1, tasks - 1):
            found.append(Stop(learner, root / str(number)))
    return found[0], found[1]


def compared(name: str, learner: DEN | EWC, tasks: int) -> list[Figure]:
    with tempfile.TemporaryDirectory() as root:
        early, late = stops(learner, Path(root), tasks)
        rows = []
        for turn in range(TURNS):
            rows.append((early.next(tasks + turn), late.next(tasks + turn)))
        report = late.report() / early.report()
    found = [figure(f"{name}: report, per task, task {tasks:,} / task {EARLY}", report, None)]
    for what in rows[0][0]:
        measured = median(after[what] / before[what] for before, after in rows)
        middle = (median(row[side][what] for row in rows) for side in (0, 1))
        print(name, what, *(f"{value:.3g}" for value in middle), flush=True)
        target = 1.5 if what in ("save", "bytes written") else None
        found.append(figure(f"{name}: {what}, task {tasks:,} / task {EARLY}", measured, target))
    return found


def figures(tasks: int = 2000) -> list[Figure]:
    return [
        *compared("DEN", DEN(mlp(INPUTS, [32, 16]), SETTLED), tasks),
        *compared("EWC", EWC(mlp(INPUTS, [32, 16]), EWCSettings(budget=BUDGET)), tasks),
    ]


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--tasks", type=int, default=2000)
    torch.set_num_threads(1)
    publish(figures(parser.parse_args().tasks))
