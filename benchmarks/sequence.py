"""A whole sequence: Permuted MNIST task after task, by DEN, DEN-auto, baselines and Avalanche.

    OMP_NUM_THREADS=1 python benchmarks/sequence.py           # two tasks of 6,000 images
    OMP_NUM_THREADS=1 python benchmarks/sequence.py --full    # ten tasks of all images: 20 minutes

Every method learns a task before any of them goes on to the next, so that a busy machine is so for
all. Seconds are those that the processor spent in `learn`, looks at validation rows and all: with
one thread, on a machine with nothing else to do, those of the clock. Every training of every method
has the default budget, which ends it when the validation loss no longer falls.

Avalanche has no early stopping: against it each method takes the same steps as its counterpart, one
pass over each task. Its progressive network has columns of one width for all layers (80, where ours
have 78 and 32), and gives every earlier column a layer of its own where ours has one for all.

The authors' released code takes 120,000 steps for ten tasks, at 35 ms a step on two idle cores as
released: 4,200 seconds. Ours is measured here, on one thread.
"""

import argparse
import time
import warnings
from collections.abc import Callable, Iterator
from itertools import islice
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import torch
from peers import has_avalanche, one_pass
from side_by_side import Figure, figure, publish
from torch import nn

from lifelong import Budget, Task, mlp
from lifelong.evaluation.evaluate import score
from lifelong.learners.base import Learner
from lifelong.learners.registry import method
from lifelong.tasks.datasets import DataError, load
from lifelong.tasks.examples import TensorExamples

STORE = Path(__file__).resolve().parent / "sequence.json"
AUTHORS = 120_000 * 0.035  # seconds
SEED, BATCH, RATE = 100, 256, 1e-3
DENS = ("DEN", "DEN-auto")
METHODS = (*DENS, "DNN", "DNN-EWC", "DNN-Progressive")
PEERS = {"DNN": "Naive", "DNN-EWC": "EWC", "DNN-Progressive": "PNN"}


class Learned(msgspec.Struct):
    """What one method took for each task, and how well it knew all of them at the end."""

    method: str
    seconds: list[float]
    steps: list[int]
    auroc: float


def tasks(count: int, rows: int | None) -> Iterator[Task]:
    """The first tasks of the stream, with this many of the images of each part."""
    for task in islice(load("permuted-mnist", SEED), count):
        parts = (task.train, task.valid, task.test)
        yield Task(task.name, *(_first(part, rows) for part in parts), kind=task.kind, outputs=10)


def _first(rows: Any, count: int | None) -> TensorExamples:
    return TensorExamples(rows.x[:count], rows.y[:count])


def learners(budget: Budget, names: tuple[str, ...] = METHODS) -> dict[str, Learner[Any]]:
    architecture = mlp(784, [312, 128])
    return {name: method(name).make(architecture, budget=budget, seed=SEED) for name in names}


def timed(work: Callable[[], object]) -> float:
    start = time.process_time()
    work()
    return time.process_time() - start


def in_turn(count: int, rows: int | None) -> list[Learned]:
    """All methods through all tasks."""
    everyone = learners(Budget())
    seconds: dict[str, list[float]] = {name: [] for name in everyone}
    for number, task in enumerate(tasks(count, rows), 1):
        for name, learner in everyone.items():
            seconds[name].append(timed(lambda who=learner, what=task: who.learn(what)))
        said = ", ".join(f"{name} {seconds[name][-1]:.1f}" for name in everyone)
        print(f"task {number}: {said} s", flush=True)
    return [
        Learned(
            name,
            [round(one, 1) for one in seconds[name]],
            [sum(stage.steps for stage in record.stages) for record in learner.records],
            round(float(np.mean([auroc(learner, task) for task in tasks(count, rows)])), 4),
        )
        for name, learner in everyone.items()
    ]


def auroc(learner: Learner[Any], task: Task) -> float:
    assert task.test is not None
    return score(learner, task.name, task.test, kind=task.kind, outputs=10)["auroc"]


