"""Runs as tasks of a Ray cluster, each with its resources, started again when a node is lost.

Every node needs this package, the data, and the store: a directory that all share, or an address. A
run that is started again goes on from its checkpoint there, wherever it was before.
"""

import os
from collections.abc import Iterator, Sequence
from concurrent.futures import Future
from contextlib import contextmanager, suppress
from typing import Any, final

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
from lifelong.tasks.datasets.files import VARIABLE

MOST = 5000  # jobs handed to Ray at once; it keeps those in a queue for which there is no room


@contextmanager
def _start(resources: Resources) -> Iterator[Pool]:
    require_extra("ray", extra="ray")
    import ray

    ours = not ray.is_initialized()
    if ours:
        _connect(resources)
    tasks = _Tasks(resources)
    try:
        yield Pool(tasks.submit, resources.jobs or MOST)
    finally:
        tasks.cancel()
        if ours:
            ray.shutdown()


RAY = Engine("ray", "tasks of a Ray cluster: --address auto, or one that starts here", _start)


def _connect(resources: Resources) -> None:
    import ray

    here = {} if resources.address else {"num_cpus": resources.jobs, "include_dashboard": False}
    try:
        ray.init(address=resources.address, log_to_driver=False, configure_logging=False, **here)
    except (ConnectionError, ValueError, TimeoutError) as error:
        first = str(error).splitlines()[0]
        raise EngineError(
            f"no Ray cluster at {resources.address!r}: {first}; start one with `ray start --head`, "
            "give its address, or leave --address out to start one here"
        ) from error


@final
class _Tasks:
    """The runs that were given to Ray."""

    def __init__(self, resources: Resources) -> None:
        import ray

        given = {name: os.environ[name] for name in (VARIABLE,) if name in os.environ}
        wanted: dict[str, Any] = {
            "num_cpus": resources.cpus,
            "num_gpus": resources.gpus,
            "max_retries": resources.retries,
            "runtime_env": {"env_vars": {"OMP_NUM_THREADS": "1", **given}},
        }
        if resources.memory is not None:
            wanted["memory"] = resources.memory
        self._run = ray.remote(**wanted)(_made)
        self._refs: list[Any] = []

    def submit(self, jobs: Sequence[Job]) -> list["Future[Outcome]"]:
        refs = [self._run.remote(job) for job in jobs]
        self._refs = [*(ref for ref in self._refs if not _ended(ref)), *refs]
        return [ref.future() for ref in refs]

    def cancel(self) -> None:
        import ray

        for ref in self._refs:
            with suppress(Exception):  # it has ended, or the cluster has
                if not _ended(ref):
                    ray.cancel(ref, force=True)


def _made(job: Job) -> Outcome:
    """In a process of Ray's. Of a run that is started again, the lost process may hold the lock."""
    return outcome(job, RETRY_PATIENCE)


def _ended(ref: Any) -> bool:
    import ray

    return bool(ray.wait([ref], timeout=0)[0])
