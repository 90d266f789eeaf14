"""What an engine adds to a run: Ray and submitit over local processes, on fixed work.

    python benchmarks/engines.py --runs 40 --seconds 6    # five minutes; to engines.json

A run sleeps for so many seconds when it loads its data, and then learns next to nothing: two digits
in twenty steps. What is left of the wall time is the engine: to start processes, import torch, hand
over jobs, look for signs of life and hand back outcomes. Two runs at a time; a warm engine is one
whose processes have made a run each before the clock starts.
"""

import argparse
import importlib
import json
import os
import sys
import tempfile
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

DETAILS = Path(__file__).resolve().parent / "engines.json"
AT_ONCE = 2
SITE = '''
import time
from lifelong.tasks.datasets import DataSet, load

def asleep(seed=0, data_dir=None, *, seconds=1.0):
    """Digits, after a while."""
    time.sleep(seconds)
    return load("digits", 0)

ASLEEP = DataSet("asleep", asleep, "digits, after a while")
'''


def install(site: Path) -> None:
    """A package with the data set, where all processes that start from here find it."""
    about = site / "asleep-1.0.dist-info"
    about.mkdir(parents=True)
    (site / "asleep.py").write_text(SITE)
    (about / "METADATA").write_text("Metadata-Version: 2.1\nName: asleep\nVersion: 1.0\n")
    (about / "entry_points.txt").write_text("[lifelong.datasets]\nasleep = asleep:ASLEEP\n")
    path = os.environ.get("PYTHONPATH")
    os.environ["PYTHONPATH"] = f"{site}{os.pathsep}{path}" if path else str(site)
    sys.path.insert(0, str(site))
    importlib.invalidate_caches()


def jobs(out: Path, seconds: float, seeds: range) -> list[Any]:
    from lifelong.experiments.configuration import NetworkPlan
    from lifelong.experiments.recipes import DataPlan, Entry, recipe
    from lifelong.experiments.runner import jobs_of
    from lifelong.training.budget import Budget

    chosen = replace(
        recipe("rehearsal", "small"),
        data=DataPlan("asleep", 2, {"seconds": seconds}),
        network=NetworkPlan((8, 4)),
        budget=Budget(steps=20, check_every=10, patience=1),
        entries=(Entry("DNN"),),
    )
    return list(jobs_of(chosen, seeds=seeds, out=out))


def measure(name: str, runs: int, seconds: float) -> dict[str, Any]:
    """Wall time of the runs beyond the ideal, on an engine that has just started and a warm one."""
    from lifelong.experiments.engines import ENGINES, Done, Resources
    from lifelong.experiments.engines.engine import Engine, run_jobs

    resources = Resources(jobs=AT_ONCE, address="local" if name == "slurm" else None)
    began = time.perf_counter()
    if name == "ray":
        _start_ray()
    with ENGINES.named(name).start(resources) as pool, tempfile.TemporaryDirectory() as place:
        held = Engine(name, "", lambda _resources: _Held(pool))
        first = list(run_jobs(jobs(Path(place), 0.0, range(AT_ONCE)), held, resources))
        warm = time.perf_counter()
        todo = jobs(Path(place), seconds, range(100, 100 + runs))
        events = list(run_jobs(todo, held, resources))
        took = time.perf_counter() - warm
    done = sum(isinstance(event, Done) for event in events)
    assert done == runs, [event for event in (*first, *events) if not isinstance(event, Done)]
    ideal = seconds * runs / AT_ONCE
    return {
        "engine": name,
        "runs": runs,
        "seconds asleep per run": seconds,
        "start, with a run per process": round(warm - began, 2),
        "wall seconds": round(took, 2),
        "per run beyond sleep, seconds": round((took - ideal) * AT_ONCE / runs, 3),
        "load average": os.getloadavg()[0],
    }


def _start_ray() -> None:
    """Its processes are as nice as ours; at the nice 15 of Ray a busy machine is measured."""
    import ray

    fair = {"worker_niceness": 0}
    ray.init(num_cpus=AT_ONCE, include_dashboard=False, log_to_driver=False, _system_config=fair)


class _Held:
    """A pool that is started already."""

    def __init__(self, pool: Any) -> None:
        self._pool = pool

    def __enter__(self) -> Any:
        return self._pool

    def __exit__(self, *_error: object) -> None:
        pass


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--engines", nargs="+", default=["local", "ray", "slurm"])
    parser.add_argument("--runs", type=int, default=40)
    parser.add_argument("--seconds", type=float, default=6.0)
    asked = parser.parse_args()
    with tempfile.TemporaryDirectory() as site:
        install(Path(site) / "site")
        found = []
        for name in asked.engines:
            found.append(measure(name, asked.runs, asked.seconds))
            print(json.dumps(found[-1]), flush=True)
    by_name = {each["engine"]: each["per run beyond sleep, seconds"] for each in found}
    beyond = {n: round(t - by_name["local"], 3) for n, t in by_name.items() if "local" in by_name}
    content = {"measured": found, "seconds per run over local": beyond}
    DETAILS.write_text(json.dumps(content, indent=1) + "\n")
    print(json.dumps(content, indent=1))


if __name__ == "__main__":
    main()
