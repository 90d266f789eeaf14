"""Make the runs of a recipe that are not stored yet, in parallel."""

import platform
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import final

import msgspec
from rich.console import Console
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    TaskID,
    TextColumn,
    TimeElapsedColumn,
    TimeRemainingColumn,
)

from lifelong.evaluation.measure import versions
from lifelong.evaluation.runs import Summary
from lifelong.experiments.durations import Durations, in_words
from lifelong.experiments.engines import (
    DEFAULT,
    LOCAL,
    Doing,
    Done,
    Engine,
    Failed,
    Resources,
    Skipped,
    WorkerEvent,
    run_jobs,
)
from lifelong.experiments.perform import Job, keep, tasks_done
from lifelong.experiments.recipes import Recipe
from lifelong.experiments.shared import SharedStore
from lifelong.experiments.stored import (
    Experiment,
    Failure,
    RunPaths,
    StoredError,
    find,
    set_aside,
)
from lifelong.tasks.datasets.files import require_writable

BARS = 20  # of active runs at the most


@final
@dataclass
class RunCounts:
    """The runs by outcome, each as a short description."""

    there: list[str] = field(default_factory=list)
    made: list[str] = field(default_factory=list)
    failed: dict[str, str] = field(default_factory=dict)
    skipped: dict[str, str] = field(default_factory=dict)
    damaged: list[str] = field(default_factory=list)


def jobs_of(
    recipe: Recipe,
    *,
    seeds: Sequence[int],
    methods: Sequence[str] = (),
    parts: Sequence[str] = (),
    out: Path,
    device: str = "cpu",
    store: str = "",
) -> tuple[Job, ...]:
    """Every run of a recipe once, ordered by part, then by seed: early seeds are complete first."""
    entries = recipe.chosen(methods, parts)
    jobs = [
        Job(
            recipe.configuration(entry, seed),
            out,
            device,
            recipe.label(entry, seed),
            recipe.command(entry.method, seed, entry.part),
            store,
        )
        for part in recipe.parts
        for seed in seeds
        for entry in entries
        if entry.part == part
    ]
    return tuple({job.configuration.key: job for job in jobs}.values())


def run(
    jobs: Sequence[Job],
    *,
    console: Console,
    engine: Engine = LOCAL,
    resources: Resources = DEFAULT,
) -> RunCounts:
    """Make the runs that are not stored; a failure is recorded and the others continue."""
    counts = RunCounts()
    require_writable(jobs[0].out)
    for store, out in {(job.store, job.out) for job in jobs if job.store}:
        SharedStore(store).refresh(out)
    missing = [job for job in jobs if not _there(job, counts, console)]
    if counts.there:
        _say(console, f"{len(counts.there)} of {len(jobs)} runs are there already.")
    if missing:
        _foretell(missing, _at_once(engine, resources), console)
        with _shown(console, len(missing)) as show:
            for event in run_jobs(missing, engine, resources):
                _note(event, counts)
                show(event)
    return counts


def _at_once(engine: Engine, resources: Resources) -> int | None:
    """How many runs are made at once; None if only the cluster knows."""
    return resources.at_once if engine is LOCAL else resources.jobs


def _foretell(missing: Sequence[Job], at_once: int | None, console: Console) -> None:
    """What earlier attempts have left to go on from, and how long it will take."""
    for job in missing:
        if done := tasks_done(job):
            total = job.configuration.tasks
            _say(console, f"{job}: goes on after {done} of {total} tasks")
    expected = Durations(missing[0].out).expected(job.configuration for job in missing)
    runs = f"{len(missing)} run{'s' if len(missing) > 1 else ''} to make"
    if not expected.known:
        _say(console, f"{runs}; none like them is stored, so that how long they take is unknown.")
        return
    about = in_words(expected.seconds / min(at_once or 1, len(missing)))
    of = "" if expected.known == len(missing) else f", counting the {expected.known} that are known"
    how = f"{at_once} at a time: about {about}" if at_once else f"about {about} one after another"
    _say(console, f"{runs}, {how}, by what stored ones took{of}.")


