"""Engines: where runs are made. An engine takes jobs and yields events as they happen.

`register_engine` and entry points of the group `lifelong.engines` add engines. The built-in one,
`local`, uses processes with one thread each; if one fails, the others continue.

A worker receives one job at a time over a pipe and reports its progress. To stop it, the parent
terminates it; nothing is lost, since a run is stored completely or not at all. A worker whose
parent is gone exits by itself.
"""

import multiprocessing
import os
import signal
import threading
import traceback
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from multiprocessing.connection import Connection, wait
from typing import Any, TypeAlias, final

from lifelong.evaluation.measure import ProgressCallback, no_progress
from lifelong.evaluation.runs import Summary
from lifelong.experiments.perform import Job, RunLocked, one_thread, perform
from lifelong.plugins import Registry

PATIENCE = 2.0  # seconds between terminating a worker and killing it


@final
@dataclass(frozen=True)
class Doing:
    """Progress of a run: its activity, and how many tasks are done."""

    job: Job
    what: str
    done: int


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


WorkerEvent: TypeAlias = Doing | Done | Failed | Skipped


class EngineError(ValueError):
    """An unknown engine; the message suggests the nearest name."""


@final
@dataclass(frozen=True)
class Engine:
    """Where runs are made.

    Attributes:
        name: on the command line.
        about: a short description.
        submit: makes the runs of these jobs, at most so many at once, and yields events. A job
            with `needs` starts after the job that makes what it needs, if that is among them.
    """

    name: str
    about: str
    submit: Callable[[Sequence[Job], int], Iterator[WorkerEvent]]


def run_jobs(jobs: Sequence[Job], workers: int) -> Iterator[WorkerEvent]:
    """Make all runs, at most so many at once, and yield events as they happen."""
    waiting = list(jobs)
    with _crew(min(workers, len(jobs))) as crew:
        while waiting or any(worker.job for worker in crew):
            for worker in crew:
                if worker.job is None:
                    job = _next(waiting, [other.job for other in crew if other.job])
                    if job is not None:
                        worker.give(job)
            busy = [worker for worker in crew if worker.job]
            ready = wait([worker.pipe for worker in busy])
            for worker in busy:
                if worker.pipe in ready:
                    yield worker.event()


LOCAL = Engine("local", "processes on this machine, one thread each", run_jobs)
ENGINES = Registry("engine", Engine, EngineError, (LOCAL,))
register_engine = ENGINES.add


def _next(waiting: list[Job], running: list[Job]) -> Job | None:
    """The first job that does not need a model that another of the jobs is still to make."""
    unfinished = {job.configuration.key for job in (*waiting, *running)}
    for job in waiting:
        if job.needs is None or job.needs.key not in unfinished:
            waiting.remove(job)
            return job
    return None


@final
class _Worker:
    """The parent's end of one process."""

    def __init__(self) -> None:
        self.job: Job | None = None
        self._start()

    def give(self, job: Job) -> None:
        self.job = job
        self.pipe.send(job)

    def event(self) -> WorkerEvent:
        """The next event of the process; if the process has died, a failure, and it is replaced."""
        assert self.job is not None
        try:
            event: WorkerEvent = self.pipe.recv()
        except (EOFError, OSError):
            event = self._gone(self.job)
        if not isinstance(event, Doing):
            self.job = None
        return event

    def end(self) -> None:
        self.process.terminate()
        self.process.join(PATIENCE)
        self.process.kill()
        self.process.join()
        self.pipe.close()

    def _start(self) -> None:
        spawn = multiprocessing.get_context("spawn")  # torch does not survive a fork
        self.pipe, theirs = spawn.Pipe()
        self.process = spawn.Process(target=_work, args=(theirs,), daemon=True)
        self.process.start()
        theirs.close()

    def _gone(self, job: Job) -> Failed:
        self.process.join()
        code = self.process.exitcode or 0
        how = f"by {signal.Signals(-code).name}" if code < 0 else f"with exit code {code}"
        self.pipe.close()
        self._start()
        hint = "; the system may have been out of memory: try fewer --jobs" if code == -9 else ""
        return Failed(job, f"its process ended {how}{hint}", "")


@contextmanager
def _crew(size: int) -> Iterator[list[_Worker]]:
    crew: list[_Worker] = []
    try:
        crew += [_Worker() for _ in range(size)]
        yield crew
    finally:
        for worker in crew:
            worker.process.terminate()  # all at once, then wait for each
        for worker in crew:
            worker.end()


def _work(pipe: "Connection[Any, Any]") -> None:
    """The main loop of a worker process."""
    signal.signal(
        signal.SIGINT, signal.SIG_IGN
    )  # Ctrl-C reaches every process; the parent handles it
    threading.Thread(target=_end_with_parent, daemon=True).start()
    one_thread()
    while True:
        try:
            job = pipe.recv()
        except EOFError:
            return
        pipe.send(_outcome(job, pipe))


def _outcome(job: Job, pipe: "Connection[Any, Any]") -> WorkerEvent:
    def progress(_method: str, what: str, done: int) -> None:
        pipe.send(Doing(job, what, done))

    return outcome(job, progress)


def outcome(job: Job, progress: ProgressCallback = no_progress) -> WorkerEvent:
    """Make a run in this process; what it raises is an outcome as well."""
    try:
        return Done(job, perform(job, progress).run.summary)
    except RunLocked as error:
        return Skipped(job, str(error))
    except Exception as error:  # any error is recorded, and the other runs continue
        said = str(error) or type(error).__name__
        return Failed(job, f"{type(error).__name__}: {said}", traceback.format_exc())


def _end_with_parent() -> None:
    parent = multiprocessing.parent_process()
    if parent is not None:
        parent.join()
        os._exit(1)
