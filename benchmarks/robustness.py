"""What saving and checkpoints cost, as shares of the time that learning takes.

    python benchmarks/robustness.py > results/robustness/costs.json

A DEN of the paper's size (784-312-128) learns three tasks with the default settings, each with a
checkpoint directory, and is saved after each. Shares are taken within one run, so that what else
the machine does weighs on both sides of the division.
"""

import argparse
import json
import platform
import tempfile
import time
from collections import defaultdict
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch

from lifelong import DEN, Task, mlp
from lifelong.persistence.checkpoint import Checkpoint


def task(number: int, rows: int) -> Task:
    draw = torch.Generator().manual_seed(number)
    x = torch.randn(rows + rows // 5, 784, generator=draw)
    y = (x[:, :20].square().sum(dim=1) + x[:, 20:40].sum(dim=1) > 20).long()
    return Task(f"task {number}", (x[:rows], y[:rows]), (x[rows:], y[rows:]))


def timed(spent: dict[str, float], name: str, call: Callable[..., Any]) -> Callable[..., Any]:
    def wrapped(*given: Any, **named: Any) -> Any:
        began = time.perf_counter()
        try:
            return call(*given, **named)
        finally:
            spent[name] += time.perf_counter() - began

    return wrapped


def measure(rows: int, tasks: int) -> dict[str, Any]:
    spent: dict[str, float] = defaultdict(float)
    Checkpoint._write = timed(spent, "writing", Checkpoint._write)  # type: ignore[method-assign]
    Checkpoint._read = timed(spent, "reading", Checkpoint._read)  # type: ignore[method-assign]
    DEN._about = timed(spent, "checksums", DEN._about)  # type: ignore[method-assign]
    learner = DEN(mlp(784, [312, 128]))
    total = saving = 0.0
    with tempfile.TemporaryDirectory() as root:
        for number in range(tasks):
            data = task(number, rows)
            began = time.perf_counter()
            learner.learn(data, checkpoint=Path(root) / "checkpoint")
            learned = time.perf_counter()
            learner.save(Path(root) / "model")
            total, saving = total + learned - began, saving + time.perf_counter() - learned
        size = sum(file.stat().st_size for file in (Path(root) / "model").iterdir())
    checkpoints = sum(spent.values())
    return {
        "rows a task": rows,
        "tasks": tasks,
        "seconds of learning, without checkpoints": round(total - checkpoints, 2),
        "saving, % of learning": round(100 * saving / (total - checkpoints), 2),
        "checkpoints, % of learning": round(100 * checkpoints / (total - checkpoints), 2),
        "seconds in checkpoints": {name: round(value, 3) for name, value in spent.items()},
        "bytes of the model": size,
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, default=10_000)
    parser.add_argument("--tasks", type=int, default=3)
    given = parser.parse_args()
    torch.set_num_threads(1)
    result = {
        "command": f"python benchmarks/robustness.py --rows {given.rows} --tasks {given.tasks}",
        **measure(given.rows, given.tasks),
        "torch": torch.__version__,
        "python": platform.python_version(),
    }
    print(json.dumps(result, indent=1))


if __name__ == "__main__":
    main()
