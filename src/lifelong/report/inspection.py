"""A model in the terminal: tasks, layers, which units tasks share, which weights they change."""

import math
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray
from rich.console import Console
from rich.text import Text

from lifelong.evaluation.runs import Run
from lifelong.evaluation.usage import (
    EVENTS,
    changed_by_layer,
    common,
    grows,
    overwrites,
    parents,
    selected_shares,
    tells,
    units_by_task,
    used_units,
)
from lifelong.printing import Grid, printable

_ACROSS = 12  # tasks that fit in one row
_NAMES = ("task", "layer", "most with")  # text columns


def show(run: Run, console: Console) -> None:
    """Print all tables about a run."""
    console.print(_head(run))
    for grid in (_tasks(run), _layers(run), _selected(run), _changed(run), _overlap(run)):
        if grid is not None:
            console.print("", grid)


def _head(run: Run) -> Text:
    s = run.summary
    base = ", ".join(f"{printable(group)} {width}" for group, width in run.widths.items())
    return Text(
        f"{printable(run.method)}, seed {run.seed}: {_count(len(run.tasks), 'task')}, "
        f"{s.bytes:,} bytes stored, {s.capacity:.2f} times the base network's, in "
        f"{s.parameters:,} values ({s.nonzero:,} not zero)\n"
        f"Base network: {' × '.join(map(str, run.inputs))} inputs, {base}"
    )


def _tasks(run: Run) -> Grid:
    """Seconds, steps and units of each task."""
    told: dict[str, list[str]] = {}
    if len(run.records) == len(run.tasks):
        for event in EVENTS:
            counts = [sum(getattr(at, event) for at in r.groups.values()) for r in run.records]
            told[event] = list(map(str, counts))
    if tells(run):
        told["used"] = [str(used) for used, _ in used_units(run)]
        told["older"] = [str(older) for _, older in used_units(run)]
    if len(run.records) == len(run.tasks):
        told["seconds"] = [f"{record.seconds:.1f}" for record in run.records]
        losses = (record.loss for record in run.records)
        told["loss"] = ["–" if math.isnan(loss) else f"{loss:.4f}" for loss in losses]
    legend = "; used: units that it uses; older: those of them from earlier tasks"
    cells = zip(run.tasks, *told.values(), strict=True)
    rows = [(str(number), printable(name), *rest) for number, (name, *rest) in enumerate(cells, 1)]
    return _grid(f"Tasks{legend if tells(run) else ''}", ("", "task", *told), rows)


def _layers(run: Run) -> Grid | None:
    """Units of each layer by the task that introduced them."""
    if not grows(run):
        return None
    numbers = range(1, len(run.tasks) + 1)
    shown = list(numbers) if len(numbers) <= _ACROSS else [1, *numbers[-_ACROSS + 2 :]]
    between = len(numbers) - len(shown)
    columns = list(map(str, shown))
    if between:
        columns.insert(1, f"2–{shown[1] - 1}")
    title = "Units of each layer, by the number of the task that introduced them"
    rows = []
    for group, born in run.born.items():
        counts = units_by_task(born, len(run.tasks))
        cells = [counts[number - 1] for number in shown]
        if between:
            cells.insert(1, sum(counts[1 : 1 + between]))
        rows.append((printable(group), *map(str, (run.widths[group], len(born), *cells))))
    return _grid(title, ("layer", "base", "now", *columns), rows)


def _selected(run: Run) -> Grid | None:
    """The share of each layer's units that each task selects."""
    if not grows(run) or len(run.tasks) < 2:
        return None
    shares = selected_shares(run)
    title = "Selected units of each layer, of those that there were before the task"
    rows = [
        (str(place + 1), printable(name), *(f"{share[place]:.0%}" for share in shares.values()))
        for place, name in list(enumerate(run.tasks))[1:]
    ]
    return _grid(title, ("", "task", *map(printable, shares)), rows)


def _changed(run: Run) -> Grid | None:
    """The share of each layer's weights that each task overwrites, and where it starts from."""
    if not overwrites(run):
        return None
    shares = changed_by_layer(run)
    title = (
        "Weights of each layer that the task overwrites; from: the number of the task that it "
        "starts from, 0 for the untrained network"
    )
    rows = []
    for place, (name, parent) in enumerate(zip(run.tasks, parents(run), strict=True)):
        cells = (f"{share[place]:.1%}" for share in shares.values())
        rows.append((str(place + 1), printable(name), str(parent), *cells))
    return _grid(title, ("", "task", "from", *map(printable, shares)), rows)


def _overlap(run: Run) -> Grid | None:
    """Units in common, for every pair of tasks."""
    if not tells(run) or len(run.tasks) < 2:
        return None
    shares = common(run)
    title = "Units in common: those that both tasks use over those that either uses"
    if len(run.tasks) <= _ACROSS:
        rows = [
            (str(row + 1), printable(name), *(f"{share:.2f}" for share in shares[row, :row]))
            for row, name in list(enumerate(run.tasks))[1:]
        ]
        filled = [(*row, *[""] * (len(run.tasks) + 1 - len(row))) for row in rows]
        return _grid(title, ("", "task", *map(str, range(1, len(run.tasks)))), filled)
    rows = [
        (str(row + 1), printable(run.tasks[row]), *_nearest(run, shares, row))
        for row in range(len(run.tasks))
    ]
    return _grid(title, ("", "task", "most with", "share", "mean share"), rows)


def _nearest(run: Run, shares: NDArray[np.float64], row: int) -> tuple[str, str, str]:
    """The task that has most in common with one, how much, and the mean over all others."""
    others = [other for other in range(len(run.tasks)) if other != row]
    nearest = max(others, key=lambda other: float(shares[row, other]))
    most, mean = f"{shares[row, nearest]:.2f}", f"{shares[row, others].mean():.2f}"
    return printable(run.tasks[nearest]), most, mean


def _grid(title: str, columns: Sequence[str], rows: Sequence[Sequence[str]]) -> Grid:
    return Grid(columns, rows, _NAMES, title)


def _count(number: int, noun: str) -> str:
    return f"{number} {noun}{'' if number == 1 else 's'}"
