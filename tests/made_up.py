"""Runs that nobody ran: of any number of tasks, with units that are born, shared and forgotten."""

from bisect import bisect_left, bisect_right
from collections.abc import Iterator

import msgspec
import numpy as np

from lifelong.evaluation.results import Matrix, ResultMatrix
from lifelong.evaluation.runs import Run, Summary
from lifelong.records import Capacity, GroupRecord, StageRecord, TaskRecord

GROUPS = ("hidden1", "hidden2")
TENSORS = ("hidden1.weight", "hidden1.bias")


def made_up(
    tasks: int,
    *,
    method: str = "DEN",
    seed: int = 0,
    grows: bool = True,
    first: int = 24,
    newcomers: int = 4,
    sigma: float = 0.05,
    patched: bool = False,
) -> Run:
    """A run of a method that learns one task after another; one that grows forgets nothing.

    With patches, task n overwrites n of 100 entries of one tensor, and even tasks start anew.
    """
    generator = np.random.default_rng([seed, tasks, grows])
    names = tuple(f"task {number}" for number in range(1, tasks + 1))
    born = {group: _born(generator, tasks, first, newcomers) for group in GROUPS}
    records = tuple(
        _record(generator, name, number, born, sigma) for number, name in enumerate(names, 1)
    )
    if patched:
        records = tuple(
            msgspec.structs.replace(
                record,
                changed={TENSORS[0]: min(record.number, 100), TENSORS[1]: 0},
                parent=None if record.number % 2 else 0,
            )
            for record in records
        )
    results = ResultMatrix.of(
        names,
        {measure: _scores(generator, tasks, grows) for measure in ("auroc", "accuracy")},
        capacity=[Capacity(1000 + 50 * i, 900 + 40 * i, 900) for i in range(tasks)],
        as_of=[Capacity(1000 + 50 * i, 900 + 40 * i, 900) for i in range(tasks)],
        seconds=[record.seconds + 0.125 for record in records],
        source="made up",
    )
    return Run(
        method=method,
        about="made up",
        command="none",
        data="none",
        source="made up",
        tasks=names,
        inputs=(8,),
        widths=dict.fromkeys(GROUPS, 2 * first),
        seed=seed,
        settings={"sigma": sigma, "budget": {"steps": 3}},
        versions={"python": "3"},
        warnings=(),
        summary=Summary(
            results.average("auroc"),
            results.average("accuracy"),
            results.forgetting() if tasks > 1 else None,
            1.25 if grows else 4.5,
            results.capacity[-1].parameters,
            results.capacity[-1].nonzero,
            float(results.seconds.sum()),
        ),
        scores={name: tuple(matrix[-1].tolist()) for name, matrix in results.scores.items()},
        records=records,
        born=born if grows else {},
        used={group: tuple(_used(generator, born[group], tasks)) for group in GROUPS}
        if grows
        else {},
        entries=dict.fromkeys(TENSORS, (100,) * tasks) if patched else {},
        matrix=msgspec.Raw(results.to_json()),
    )


def _scores(generator: np.random.Generator, tasks: int, grows: bool) -> Matrix:
    learned = 0.9 + 0.09 * generator.random(tasks)
    age = np.subtract.outer(np.arange(tasks), np.arange(tasks))
    lost = 0.0 if grows else 0.001
    return np.where(age >= 0, learned - lost * np.maximum(age, 0) ** 0.5, np.nan)


def _born(
    generator: np.random.Generator, tasks: int, first: int, newcomers: int
) -> tuple[int, ...]:
    joined = [first, *generator.integers(0, newcomers + 1, tasks - 1)]
    return tuple(np.repeat(np.arange(1, tasks + 1), joined).tolist())


def _used(
    generator: np.random.Generator, born: tuple[int, ...], tasks: int
) -> Iterator[tuple[int, ...]]:
    stamps, liked = np.array(born), generator.random(len(born))
    for number in range(1, tasks + 1):
        chosen = (stamps == number) | (generator.random(len(born)) < liked)
        yield tuple(np.flatnonzero(chosen & (stamps <= number)).tolist())


def _record(
    generator: np.random.Generator,
    name: str,
    number: int,
    born: dict[str, tuple[int, ...]],
    sigma: float,
) -> TaskRecord:
    groups = {}
    for group, stamps in born.items():
        old = bisect_left(stamps, number)
        drift = sigma * np.exp(generator.normal(0, 1, old)) * (generator.random(old) < 0.7)
        events = generator.integers(0, 9, 4).tolist() if number > 1 else [0] * 4
        units = bisect_right(stamps, number)
        groups[group] = GroupRecord(units, *events, drift=tuple(drift.tolist()))
    stages = ("retrain", "expand", "split") if number > 1 else ("first",)
    return TaskRecord(
        name,
        number,
        groups,
        tuple(StageRecord(stage, 0.25, 100, float(generator.random())) for stage in stages),
    )
