"""An engine makes runs somewhere: it takes jobs and gives futures of their outcomes.

`run_jobs` is the same for all engines: it keeps jobs waiting that need another's model, looks for
signs of life of those that run, and yields events as they happen. Signs come through the store,
which every engine has, so that an engine needs no channel of its own.
"""

import os
import time
import traceback
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, CancelledError, Future, wait
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace
from typing import TypeAlias, final

from lifelong.evaluation.runs import Summary
from lifelong.experiments.claims import RunLocked
from lifelong.experiments.perform import Job, one_thread, perform, sign_of

LOOK = 0.1  # seconds between two looks for signs of life
SHARE = 20  # one part in so many of the time may go into looking
RETRY_PATIENCE = 150.0  # seconds until a lost node's claims and locks are free at the latest


@final
@dataclass(frozen=True)
class Doing:
    """Progress of a run: its activity, how many tasks are done, and on which node and process."""

    job: Job
    what: str
    done: int
    where: str = ""


@final
@dataclass(frozen=True)
class Done:
    """A run has finished; all of it is stored where the job says."""

    job: Job
    summary: Summary


@final
@dataclass(frozen=True)
class Failed:
    """A run has failed."""

    job: Job
    error: str
    traceback: str


@final
@dataclass(frozen=True)
class Skipped:
    """A run was skipped, since another process is making it."""

    job: Job
    why: str


Outcome: TypeAlias = Done | Failed | Skipped
WorkerEvent: TypeAlias = Doing | Outcome


class EngineError(ValueError):
    """An engine that is unknown or cannot be used; the message says what to do."""


@final
@dataclass(frozen=True)
class Resources:
    """What an engine may use.

    Attributes:
        jobs: runs at once; None for as many as there is room for.
        address: of the cluster, as the engine understands it.
        cpus: cores per run; a run has one thread.
        gpus: per run.
        memory: bytes per run; None for no limit.
        minutes: that a run may take before it is stopped and queued again, where there is a queue.
        partition: of the queue.
        retries: how often a run is started again after its node or process was lost.
    """

    jobs: int | None = None
    address: str | None = None
    cpus: int = 1
    gpus: int = 0
    memory: int | None = None
    minutes: int = 240
    partition: str | None = None
    retries: int = 3

    @property
    def at_once(self) -> int:
        """Runs at once on this machine."""
        return self.jobs or os.cpu_count() or 1


DEFAULT = Resources()


def why_lost(error: BaseException) -> str:
    """What is said of a run whose process was lost."""
    lines = str(error).strip().splitlines()
    return f"its process was lost: {lines[0] if lines else type(error).__name__}"


@final
@dataclass(frozen=True)
class Pool:
    """An engine at work.

    Attributes:
        submit: takes jobs and gives as many futures of outcomes.
        room: jobs that it takes at once.
        why: says why a future has no outcome.
    """

    submit: Callable[[Sequence[Job]], Sequence["Future[Outcome]"]]
    room: int
    why: Callable[[BaseException], str] = why_lost


@final
@dataclass(frozen=True)
class Engine:
    """Where runs are made.

    Attributes:
        name: on the command line.
        about: a short description.
        start: a context with these resources; when it is left, nothing runs any more.
    """

    name: str
    about: str
    start: Callable[[Resources], AbstractContextManager[Pool]]


def outcome(job: Job, patience: float = 0.0) -> Outcome:
    """Make a run in this process; what it raises is an outcome as well."""
    one_thread()
    try:
        return Done(job, perform(job, patience=patience).run.summary)
    except RunLocked as error:
        return Skipped(job, str(error))
    except Exception as error:  # any error is recorded, and the other runs continue
        said = str(error) or type(error).__name__
        return Failed(job, f"{type(error).__name__}: {said}", traceback.format_exc())


def run_jobs(
    jobs: Sequence[Job], engine: Engine, resources: Resources = DEFAULT
) -> Iterator[WorkerEvent]:
    """Make all runs and yield events as they happen."""
    line, signs = Line(jobs), _Signs()
    running: dict[Future[Outcome], Job] = {}
    with engine.start(resources) as pool:
        while line.waiting or running:
            ready = line.next(pool.room - len(running))
            if ready:
                absolute = [replace(job, out=job.out.resolve()) for job in ready]
                running.update(zip(pool.submit(absolute), ready, strict=True))
            ended, _ = wait(running, LOOK, FIRST_COMPLETED)
            yield from signs.new([job for future, job in running.items() if future not in ended])
            for future in ended:
                job = running.pop(future)
                line.ended(job)
                yield _event(job, future, pool)


@final
class Line:
    """The jobs that wait for room, or for a model that another of the jobs is still to make."""

    def __init__(self, jobs: Sequence[Job]) -> None:
        self.waiting = [(job, None if job.needs is None else job.needs.key) for job in jobs]
        self._unfinished = {job.configuration.key for job in jobs}

    def next(self, room: int) -> list[Job]:
        """The first jobs for which there is room and that need nothing unfinished."""
        ready: list[Job] = []
        later: list[tuple[Job, str | None]] = []
        for number, (job, needs) in enumerate(self.waiting):
            if len(ready) >= room:
                later += self.waiting[number:]
                break
            if needs in self._unfinished:
                later.append((job, needs))
            else:
                ready.append(job)
        self.waiting = later
        return ready

    def ended(self, job: Job) -> None:
        """However it has ended, what needs its model may start."""
        self._unfinished.discard(job.configuration.key)


def _event(job: Job, future: "Future[Outcome]", pool: Pool) -> Outcome:
    try:
        return replace(future.result(), job=job)
    except (Exception, CancelledError) as error:
        return Failed(job, pool.why(error), "")


@final
class _Signs:
    """Looks for signs of life, less often where it takes long."""

    def __init__(self) -> None:
        self._next = 0.0
        self._seen: dict[str, Doing] = {}

    def new(self, jobs: Sequence[Job]) -> Iterator[Doing]:
        began = time.monotonic()
        if began < self._next:
            return
        found = [doing for job in jobs if (doing := _doing(job)) is not None]
        took = time.monotonic() - began
        self._next = began + max(LOOK, SHARE * took)
        for doing in found:
            key = doing.job.configuration.key
            if self._seen.get(key) != doing:
                self._seen[key] = doing
                yield doing


def _doing(job: Job) -> Doing | None:
    sign = sign_of(job)
    if sign is None or not sign.what:
        return None
    return Doing(job, sign.what, sign.done, sign.where)