def in_a_line(s: Summary) -> str:
    score = "" if s.auroc is None else f"AUROC {s.auroc:.4f}, "
    return f"{score}capacity {s.capacity:.2f}, {s.seconds:.0f} s"


def _there(job: Job, counts: RunCounts, console: Console) -> bool:
    try:
        found = find(job.places, job.configuration)
    except StoredError as error:
        aside = set_aside(job.places.run(job.configuration))
        if job.store:
            SharedStore(job.store).set_aside(job.configuration)
        counts.damaged.append(str(aside))
        _say(console, f"damaged  {error}; left aside as {aside.name}, the run is made again")
        return False
    if found is not None:
        counts.there.append(str(job))
    return found is not None


def _note(event: WorkerEvent, counts: RunCounts) -> None:
    if isinstance(event, Doing):
        return
    name = str(event.job)
    if isinstance(event, Done):
        counts.made.append(name)
        if event.job.store:
            SharedStore(event.job.store).copy_run(event.job.configuration, event.job.out)
    elif isinstance(event, Skipped):
        counts.skipped[name] = event.why
    else:
        counts.failed[name] = event.error
        with suppress(OSError):  # on a full disk the counts still report it
            _record(event)


def _record(failed: Failed) -> None:
    job = failed.job
    experiment = Experiment(job.configuration.key, job.configuration, job.device)
    failure = Failure(experiment, failed.error, failed.traceback, versions(), job.command)
    content = msgspec.json.format(msgspec.json.encode(failure), indent=1) + b"\n"
    keep(RunPaths(job.out).failed(job.configuration), content)
    if job.store:
        SharedStore(job.store).put_failure(job.configuration, content)


@contextmanager
def _shown(console: Console, runs: int) -> Iterator["_Display"]:
    columns = (
        TextColumn("{task.description}", markup=False),
        BarColumn(),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
        TextColumn("left"),
        TimeRemainingColumn(),
        TextColumn("{task.fields[doing]}", markup=False),
    )
    with Progress(*columns, console=console, transient=True) as bars:
        yield _Display(console, bars, runs)


@final
class _Display:
    """A progress bar for all runs and one per active run; a line per finished run."""

    def __init__(self, console: Console, bars: Progress, runs: int) -> None:
        self._console, self._bars, self._runs = console, bars, runs
        self._ended = 0
        self._whole = bars.add_task("runs", total=runs, doing="")
        self._of = dict[str, TaskID]()

    def __call__(self, event: WorkerEvent) -> None:
        key = event.job.configuration.key
        if isinstance(event, Doing):
            bar = self._bar(event)
            if bar is not None:
                elsewhere = not event.where.startswith(f"{platform.node()}:")
                doing = f"{event.what}, at {event.where}" if elsewhere else event.what
                self._bars.update(bar, completed=event.done, doing=doing)
            return
        if key in self._of:
            self._bars.remove_task(self._of.pop(key))
        self._ended += 1
        self._bars.update(self._whole, completed=self._ended)
        _say(self._console, f"{self._ended}/{self._runs}  {_ending(event)}")

    def _bar(self, event: Doing) -> TaskID | None:
        """The bar of a run; with more runs than fit on a screen, some have none."""
        key, job = event.job.configuration.key, event.job
        if key not in self._of and len(self._of) < BARS:
            self._of[key] = self._bars.add_task(str(job), total=job.configuration.tasks, doing="")
        return self._of.get(key)


def _ending(event: Done | Failed | Skipped) -> str:
    name = event.job
    if isinstance(event, Done):
        return f"{name}: {in_a_line(event.summary)}"
    if isinstance(event, Skipped):
        return f"{name}: left out, {event.why}"
    return f"{name}: FAILED, {event.error}"


def _say(console: Console, line: str) -> None:
    console.print(line, markup=False, highlight=False, soft_wrap=True)
