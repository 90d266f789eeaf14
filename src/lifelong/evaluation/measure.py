"""From a learner and a stream, or from a saved model, to a stored run."""

import platform
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial
from importlib.metadata import version
from pathlib import Path
from typing import Any, Protocol, TypeAlias, final, runtime_checkable

import msgspec
import numpy as np

from lifelong.evaluation.evaluate import score, steps, timed
from lifelong.evaluation.metrics import METRICS
from lifelong.evaluation.results import ResultMatrix
from lifelong.evaluation.runs import Run, Summary
from lifelong.learners.base import Learner
from lifelong.learners.den import DEN
from lifelong.learners.registry import METHODS
from lifelong.networks.growing import GrowingNetwork
from lifelong.networks.layout import Architecture
from lifelong.networks.sharing import Sharing
from lifelong.persistence.files import MOST, NOT_DECODED, read_file
from lifelong.persistence.models import MANIFEST, ModelFileError
from lifelong.records import StageRecord, TaskRecord
from lifelong.tasks.streams import Stream
from lifelong.tasks.task import Task, TaskError

ProgressCallback: TypeAlias = Callable[[str, str, int], None]  # method, what it does, tasks done


@runtime_checkable
class LearnsTogether(Protocol):
    """A learner that takes the data of all tasks at once."""

    def learn_together(
        self, tasks: Sequence[Task], *, checkpoint: str | Path | None = None
    ) -> TaskRecord: ...


@runtime_checkable
class Shares(Protocol):
    """A learner that can tell which units each task uses."""

    def sharing(self) -> Sharing: ...


@runtime_checkable
class Finetunes(Protocol):
    """A learner that can train all tasks together once it has learned each."""

    def finetune(
        self, tasks: Sequence[Task], *, checkpoint: str | Path | None = None
    ) -> StageRecord: ...


@final
@dataclass(frozen=True, eq=False)
class ResumePoint:
    """What a run that was killed goes on from, and how the next one could.

    Attributes:
        results: of the tasks that the learner knows already.
        checkpoint: directory in which the trainings of a task are kept while it is learned.
        after: called after each task with the results so far.
    """

    results: ResultMatrix | None = None
    checkpoint: Path | None = None
    after: Callable[[ResultMatrix], None] = lambda _results: None


FROM_THE_START = ResumePoint()


@final
@dataclass(frozen=True)
class RunMetadata:
    """Where a run comes from.

    Attributes:
        data: name of the data set.
        about: what the method is, in words.
        command: that asks for the run.
        method: its name; the learner's own unless given.
        base: the network that capacity is counted against; the learner's own unless given.
    """

    data: str = ""
    about: str = ""
    command: str = ""
    method: str = ""
    base: Architecture | None = None


def no_progress(_method: str, _doing: str, _done: int) -> None:
    """Watch nothing."""


def measure(
    learner: Learner[Any],
    stream: Stream,
    metadata: RunMetadata,
    *,
    progress: ProgressCallback = no_progress,
    kept: ResumePoint = FROM_THE_START,
) -> Run:
    """Let a learner learn a stream, and tell how it went.

    It has learned nothing yet, or the tasks that `kept` has results of.
    """
    with _noted() as notes:
        outcome = (
            _together(
                learner,
                stream,
                progress,
                partial(learner.learn_together, checkpoint=kept.checkpoint),
            )
            if isinstance(learner, LearnsTogether)
            else _one_by_one(learner, stream, progress, kept)
        )
    return _run(learner, outcome, stream.names, metadata, stream=stream, notes=notes)


def measure_finetuning(
    learner: Learner[Any],
    stream: Stream,
    metadata: RunMetadata,
    *,
    progress: ProgressCallback = no_progress,
    checkpoint: Path | None = None,
) -> Run:
    """Let a learner that knows the tasks of a stream train them all together, and tell how it went.

    Seconds are those of the tasks one by one and of the end together.
    """
    if not isinstance(learner, Finetunes):
        raise TaskError(f"{learner.method} cannot train all tasks together at the end; DEN can")
    before = sum(record.seconds for record in learner.records)
    finetune = partial(learner.finetune, checkpoint=checkpoint)
    with _noted() as notes:
        outcome = _together(learner, stream, progress, finetune)
    outcome = replace(outcome, seconds=before + outcome.seconds)
    return _run(learner, outcome, stream.names, metadata, stream=stream, notes=notes)


def model_run(path: Path) -> Run:
    """What a saved model alone can tell: all but scores and where its data came from."""
    learner = load_model(path)
    if not learner.tasks:
        raise TaskError(f"{path}: this model has learned no task yet, so there is nothing to show")
    seconds = sum(record.seconds for record in learner.records)
    return _run(
        learner, _Outcome({}, None, seconds), learner.tasks, RunMetadata(about="a saved model")
    )


def is_model(path: Path) -> bool:
    """Whether a saved model is there, as far as one can tell without reading it."""
    return (path / MANIFEST).is_file()


