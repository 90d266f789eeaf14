"""A recipe that runs in a blink: two digits, a few units, a few steps."""

from dataclasses import replace
from pathlib import Path
from typing import Any

from lifelong.evaluation.results import ResultMatrix
from lifelong.evaluation.runs import Run
from lifelong.experiments.configuration import Configuration, NetworkPlan
from lifelong.experiments.perform import Job
from lifelong.experiments.recipes import DataPlan, Entry, Recipe, recipe
from lifelong.training.budget import Budget

BUDGET = Budget(steps=20, check_every=10, patience=1, learning_rate=0.01)


def tiny_recipe(*methods: str, tasks: int = 2) -> Recipe:
    names = methods or ("DNN-STL", "DNN-MTL", "DNN", "DEN", "DEN-Finetune")
    return replace(
        recipe("rehearsal", "small"),
        name="tiny",
        data=DataPlan("digits", tasks),
        network=NetworkPlan((8, 4)),
        budget=BUDGET,
        entries=tuple(Entry(name) for name in names),
        seeds=(0,),
    )


def configuration(
    method: str, seed: int = 0, tasks: int = 2, scale: float = 1.0, **changes: Any
) -> Configuration:
    entry = Entry(method, scale=scale, changes=changes)
    return tiny_recipe(method, tasks=tasks).configuration(entry, seed)


def job(out: Path, method: str, **given: Any) -> Job:
    return Job(configuration(method, **given), out)


def without_times(run: Run) -> dict[str, Any]:
    """All that must repeat: numbers, not how long they took."""
    results = run.results
    matrix = None
    if results is not None:
        matrix = ResultMatrix.of(results.tasks, results.scores, capacity=results.capacity).to_json()
    return {
        "matrix": matrix,
        "scores": run.scores,
        "born": run.born,
        "used": run.used,
        "capacity": run.summary.capacity,
        "nonzero": run.summary.nonzero,
        "steps": [record.steps for record in run.records],
        "losses": [record.loss for record in run.records],
        "settings": run.settings,
    }
