"""What the numbers say, in words: the first sentence of a report, and limits that were reached."""

from collections.abc import Callable, Iterator, Sequence
from math import ceil, sqrt
from typing import Any

import numpy as np

from lifelong.evaluation.metrics import METRICS, heading
from lifelong.evaluation.runs import Run, measures
from lifelong.evaluation.usage import grows, units_by_task

# What a method is compared with, the first of these that is there, and how it is called in words.
RIVALS = {
    "DNN-STL": "a network per task",
    "DNN-MTL": "one network for all tasks at once",
    "DNN": "fine-tuning",
}
_PACE = ("DNN", "fine-tuning's")  # whose time is the measure of time
_ERRORS = 2.0  # standard errors that a difference must exceed to be told as one
_POINTS = ("auroc", "accuracy", "r2")  # metrics whose hundredths are called points
_NOTHING = 0.005  # points that are nothing, to the two decimals that are shown


def verdict(runs: Sequence[Run], method: str, rival: str | None = None) -> str:
    """How a method compares: quality and bytes, what is forgotten, time, and how sure that is."""
    own = [run for run in runs if run.method == method]
    said = [*_quality(runs, own, rival), *_forgotten(own), *_time(runs, own, rival), *_seeds(own)]
    text = (
        "; ".join(said)
        or f"{np.mean([r.summary.capacity for r in own]):.2f} times the bytes of the base network"
    )
    return f"{text[0].upper()}{text[1:]}."


def standard_error(values: Sequence[float]) -> float:
    """Of the mean over seeds: what ± means in every table."""
    return float(np.std(values, ddof=1)) / sqrt(len(values))


def limits_reached(run: Run) -> str:
    """A sentence if tasks were kept from growing further by `max_new_units`; else nothing."""
    limits = _limits(run)
    if not grows(run) or not limits:
        return ""
    births = {group: units_by_task(born, len(run.tasks)) for group, born in run.born.items()}
    reached = [
        task
        for task in range(1, len(run.tasks))
        if any(births[group][task] >= limits[group] > 0 for group in births)
    ]
    if not reached:
        return ""
    widest = ", ".join(f"{group} {limit}" for group, limit in limits.items())
    return (
        f"{len(reached)} of {len(run.tasks) - 1} later tasks grew by as many units as they may in "
        f"a layer ({widest}), and might have grown further: the setting is max_new_units = "
        f"{run.settings['max_new_units']}."
    )


def _limits(run: Run) -> dict[str, int]:
    """Units that may join each layer at a task; empty if the run has no such setting."""
    told = run.settings.get("max_new_units")
    numbers = told if isinstance(told, list) else [told] * len(run.widths)
    if len(numbers) != len(run.widths) or not all(isinstance(n, int | float) for n in numbers):
        return {}
    return {
        group: ceil(number * width) if number < 1 else int(number)
        for number, (group, width) in zip(numbers, run.widths.items(), strict=True)
    }


def _quality(runs: Sequence[Run], own: Sequence[Run], rival: str | None) -> Iterator[str]:
    measure = next(iter(measures(own)), None)
    others = {run.method for run in runs} - {own[0].method}
    other = rival or next((name for name in RIVALS if name in others), None)
    pairs = _pairs(runs, own, other) if other else []
    if measure is None or other is None or not pairs:
        return
    scale, unit = (100.0, "points") if measure in _POINTS else (1.0, "of")
    apart = [scale * (_score(a, measure) - _score(b, measure)) for a, b in pairs]
    share = _ratio(pairs, lambda run: run.summary.bytes)
    name = METRICS[measure].label if measure in METRICS else heading(measure)
    yield f"{_apart(apart, unit, name)} {RIVALS.get(other, other)} with {share:.0%} of its bytes"


def _apart(apart: Sequence[float], unit: str, name: str) -> str:
    mean = float(np.mean(apart))
    if len(apart) > 1 and abs(mean) < _ERRORS * standard_error(apart):
        return f"within its error ({mean:+.2f} ± {standard_error(apart):.2f} {unit} of {name}) of"
    digits = 1 if abs(mean) >= 0.05 else 2
    if round(abs(mean), digits) == 0:
        return f"level in {name} with"
    where = "above" if mean > 0 else "below"
    return f"{abs(mean):.{digits}f} {unit} {name} {where}".replace("points ", "points of ")


def _forgotten(own: Sequence[Run]) -> Iterator[str]:
    lost = [100 * run.summary.forgetting for run in own if run.summary.forgetting is not None]
    if lost:
        mean = float(np.mean(lost))
        yield "nothing forgotten" if abs(mean) < _NOTHING else f"{mean:.2f} points forgotten"


def _time(runs: Sequence[Run], own: Sequence[Run], rival: str | None) -> Iterator[str]:
    name, whose = (rival, f"{rival}'s") if rival else _PACE
    pairs = _pairs(runs, own, name) if own[0].method != name else []
    if pairs and all(b.summary.seconds > 0 for _, b in pairs):
        yield f"{_ratio(pairs, lambda run: run.summary.seconds):.1f} times {whose} time"


def _seeds(own: Sequence[Run]) -> Iterator[str]:
    if any(run.scores for run in own):
        yield (
            "one seed: the third decimal says little"
            if len(own) == 1
            else f"the mean of {len(own)} seeds"
        )


def _pairs(runs: Sequence[Run], own: Sequence[Run], other: str) -> list[tuple[Run, Run]]:
    by_seed = {run.seed: run for run in runs if run.method == other and run.scores}
    return [(run, by_seed[run.seed]) for run in own if run.seed in by_seed and run.scores]


def _ratio(pairs: Sequence[tuple[Run, Run]], of: Callable[[Run], Any]) -> float:
    return float(sum(of(a) for a, _ in pairs) / max(sum(of(b) for _, b in pairs), 1e-9))


def _score(run: Run, measure: str) -> float:
    return float(np.mean(run.scores[measure]))
