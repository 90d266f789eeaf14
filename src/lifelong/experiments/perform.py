"""Make and store one run from its configuration; resume where an earlier attempt was killed."""

import errno
import math
import shutil
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, replace
from functools import lru_cache, partial
from pathlib import Path
from typing import Any, final

import msgspec
import torch

from lifelong.evaluation.measure import (
    ProgressCallback,
    ResumePoint,
    RunMetadata,
    measure,
    measure_finetuning,
    no_progress,
)
from lifelong.evaluation.results import ResultError, ResultMatrix
from lifelong.evaluation.runs import Run
from lifelong.experiments.claims import RunLocked, Sign
from lifelong.experiments.configuration import Configuration, NetworkPlan
from lifelong.experiments.modules import MODULES
from lifelong.experiments.shared import SharedStore
from lifelong.experiments.stored import Experiment, RunPaths, StoredRun, find, from_json, to_json
from lifelong.learners.base import Learner
from lifelong.learners.den import DEN
from lifelong.learners.registry import Method
from lifelong.learners.registry import method as method_named
from lifelong.networks.layout import Architecture, NetworkError
from lifelong.networks.sequential import convnet, mlp
from lifelong.persistence.checkpoint import CheckpointError
from lifelong.persistence.files import directory_lock, make_directory, replace_file
from lifelong.persistence.manifest import ModelFileError
from lifelong.tables import dataset as _own_tables  # noqa: F401 (registers the data set "table")
from lifelong.tasks.datasets import load
from lifelong.tasks.kinds import TaskError
from lifelong.tasks.streams import Stream
from lifelong.training.budget import SettingError
from lifelong.training.loop import TrainingError
from lifelong.training.ranks import Parallel, ranks_for

PROGRESS, TRAININGS = "progress.json", "trainings"
SIGN = "sign.json"
_TRIES = 20  # to lock a directory that others remove
_AFTERWARDS = ("shrink", "perturb")  # settings of finetuning only: not part of DEN's run


class Outgrown(ValueError):
    """The network takes more bytes than its run may; the message says how many."""


@final
@dataclass(frozen=True)
class Job:
    """A configuration to run, its directory, device, label and command.

    With a `store`, the address that machines share, `out` is this machine's copy of its runs. With
    `parallel`, the processes that torchrun started make it together. A run whose network has a
    capacity above `most` is given up.
    """

    configuration: Configuration
    out: Path
    device: str = "cpu"
    label: str = ""
    command: str = ""
    store: str = ""
    parallel: Parallel | None = None
    most: float = math.inf

    def __str__(self) -> str:
        return self.label or str(self.configuration)

    @property
    def places(self) -> RunPaths:
        return RunPaths(self.out)

    @property
    def needs(self) -> Configuration | None:
        """The run whose model this one starts from."""
        row = method_named(self.configuration.method)
        return before_finetuning(self.configuration) if row.finetunes else None


def perform(job: Job, progress: ProgressCallback = no_progress, patience: float = 0.0) -> StoredRun:
    """Make and store the run unless it is stored already, and remove its working files.

    Raises `RunLocked` if another process is making the same run, and still is after `patience`
    seconds.
    """
    make = _in_directory if not job.store else _at_address
    return make(job, progress, patience)


def _in_directory(job: Job, progress: ProgressCallback, patience: float) -> StoredRun:
    places, configuration = job.places, job.configuration
    working = places.working(configuration)

    def told(method: str, what: str, done: int) -> None:
        _give_sign(working, what, done)
        progress(method, what, done)

    with _alone(working, patience):
        found = find(places, configuration)
        if found is None:
            if job.parallel:  # `follow` has the others make it too
                ranks_for(job.parallel, torch.device(job.device)).told(configuration.key.encode())
            content = to_json(_make(job, working, told))
            keep(places.run(configuration), content)
            found = from_json(content)  # the rounded numbers, whether the run is new or was stored
        places.failed(configuration).unlink(missing_ok=True)
        shutil.rmtree(working, ignore_errors=True)
    return found


def follow(jobs: Sequence[Job]) -> None:
    """Take part, as one of the other processes, in each run that the first one makes; it stores
    them. An error that all have in common is the first one's to tell.
    """
    by_key = {job.configuration.key: job for job in jobs}
    ranks = ranks_for(jobs[0].parallel, torch.device(jobs[0].device))
    while key := ranks.told().decode():
        job = by_key[key]
        with suppress(TaskError, SettingError, TrainingError, NetworkError, Outgrown):
            _make(job, job.places.working(job.configuration), no_progress)


