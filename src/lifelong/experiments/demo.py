"""DEN and the baselines on scikit-learn's ten digits: no downloads."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path

from rich.console import Console
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    TextColumn,
    TimeElapsedColumn,
    TimeRemainingColumn,
)

from lifelong.evaluation.measure import ProgressCallback, RunMetadata, measure, no_progress
from lifelong.evaluation.runs import Run, write_run
from lifelong.learners.registry import METHODS
from lifelong.networks.sequential import mlp
from lifelong.persistence.files import replace_file
from lifelong.printing import Grid, Terminal
from lifelong.report.page import forgetting_points, page
from lifelong.tasks.datasets import load
from lifelong.tasks.datasets.files import require_writable
from lifelong.tasks.streams import Stream
from lifelong.training.budget import Budget

BUDGET = Budget(steps=600, learning_rate=2e-3, check_every=20, patience=4)
WIDTHS = (64, 32)
REPORT = "report.html"
SHOWN = (
    "DEN-auto",
    "DEN",
    "DNN-STL",
    "DNN-MTL",
    "DNN",
    "DNN-L2",
    "DNN-EWC",
    "DNN-Progressive",
)


def demo(out: Path, *, seed: int = 0, tasks: int = 10) -> None:
    """Run on scikit-learn's digits, print a table, write `report.html` and a file per method."""
    stream = load("digits", seed).first(tasks)
    require_writable(out)
    console = Terminal()
    command = f"lifelong demo --seed {seed} --tasks {tasks}"
    with _shown(console, len(stream)) as progress:
        runs = run(stream, seed=seed, progress=progress, command=command)
    console.print(table(runs))
    console.print("Forgetting in points of AUROC; capacity: stored bytes over the base network's.")
    places = {"Report ": write(runs, out.resolve())}
    places |= {"Numbers": places["Report "].with_name("*.json")}
    for what, where in places.items():
        console.print(f"{what}  {where}", markup=False, highlight=False, soft_wrap=True)


def run(
    stream: Stream,
    *,
    seed: int = 0,
    widths: Sequence[int] = WIDTHS,
    budget: Budget = BUDGET,
    progress: ProgressCallback = no_progress,
    command: str = "",
) -> tuple[Run, ...]:
    """Run every method with its defaults on a stream whose inputs are vectors."""
    base = mlp(next(iter(stream)).shape[0], widths)
    return tuple(
        measure(
            METHODS[name].make(base, budget=budget, seed=seed),
            stream,
            RunMetadata("digits", METHODS[name].about, command, method=name),
            progress=partial(_about, name, progress),
        )
        for name in SHOWN
    )


def _about(name: str, progress: ProgressCallback, _learner: str, doing: str, done: int) -> None:
    """Progress under the method's name; variants of DEN share a learner."""
    progress(name, doing, done)


def write(runs: Sequence[Run], out: Path) -> Path:
    """Write each run and the report into a directory; return the report's path."""
    for each in runs:
        write_run(each, out)
    report = out / REPORT
    replace_file(report.resolve(), page(runs).encode())
    return report


def table(runs: Sequence[Run]) -> Grid:
    """One row per method, for the terminal."""
    first = runs[0]
    columns = ("method", "AUROC", "forgetting", "capacity", "values", "seconds")
    rows = [
        (
            each.method,
            f"{each.summary.auroc:.4f}",
            forgetting_points(each.summary.forgetting),
            f"{each.summary.capacity:.2f}",
            f"{each.summary.parameters:,}",
            f"{each.summary.seconds:.1f}",
        )
        for each in runs
    ]
    return Grid(columns, rows, columns[:1], f"{first.source}, {len(first.tasks)} tasks")


@contextmanager
def _shown(console: Console, tasks: int) -> Iterator[ProgressCallback]:
    """A progress bar per method."""
    columns = (
        TextColumn("{task.fields[method]:15}"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
        TextColumn("left"),
        TimeRemainingColumn(),
        TextColumn("{task.description}", markup=False),
    )
    with Progress(*columns, console=console, transient=True) as bars:
        ids = {m: bars.add_task("waiting", total=tasks, start=False, method=m) for m in SHOWN}

        def progress(method: str, doing: str, done: int) -> None:
            bars.start_task(ids[method])
            bars.update(ids[method], description=doing, completed=done)

        yield progress
