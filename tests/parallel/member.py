"""The program of one of several processes that learn together, as torchrun would start it.

    RANK=0 WORLD_SIZE=2 MASTER_ADDR=... MASTER_PORT=... python tests/parallel/member.py DIR WHAT...

learns what is named in each WHAT, and writes all tensors and records of each into DIR.
"""

import os
import signal
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import save_file
from torch import Tensor

sys.path.insert(0, str(Path(__file__).parent.parent))

from builders import CountedExamples, contents, inputs_for, quick, stream_for, with_rows
from lifelong.learners.base import Learner
from lifelong.learners.baselines import Joint
from lifelong.learners.den import DEN
from lifelong.learners.registry import METHODS
from lifelong.networks.sequential import mlp
from lifelong.persistence import checkpoint as journal
from lifelong.tasks.examples import DatasetExamples
from lifelong.tasks.task import Task
from lifelong.training import head_solvers, loop
from lifelong.training.budget import Budget
from lifelong.training.ranks import RanksError
from lifelong.watching.events import Validated

BUDGET = Budget(steps=24, batch_size=15, learning_rate=0.01, check_every=8, patience=2)
GROWS = {"sigma": 0.001, "budget": BUDGET, "min_improvement": 0.01}
# Of sparse heads: one of classes is solved to a tolerance, which rounding may let it reach earlier.
EXACT = 1e-8
KINDS = ("one output", "classes", "regression")


def network() -> Any:
    return mlp(6, [10, 7])


def tasks() -> list[Task]:
    return stream_for(network(), *KINDS, seed=5)


def den(parallel: Any = None, **changes: Any) -> DEN:
    return DEN(network(), quick(**{**GROWS, **changes}), seed=3, parallel=parallel)


def learn_all(learner: Learner[Any], stream: list[Task]) -> Learner[Any]:
    if isinstance(learner, Joint):
        learner.learn_together(stream)
        return learner
    for task in stream:
        learner.learn(task)
    return learner


def finetuned(parallel: Any) -> Learner[Any]:
    learner = learn_all(den(parallel), tasks())
    assert isinstance(learner, DEN)
    learner.finetune(tasks())
    return learner


def from_dataset(parallel: Any) -> Learner[Any]:
    """Rows that are read one by one, and rows that only come in batches."""
    first, second, _ = tasks()
    pairs = list(zip(first.train.x, first.train.y, strict=True))  # type: ignore[attr-defined]
    read = DatasetExamples(pairs, first.kind, first.outputs)  # type: ignore[arg-type]
    stream = [with_rows(first, train=read), with_rows(second, train=CountedExamples(second.train))]
    return learn_all(den(parallel), stream)


def of_method(name: str) -> Callable[[Any], Learner[Any]]:
    # Where a task's own gradient is zero, LwF's is rounding alone, of which Adam makes whole steps.
    budget = replace(BUDGET, optimizer="sgd") if name == "LwF" else BUDGET

    def make(parallel: Any) -> Learner[Any]:
        learner = METHODS[name].make(network(), budget=budget, seed=3, parallel=parallel)
        return learn_all(learner, stream_for(network(), "one output", "classes", seed=5))

    return make


SCENARIOS: dict[str, Callable[[Any], Learner[Any]]] = {
    "units": lambda parallel: learn_all(den(parallel), tasks()),
    "weights": lambda parallel: learn_all(den(parallel, split="weights"), tasks()[:2]),
    "auto": lambda parallel: learn_all(den(parallel, split="auto"), tasks()[:2]),
    "finetune": finetuned,
    "dataset": from_dataset,
    **{name: of_method(name) for name in METHODS if not name.startswith("DEN")},
}


def state(learner: Learner[Any]) -> dict[str, Tensor]:
    """All tensors, losses of each stage, and steps of each training."""
    stages = [stage for record in learner.records for stage in record.stages]
    kept = {f"tensor/{name}": t.contiguous() for name, t in contents(learner).items()}
    groups = [
        (g.units, g.selected, g.added, g.dropped, g.split)
        for record in learner.records
        for g in record.groups.values()
    ]
    return {
        **kept,
        "losses": torch.tensor([stage.loss for stage in stages], dtype=torch.float64),
        "steps": torch.tensor([stage.steps for stage in stages if stage.name != "head"]),
        "groups": torch.tensor(groups, dtype=torch.int64),
        "answers": learner.decision_function(
            inputs_for(network(), 9), task=learner.tasks[0]
        ).contiguous(),
    }


def long_den(parallel: Any) -> DEN:
    budget = Budget(steps=60, batch_size=15, learning_rate=0.01, check_every=5, patience=30)
    return den(parallel, budget=budget)


def resumed(place: Path, dies: bool) -> Learner[Any]:
    """Learn with a checkpoint; if it `dies`, the last process kills itself on the way."""
    journal.APART = 0
    learner, looks = long_den("torch.distributed"), []
    learner.watch(lambda event: looks.append(event) if isinstance(event, Validated) else None)
    if dies and not learner.ranks.first:
        _die_at_look(12)
    for task in tasks()[:2]:
        learner.learn(task, checkpoint=place / "checkpoint")
    learner.save(place / "model")
    if learner.ranks.first:
        (place / "looks").write_text(f"{looks[0].stage}: {looks[0].step}")
    return learner


def _die_at_look(number: int) -> None:
    measured, looks = loop.validation_loss, 0

    def counted(*given: Any) -> float:
        nonlocal looks
        looks += 1
        if looks == number:
            os.kill(os.getpid(), signal.SIGKILL)
        return measured(*given)

    loop.validation_loss = counted


def disagreeing() -> None:
    """Processes that were started with other seeds find that out."""
    rank = int(os.environ["RANK"])
    learner = DEN(network(), quick(**GROWS), seed=rank, parallel="torch.distributed")
    with pytest.raises(RanksError, match="differ between processes 0 and 1"):
        learner.learn(tasks()[0])
    assert not learner.tasks


def mapped(place: Path, parallel: Any) -> Learner[Any]:
    """The first task from memory-mapped arrays, which the test has written."""
    first = tasks()[0]
    rows = [np.load(place / f"{part}.npy", mmap_mode="r") for part in ("train", "valid")]
    labels = [part.y for part in (first.train, first.valid)]  # type: ignore[attr-defined]
    pairs = list(zip(rows, labels, strict=True))
    return learn_all(den(parallel), [Task("mapped", *pairs)])


def main(place: Path, what: list[str]) -> None:
    torch.set_num_threads(1)
    head_solvers.TOLERANCE = EXACT
    rank = os.environ["RANK"]
    for name in what:
        if name == "disagreeing":
            disagreeing()
            continue
        if name in ("resumed", "dying"):
            learner = resumed(place, name == "dying")
        elif name == "mapped":
            learner = mapped(place, "torch.distributed")
        else:
            learner = SCENARIOS[name]("torch.distributed")
        save_file(state(learner), place / f"{name}-{rank}.safetensors")


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2:])
