"""Rows without the name of their task: which score finds the right task most often?

    OMP_NUM_THREADS=1 python benchmarks/finding.py --out benchmarks/finding.json

DEN learns a stream; then each test row goes to the task with the highest score. Scores:
- probability: the largest probability of any class of the task's head;
- energy: the logarithm of the sum of exponentials of the task's outputs;
- features: minus the Mahalanobis distance of the features as of each task from their mean;
- inputs: the log-density of the inputs, by `lifelong.finding` (which the estimators use).
In tasks of one class against the rest, all rows occur in all tasks: there the right task of a row
is the one of its class, and the statistics are those of a task's positive rows.
"""

import argparse
import json
import time
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from lifelong import DEN, Budget, Settings, Task, mlp
from lifelong.evaluation.metrics import auroc
from lifelong.finding import Density
from lifelong.tasks.datasets import load
from lifelong.tasks.datasets.mnist import read_mnist
from lifelong.tasks.examples import TensorExamples
from lifelong.tasks.kinds import Kind
from lifelong.tasks.splits import hold_out
from lifelong.tasks.streams import Stream, class_groups

SHRINK = 0.1  # of the features' covariance towards its diagonal


def part(rows: Any, most: int) -> tuple[Tensor, Tensor]:
    assert isinstance(rows, TensorExamples)
    return rows.x[:most].flatten(1), rows.y[:most]


def smaller(task: Task, most: int) -> Task:
    """The same task with fewer rows."""
    splits = [part(rows, most) for rows in (task.train, task.valid, task.test)]
    return Task(task.name, *splits, kind=task.kind, outputs=task.outputs)


def own(rows: TensorExamples, kind: Kind) -> NDArray[Any]:
    """The rows of a task: of one against the rest, the positive ones."""
    x = rows.x[rows.y[:, 0] == 1] if kind is Kind.BINARY else rows.x
    return np.asarray(x.numpy())


def features(learner: DEN, number: int, x: NDArray[Any]) -> NDArray[np.float64]:
    network = learner.network.as_of(number)
    with torch.no_grad():
        found = network.architecture.features(network.tensors, torch.from_numpy(x))
    return np.asarray(found.numpy(), np.float64)


class Mahalanobis:
    """Minus half the squared distance from a mean, by a covariance shrunk to its diagonal."""

    def __init__(self, rows: NDArray[np.float64]) -> None:
        self.mean = rows.mean(axis=0)
        covariance = np.cov(rows.T, bias=True).reshape(rows.shape[1], -1)
        diagonal = np.diag(np.diag(covariance))
        mixed = (1 - SHRINK) * covariance + SHRINK * diagonal
        self.inverse = np.linalg.inv(mixed + 1e-3 * np.diag(covariance).mean() * np.eye(len(mixed)))

    def score(self, rows: NDArray[np.float64]) -> NDArray[np.float64]:
        away = rows - self.mean
        return np.asarray(-np.einsum("ij,jk,ik->i", away, self.inverse, away) / 2)


def measure(stream: Stream, widths: list[int], most: int, budget: Budget) -> dict[str, Any]:
    learner, began = None, time.perf_counter()
    inputs, hidden, tests = [], [], []
    for number, whole in enumerate(stream, 1):
        task = smaller(whole, most)
        if learner is None:
            learner = DEN(mlp(task.shape[0], widths), Settings(budget=budget))
        learner.learn(task)
        rows = own(task.train, task.kind)
        inputs.append(Density.fit(rows))
        hidden.append(Mahalanobis(features(learner, number, rows)))
        tests.append(task.test)
    assert learner is not None
    names, kind = learner.tasks, learner.network.tasks[0].kind
    right: dict[str, list[float]] = {}
    answered: dict[str, list[float]] = {"given": []}
    for number, (name, test) in enumerate(zip(names, tests, strict=True)):
        x = own(test, kind)
        outputs = [learner.decision_function(x, task=each).double().numpy() for each in names]
        logits = [np.concatenate([o * 0, o], axis=1) if o.shape[1] == 1 else o for o in outputs]
        shares = [np.exp(o - np.logaddexp.reduce(o, axis=1, keepdims=True)) for o in logits]
        scores = {
            "probability": [s[:, -1] if kind is Kind.BINARY else s.max(axis=1) for s in shares],
            "energy": [np.logaddexp.reduce(o, axis=1) for o in logits],
            "features": [m.score(features(learner, n, x)) for n, m in enumerate(hidden, 1)],
            "inputs": [density.log(x) for density in inputs],
        }
        for score, columns in scores.items():
            found = np.stack(columns, axis=1).argmax(axis=1)
            right.setdefault(score, []).append(float((found == number).mean()))
            if kind is Kind.CLASSES:
                told = np.stack([o.argmax(axis=1) for o in outputs], axis=1)
                hits = told[np.arange(len(x)), found] == test.y.numpy()
                hits &= found == number  # with another task's classes the answer is another one
                answered.setdefault(score, []).append(float(hits.mean()))
        p = learner.predict_proba(test.x, task=name).numpy()
        given = (
            auroc(kind, test.y.numpy(), p)
            if kind is Kind.BINARY
            else float((p.argmax(axis=1) == test.y.numpy()).mean())
        )
        answered["given"].append(given)
    return {
        "tasks": len(names),
        "rows per split, at most": most,
        "right task": {name: float(np.mean(each)) for name, each in right.items()},
        "measure": "AUROC" if kind is Kind.BINARY else "accuracy",
        "answers": {name: float(np.mean(each)) for name, each in answered.items()},
        "seconds": time.perf_counter() - began,
    }


def split_mnist(seed: int) -> Stream:
    """Five tasks of two digits each."""
    train, test = ((x.reshape(len(x), -1), y) for x, y in read_mnist())
    splits = hold_out(train, test, valid=5000, seed=seed)
    return class_groups(splits, 2, seed=seed, kind="classes", standardise="whole")


def plans(seed: int) -> dict[str, tuple[Stream, list[int], int]]:
    return {
        "digits, each against the rest": (load("digits", seed), [64, 32], 5000),
        "digits, five pairs of classes": (
            load("digits", seed, group=2, kind="classes"),
            [64, 32],
            5000,
        ),
        "Split MNIST, five pairs of classes": (split_mnist(seed), [128, 64], 4000),
        "Permuted MNIST": (load("permuted-mnist", seed), [128, 64], 2000),
        "MNIST-Variation": (load("mnist-variation", seed), [128, 64], 2000),
        "50 animals": (load("features:animals50/features.npz", seed), [100, 50], 2000),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seeds", type=int, default=1)
    parser.add_argument("--only", default="")
    parser.add_argument("--out", type=Path)
    given = parser.parse_args()
    torch.set_num_threads(1)
    budget = Budget(steps=600)
    made: dict[str, list[dict[str, Any]]] = {}
    for seed in range(given.seeds):
        for name, (stream, widths, most) in plans(seed).items():
            if given.only in name:
                made.setdefault(name, []).append(measure(stream, widths, most, budget))
                print(name, json.dumps(made[name][-1]), flush=True)
                if given.out:
                    given.out.write_text(json.dumps(made, indent=1) + "\n")


if __name__ == "__main__":
    main()
