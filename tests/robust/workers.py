"""Kill workers at random moments, many times, and count the runs that are lost or made twice.

python tests/robust/workers.py --kills 50 > results/robustness/workers.json

Two workers make the runs of a study in one store, each whatever the other does not make. Again and
again one is ended by SIGKILL and another starts. In the end every run must be stored, must have
been stored once, and must have the numbers of a run that nobody disturbed. A store is a directory,
or an address: `file://` takes the way of every fsspec store, claims and copies included.
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
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from multiprocessing.context import ForkProcess
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "experiments"))

from tiny import job, without_times

from lifelong.experiments import perform as performing
from lifelong.experiments.claims import RunLocked
from lifelong.experiments.perform import Job, perform, stream_of
from lifelong.experiments.shared import SharedStore
from lifelong.experiments.stored import RunPaths, find

METHODS = ("DEN", "DNN", "DNN-L2", "DNN-MTL")
SPAN = 0.4  # seconds within which a kill comes
FORK = multiprocessing.get_context("fork")  # without the seconds that an interpreter takes to start


def torture(kind: str, kills: int, seed: int = 0, tasks: int = 3) -> dict[str, int]:
    """Counts of what happened to the runs of as many studies as the kills take."""
    chance, total = random.Random(seed), Counter[str]()
    for study in range(10_000):
        if total["killed"] >= kills:
            break
        with tempfile.TemporaryDirectory() as place:
            jobs = _jobs(Path(place), kind, study, tasks)
            total += _study(jobs, Path(place), chance, kills - total["killed"])
    return {"store": kind, **dict.fromkeys(("lost", "doubled", "different", "crashed"), 0), **total}  # type: ignore[dict-item]


def _jobs(place: Path, kind: str, seed: int, tasks: int) -> list[Job]:
    store = f"file://{place}/store" if kind == "address" else ""
    made = [job(place / "out", name, seed=seed, tasks=tasks) for name in METHODS]
    return [replace(each, store=store) for each in made]


def _study(jobs: Sequence[Job], place: Path, chance: random.Random, kills: int) -> Counter[str]:
    whole = {each.configuration.key: _undisturbed(each, place) for each in jobs}
    stream_of(jobs[0].configuration)  # forked workers find it loaded
    workers, killed = [_worker(jobs, place) for _ in range(2)], 0
    while any(worker.is_alive() for worker in workers):
        time.sleep(chance.uniform(0, SPAN))
        number = chance.randrange(2)
        if killed < kills and workers[number].is_alive():
            os.kill(workers[number].pid or 0, signal.SIGKILL)
            workers[number].join()
            workers[number] = _worker(jobs, place)
            killed += 1
    crashed = sum(worker.exitcode != 0 for worker in workers)  # by itself: none is killed any more
    stored = Counter((place / "ledger").read_text().split())
    found = {each.configuration.key: _found(each) for each in jobs}
    return Counter(
        killed=killed,
        crashed=crashed,
        runs=len(jobs),
        lost=sum(run is None for run in found.values()),
        doubled=sum(count > 1 for count in stored.values()),
        different=sum(run is not None and run != whole[key] for key, run in found.items()),
    )


def _undisturbed(asked: Job, place: Path) -> dict[str, Any]:
    return without_times(perform(replace(asked, out=place / "whole", store="")).run)


def _found(asked: Job) -> dict[str, Any] | None:
    if asked.store:
        SharedStore(asked.store).refresh(asked.out)
    found = find(RunPaths(asked.out), asked.configuration)
    return None if found is None else without_times(found.run)


def _worker(jobs: Sequence[Job], place: Path) -> ForkProcess:
    process = FORK.Process(target=_work, args=(jobs, place))
    process.start()
    return process


def _work(jobs: Sequence[Job], place: Path) -> None:
    """Make what nobody else makes, until all is there; a line in the ledger for each stored run."""
    _noted(performing, "keep", place, lambda file, _content: file.stem.rpartition("-")[2])
    _noted(SharedStore, "put_run", place, lambda _store, configuration, _out: configuration.key)
    todo = list(jobs)
    while todo:
        for each in list(todo):
            try:
                perform(each)
                todo.remove(each)
            except RunLocked:
                time.sleep(0.01)


def _noted(owner: Any, name: str, place: Path, key: Any) -> None:
    plain = getattr(owner, name)

    def noting(*given: Any) -> None:
        plain(*given)
        if not str(given[0]).startswith(tempfile.gettempdir() + "/lifelong-"):  # not yet shared
            with (place / "ledger").open("a") as ledger:
                ledger.write(key(*given) + "\n")

    setattr(owner, name, noting)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--kills", type=int, default=50, help="for each kind of store")
    asked = parser.parse_args()
    print(json.dumps([torture(kind, asked.kills) for kind in ("directory", "address")], indent=1))