def load_model(path: Path) -> Learner[Any]:
    """A saved model, whatever method it is of."""
    try:
        method = msgspec.json.decode(read_file(path / MANIFEST, most=MOST), type=_Named).method
    except (OSError, *NOT_DECODED):
        method = DEN.method  # which knows best how to say what is wrong
    known = {row.learner.method: row.learner for row in METHODS.values()}
    if method not in known:
        raise ModelFileError(
            f"{path}: holds a {method}, which this release does not know; it knows "
            + ", ".join(known)
        )
    return known[method].load(path)


def versions() -> dict[str, str]:
    """Of what a result may depend on."""
    packages = ("lifelong", "torch", "numpy", "scikit-learn")
    return {"python": platform.python_version(), **{name: version(name) for name in packages}}


@final
@dataclass(frozen=True)
class _Outcome:
    """Scores of each task at the end, the whole matrix if there is one, seconds of learning."""

    scores: dict[str, tuple[float, ...]]
    results: ResultMatrix | None
    seconds: float


@final
class _Named(msgspec.Struct):
    """As much of a manifest as says whose it is."""

    method: str


def _run(
    learner: Learner[Any],
    outcome: _Outcome,
    tasks: tuple[str, ...],
    metadata: RunMetadata,
    *,
    stream: Stream | None = None,
    notes: Sequence[str] = (),
) -> Run:
    layout = learner.network.architecture.layout
    return Run(
        method=metadata.method or learner.method,
        about=metadata.about,
        command=metadata.command,
        data=metadata.data,
        source="" if stream is None else stream.source,
        look_alike=stream is not None and stream.look_alike,
        tasks=tasks,
        inputs=layout.inputs,
        widths=layout.groups,
        seed=learner.seed,
        settings=msgspec.to_builtins(learner.settings),
        versions=versions(),
        warnings=tuple(dict.fromkeys(notes)),
        summary=_summary(learner, outcome, metadata.base or learner.network.architecture),
        scores=outcome.scores,
        records=learner.records,
        born=_born(learner.network),
        used=_used(learner),
        matrix=msgspec.Raw("null" if outcome.results is None else outcome.results.to_json()),
    )


def _one_by_one(
    learner: Learner[Any], stream: Stream, progress: ProgressCallback, kept: ResumePoint
) -> _Outcome:
    results = kept.results
    known = 0 if results is None else len(results.tasks)
    doing = [*stream.names, "done"]
    progress(learner.method, doing[known], known)
    learn = partial(learner.learn, checkpoint=kept.checkpoint)
    for done, step in enumerate(steps(learner, stream, learn, results), start=known + 1):
        results = step.results
        kept.after(results)
        progress(learner.method, doing[done], done)
    assert results is not None  # a stream has a task
    scores = {name: tuple(matrix[-1].tolist()) for name, matrix in results.scores.items()}
    return _Outcome(scores, results, float(results.seconds.sum()))


def _together(
    learner: Learner[Any],
    stream: Stream,
    progress: ProgressCallback,
    learn: Callable[[Sequence[Task]], TaskRecord | StageRecord],
) -> _Outcome:
    progress(learner.method, "all tasks", 0)
    tasks = list(stream)
    for task in tasks:
        if task.test is None:
            raise TaskError(f"task {task.name!r} has no test rows; make it with test=(x, y)")
    _, seconds = timed(partial(learn, tasks))
    by_task = [
        score(learner, task.name, task.test, kind=task.kind, outputs=task.outputs)
        for task in tasks
        if task.test is not None
    ]
    progress(learner.method, "done", len(tasks))
    scores = {name: tuple(each[name] for each in by_task) for name in METRICS}
    return _Outcome(scores, None, seconds)


def _summary(learner: Learner[Any], outcome: _Outcome, base: Architecture) -> Summary:
    size, results = learner.capacity(), outcome.results
    outputs = [known.outputs for known in learner.network.tasks]
    several = results if results is not None and len(results.tasks) > 1 else None
    return Summary(
        auroc=_mean(outcome.scores, "auroc"),
        accuracy=_mean(outcome.scores, "accuracy"),
        forgetting=several.forgetting() if several is not None else None,
        capacity=size.parameters / base.layout.parameters(outputs),
        parameters=size.parameters,
        nonzero=size.nonzero,
        seconds=outcome.seconds,
    )


def _mean(scores: Mapping[str, Sequence[float]], name: str) -> float | None:
    return float(np.mean(scores[name])) if name in scores else None


def _born(network: GrowingNetwork) -> dict[str, tuple[int, ...]]:
    """Of units that tasks share; where each task has a network of its own there are none."""
    if not network.shared:
        return {}
    return {group: tuple(stamps.tolist()) for group, stamps in network.born.items()}


def _used(learner: Learner[Any]) -> dict[str, tuple[tuple[int, ...], ...]]:
    if not isinstance(learner, Shares):
        return {}
    return {
        group: tuple(tuple(row.nonzero().flatten().tolist()) for row in used)
        for group, used in learner.sharing().used.items()
    }


@contextmanager
def _noted() -> Iterator[list[str]]:
    """Warnings that are given meanwhile, as words; they are given once more at the end."""
    notes: list[str] = []
    with warnings.catch_warnings(record=True) as caught:
        yield notes
    notes += [str(warning.message) for warning in caught]
    for warning in caught:
        warnings.warn_explicit(warning.message, warning.category, warning.filename, warning.lineno)
