"""Runs with numbers of our choice: what figures, claims and pages make of them can be computed."""

from collections.abc import Sequence

import msgspec
import numpy as np

from lifelong.evaluation.results import ResultMatrix
from lifelong.evaluation.runs import Run, Summary
from lifelong.records import Capacity, GroupRecord, StageRecord, TaskRecord
from lifelong.reproduction.measured import TASKS, Measured

TASK_NAMES = tuple(f"task {number}" for number in range(1, 11))
LAYERS = {"hidden1": 312, "hidden2": 128}


def run(
    method: str,
    auroc: float,
    seed: int = 0,
    *,
    lost: float = 0.0,
    capacity: float = 1.0,
    seconds: float = 10.0,
    tasks: int = 10,
    together: bool = False,
    selected: tuple[int, int] = (100, 20),
    look_alike: bool = False,
) -> Run:
    """Every task scores `auroc` at the end; each had `lost` more before later ones came."""
    names = TASK_NAMES[:tasks] if tasks <= 10 else tuple(f"task {n}" for n in range(1, tasks + 1))
    matrix = np.full((tasks, tasks), np.nan)
    for i in range(tasks):
        for j in range(i + 1):
            left = (tasks - 1 - i) / max(1, tasks - 1 - j)
            matrix[i, j] = auroc + (lost * left if j < tasks - 1 else 0.0)
    sizes = [Capacity(1000 + 10 * i, 900, 800) for i in range(tasks)]
    results = ResultMatrix.of(
        names, {"auroc": matrix}, capacity=sizes, seconds=[seconds / tasks] * tasks
    )
    record = {
        layer: GroupRecord(width, selected=count)
        for (layer, width), count in zip(LAYERS.items(), selected, strict=True)
    }
    records = tuple(
        TaskRecord(name, number, record, (StageRecord("training", 0.1, 100, seconds / tasks),))
        for number, name in enumerate(names, 1)
    )
    return Run(
        method=method,
        about="made up",
        command="none",
        data="mnist-variation",
        source="made up",
        look_alike=look_alike,
        tasks=names,
        inputs=(784,),
        widths=LAYERS,
        seed=seed,
        settings={},
        versions={},
        warnings=(),
        summary=Summary(
            auroc=auroc,
            accuracy=None,
            forgetting=None if together else lost,
            capacity=capacity,
            parameters=int(1000 * capacity),
            nonzero=900,
            seconds=seconds,
        ),
        scores={"auroc": tuple([auroc] * tasks)},
        records=records,
        born={},
        used={},
        matrix=msgspec.Raw(b"null" if together else results.to_json().encode()),
    )


def measured(
    method: str,
    aurocs: Sequence[float],
    *,
    part: str = TASKS,
    label: str = "",
    plain: bool = True,
    first_seed: int = 0,
    **given: object,
) -> list[Measured]:
    """One run for each of the numbers, as if of seeds 0, 1, …"""
    return [
        Measured(
            method,
            label or method,
            part,
            plain,
            run(method, auroc, first_seed + number, **given),  # type: ignore[arg-type]
        )
        for number, auroc in enumerate(aurocs)
    ]