def _at_address(job: Job, progress: ProgressCallback, patience: float) -> StoredRun:
    """Make the run in a directory of this machine, and copy to the address what others need."""
    store, configuration = SharedStore(job.store), job.configuration
    with (
        store.claims(configuration).held(patience) as claim,
        tempfile.TemporaryDirectory(prefix="lifelong-") as scratch,
    ):
        here = replace(job, out=Path(scratch), store="")
        found = store.find(configuration, here.out)
        if found is None:
            store.copy_working(configuration, here.out)
            if job.needs is not None:
                store.copy_model(job.needs, here.out)

            put = partial(store.put_working, configuration, here.out, {})

            def told(method: str, what: str, done: int) -> None:
                claim.tell(what, done)
                claim.copy(put)
                progress(method, what, done)

            with claim.copying(put):
                found = _in_directory(here, told, 0.0)
            claim.require()
            store.put_run(configuration, here.out)
        store.clear(configuration)
    return found


def sign_of(job: Job) -> Sign | None:
    """The last sign of life of the process that makes this run."""
    if job.store:
        return SharedStore(job.store).claims(job.configuration).sign()
    try:
        content = (job.places.working(job.configuration) / SIGN).read_bytes()
        return msgspec.json.decode(content, type=Sign)
    except (OSError, msgspec.MsgspecError):
        return None


def _give_sign(working: Path, what: str, done: int) -> None:
    """Not synced to disk: nothing goes on from it."""
    aside = working / f"{SIGN}.incoming"
    aside.write_bytes(msgspec.json.encode(Sign.here(what, done)))
    aside.replace(working / SIGN)


@contextmanager
def _alone(working: Path, patience: float) -> Iterator[None]:
    with ExitStack() as held:
        for tries_left in reversed(range(_TRIES)):
            try:
                make_directory(working)
                held.enter_context(directory_lock(working, patience=patience))
                break
            except FileNotFoundError:  # who made the run has just ended, and removed the directory
                if not tries_left:
                    raise
            except OSError as error:
                if error.errno != errno.EBUSY:
                    raise
                raise RunLocked("another process is making this run") from error
        yield


def keep(file: Path, content: bytes) -> None:
    """Write a file completely or not at all, one writer per directory at a time."""
    make_directory(file.parent)
    with directory_lock(file.parent):
        replace_file(file, content)


def before_finetuning(configuration: Configuration) -> Configuration:
    """DEN's run, whose model DEN-Finetune starts from."""
    defaults = msgspec.to_builtins(DEN.settings_type())
    settings = {**configuration.settings, **{name: defaults[name] for name in _AFTERWARDS}}
    return msgspec.structs.replace(configuration, method=DEN.method, settings=settings)


def architecture(plan: NetworkPlan, inputs: tuple[int, ...], scale: float = 1.0) -> Architecture:
    """The planned network for inputs of this shape, with each layer's width times `scale`."""
    widths, filters = (
        tuple(max(1, math.ceil(units * scale)) for units in each)
        for each in (plan.widths, plan.filters)
    )
    if isinstance(plan.module, str):
        return MODULES.named(plan.module).make(inputs, widths)
    if not filters:
        return mlp(math.prod(inputs), widths, bias=plan.biased)
    channels, height, width = inputs
    return convnet(
        (channels, height, width),
        filters,
        widths,
        kernel=plan.kernel,
        pool=plan.pool or None,
        bias=plan.biased,
    )


def stream_of(configuration: Configuration) -> Stream:
    """The stream of a run; the last one is cached, since runs with one seed follow each other."""
    options = msgspec.json.encode(configuration.options).decode()
    stream = _loaded(configuration.data, configuration.seed, options)
    stream = stream.first(configuration.tasks)
    return stream if configuration.rows == "test" else stream.validated()


@lru_cache(maxsize=1)
def _loaded(data: str, seed: int, options: str) -> Stream:
    given: Mapping[str, Any] = msgspec.json.decode(options)
    plain: dict[str, Any] = {n: tuple(v) if isinstance(v, list) else v for n, v in given.items()}
    return load(data, seed, None, **plain)


def _make(job: Job, working: Path, progress: ProgressCallback) -> StoredRun:
    configuration = job.configuration
    stream, row = stream_of(configuration), method_named(configuration.method)
    learn = _finetuned if row.finetunes else _learned
    try:
        learner, run = learn(job, stream, row, working, progress)
    except CheckpointError:  # from another version of torch, or damaged: ignore it
        shutil.rmtree(working / TRAININGS, ignore_errors=True)
        learner, run = learn(job, stream, row, working, progress)
    learner.save(job.places.model(configuration), overwrite=True)
    return StoredRun(Experiment(configuration.key, configuration, job.device), run)


def _learned(
    job: Job, stream: Stream, row: Method, working: Path, progress: ProgressCallback
) -> tuple[Learner[Any], Run]:
    learner, kept = _where_it_was(job, stream, row, working)
    metadata = _metadata(job, row, learner)
    return learner, measure(learner, stream, metadata, progress=progress, kept=kept)


