"""A model in the terminal: tasks, layers, which units tasks share, which weights they change."""

import math

from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.table import Table
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
from lifelong.printing import printable

_ACROSS = 12  # tasks that fit in one row
_NAMES = ("task", "layer", "most with")  # text columns


def show(run: Run, console: Console) -> None:
    """Print all tables about a run."""
    console.print(_head(run))
    for table in (_tasks(run), _layers(run), _selected(run), _changed(run), _overlap(run)):
        if table is not None:
            console.print(Text(f"\n{table.title}", style="bold"))
            table.title = None  # a table title would be cut to the width of the table
            console.print(table)


def _head(run: Run) -> Text:
    s = run.summary
    base = ", ".join(f"{printable(group)} {width}" for group, width in run.widths.items())
    return Text(
        f"{printable(run.method)}, seed {run.seed}: {_count(len(run.tasks), 'task')}, "
        f"{s.bytes:,} bytes stored, {s.capacity:.2f} times the base network's, in "
        f"{s.parameters:,} values ({s.nonzero:,} not zero)\n"
        f"Base network: {' × '.join(map(str, run.inputs))} inputs, {base}"
    )


def _tasks(run: Run) -> Table:
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
    table = _table(f"Tasks{legend if tells(run) else ''}", "", "task", *told)
    for number, (name, *cells) in enumerate(zip(run.tasks, *told.values(), strict=True), 1):
        table.add_row(str(number), Text(printable(name)), *cells)
    return table


def _layers(run: Run) -> Table | None:
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
    table = _table(title, "layer", "base", "now", *columns)
    for group, born in run.born.items():
        counts = units_by_task(born, len(run.tasks))
        cells = [counts[number - 1] for number in shown]
        if between:
            cells.insert(1, sum(counts[1 : 1 + between]))
        table.add_row(Text(printable(group)), *map(str, (run.widths[group], len(born), *cells)))
    return table


def _selected(run: Run) -> Table | None:
    """The share of each layer's units that each task selects."""
    if not grows(run) or len(run.tasks) < 2:
        return None
    shares = selected_shares(run)
    title = "Selected units of each layer, of those that there were before the task"
    table = _table(title, "", "task", *map(printable, shares))
    for place, name in list(enumerate(run.tasks))[1:]:
        cells = (f"{share[place]:.0%}" for share in shares.values())
        table.add_row(str(place + 1), Text(printable(name)), *cells)
    return table


def _changed(run: Run) -> Table | None:
    """The share of each layer's weights that each task overwrites, and where it starts from."""
    if not overwrites(run):
        return None
    shares = changed_by_layer(run)
    title = (
        "Weights of each layer that the task overwrites; from: the number of the task that it "
        "starts from, 0 for the untrained network"
    )
    table = _table(title, "", "task", "from", *map(printable, shares))
    for place, (name, parent) in enumerate(zip(run.tasks, parents(run), strict=True)):
        cells = (f"{share[place]:.1%}" for share in shares.values())
        table.add_row(str(place + 1), Text(printable(name)), str(parent), *cells)
    return table


def _overlap(run: Run) -> Table | None:
    """Units in common, for every pair of tasks."""
    if not tells(run) or len(run.tasks) < 2:
        return None
    shares = common(run)
    title = "Units in common: those that both tasks use over those that either uses"
    if len(run.tasks) <= _ACROSS:
        table = _table(title, "", "task", *map(str, range(1, len(run.tasks))))
        for row, name in list(enumerate(run.tasks))[1:]:
            table.add_row(
                str(row + 1), Text(printable(name)), *(f"{v:.2f}" for v in shares[row, :row])
            )
        return table
    table = _table(title, "", "task", "most with", "share", "mean share")
    for row, name in enumerate(run.tasks):
        others = [other for other in range(len(run.tasks)) if other != row]
        nearest = max(others, key=lambda other: float(shares[row, other]))
        most, mean = f"{shares[row, nearest]:.2f}", f"{shares[row, others].mean():.2f}"
        table.add_row(
            str(row + 1), Text(printable(name)), Text(printable(run.tasks[nearest])), most, mean
        )
    return table


def _table(title: str, *columns: str) -> Table:
    """A table with names on the left and numbers on the right, at most 80 columns wide."""
    table = Table(box=SIMPLE_HEAD, title=title, pad_edge=False, padding=(0, 1, 0, 0))
    for column in columns:
        name = column in _NAMES
        table.add_column(
            column,
            justify="left" if name else "right",
            no_wrap=True,
            min_width=8 if name else len(column),
        )
    return table


def _count(number: int, noun: str) -> str:
    return f"{number} {noun}{'' if number == 1 else 's'}"
