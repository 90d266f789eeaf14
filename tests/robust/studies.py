"""Kill workers that share the trials of a study, many times, and count what is lost or torn.

python tests/robust/studies.py --kills 100 > results/robustness/studies.json

Workers tune one method in one storage. Again and again one is ended by SIGKILL and another starts.
In the end the study must have as many trials as were asked for, each with its settings and all its
runs, and each run the numbers of one that nobody disturbed. A single worker, however often it was
killed, must choose what a process chooses that was left alone.
"""

import argparse
import json
import multiprocessing
import os
import random
import signal
import sys
import tempfile
import time
import warnings
from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from datetime import timedelta
from multiprocessing.context import ForkProcess
from pathlib import Path

import torch
from rich.console import Console

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "experiments"))

from tiny import BUDGET, without_times

from lifelong.experiments import studies, tuning
from lifelong.experiments.choices import Choice
from lifelong.experiments.claims import RunLocked
from lifelong.experiments.configuration import NetworkPlan
from lifelong.experiments.perform import Job, perform
from lifelong.experiments.recipes import Recipe, Size, rehearsal
from lifelong.experiments.runner import RunCounts
from lifelong.experiments.stored import RunPaths, find
from lifelong.experiments.tuning import Tuning, tune

METHOD, TRIALS = "DNN-EWC", 3
SPAN = 0.6  # seconds within which a kill comes
FORK = multiprocessing.get_context("fork")  # without the seconds that an interpreter takes to start


def torture(kills: int, workers: int, seed: int = 0) -> dict[str, int]:
    """Counts of what happened to as many studies as the kills take."""
    chance, total = random.Random(seed), Counter[str]()
    with _here_and_now():
        while total["killed"] < kills:
            with tempfile.TemporaryDirectory() as place:
                total += _study(Path(place), workers, chance, kills - total["killed"])
    return {"workers": workers, **dict.fromkeys(("lost", "different", "crashed"), 0), **total}


def _study(place: Path, count: int, chance: random.Random, kills: int) -> Counter[str]:
    asked = Tuning("digits", "small", TRIALS, (100,), 2, place / "out", storage=f"{place}/journal")
    workers, killed = [_worker(asked) for _ in range(count)], 0
    while any(worker.is_alive() for worker in workers):
        time.sleep(chance.uniform(0, SPAN))
        number = chance.randrange(count)
        if killed < kills and workers[number].is_alive():
            os.kill(workers[number].pid or 0, signal.SIGKILL)
            workers[number].join()
            workers[number] = _worker(asked)
            killed += 1
    for worker in workers:
        worker.join()
    chosen = _chosen(asked)
    lost, different = _compared(asked, chosen, place / "whole")
    if count == 1:
        different += chosen != _chosen(replace(asked, out=place / "alone", storage=""))
    crashed = sum(worker.exitcode != 0 for worker in workers)
    return Counter(
        killed=killed, studies=1, trials=len(chosen.trials),
        lost=lost + TRIALS - len(chosen.trials), different=different, crashed=crashed,
    )  # fmt: skip


def _compared(asked: Tuning, chosen: Choice, elsewhere: Path) -> tuple[int, int]:
    """How many trials have no run, and how many have another one than it should be."""
    study, lost, different = tuning._Study(METHOD, asked), 0, 0
    for trial in chosen.trials:
        for configuration in study._configurations(trial.settings):
            found = find(RunPaths(asked.out), configuration)
            whole = perform(Job(configuration, elsewhere)).run
            lost += found is None
            different += found is not None and without_times(found.run) != without_times(whole)
    return lost, different


def _chosen(asked: Tuning) -> Choice:
    return tune([METHOD], asked, console=Console(quiet=True), command=str)[METHOD]


def _worker(asked: Tuning) -> ForkProcess:
    process = FORK.Process(target=_chosen, args=(asked,))
    process.start()
    return process


class _here_and_now:
    """Runs of a tiny network in this process; trials and locks of the dead are soon taken over."""

    def __enter__(self) -> None:
        torch.set_num_threads(1)
        self._before = [(owner, name, getattr(owner, name)) for owner, name, _ in _CHANGES]
        self._warnings = warnings.catch_warnings()
        self._warnings.__enter__()
        warnings.filterwarnings("ignore", "The value of `grace_period`")
        for owner, name, value in _CHANGES:
            setattr(owner, name, value)

    def __exit__(self, *_: object) -> None:
        self._warnings.__exit__(None, None, None)
        for owner, name, value in self._before:
            setattr(owner, name, value)


def _run(given: list[Job], **_: object) -> RunCounts:
    skipped = {}
    for job in given:
        try:
            perform(job)
        except RunLocked as error:
            skipped[job.label] = str(error)
    return RunCounts(skipped=skipped)


def _tiny(size: Size) -> Recipe:
    return replace(rehearsal(size), network=NetworkPlan((8, 4)), budget=BUDGET)


_RECIPES: dict[str, Callable[[Size], Recipe]] = {"rehearsal": _tiny}
_CHANGES = (
    (tuning, "run", _run),
    (tuning, "RECIPES", _RECIPES),
    (tuning, "WAIT", 0.02),
    (tuning, "LOST", timedelta(seconds=1)),
    (studies, "GRACE", 1),
)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--kills", type=int, default=100, help="with one worker, and with two")
    kills = parser.parse_args().kills
    print(json.dumps([torture(kills, workers) for workers in (1, 2)], indent=1))
