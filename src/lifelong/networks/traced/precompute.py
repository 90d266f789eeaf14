"""What the frozen parts at the beginning of a module compute, once per row of a task."""

from copy import copy
from dataclasses import replace

import torch

from lifelong.networks.layout import Architecture
from lifelong.networks.traced.architecture import Traced
from lifelong.tasks.examples import Examples, TensorExamples
from lifelong.tasks.task import Task

FEW = 256  # rows computed at once
KEEP = 2**28  # bytes that the results may take, or else as many as the inputs


def precomputed(task: Task, architecture: Architecture, device: torch.device) -> Task:
    """The task with what frozen parts compute in place of its inputs, if that fits in memory."""
    if not isinstance(architecture, Traced):
        return task
    train, valid = (_through(rows, architecture, device) for rows in (task.train, task.valid))
    if train is None or valid is None:
        return task
    ready = copy(task)
    ready.train, ready.valid, ready.test = train, valid, None
    return ready


def _through(rows: Examples, architecture: Traced, device: torch.device) -> Examples | None:
    if not isinstance(rows, TensorExamples):
        return None
    with torch.no_grad():
        like = architecture.precomputed(rows.x[:1].to(device))
        if like is None or len(rows.x) * like.nbytes > max(rows.x.nbytes, KEEP):
            return None
        parts = (architecture.precomputed(part.to(device)) for part in rows.x.split(FEW))
        computed = torch.cat([part for part in parts if part is not None])
    return replace(rows, x=computed)
