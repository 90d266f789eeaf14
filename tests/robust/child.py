"""The command that is killed: learn a stream task by task, with a checkpoint, and save after each.

    python tests/robust/child.py DIRECTORY

goes on with the model and the checkpoint in the directory, or starts. It says on standard output
which task it begins, and `done` at the end.
"""

import sys
from pathlib import Path

import torch

from lifelong.learners.den import DEN, Settings
from lifelong.networks.sequential import mlp
from lifelong.persistence import checkpoint as journal
from lifelong.persistence.manifest import MANIFEST
from lifelong.tasks.task import Task
from lifelong.training.budget import Budget

TASKS = 3
MODEL, CHECKPOINT = "model", "checkpoint"
SETTINGS = Settings(
    k=2,
    tau=0.0,
    sigma=0.0,
    initial_width=0.5,
    min_improvement=0.0,
    max_new_units=4,
    budget=Budget(steps=200, batch_size=32, learning_rate=0.005, check_every=10, patience=4),
)


def task(number: int) -> Task:
    random = torch.Generator().manual_seed(number)
    x, rule = (torch.randn(size, generator=random) for size in ((160, 12), (12, 3)))
    y = (x @ rule).argmax(dim=1)
    y = y if number % 2 else (y > 0).long()
    return Task(f"task {number}", (x[:120], y[:120]), (x[120:], y[120:]))


def learner_in(directory: Path) -> DEN:
    path = directory / MODEL
    return DEN.load(path) if (path / MANIFEST).exists() else DEN(mlp(12, [14, 9]), SETTINGS, seed=3)


def main(directory: Path) -> None:
    torch.set_num_threads(1)
    journal.APART = 2  # much more often than is sensible, so that kills fall into writes
    learner = learner_in(directory)
    for number in range(len(learner.tasks) + 1, TASKS + 1):
        print(number, flush=True)
        learner.learn(task(number), checkpoint=directory / CHECKPOINT)
        learner.save(directory / MODEL)
    print("done", flush=True)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
