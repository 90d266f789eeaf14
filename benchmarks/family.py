"""What a step of each method costs beside a bare loop that has none of its masks and hooks.

    OMP_NUM_THREADS=1 python benchmarks/family.py

A learner that has learned one task learns a second one, once in few steps and once in more: the
difference is that of the steps, without what is done once for a task. It is compared with as many
steps of fine-tuning by a bare PyTorch loop on the same network and batches. A step of ER trains on
twice the rows, and so does the loop beside it.
"""

import copy
import time
from collections.abc import Callable
from functools import partial
from statistics import median

import torch
import torch.nn.functional as F
from baselines import BATCH, OUTPUTS, RATE, ROWS, SKELETON, TRAIN, VALID, network
from side_by_side import Figure, figure, publish

from lifelong import Budget, Task
from lifelong.learners.base import Learner
from lifelong.learners.registry import METHODS
from lifelong.tasks.kinds import Kind

TARGET = 1.25
FAMILY = ("LPF", "LwF", "ER", "GPM", "PackNet", "Piggyback", "SupSup", "WSN", "HAT", "LoRA", "APD")
FEW, MORE = ROWS // BATCH, 4 * (ROWS // BATCH)
TRAININGS = {"PackNet": 2}  # trainings per task, each of so many steps


def task(name: str) -> Task:
    train, valid = ((rows.x, rows.y) for rows in (TRAIN, VALID))
    return Task(name, train, valid, kind=Kind.CLASSES, outputs=OUTPUTS)


def learned(method: str, steps: int) -> Learner:
    """A learner that has learned one task, and learns the next in so many steps."""
    budget = Budget(steps=steps, batch_size=BATCH, learning_rate=RATE, check_every=steps)
    learner = METHODS[method].make(SKELETON, budget=budget)
    learner.learn(task("first"))
    return learner


def second(learner: Learner) -> None:
    copy.copy(learner).learn(task("second"))


def bare(steps: int, batch: int) -> None:
    """Fine-tuning by hand."""
    w = {name: t.clone().requires_grad_() for name, t in network().tensors.items()}
    adam = torch.optim.Adam(w.values(), lr=RATE, fused=True)
    generator = torch.Generator().manual_seed(0)
    taken = 0
    while taken < steps:
        for chosen in torch.randperm(ROWS, generator=generator).split(batch):
            adam.zero_grad()
            h = F.relu(F.linear(TRAIN.x[chosen], w["hidden1.weight"], w["hidden1.bias"]))
            h = F.relu(F.linear(h, w["hidden2.weight"], w["hidden2.bias"]))
            out = F.linear(h, w["head.weight"], w["head.bias"])
            F.cross_entropy(out, TRAIN.y[chosen]).backward()
            adam.step()
            taken += 1
            if taken == steps:
                return


def seconds(work: Callable[[], object]) -> float:
    start = time.process_time()
    work()
    return time.process_time() - start


def step_ratio(method: str, turns: int = 5) -> float:
    """Seconds of a step over those of a bare one."""
    few, more = (learned(method, steps) for steps in (FEW, MORE))
    steps = TRAININGS.get(method, 1) * (MORE - FEW)
    by_hand = partial(bare, steps, 2 * BATCH if method == "ER" else BATCH)
    return median(
        (seconds(partial(second, more)) - seconds(partial(second, few))) / seconds(by_hand)
        for _ in range(turns)
    )


def figures() -> list[Figure]:
    return [figure(f"{name}: step / bare loop", step_ratio(name), TARGET) for name in FAMILY]


if __name__ == "__main__":
    torch.set_num_threads(1)
    publish(figures())
