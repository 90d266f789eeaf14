"""Make a `Run` from a learner and a stream, or from a saved model."""

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
import torch

from lifelong.evaluation.evaluate import scored, steps, timed
from lifelong.evaluation.metrics import METRICS
from lifelong.evaluation.results import ResultMatrix
from lifelong.evaluation.runs import Run, Summary
from lifelong.learners.base import Learner
from lifelong.learners.registry import load_model
from lifelong.networks.adapted import AdaptedData
from lifelong.networks.growing import GrowingNetwork
from lifelong.networks.layout import Architecture
from lifelong.networks.sharing import Sharing
from lifelong.networks.traced.data import TracedData
from lifelong.persistence.manifest import MANIFEST, ModelFileError, read_manifest
from lifelong.records import BYTES, Answers, StageRecord, TaskRecord
from lifelong.tasks.kinds import TaskError
from lifelong.tasks.streams import Stream
from lifelong.tasks.task import Task

ProgressCallback: TypeAlias = Callable[[str, str, int], None]  # method, activity, tasks done


@runtime_checkable
class LearnsTogether(Protocol):
    """A learner that trains on the data of all tasks at once."""

    def learn_together(
        self, tasks: Sequence[Task], *, checkpoint: str | Path | None = None
    ) -> TaskRecord: ...


@runtime_checkable
class Shares(Protocol):
    """A learner that knows which units each task uses."""

    def sharing(self) -> Sharing: ...


@runtime_checkable
class Finetunes(Protocol):
    """A learner that can train all tasks together after it has learned each."""

    def finetune(
        self, tasks: Sequence[Task], *, checkpoint: str | Path | None = None
    ) -> StageRecord: ...


@final
@dataclass(frozen=True, eq=False)
class ResumePoint:
    """Where a killed run resumes, and how this one saves its progress.

    Attributes:
        results: of the tasks that the learner has learned already.
        checkpoint: directory for the checkpoint of the task being learned.
        after: called after each task with the results so far.
    """

    results: ResultMatrix | None = None
    checkpoint: Path | None = None
    after: Callable[[ResultMatrix], None] = lambda _results: None


FROM_THE_START = ResumePoint()


@final
@dataclass(frozen=True)
class RunMetadata:
    """What a run records beside its measurements.

    Attributes:
        data: name of the data set.
        about: description of the method.
        command: the command that makes the run.
        method: name of the method; the learner's own by default.
        base: the network that capacity is relative to; the learner's own by default.
    """

    data: str = ""
    about: str = ""
    command: str = ""
    method: str = ""
    base: Architecture | None = None


def no_progress(_method: str, _doing: str, _done: int) -> None:
    """Report nothing."""


def measure(
    learner: Learner[Any],
    stream: Stream,
    metadata: RunMetadata,
    *,
    progress: ProgressCallback = no_progress,
    kept: ResumePoint = FROM_THE_START,
) -> Run:
    """Let a learner learn a stream, and return the run.

    The learner must have learned exactly the tasks that `kept` has results of: by default none.
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
    """Let a learner that has learned a stream train all its tasks together, and return the run.

    Seconds are those of learning the tasks one by one plus those of the joint training.
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
    """A saved model as a run without scores and data source."""
    learner = load_model(path)
    if not learner.tasks:
        raise TaskError(f"{path}: this model has learned no task yet, so there is nothing to show")
    seconds = sum(record.seconds for record in learner.records)
    return _run(
        learner, _Outcome({}, None, seconds), learner.tasks, RunMetadata(about="a saved model")
    )


def module_report(path: Path) -> str:
    """What grows in the module of a saved model, and what does not; empty for an mlp or convnet.

    A module that was not traced cannot be loaded without its code: then this is all that is told.
    """
    manifest = read_manifest(path)
    if manifest.module is None:
        return ""
    try:
        report = manifest.module.report()
    except (KeyError, ValueError, OverflowError) as error:
        raise ModelFileError(f"{path}: its module is damaged: {error!r}") from error
    if isinstance(manifest.module, TracedData):
        return report
    learned = manifest.count or len(manifest.tasks)
    needed = f"load(..., module={manifest.module.module}(...)) tells more, with its code"
    return f"{report}\ntasks learned: {learned}; {needed}"


