"""All tasks at once, each on the network as it knows it: DNN-MTL and DEN-Finetune."""

from collections.abc import Callable, Sequence
from dataclasses import replace

import torch
from torch import Tensor

from lifelong.budget import Budget
from lifelong.network import GrowingNetwork, Initialise, Known, prefix
from lifelong.penalties import Penalty
from lifelong.skeleton import HEAD, Tensors, logits
from lifelong.solve import (
    ALONE,
    Course,
    Problem,
    Rehearsal,
    Solution,
    loss_of,
    solve,
    validation_loss,
)
from lifelong.tasks import Task, TaskError, prepared


def train_together(
    known: GrowingNetwork,
    tasks: Sequence[Task],
    budget: Budget,
    penalty: Callable[[Tensor], Penalty],
    generator: torch.Generator,
    course: Course = ALONE,
) -> tuple[GrowingNetwork, Solution]:
    """Train every tensor on the mean loss of these tasks, a batch of each a step."""
    asks = _asks(known, tasks)
    tensors = known.everything()
    penalties = {name: penalty(tensor) for name, tensor in tensors.items() if tensor.ndim > 1}
    problem = Problem("together", tensors, asks, dict.fromkeys(tensors), penalties)
    solution = solve(problem, budget, generator, course)
    return _with(known, solution.tensors), solution


def loss_together(known: GrowingNetwork, tasks: Sequence[Task]) -> float:
    """Mean validation loss of these tasks."""
    return validation_loss(_asks(known, tasks), known.everything())


def _asks(known: GrowingNetwork, tasks: Sequence[Task]) -> list[Rehearsal]:
    names = [one.name for one in known.tasks]
    if not names:
        raise TaskError("training together takes one task at least, but there is none")
    if sorted(task.name for task in tasks) != sorted(names):
        raise TaskError(
            f"training together takes the data of every task that was learned ({names}), "
            f"not {[task.name for task in tasks]}"
        )
    for task in tasks:
        _refuse_another(known, known.tasks[names.index(task.name)], task)
    return [_ask(known, 1 + names.index(task.name), task) for task in tasks]


def opened(known: GrowingNetwork) -> GrowingNetwork:
    """The same network, all of which every task knows: its head reads the later units too.

    At first it reads nothing from them, so the answers stay as they are but for what units that
    were already read take from later ones.
    """
    tasks = tuple(
        replace(one, private={**one.private, **_head(known.without_stamps(number).tensors)})
        for number, one in enumerate(known.tasks, 1)
    )
    born = {group: torch.ones_like(stamps) for group, stamps in known.born.items()}
    return replace(known, born=born, tasks=tasks, _as_of={})


def _head(tensors: Tensors) -> Tensors:
    return {name: tensors[name] for name in HEAD}


def shaken(known: GrowingNetwork, make: Initialise, keep: float, noise: float) -> GrowingNetwork:
    """The same structure, with every tensor shrunk to a share of itself and fresh noise added.

    Weights that have fitted their data closely are a poor start for learning more of it: training
    ends where it began. Shrunk and perturbed (Ash and Adams, 2020) they are a good one.
    """

    def shake(tensors: Tensors) -> dict[str, Tensor]:
        return {
            name: keep * tensor + noise * make(known.skeleton.axes[name], tuple(tensor.shape))
            for name, tensor in tensors.items()
        }

    tasks = tuple(replace(one, private=shake(one.private)) for one in known.tasks)
    return replace(known, shared=shake(known.shared), tasks=tasks, _as_of={})


def _refuse_another(known: GrowingNetwork, learned: Known, task: Task) -> None:
    """Refuse data that goes by the name of a task and is another's."""
    came = (task.kind.value, task.outputs, task.shape)
    expected = (learned.kind.value, learned.outputs, tuple(known.skeleton.inputs))
    if came != expected:
        raise TaskError(
            f"task {task.name!r}: kind, outputs and shape of an input are {came}, but when it was "
            f"learned they were {expected}"
        )


def _ask(known: GrowingNetwork, number: int, task: Task) -> Rehearsal:
    skeleton = known.skeleton
    born = {group: stamps[stamps <= number] for group, stamps in known.born.items()}
    own = {name: f"{number}.{name}" for name in known.tasks[number - 1].private}

    def forward(tensors: Tensors, x: Tensor) -> Tensor:
        shared = {n: prefix(tensors[n], skeleton.axes[n], born) for n in known.shared}
        return logits(skeleton, {**shared, **{n: tensors[key] for n, key in own.items()}}, x)

    device = next(iter(known.tasks[number - 1].private.values())).device
    train, valid = prepared(task.train, device), prepared(task.valid, device)
    return Rehearsal(forward, loss_of(task.kind), train, valid)


def _with(known: GrowingNetwork, tensors: Tensors) -> GrowingNetwork:
    """The same structure with these tensors."""
    tasks = tuple(
        replace(one, private={name: tensors[f"{number}.{name}"] for name in one.private})
        for number, one in enumerate(known.tasks, 1)
    )
    shared = {name: tensors[name] for name in known.shared}
    return replace(known, shared=shared, tasks=tasks, _as_of={})
