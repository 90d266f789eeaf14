"""Kill a learning at random moments, many times, and see that nothing is lost or torn.

python tests/robust/kills.py --kills 200 > results/robustness/kills.json

Each time the command in `child.py` is started anew and ended by SIGKILL. After every kill the model
must load, and be to the bit the one from before the task that was being learned or the one after
it; and when it is at last left alone, it must end as if it had never been killed.
"""

import argparse
import json
import multiprocessing
import os
import platform
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable
from contextlib import redirect_stdout
from multiprocessing.context import ForkProcess
from pathlib import Path
from typing import TypeAlias

import child
import torch
from torch import Tensor

from lifelong.learners.den import DEN
from lifelong.persistence.checkpoint import FILE
from lifelong.persistence.files import ASIDE, LOCK
from lifelong.persistence.manifest import MANIFEST

SPAN = 1.5  # seconds within which a kill comes


Running: TypeAlias = "subprocess.Popen[bytes] | ForkProcess"
Start: TypeAlias = Callable[[Path], Running]


def fresh(directory: Path) -> Running:
    """The command as a person would start it, in an interpreter of its own."""
    with (directory / "log").open("w") as log:
        return subprocess.Popen([sys.executable, child.__file__, str(directory)], stdout=log)


def forked(directory: Path) -> Running:
    """The same without the seconds that an interpreter takes to start."""
    (directory / "log").write_text("")
    process = multiprocessing.get_context("fork").Process(target=_run, args=(directory,))
    process.start()
    return process


def _run(directory: Path) -> None:
    with (directory / "log").open("w") as log, redirect_stdout(log):
        child.main(directory)


def references() -> list[dict[str, Tensor]]:
    """The models after no task, after the first and so on: never stopped, never saved."""
    learner = DEN(child.mlp(12, [14, 9]), child.SETTINGS, seed=3)
    models = [state_of(learner)]
    for number in range(1, child.TASKS + 1):
        learner.learn(child.task(number))
        models.append(state_of(learner))
    return models


def state_of(learner: DEN) -> dict[str, Tensor]:
    """All tensors, births, losses and steps, and answers to new inputs."""
    x = torch.randn(33, 12, generator=torch.Generator().manual_seed(99))
    network = learner.network
    numbers = [(stage.loss, stage.steps) for one in learner.records for stage in one.stages]
    return {
        **{name: tensor.clone() for name, tensor in network.everything().items()},
        **{f"born {group}": stamps for group, stamps in network.born.items()},
        **{f"answers {name}": learner.predict_proba(x, task=name) for name in learner.tasks},
        "records": torch.tensor(numbers, dtype=torch.float64),
    }


def same(left: dict[str, Tensor], right: dict[str, Tensor]) -> bool:
    return left.keys() == right.keys() and all(torch.equal(left[n], right[n]) for n in left)


def torture(kills: int, seed: int, start: Start, root: Path) -> dict[str, int]:
    """Kill so many times; an AssertionError says what was torn."""
    expected = references()
    counts: Counter[str] = Counter()
    draw = random.Random(seed)
    while counts["kills"] < kills:
        directory = root / f"trial {counts['trials']}"
        directory.mkdir()
        while not _ended(directory):
            process = start(directory)
            if counts["kills"] < kills:
                _kill(process, directory, draw.uniform(0, SPAN))
            code = _exit_code(process)
            assert code == -signal.SIGKILL or (code == 0 and _ended(directory)), "it failed"
            if not _ended(directory):
                _count(directory, counts)
            counts[f"found with {_check(directory, expected)} tasks"] += 1
        assert same(state_of(child.learner_in(directory)), expected[-1]), "ended otherwise"
        _go_on(directory)
        counts["trials"] += 1
        shutil.rmtree(directory)
    return dict(counts)


def _go_on(directory: Path) -> None:
    """A kill between the last save and the removal of its checkpoint leaves that: it is in nobody's
    way, and gone with the next task.
    """
    learner, checkpoint = child.learner_in(directory), directory / child.CHECKPOINT
    learner.learn(child.task(child.TASKS + 1), checkpoint=checkpoint)
    learner.save(directory / child.MODEL)
    assert [file.name for file in checkpoint.iterdir()] == [LOCK], "a checkpoint is left"


def _kill(process: Running, directory: Path, after: float) -> None:
    """Once it has learned for so many seconds, unless it ends before."""
    pid = process.pid
    assert pid is not None
    while not _said(directory) and _lives(process):
        time.sleep(0.002)
    until = time.monotonic() + after
    while time.monotonic() < until and not _ended(directory):
        time.sleep(0.001)
    if _lives(process):
        os.kill(pid, signal.SIGKILL)


def _lives(process: Running) -> bool:
    return (process.poll() if isinstance(process, subprocess.Popen) else process.exitcode) is None


def _exit_code(process: Running) -> int | None:
    if isinstance(process, subprocess.Popen):
        return process.wait()
    process.join()
    return process.exitcode


def _count(directory: Path, counts: Counter[str]) -> None:
    counts["kills"] += 1
    counts["in the middle of writing a file"] += bool(list(directory.glob(f"*/{ASIDE}")))
    counts["with a checkpoint to go on from"] += (directory / child.CHECKPOINT / FILE).exists()


def _said(directory: Path) -> list[str]:
    log = directory / "log"
    return log.read_text().split() if log.exists() else []


def _ended(directory: Path) -> bool:
    return "done" in _said(directory)


def _check(directory: Path, expected: list[dict[str, Tensor]]) -> int:
    """That the model is one of the two allowed, to the bit; how many tasks it knows."""
    said = _said(directory)
    begun = int(said[-1]) if said and said[-1] != "done" else child.TASKS
    if not (directory / child.MODEL / MANIFEST).exists():
        assert begun <= 1, "a model that was saved is gone"
        return 0
    learner = child.learner_in(directory)
    count = len(learner.tasks)
    assert count in (begun - 1, begun), f"{count} tasks, while task {begun} was learned"
    assert same(state_of(learner), expected[count]), f"another model after {count} tasks"
    return count


def _options(given: argparse.Namespace) -> list[str]:
    mode = ["--forked"] if given.forked else []
    return ["--kills", str(given.kills), "--seed", str(given.seed), *mode]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--kills", type=int, default=200)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--forked", action="store_true", help="do not start an interpreter anew")
    given = parser.parse_args()
    torch.set_num_threads(1)
    began = time.monotonic()
    with tempfile.TemporaryDirectory() as root:
        counts = torture(given.kills, given.seed, forked if given.forked else fresh, Path(root))
    result = {
        "command": "python tests/robust/kills.py " + " ".join(_options(given)),
        "lost or torn": 0,
        **counts,
        "seconds": round(time.monotonic() - began),
        "torch": torch.__version__,
        "python": platform.python_version(),
    }
    print(json.dumps(result, indent=1))


if __name__ == "__main__":
    main()