def is_adapted(path: Path) -> bool:
    """Whether a saved model needs the code of its module."""
    try:
        return isinstance(read_manifest(path).module, AdaptedData)
    except ModelFileError:
        return False


def is_model(path: Path) -> bool:
    """Whether the directory looks like a saved model; nothing is read."""
    return (path / MANIFEST).is_file()


def versions() -> dict[str, str]:
    """Versions of the packages that results may depend on."""
    packages = ("lifelong", "torch", "numpy", "scikit-learn")
    return {"python": platform.python_version(), **{name: version(name) for name in packages}}


@final
@dataclass(frozen=True)
class _Outcome:
    """Final score of each task, the result matrix if any, seconds of learning, final answers."""

    scores: dict[str, tuple[float, ...]]
    results: ResultMatrix | None
    seconds: float
    answers: tuple[Answers, ...] = ()


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
        scenario="" if stream is None else stream.scenario,
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
        entries=_entries(learner.network),
        answers=outcome.answers,
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
    answers: tuple[Answers, ...] = ()
    for done, step in enumerate(steps(learner, stream, learn, results), start=known + 1):
        results, answers = step.results, step.answers
        kept.after(results)
        progress(learner.method, doing[done], done)
    assert results is not None  # a stream is never empty
    scores = {name: tuple(matrix[-1].tolist()) for name, matrix in results.scores.items()}
    return _Outcome(scores, results, float(results.seconds.sum()), answers)


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
    each = [
        scored(learner, task.name, task.test, kind=task.kind, outputs=task.outputs)
        for task in tasks
        if task.test is not None
    ]
    by_task = [scores for scores, _ in each]
    answers = tuple(found for _, found in each if found is not None)
    progress(learner.method, "done", len(tasks))
    names = [name for name in METRICS if all(name in each for each in by_task)]
    scores = {name: tuple(each[name] for each in by_task) for name in names}
    return _Outcome(scores, None, seconds, answers if len(answers) == len(tasks) else ())


def _summary(learner: Learner[Any], outcome: _Outcome, base: Architecture) -> Summary:
    size, results = learner.capacity(), outcome.results
    outputs = [known.outputs for known in learner.network.tasks]
    several = results if results is not None and len(results.tasks) > 1 else None
    return Summary(
        auroc=_mean(outcome.scores, "auroc"),
        accuracy=_mean(outcome.scores, "accuracy"),
        forgetting=several.forgetting() if several is not None else None,
        capacity=size.bytes / (BYTES * base.layout.parameters(outputs)),
        parameters=size.parameters,
        nonzero=size.nonzero,
        seconds=outcome.seconds,
        bytes=size.bytes,
        learning_bytes=learner.learning_bytes(),
        prediction_seconds=_prediction_seconds(learner) if outcome.scores else None,
    )


def _prediction_seconds(learner: Learner[Any]) -> float:
    """Of 1,000 rows, the best of three: for how long does not depend on what is in them."""
    rows = torch.zeros(1000, *learner.network.architecture.layout.inputs)
    predict = partial(learner.predict, rows, task=learner.tasks[-1])
    return min(timed(predict)[1] for _ in range(3))


def _mean(scores: Mapping[str, Sequence[float]], name: str) -> float | None:
    return float(np.mean(scores[name])) if name in scores else None


def _born(network: GrowingNetwork) -> dict[str, tuple[int, ...]]:
    """Birth of each shared unit; empty if each task has its own network."""
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


def _entries(network: GrowingNetwork) -> dict[str, tuple[int, ...]]:
    """Sizes of the shared tensors as each task found them; empty if no task overwrites any."""
    if not any(known.patches for known in network.tasks):
        return {}
    return {
        name: tuple(network.entries(name, max(1, before)) for before in range(len(network.tasks)))
        for name in network.shared
    }


@contextmanager
def _noted() -> Iterator[list[str]]:
    """Collect the messages of warnings, and issue the warnings again at the end."""
    notes: list[str] = []
    with warnings.catch_warnings(record=True) as caught:
        yield notes
    notes += [str(warning.message) for warning in caught]
    for warning in caught:
        warnings.warn_explicit(warning.message, warning.category, warning.filename, warning.lineno)
