"""Engines: where runs are made.

`register_engine` and entry points of the group `lifelong.engines` add engines.
"""

from lifelong.experiments.engines.engine import (
    DEFAULT,
    Doing,
    Done,
    Engine,
    EngineError,
    Failed,
    Outcome,
    Pool,
    Resources,
    Skipped,
    WorkerEvent,
    outcome,
    run_jobs,
)
from lifelong.experiments.engines.local import LOCAL
from lifelong.experiments.engines.on_ray import RAY
from lifelong.experiments.engines.on_slurm import SLURM
from lifelong.plugins import Registry

ENGINES = Registry("engine", Engine, EngineError, (LOCAL, RAY, SLURM))
register_engine = ENGINES.add

__all__ = [
    "DEFAULT",
    "ENGINES",
    "LOCAL",
    "RAY",
    "SLURM",
    "Doing",
    "Done",
    "Engine",
    "EngineError",
    "Failed",
    "Outcome",
    "Pool",
    "Resources",
    "Skipped",
    "WorkerEvent",
    "outcome",
    "register_engine",
    "run_jobs",
]
