"""Memory that `learn` takes besides the data and the network that are there before.

    OMP_NUM_THREADS=1 python benchmarks/memory.py

Measured in a process of its own, which loads a model of one task, makes the data of a second one,
and learns it: the most that the process held meanwhile (its resident memory, whose peak Linux can
be told to forget before), less what it held before. A little training comes first, so that what
PyTorch loads once is not counted. The figure is the ratio to what it may be: three times the
weights, the activations of a batch (of the rows that a look at the validation loss takes at once,
which are more than a training batch) and one copy of the task's data.

Two cases: the paper's network on many rows, where data is all that counts; and a wide network on
few rows, where the weights are.
"""

import gc
import json
import subprocess
import sys
import tempfile
from pathlib import Path

import torch
from side_by_side import Figure, figure, publish

from lifelong import DEN, Budget, Settings, Task, mlp
from lifelong.networks.growing import parameters

CASES = {
    "784-312-128, 20,000 rows": ((312, 128), 20_000),
    "784-3000-1500, 500 rows": ((3000, 1500), 500),
}
LOOK = 4096  # rows that a look computes at once
SETTINGS = Settings(initial_width=1.0, tau=0.0, min_improvement=0.0, budget=Budget(steps=80))


def resident() -> int:
    """Bytes that this process holds."""
    return _status("VmRSS")


def peak() -> int:
    """The most that it held since `forget_peak`."""
    return _status("VmHWM")


def _status(name: str) -> int:
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) * 1024 for line in lines if line.startswith(name))


def forget_peak() -> None:
    Path("/proc/self/clear_refs").write_text("5")


def task(number: int, rows: int) -> Task:
    generator = torch.Generator().manual_seed(number)

    def part(count: int) -> tuple[torch.Tensor, torch.Tensor]:
        x = torch.rand(count, 784, generator=generator)
        return x, (x[:, : 100 * number].mean(dim=1) > 0.5).long()

    return Task(f"task {number}", part(rows), part(max(100, rows // 10)))


def warm() -> None:
    """Load what PyTorch loads when it first trains."""
    learner = DEN(mlp(784, [8, 8]), SETTINGS)
    for number in (1, 2):
        learner.learn(task(number, 100))


def measured(model: str, rows: int) -> None:
    """In a process of its own."""
    torch.set_num_threads(1)
    warm()
    learner, second = DEN.load(model), task(2, rows)
    gc.collect()
    forget_peak()
    before = resident()
    learner.learn(second)
    print(json.dumps({"taken": peak() - before, "weights": 4 * parameters(learner.network.shared)}))


def figures() -> list[Figure]:
    if not Path("/proc/self/clear_refs").exists():
        print("not measured: memory, which takes Linux")
        return []
    found = []
    for name, (widths, rows) in CASES.items():
        with tempfile.TemporaryDirectory() as place:
            learner = DEN(mlp(784, widths), SETTINGS)
            learner.learn(task(1, min(rows, 2000)))
            learner.save(f"{place}/model")
            command = [sys.executable, __file__, f"{place}/model", str(rows)]
            said = subprocess.run(command, check=True, capture_output=True, text=True).stdout
        took = json.loads(said)
        data = (rows + max(100, rows // 10)) * 785 * 4
        activations = min(LOOK, rows) * (784 + sum(widths)) * 4
        allowed = 3 * took["weights"] + activations + data
        print(f"{name}: {took['taken'] / 2**20:.0f} MB of {allowed / 2**20:.0f} MB allowed")
        found.append(figure(f"memory of learn / allowed, {name}", took["taken"] / allowed, 1.0))
    return found


if __name__ == "__main__":
    if len(sys.argv) > 1:
        measured(sys.argv[1], int(sys.argv[2]))
    else:
        torch.set_num_threads(1)
        publish(figures())
