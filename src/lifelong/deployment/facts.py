"""What a file that was made of a task says about itself."""

import json
from collections.abc import Sequence
from importlib.metadata import version
from typing import Any

from lifelong.learners.base import AnyLearner
from lifelong.networks.growing import LearnedTask
from lifelong.tasks.kinds import Kind


class ExportError(ValueError):
    """A model that cannot be exported so; the message says why, and what to do instead."""


def answer_name(known: LearnedTask) -> str:
    """What the numbers are that a network answers with."""
    return "predictions" if known.kind.is_regression else "probabilities"


def labels_of(known: LearnedTask) -> list[int]:
    """The label that each output of a softmax stands for."""
    return list(range(known.first, known.first + known.outputs))


def labels_from(known: LearnedTask, probabilities: Sequence[Sequence[float]]) -> list[Any]:
    """Labels as `predict` returns them, from what `predict_proba` returned, both as lists.

    Of a single row, lists are several times as fast as arrays.
    """
    if known.kind is Kind.CLASSES:
        return [known.first + row.index(max(row)) for row in probabilities]
    if known.outputs == 1:
        return [int(row[0] >= 0.5) for row in probabilities]
    return [[int(value >= 0.5) for value in row] for row in probabilities]


def task_facts(learner: AnyLearner, known: LearnedTask) -> dict[str, str]:
    """About one task, as text: formats of models take no more as metadata."""
    classes = labels_of(known) if known.kind is Kind.CLASSES else []
    return {
        "task": known.name,
        "kind": known.kind.value,
        "outputs": str(known.outputs),
        **({"classes": json.dumps(classes)} if classes else {}),
        **model_facts(learner),
    }


def model_facts(learner: AnyLearner) -> dict[str, str]:
    """About the model and what it was made with."""
    return {
        "method": learner.method,
        "tasks": json.dumps(learner.tasks),
        "inputs": json.dumps(learner.network.architecture.layout.inputs),
        "versions": json.dumps({name: version(name) for name in ("lifelong", "torch")}),
    }
