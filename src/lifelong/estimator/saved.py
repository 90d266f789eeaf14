"""What is saved of an estimator beside its model: parameters, columns, labels, densities."""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal, TypeAlias, final

import msgspec
import numpy as np
import torch

from lifelong.finding import Density, TaskFinder
from lifelong.learners.base import Learner
from lifelong.networks.layout import Tensors
from lifelong.networks.sequential import Sequential
from lifelong.persistence.models import Attached
from lifelong.tables.preparation import Preparation, Value
from lifelong.training.budget import Budget

VERSION = 1
Front: TypeAlias = Literal["classifier", "regressor"]
_DENSITY = ("mean", "noise", "directions")


@final
class TaskFacts(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What the labels of a task are: its classes, or where and how wide its numbers lie."""

    classes: tuple[Value, ...] | None = None
    center: float = 0.0
    spread: float = 1.0


@final
class _Facts(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What is saved with a model; the densities are tensors beside it."""

    front: Front
    version: int
    parameters: dict[str, Any]
    preparation: Preparation
    tasks: tuple[TaskFacts, ...]
    temperature: float


@final
@dataclass(frozen=True)
class Saved:
    """What was read, and is whole."""

    parameters: dict[str, Any]
    preparation: Preparation
    tasks: tuple[TaskFacts, ...]
    finder: TaskFinder


def attached(
    front: Front,
    parameters: dict[str, Any],
    preparation: Preparation,
    tasks: tuple[TaskFacts, ...],
    finder: TaskFinder,
) -> Attached:
    """What a learner saves with its model."""
    facts = _Facts(front, VERSION, parameters, preparation, tasks, finder.temperature)
    tensors = {
        f"density/{number}/{name}": torch.from_numpy(getattr(density, name))
        for number, density in enumerate(finder.densities, 1)
        for name in _DENSITY
    }
    return Attached(msgspec.to_builtins(facts), tensors)


def read(learner: Learner[Any], front: Front) -> Saved:
    """What was saved with this model; a `ValueError` or the like says what is wrong with it."""
    assert learner.attached is not None  # who calls has looked
    facts = msgspec.convert(learner.attached.facts, _Facts)
    if facts.front != front:
        raise ValueError(f"it is a {facts.front}, not a {front}")
    if facts.version != VERSION:
        raise ValueError(f"it has version {facts.version}, this release reads {VERSION}")
    if len(facts.tasks) != len(learner.tasks) or not facts.tasks:
        raise ValueError(
            f"it is of {len(facts.tasks)} tasks, but the model has learned {len(learner.tasks)}"
        )
    prepared = facts.preparation
    prepared.check(len(facts.tasks))
    if prepared.inputs != math.prod(learner.network.architecture.layout.inputs):
        raise ValueError(f"its columns make {prepared.inputs} inputs, the network takes others")
    for own in facts.tasks:
        _check_task(own)
    finder = _finder(facts, learner.attached.tensors, prepared.inputs)
    return Saved(_read_parameters(facts.parameters), prepared, facts.tasks, finder)


def _check_task(facts: TaskFacts) -> None:
    classes = facts.classes
    if not (math.isfinite(facts.center) and 0 < facts.spread < math.inf):
        raise ValueError("the scale of its labels is not finite")
    if classes is not None and (len(set(classes)) < len(classes) or len(classes) < 2):
        raise ValueError("there must be two classes or more, none twice")
    if classes is not None and len({isinstance(value, str) for value in classes}) > 1:
        raise ValueError("classes must be all text or all numbers")


def plain(value: Any) -> Any:
    """A parameter as JSON has it."""
    if isinstance(value, Mapping) and any(not isinstance(key, str) for key in value):
        return [[plain(key), plain(item)] for key, item in value.items()]
    return msgspec.to_builtins(value, enc_hook=_item)


def _item(value: Any) -> Any:
    if isinstance(value, np.ndarray):
        return value.tolist()
    if isinstance(value, np.generic):
        return value.item()
    raise TypeError(f"parameters must be plain numbers, words and lists, not {value!r}")


def _read_parameters(given: Mapping[str, Any]) -> dict[str, Any]:
    read = dict(given)
    network = read.get("network")
    if isinstance(network, dict):
        read["network"] = msgspec.convert(network, Sequential)
    elif isinstance(network, list):
        read["network"] = tuple(network)
    read["categorical"] = tuple(read.get("categorical", ()))
    if isinstance(read.get("budget"), dict):
        read["budget"] = msgspec.convert(read["budget"], Budget)
    if isinstance(read.get("class_weight"), list):
        read["class_weight"] = dict(read["class_weight"])
    return read


def _finder(facts: _Facts, tensors: Tensors, inputs: int) -> TaskFinder:
    densities = []
    for number in range(1, len(facts.tasks) + 1):
        parts = [tensors[f"density/{number}/{name}"].numpy() for name in _DENSITY]
        mean, noise, directions = parts
        if mean.shape != (inputs,) or noise.shape != (inputs,) or directions.shape[1:] != (inputs,):
            raise ValueError(f"the density of task {number} has another shape")
        if not all(np.isfinite(part).all() for part in parts) or not (noise > 0).all():
            raise ValueError(f"the density of task {number} is not finite")
        if any(part.dtype != np.float32 for part in parts):
            raise ValueError(f"the density of task {number} is of another type")
        densities.append(_computable(Density(mean, noise, directions), number))
    if not 1 <= facts.temperature < math.inf:
        raise ValueError(f"its temperature is {facts.temperature}")
    return TaskFinder(tuple(densities), facts.temperature)


def _computable(density: Density, number: int) -> Density:
    try:
        density.log(density.mean[None])
    except np.linalg.LinAlgError as error:
        raise ValueError(f"the density of task {number} cannot be computed: {error}") from error
    return density
