"""Runs in processes of this machine, one thread each, by loky.

Each process has an executor of its own: loky ends all processes of an executor when one is killed,
and a killed process is to cost its own run only.
"""

import os
import re
import signal
import threading
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import Future
from contextlib import contextmanager
from queue import SimpleQueue
from typing import Any, TypeAlias, final

from lifelong.experiments.engines.engine import (
    Engine,
    Outcome,
    Pool,
    Resources,
    outcome,
    why_lost,
)
from lifelong.experiments.perform import Job, one_thread
from lifelong.extras import require_extra

_PARENT = 0.5  # seconds between two looks whether the parent is still there
_SIGNAL = re.compile(r"(SIG[A-Z]+)\(-\d+\)")
_Executor: TypeAlias = Any  # loky has no types


@contextmanager
def _start(resources: Resources) -> Iterator[Pool]:
    require_extra("loky", extra="experiments")
    crew = _Crew(resources.at_once)
    try:
        yield Pool(crew.submit, resources.at_once, _why)
    finally:
        crew.end()


LOCAL = Engine("local", "processes on this machine, one thread each", _start)


@final
class _Crew:
    """Executors of one process each; as many as run at once."""

    def __init__(self, count: int) -> None:
        self._idle: SimpleQueue[_Executor | None] = SimpleQueue()
        self._all: list[_Executor] = []
        for _ in range(count):
            self._idle.put(None)  # None is one that is yet to be started

    def submit(self, jobs: Sequence[Job]) -> list["Future[Outcome]"]:
        return [self._submit(job) for job in jobs]

    def _submit(self, job: Job) -> "Future[Outcome]":
        executor = self._idle.get() or self._new()
        future: Future[Outcome] = executor.submit(outcome, job)
        future.add_done_callback(lambda ended: self._ended(executor, ended))
        return future

    def _new(self) -> _Executor:
        from loky import ProcessPoolExecutor
        from loky.backend import get_context

        executor = ProcessPoolExecutor(
            max_workers=1,
            context=get_context(
                "loky_init_main"
            ),  # what a script registers is registered in its processes
            initializer=_begin,
            initargs=(os.getpid(),),
            env={"OMP_NUM_THREADS": "1"},
        )
        self._all.append(executor)
        return executor

    def _ended(self, executor: _Executor, future: "Future[Outcome]") -> None:
        """Use the process again, or start another one in place of one that is gone."""
        gone = future.cancelled() or future.exception() is not None
        self._idle.put(None if gone else executor)

    def end(self) -> None:
        """End all processes; nothing is lost, since a run is stored completely or not at all."""
        for executor in self._all:
            executor.shutdown(wait=False, kill_workers=True)
        for executor in self._all:
            executor.shutdown(wait=True, kill_workers=True)


def _begin(parent: int) -> None:
    """Ctrl-C reaches every process, and the parent handles it; without a parent, end."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    threading.Thread(target=_end_with, args=(parent,), daemon=True).start()
    one_thread()


def _end_with(parent: int) -> None:
    while os.getppid() == parent:
        time.sleep(_PARENT)
    os._exit(1)


def _why(error: BaseException) -> str:
    found = _SIGNAL.search(str(error))
    if found is None:
        return why_lost(error)
    hint = "; the system may have been out of memory: try fewer --jobs"
    return f"its process ended by {found[1]}{hint if found[1] == 'SIGKILL' else ''}"
