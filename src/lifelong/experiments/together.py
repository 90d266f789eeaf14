"""The processes that torchrun started make each run together; the first one stores it."""

from collections.abc import Iterator, Sequence
from concurrent.futures import Future
from contextlib import contextmanager
from dataclasses import replace

import torch

from lifelong.experiments.engines import Engine, Outcome, Pool, Resources, outcome
from lifelong.experiments.perform import Job, follow
from lifelong.training.ranks import PARALLEL, ranks_for


def take_part(jobs: Sequence[Job]) -> None:
    """Be one of the other processes, until the first one has made all that is missing."""
    follow([_shared(job) for job in jobs])


@contextmanager
def leading(jobs: Sequence[Job]) -> Iterator[None]:
    """Be the first process; at the end the others hear that there are no more runs."""
    yield
    ranks_for(PARALLEL, torch.device(jobs[0].device)).told()


def _shared(job: Job) -> Job:
    return replace(job, parallel=PARALLEL)


def _made(job: Job) -> "Future[Outcome]":
    future: Future[Outcome] = Future()
    future.set_result(outcome(_shared(job)))
    return future


@contextmanager
def _start(_resources: Resources) -> Iterator[Pool]:
    """One run after the other, in this process and the others at once."""
    yield Pool(lambda jobs: [_made(job) for job in jobs], room=1)


TOGETHER = Engine("torchrun", "all processes that torchrun started, on one run", _start)