def compared(count: int, rows: int | None) -> list[Figure]:
    """Both DENs against the rest, and where the sequence is the paper's, against the targets."""
    found = {one.method: one for one in in_turn(count, rows)}
    seconds = {name: sum(one.seconds) for name, one in found.items()}
    full = rows is None
    what = "ten tasks" if full else "two small tasks"
    figures = [
        figure(
            f"{what}: {den} / {name}",
            seconds[den] / seconds[name],
            2 if full and name == "DNN" else None,
        )
        for den in DENS
        for name in METHODS
        if name not in DENS
    ]
    if full:
        lines = b",\n".join(msgspec.json.encode(one) for one in found.values())
        STORE.write_bytes(b"[\n" + lines + b"\n]\n")
        figures.append(figure(f"{what}: DEN / the authors' code", seconds["DEN"] / AUTHORS, 1 / 20))
    return figures


def against_avalanche(count: int, rows: int | None) -> list[Figure]:
    """One pass over each task, ours and theirs."""
    batches = -(-(rows or 55_000) // BATCH)
    everyone = learners(
        Budget(steps=batches, batch_size=BATCH, learning_rate=RATE, check_every=batches),
        tuple(PEERS),
    )
    theirs = {name: strategy(name) for name in PEERS}
    seconds = {name: [0.0, 0.0] for name in PEERS}
    for number, task in enumerate(tasks(count, rows)):
        experience = as_experience(task, number)
        for name, learner in everyone.items():
            seconds[name][0] += timed(lambda who=learner, what=task: who.learn(what))
            train = theirs[name].train
            seconds[name][1] += timed(lambda train=train, what=experience: train(what))
    what = "ten tasks" if rows is None else "two small tasks"
    return [
        figure(f"{what}: {name} / Avalanche's {PEERS[name]}, one pass each", ours / others, None)
        for name, (ours, others) in seconds.items()
    ]


def as_experience(task: Task, number: int) -> Any:
    from avalanche.benchmarks.scenarios.dataset_scenario import benchmark_from_datasets
    from avalanche.benchmarks.scenarios.supervised import with_classes_timeline
    from avalanche.benchmarks.scenarios.task_aware import with_task_labels
    from avalanche.benchmarks.utils.classification_dataset import (
        _make_taskaware_tensor_classification_dataset as dataset,
    )

    rows: Any = task.train
    data = dataset(rows.x, rows.y, task_labels=number)
    benchmark = with_classes_timeline(benchmark_from_datasets(train=[data]))
    return with_task_labels(benchmark).train_stream[0]


def strategy(name: str) -> Any:
    from avalanche.models import PNN, MultiHeadClassifier
    from avalanche.training.supervised import EWC, Naive, PNNStrategy

    if name == "DNN-Progressive":
        model: Any = PNN(2, 784, 80, adapter="linear")
        # Its mask of classes cannot be made of what its own benchmark says.
        model.classifier = MultiHeadClassifier(80, initial_out_features=10, masking=False)
    else:
        model = nn.Sequential(
            nn.Linear(784, 312), nn.ReLU(), nn.Linear(312, 128), nn.ReLU(), nn.Linear(128, 10)
        )
    common = one_pass(model, RATE, BATCH)
    made = {
        "DNN": lambda: Naive(**common),
        "DNN-EWC": lambda: EWC(ewc_lambda=1.0, **common),
        "DNN-Progressive": lambda: PNNStrategy(**common),
    }
    return made[name]()


def figures(full: bool = False) -> list[Figure]:
    count, rows = (10, None) if full else (2, 6000)
    try:
        found = compared(count, rows)
    except DataError as error:
        print(f"not measured: the whole sequence: {error}")
        return []
    if has_avalanche():
        return found + against_avalanche(count, rows)
    print("not measured: Avalanche's whole sequence: avalanche-lib is not installed")
    return found


if __name__ == "__main__":
    torch.set_num_threads(1)
    warnings.simplefilter("ignore")  # Avalanche's
    parser = argparse.ArgumentParser()
    parser.add_argument("--full", action="store_true")
    publish(figures(parser.parse_args().full))
