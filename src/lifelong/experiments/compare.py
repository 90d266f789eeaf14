"""Methods side by side on own data: a table in a file, parted into tasks by a column."""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from lifelong.experiments.configuration import NetworkPlan
from lifelong.experiments.perform import Job
from lifelong.experiments.recipes import DataPlan, Entry, Recipe
from lifelong.experiments.runner import jobs_of
from lifelong.learners.registry import method as method_named
from lifelong.tables.dataset import TABLE, digest_of_file
from lifelong.tasks.datasets import load
from lifelong.training.budget import Budget


def comparison(
    file: Path,
    *,
    target: str,
    task_column: str,
    methods: Sequence[str],
    regression: bool,
    leave_out: Sequence[str],
    network: Sequence[int],
    budget: Budget,
) -> Recipe:
    """The recipe of a comparison; a changed file makes other runs."""
    options: dict[str, Any] = {
        "path": str(file.resolve()),
        "target": target,
        "task_column": task_column,
        "regression": regression,
        "leave_out": tuple(leave_out),
        "sha256": digest_of_file(file),
    }
    stream = load(TABLE.name, 0, None, **options)
    return Recipe(
        name="compare",
        title=f"{file.name}: {target} by {task_column}",
        size="small",
        reduced="",
        data=DataPlan(TABLE.name, len(stream), options),
        network=NetworkPlan(tuple(network)),
        budget=budget,
        entries=tuple(Entry(method_named(name).name) for name in dict.fromkeys(methods)),
        seeds=(0,),
    )


def jobs(
    recipe: Recipe, seeds: Sequence[int], out: Path, command: str, store: str = ""
) -> tuple[Job, ...]:
    """Every run of the comparison, with the command that makes it."""
    made = jobs_of(recipe, seeds=seeds, out=out, store=store)
    return tuple(replace(job, command=command) for job in made)
