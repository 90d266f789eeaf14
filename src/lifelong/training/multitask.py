"""Multi-task training for DNN-MTL and DEN-Finetune: each task on its own view of the network."""

from collections.abc import Sequence
from dataclasses import replace

import torch
from torch import Tensor

from lifelong.networks.growing import GrowingNetwork, LearnedTask
from lifelong.networks.initial import Initialise
from lifelong.networks.layout import Tensors, logits, statistics, take, trainable
from lifelong.tasks.examples import to_device
from lifelong.tasks.kinds import TaskError
from lifelong.tasks.task import Task
from lifelong.training.budget import Budget
from lifelong.training.loop import (
    STANDALONE,
    Problem,
    Solution,
    TaskObjective,
    TrainingContext,
    objective,
    solve,
    validation_loss,
)
from lifelong.training.losses import loss_of
from lifelong.training.penalties import sparse_weights
from lifelong.training.ranks import ALONE, Ranks


def train_multitask(
    known: GrowingNetwork,
    tasks: Sequence[Task],
    budget: Budget,
    mu: float,
    generator: torch.Generator,
    context: TrainingContext = STANDALONE,
) -> tuple[GrowingNetwork, Solution]:
    """Train every tensor on the mean loss of these tasks, one batch per task and step, with the
    penalty of Equation 2 on the weights.
    """
    objectives = _objectives(known, tasks)
    tensors = known.everything()
    specs = known.specs()
    penalties = sparse_weights(specs, mu)
    problem = Problem(
        "together",
        tensors,
        objectives,
        trainable(specs),
        penalties,
        buffers=statistics(specs),
    )
    solution = solve(problem, budget, generator, context)
    return _with(known, solution.tensors), solution


def multitask_loss(known: GrowingNetwork, tasks: Sequence[Task], ranks: Ranks = ALONE) -> float:
    """Mean validation loss of these tasks."""
    _objectives(known, tasks)  # refuses other data
    losses = [_loss_as_of(known, known.numbers[task.name], task, ranks) for task in tasks]
    return sum(losses) / len(losses)


def _loss_as_of(known: GrowingNetwork, number: int, task: Task, ranks: Ranks) -> float:
    view = known.as_of(number)
    rows = (to_device(part, view.device) for part in (task.train, task.valid))
    return validation_loss([objective(view.architecture, task, *rows)], view.tensors, ranks)


def _objectives(known: GrowingNetwork, tasks: Sequence[Task]) -> list[TaskObjective]:
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
    return [_objective(known, 1 + names.index(task.name), task) for task in tasks]


def share_all_units(known: GrowingNetwork) -> GrowingNetwork:
    """The same network with every unit visible to every task.

    Head weights on later units start at zero. Predictions change only where a task's old units
    receive from later ones.
    """
    tasks = tuple(
        replace(
            one, private=known.without_stamps(number).only(one.private), patches={}, parent=None
        )
        for number, one in enumerate(known.tasks, 1)
    )
    born = {group: torch.ones_like(stamps) for group, stamps in known.born.items()}
    return replace(known, shared=known.current, born=born, tasks=tasks, root=None)


def shrink_and_perturb(
    known: GrowingNetwork, make: Initialise, shrink: float, perturb: float
) -> GrowingNetwork:
    """The same structure with every tensor scaled by `shrink` plus `perturb` times a fresh one.

    Weights that fit their data closely are a poor start for training on more of it. Shrinking and
    perturbing them (Ash and Adams, 2020) makes a good one.
    """

    def moved(tensors: Tensors) -> dict[str, Tensor]:
        specs = known.architecture.layout.tensors
        return {
            name: tensor
            if specs[name].kind == "buffer"
            else shrink * tensor + perturb * make(specs[name], tuple(tensor.shape))
            for name, tensor in tensors.items()
        }

    tasks = tuple(replace(one, private=moved(one.private)) for one in known.tasks)
    return replace(known, shared=moved(known.shared), tasks=tasks)


def _refuse_another(known: GrowingNetwork, learned: LearnedTask, task: Task) -> None:
    """Refuse data that has a learned task's name but another kind, outputs or input shape."""
    came = (task.kind.value, task.outputs, task.shape)
    expected = (learned.kind.value, learned.outputs, known.architecture.layout.inputs)
    if came != expected:
        raise TaskError(
            f"task {task.name!r}: kind, outputs and shape of an input are {came}, but when it was "
            f"learned they were {expected}"
        )


def _objective(known: GrowingNetwork, number: int, task: Task) -> TaskObjective:
    architecture = known.architecture
    regions = known.regions(number)
    own = {name: f"{number}.{name}" for name in known.tasks[number - 1].private}

    def forward(tensors: Tensors, x: Tensor, generator: torch.Generator | None = None) -> Tensor:
        shared = {n: take(tensors[n], regions[n]) for n in known.shared}
        private = {n: tensors[key] for n, key in own.items()}
        return logits(architecture, {**shared, **private}, x, generator)

    device = next(iter(known.tasks[number - 1].private.values())).device
    train, valid = to_device(task.train, device), to_device(task.valid, device)
    return TaskObjective(forward, loss_of(task), train, valid, training=forward)


def _with(known: GrowingNetwork, tensors: Tensors) -> GrowingNetwork:
    """The same structure with these tensors."""
    tasks = tuple(
        replace(one, private={name: tensors[f"{number}.{name}"] for name in one.private})
        for number, one in enumerate(known.tasks, 1)
    )
    shared = {name: tensors[name] for name in known.shared}
    return replace(known, shared=shared, tasks=tasks)
