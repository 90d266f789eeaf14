"""What a model is made of, in the terminal: its tasks, its layers, who shares what."""

from rich.console import Console, RenderableType
from rich.table import Table
from rich.text import Text

from lifelong.runs import Run
from lifelong.units import EVENTS, common, grows, tells, units_by_task, used_units

_ACROSS = 12  # tasks that fit side by side


def show(run: Run, console: Console) -> None:
    """Print everything that there is to tell."""
    for part in (_head(run), _tasks(run), _layers(run), _overlap(run)):
        if part is not None:
            console.print(part)


def _head(run: Run) -> Text:
    s = run.summary
    base = ", ".join(f"{group} {width}" for group, width in run.widths.items())
    return Text(
        f"{run.method}, seed {run.seed}: {_count(len(run.tasks), 'task')}, "
        f"{s.parameters:,} parameters ({s.nonzero:,} not zero), "
        f"{s.capacity:.2f} times the base network's\n"
        f"Base network: {' × '.join(map(str, run.inputs))} inputs, {base}"
    )


def _tasks(run: Run) -> Table:
    """What each task took and found."""
    table = _table("Tasks", "task", "number")
    rows = [[name] for name in run.tasks]
    if len(run.records) == len(run.tasks):
        for event in EVENTS:
            table.add_column(event, justify="right")
        for column in ("steps", "seconds", "loss"):
            table.add_column(column, justify="right")
        for row, record in zip(rows, run.records, strict=True):
            row += [str(sum(getattr(at, e) for at in record.groups.values())) for e in EVENTS]
            row += [str(record.steps), f"{record.seconds:.2f}", f"{record.loss:.4f}"]
    if tells(run):
        table.add_column("units used", justify="right")
        table.add_column("of earlier tasks", justify="right")
        for row, (used, older) in zip(rows, used_units(run), strict=True):
            row += [str(used), str(older)]
    for number, (name, *cells) in enumerate(rows, 1):
        table.add_row(Text(name), str(number), *cells)
    return table


def _layers(run: Run) -> Table | None:
    """Units by the task that introduced them."""
    if not grows(run):
        return None
    table = _table("Units of each layer, by the task that introduced them", "layer", "base", "now")
    numbers = range(1, len(run.tasks) + 1)
    shown = list(numbers) if len(numbers) <= _ACROSS else [1, *numbers[-_ACROSS + 2 :]]
    between = len(numbers) - len(shown)
    for number in shown:
        if between and number == shown[1]:
            table.add_column(f"2–{number - 1}", justify="right")
        table.add_column(str(number), justify="right")
    for group, born in run.born.items():
        counts = units_by_task(born, len(run.tasks))
        cells = [counts[number - 1] for number in shown]
        if between:
            cells.insert(1, sum(counts[1 : 1 + between]))
        table.add_row(Text(group), *map(str, (run.widths[group], len(born), *cells)))
    return table


def _overlap(run: Run) -> RenderableType | None:
    """Units in common, task by task."""
    if not tells(run) or len(run.tasks) < 2:
        return None
    shares = common(run)
    if len(run.tasks) <= _ACROSS:
        numbers = [str(number) for number in range(1, len(run.tasks))]
        table = _table("Units in common: those that both use / those that either uses", "task")
        for number in numbers:
            table.add_column(number, justify="right")
        for row, name in list(enumerate(run.tasks))[1:]:
            table.add_row(Text(f"{row + 1} {name}"), *(f"{v:.2f}" for v in shares[row, :row]))
        return table
    table = _table("Units in common: those that both use / those that either uses", "task")
    table.add_column("most with")
    for column in ("share", "mean share"):
        table.add_column(column, justify="right")
    for row, name in enumerate(run.tasks):
        others = [other for other in range(len(run.tasks)) if other != row]
        nearest = max(others, key=lambda other: float(shares[row, other]))
        mean = f"{shares[row, others].mean():.2f}"
        table.add_row(Text(name), Text(run.tasks[nearest]), f"{shares[row, nearest]:.2f}", mean)
    return table


def _table(title: str, first: str, *numbers: str) -> Table:
    table = Table(title=title, title_justify="left")
    table.add_column(first)
    for column in numbers:
        table.add_column(column, justify="right")
    return table


def _count(number: int, noun: str) -> str:
    return f"{number} {noun}{'' if number == 1 else 's'}"
