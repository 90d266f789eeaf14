"""Runs as an array of Slurm jobs, by submitit; a job that is preempted is queued again.

Slurm sends a signal before it takes a node away or the time is up. A run writes its checkpoint all
along, so that it has only to end; submitit then queues it again, and it goes on from there.

submitit keeps jobs, outcomes and logs in a directory that all nodes share: OUT/slurm. They are
pickled by it, so that nobody else should be able to write there.
"""

import threading
from collections.abc import Iterator, Sequence
from concurrent.futures import Future
from contextlib import contextmanager
from typing import Any, TypeAlias, final

from lifelong.experiments.engines.engine import (
    RETRY_PATIENCE,
    Engine,
    EngineError,
    Outcome,
    Pool,
    Resources,
    outcome,
)
from lifelong.experiments.perform import Job
from lifelong.extras import require_extra

FOLDER = "slurm"
CLUSTERS = ("slurm", "local", "debug")
MOST = 1000  # jobs of one array, which Slurm's own default allows
ASK = 0.5  # seconds between two questions whether jobs have ended; submitit asks Slurm less often
_SubmititJob: TypeAlias = Any


@contextmanager
def _start(resources: Resources) -> Iterator[Pool]:
    require_extra("submitit", extra="slurm")
    queue = _Queue(resources)
    try:
        yield Pool(queue.submit, queue.room)
    finally:
        queue.end()


SLURM = Engine(
    "slurm", "an array of Slurm jobs, requeued when preempted; --address local tries it", _start
)


@final
class _Queue:
    """Jobs in the queue, and a thread that asks for their outcomes."""

    def __init__(self, resources: Resources) -> None:
        self._resources = resources
        self._cluster = resources.address or "slurm"
        if self._cluster not in CLUSTERS:
            raise EngineError(
                f"the engine slurm takes --address {', '.join(CLUSTERS)}, not {self._cluster!r}"
            )
        limited = self._cluster != "slurm" and resources.jobs
        self.room = limited or MOST
        self._open: dict[Future[Outcome], _SubmititJob] = {}
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._watch, daemon=True)
        self._thread.start()

    def submit(self, jobs: Sequence[Job]) -> list["Future[Outcome]"]:
        executor = self._executor(jobs[0])
        with executor.batch():
            queued = [executor.submit(_Run(job)) for job in jobs]
        futures: list[Future[Outcome]] = [Future() for _ in queued]
        self._open.update(zip(futures, queued, strict=True))
        return futures

    def end(self) -> None:
        self._over.set()
        self._thread.join()
        for job in self._open.values():
            job.cancel()

    def _executor(self, job: Job) -> Any:
        import submitit

        wanted, folder = self._resources, (job.out / FOLDER).resolve()
        executor = submitit.AutoExecutor(
            folder,
            self._cluster,
            slurm_max_num_timeout=wanted.retries,
            local_max_num_timeout=wanted.retries,
        )
        optional = {
            "mem_gb": None if wanted.memory is None else wanted.memory / 2**30,
            "slurm_partition": wanted.partition,
        }
        executor.update_parameters(
            name="lifelong",
            timeout_min=wanted.minutes,
            cpus_per_task=wanted.cpus,
            gpus_per_node=wanted.gpus,
            slurm_array_parallelism=wanted.jobs or MOST,
            **{name: value for name, value in optional.items() if value is not None},
        )
        return executor

    def _watch(self) -> None:
        while not self._over.wait(ASK):
            for future, job in list(self._open.items()):
                if job.done():
                    self._settle(future, job)

    def _settle(self, future: "Future[Outcome]", job: _SubmititJob) -> None:
        del self._open[future]
        try:
            future.set_result(job.result())
        except Exception as error:  # submitit says why there is no outcome
            future.set_exception(error)


@final
class _Run:
    """A run as submitit calls it; when it is preempted, submitit asks what to call next."""

    def __init__(self, job: Job, patience: float = 0.0) -> None:
        self._job, self._patience = job, patience

    def __call__(self) -> Outcome:
        return outcome(self._job, self._patience)

    def checkpoint(self) -> Any:
        from submitit.helpers import DelayedSubmission

        return DelayedSubmission(_Run(self._job, RETRY_PATIENCE))
