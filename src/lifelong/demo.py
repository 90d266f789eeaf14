"""The main job on data that needs no files: DEN, DNN-STL and DNN-MTL on the ten digits."""

import platform
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from importlib.metadata import version
from pathlib import Path
from typing import Any, TypeAlias

import msgspec
import numpy as np
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn
from rich.table import Table

from lifelong.baselines import Joint, Single, Training
from lifelong.data import load
from lifelong.den import DEN, Settings
from lifelong.evaluate import MEASURES, score, steps
from lifelong.learner import Learner
from lifelong.network import mlp
from lifelong.records import TaskRecord
from lifelong.report import forgetting_points, page
from lifelong.results import ResultMatrix
from lifelong.runs import MethodRun, Run, Summary
from lifelong.solve import Budget
from lifelong.streams import Stream

Watch: TypeAlias = Callable[[str, str, int], None]  # method, what it does, tasks done

BUDGET = Budget(steps=600, learning_rate=2e-3, check_every=20, patience=4)
WIDTHS = (64, 32)
RESULTS = "results.json"
REPORT = "report.html"
METHODS = (DEN.method, Single.method, Joint.method)
_ABOUT = {
    DEN.method: "one network that grows, task after task",
    Single.method: "a network for each task",
    Joint.method: "one network, all tasks at once",
}


def demo(out: Path, *, seed: int = 0, tasks: int = 10) -> None:
    """Run on scikit-learn's digits, show the table, and leave `results.json` and `report.html`."""
    stream = load("digits", seed).first(tasks)
    _require_writable(out)
    console = Console()
    command = f"lifelong demo --seed {seed} --tasks {tasks}"
    with _shown(console, len(stream)) as watch:
        done = run(stream, seed=seed, watch=watch, command=command)
    console.print(table(done))
    console.print("Forgetting in points of AUROC; capacity: parameters over those of DNN-MTL.")
    report = write(done, out.resolve())
    for what, where in {"Report ": report, "Numbers": report.with_name(RESULTS)}.items():
        console.print(f"{what}  {where}", markup=False, highlight=False, soft_wrap=True)


def run(
    stream: Stream,
    *,
    seed: int = 0,
    widths: Sequence[int] = WIDTHS,
    budget: Budget = BUDGET,
    watch: Watch = lambda _method, _doing, _done: None,
    command: str = "",
) -> Run:
    """The three methods on a stream whose inputs are rows of numbers."""
    inputs = next(iter(stream)).shape[0]
    base = mlp(inputs, widths)
    den = DEN(base, Settings(budget=budget), seed=seed)
    single = Single(base, Training(budget=budget), seed=seed)
    joint = Joint(base, Training(budget=budget), seed=seed)
    return Run(
        command=command,
        source=stream.source,
        tasks=stream.names,
        inputs=inputs,
        widths=dict(base.widths),
        seed=seed,
        versions=_versions(),
        methods=(
            _one_by_one(den, stream, watch),
            _one_by_one(single, stream, watch),
            _together(joint, stream, watch),
        ),
    )


def write(run: Run, out: Path) -> Path:
    """Leave the run's numbers and its report in a directory; returns the report's path."""
    out.mkdir(parents=True, exist_ok=True)
    (out / RESULTS).write_bytes(run.to_json())
    report = out / REPORT
    report.write_text(page(run), encoding="utf-8")
    return report


def table(run: Run) -> Table:
    """The methods, a line each, for the terminal."""
    shown = Table(title=f"{run.source}, {len(run.tasks)} tasks", title_justify="left")
    shown.add_column("method")
    for column in ("AUROC", "forgetting", "capacity", "seconds"):
        shown.add_column(column, justify="right")
    for method in run.methods:
        s = method.summary
        shown.add_row(
            method.method,
            f"{s.auroc:.4f}",
            forgetting_points(s.forgetting),
            f"{s.capacity:.2f}",
            f"{s.seconds:.1f}",
        )
    return shown


def _one_by_one(learner: Learner[Any], stream: Stream, watch: Watch) -> MethodRun:
    watch(learner.method, stream.names[0], 0)
    results, records = None, []
    for done, step in enumerate(steps(learner, stream), start=1):
        results = step.results
        records.append(step.record)
        watch(learner.method, [*stream.names, "done"][done], done)
    assert results is not None  # a stream has a task
    grows = isinstance(learner, DEN)
    born = {g: tuple(b.tolist()) for g, b in learner.network.born.items()} if grows else {}
    scores = {measure: matrix[-1].tolist() for measure, matrix in results.scores.items()}
    forgetting = results.forgetting() if len(results.tasks) > 1 else None
    seconds = float(results.seconds.sum())
    summary = _summary(learner, scores, forgetting, seconds)
    return _method_run(learner, scores, summary, records, born, results)


def _together(learner: Joint, stream: Stream, watch: Watch) -> MethodRun:
    watch(learner.method, "all tasks", 0)
    tasks = list(stream)
    start = time.perf_counter()
    record = learner.learn_together(tasks)
    seconds = time.perf_counter() - start
    by_task = [
        score(learner, task.name, task.test, kind=task.kind, outputs=task.outputs)
        for task in tasks
        if task.test is not None
    ]
    scores = {measure: [each[measure] for each in by_task] for measure in MEASURES}
    summary = _summary(learner, scores, None, seconds)
    watch(learner.method, "done", len(tasks))
    return _method_run(learner, scores, summary, [record], {}, None)


def _summary(
    learner: Learner[Any],
    scores: dict[str, list[float]],
    forgetting: float | None,
    seconds: float,
) -> Summary:
    size = learner.capacity()
    return Summary(
        auroc=float(np.mean(scores["auroc"])),
        accuracy=float(np.mean(scores["accuracy"])),
        forgetting=forgetting,
        capacity=learner.relative_capacity(),
        parameters=size.parameters,
        nonzero=size.nonzero,
        seconds=seconds,
    )


def _method_run(
    learner: Learner[Any],
    scores: dict[str, list[float]],
    summary: Summary,
    records: Sequence[TaskRecord],
    born: dict[str, tuple[int, ...]],
    results: ResultMatrix | None,
) -> MethodRun:
    return MethodRun(
        method=learner.method,
        about=_ABOUT[learner.method],
        settings=msgspec.to_builtins(learner.settings),
        summary=summary,
        scores=scores,
        records=tuple(records),
        born=born,
        matrix=msgspec.Raw("null" if results is None else results.to_json()),
    )


def _versions() -> dict[str, str]:
    packages = ("lifelong", "torch", "numpy", "scikit-learn")
    return {"python": platform.python_version(), **{name: version(name) for name in packages}}


def _require_writable(out: Path) -> None:
    """Refuse before the work, not after it, a place where nothing can be written."""
    out.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryFile(dir=out):
        pass


@contextmanager
def _shown(console: Console, tasks: int) -> Iterator[Watch]:
    """A bar for each method while it runs."""
    columns = (
        TextColumn("{task.fields[method]:8}"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
        TextColumn("{task.description}", markup=False),
    )
    with Progress(*columns, console=console, transient=True) as bars:
        ids = {m: bars.add_task("waiting", total=tasks, start=False, method=m) for m in METHODS}

        def watch(method: str, doing: str, done: int) -> None:
            bars.start_task(ids[method])
            bars.update(ids[method], description=doing, completed=done)

        yield watch
