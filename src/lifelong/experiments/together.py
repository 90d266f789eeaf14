"""The processes that torchrun started make each run together; the first one stores it."""

from collections.abc import Iterator, Sequence
from dataclasses import replace

import torch

from lifelong.experiments.engines import Engine, WorkerEvent, outcome
from lifelong.experiments.perform import Job, follow
from lifelong.training.ranks import PARALLEL, Ranks, ranks_for


def make_together(jobs: Sequence[Job], workers: int) -> Iterator[WorkerEvent]:
    """One run after the other, in all processes at once; events come from the first one."""
    del workers
    shared = [replace(job, parallel=PARALLEL) for job in jobs]
    ranks = _ranks(shared)
    if not ranks.first:
        follow(shared)
        return
    for job in shared:
        yield outcome(job)
    ranks.told()  # that there are no more


def _ranks(jobs: Sequence[Job]) -> Ranks:
    return ranks_for(PARALLEL, torch.device(jobs[0].device))


TOGETHER = Engine("torchrun", "all processes that torchrun started, on one run", make_together)
