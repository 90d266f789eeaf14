"""Prediction as of a task against an `nn.Sequential` of the same size.

OMP_NUM_THREADS=1 python benchmarks/prediction.py
"""

from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
import torch
from side_by_side import Figure, figure, publish, ratio
from torch import Tensor, nn

from lifelong import DEN, Budget, LifelongClassifier, Settings, mlp
from lifelong.tasks.task import Task

WIDTHS = (312, 128)


def learned(tasks: int) -> DEN:
    """A network that has grown a little with each of so many tasks; what it knows is no matter."""
    generator = torch.Generator().manual_seed(0)
    settings = Settings(
        initial_width=1.0,
        k=1,
        max_new_units=1,
        tau=0.0,
        min_improvement=0.0,
        budget=Budget(steps=1),
    )
    learner = DEN(mlp(784, WIDTHS), settings)
    for number in range(tasks):
        x = torch.randn(24, 784, generator=generator)
        y = torch.arange(24) % 2
        learner.learn(Task(f"task {number}", (x, y), (x, y)))
    return learner


def sequential(learner: DEN, number: int) -> nn.Sequential:
    """The same network as modules."""
    tensors = learner.network.as_of(number).tensors
    layers: list[nn.Module] = []
    for name in ("hidden1", "hidden2", "head"):
        weight = tensors[f"{name}.weight"]
        layer = nn.Linear(weight.shape[1], weight.shape[0])
        layer.weight.data, layer.bias.data = weight, tensors[f"{name}.bias"]
        layers += [layer, nn.Sigmoid() if name == "head" else nn.ReLU()]
    return nn.Sequential(*layers)


def plainly(model: nn.Sequential, x: Tensor, times: int) -> None:
    for _ in range(times):
        with torch.no_grad():
            model(x)


def ours(learner: DEN, task: str, x: Tensor, times: int) -> None:
    for _ in range(times):
        learner.predict_proba(x, task=task)


def repeated(predict: Callable[[Any], object], x: Any, times: int) -> None:
    for _ in range(times):
        predict(x)


def one_row_by_predict() -> list[Figure]:
    """`predict` of one row, of a learner and of an estimator, against the bare forward pass."""
    learner = learned(3)
    row = torch.randn(1, 784)
    bare = partial(plainly, sequential(learner, 2), row, 500)
    by_learner = partial(repeated, partial(learner.predict, task="task 1"), row, 500)
    generator = np.random.default_rng(0)
    x = generator.normal(size=(200, 20))
    estimator = LifelongClassifier(budget=Budget(steps=1))
    estimator.fit(x, x[:, 0] > 0, task="march")
    prepared = torch.randn(1, estimator.preparation_.inputs)
    own = partial(plainly, sequential(estimator.learner_, 1), prepared, 500)
    by_estimator = partial(repeated, partial(estimator.predict, task="march"), x[:1], 500)
    return [
        figure("learner.predict, 1 row of 784 / bare forward pass", ratio(by_learner, bare), 3.0),
        figure("estimator.predict, 1 row of 20 / bare forward pass", ratio(by_estimator, own), 3.0),
    ]


def figures() -> list[Figure]:
    found = one_row_by_predict()
    for tasks in (10, 200):
        learner = learned(tasks)
        middle = tasks // 2
        model = sequential(learner, middle + 1)
        for rows, times, target in ((10_000, 3, 1.10), (1, 500, 1.5)):
            x = torch.randn(rows, 784)
            torch.testing.assert_close(
                learner.predict_proba(x, task=f"task {middle}"), model(x).detach()
            )
            predict = partial(ours, learner, f"task {middle}", x, times)
            measured = ratio(predict, partial(plainly, model, x, times), turns=15)
            name = f"prediction / nn.Sequential, {rows:,} row{'s'[: rows > 1]}, T = {tasks}"
            found.append(figure(name, measured, target))
    return found


if __name__ == "__main__":
    torch.set_num_threads(1)
    publish(figures())