def _finetuned(
    job: Job, stream: Stream, row: Method, working: Path, progress: ProgressCallback
) -> tuple[Learner[Any], Run]:
    """Start from DEN's stored model if there is one; otherwise learn DEN first."""
    before = before_finetuning(job.configuration)
    learner = _stored_model(job.places.model(before), stream, row, job)
    if learner is None:
        den = method_named(before.method)
        first = replace(job, configuration=before)
        learner, _ = _learned(first, stream, den, working, progress)
    learner = learner.with_settings(_settings(job.configuration, row))
    checkpoint = working / TRAININGS / "together"
    metadata = _metadata(job, row, learner)
    run = measure_finetuning(learner, stream, metadata, progress=progress, checkpoint=checkpoint)
    return learner, run


def _metadata(job: Job, row: Method, learner: Learner[Any]) -> RunMetadata:
    """Capacity is relative to the base network, whatever the scale of this run."""
    configuration = job.configuration
    base = architecture(configuration.network, learner.network.architecture.layout.inputs)
    return RunMetadata(configuration.data, row.about, job.command, row.name, base)


def _stored_model(place: Path, stream: Stream, row: Method, job: Job) -> Learner[Any] | None:
    try:
        learner = row.learner.load(place, device=job.device, parallel=job.parallel)
    except ModelFileError:
        return None
    return learner if learner.tasks == stream.names else None


def _settings(configuration: Configuration, row: Method) -> Any:
    try:
        return msgspec.convert(configuration.settings, row.learner.settings_type)
    except msgspec.ValidationError as error:
        raise SettingError(f"{row.name}: {error}") from error


@final
class _Progress(msgspec.Struct, frozen=True):
    """Progress of a run: the results so far, and the directory of the model they belong to."""

    key: str
    model: str
    results: msgspec.Raw


def _where_it_was(
    job: Job, stream: Stream, row: Method, working: Path
) -> tuple[Learner[Any], ResumePoint]:
    """The learner and its results from when the run was killed; otherwise a new learner."""
    configuration = job.configuration
    checkpoint = working / TRAININGS / "one by one"
    found = _found(job, row, working)
    if found is None:
        inputs = next(iter(stream)).shape
        base = architecture(configuration.network, inputs, configuration.scale)
        settings = _settings(configuration, row)
        learner = row.learner(
            base, settings, seed=configuration.seed, device=job.device, parallel=job.parallel
        )
        results = None
    else:
        learner, results = found
    _require_within(job.most, learner)

    def after(results: ResultMatrix) -> None:
        _write_progress(configuration, learner, results, working)
        _require_within(job.most, learner)

    return learner, ResumePoint(results, checkpoint, after)


def _require_within(most: float, learner: Learner[Any]) -> None:
    capacity = round(learner.relative_capacity(), 3) if learner.tasks else 0.0
    if capacity > most:
        raise Outgrown(
            f"given up: with {len(learner.tasks)} tasks it has a capacity of {capacity:g}, but "
            f"may take {most:g} at the most"
        )


def _found(job: Job, row: Method, working: Path) -> tuple[Learner[Any], ResultMatrix] | None:
    try:
        progress = msgspec.json.decode((working / PROGRESS).read_bytes(), type=_Progress)
        if progress.key != job.configuration.key:
            return None
        results = ResultMatrix.from_json(bytes(progress.results))
        place = working / Path(progress.model).name
        learner = row.learner.load(place, device=job.device, parallel=job.parallel)
    except (FileNotFoundError, msgspec.MsgspecError, ResultError, ModelFileError):
        return None  # nothing to resume from, or nothing that can be trusted: start again
    return (learner, results) if learner.tasks == results.tasks else None


def tasks_done(job: Job) -> int:
    """How many tasks an earlier attempt at this run has learned, which this one goes on from."""
    file = job.places.working(job.configuration) / PROGRESS
    try:
        progress = msgspec.json.decode(file.read_bytes(), type=_Progress)
        if progress.key != job.configuration.key:
            return 0
        return len(ResultMatrix.from_json(bytes(progress.results)).tasks)
    except (FileNotFoundError, msgspec.MsgspecError, ResultError):
        return 0


def _write_progress(
    configuration: Configuration, learner: Learner[Any], results: ResultMatrix, working: Path
) -> None:
    """Write the model first, then the file that names it, so that the two always match."""
    if not learner.ranks.first:
        return
    model = f"model-{len(results.tasks)}"
    learner.save(working / model, overwrite=True)
    raw = msgspec.Raw(results.to_json().encode())
    progress = _Progress(configuration.key, model, raw)
    replace_file(working / PROGRESS, msgspec.json.encode(progress))
    for old in working.glob("model-*"):
        if old.name != model:
            shutil.rmtree(old, ignore_errors=True)


def one_thread() -> None:
    """Two processes with one thread each are faster than two with two each, and repeat exactly."""
    torch.set_num_threads(1)
