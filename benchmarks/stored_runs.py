"""What a store of very many runs costs: to write, list, find, copy, read and summarise them.

    python benchmarks/stored_runs.py --runs 100000 --read 2000      # to stored_runs.json

Runs are copies of one run of the recipe `rehearsal` with other seeds, checksums and keys included.
All are listed and looked for; `--read` of them are read, copied and packed, which is linear. Times
are of the processor, user and system, so that they do not depend on what else the machine does;
files are in the page cache, so that a disk or a network comes on top.
"""

import argparse
import json
import os
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path, PurePosixPath
from typing import Any

import msgspec

from lifelong.experiments.addresses import FilesAt
from lifelong.experiments.engines.engine import Line
from lifelong.experiments.perform import Job, perform
from lifelong.experiments.recipes import recipe
from lifelong.experiments.stored import (
    Experiment,
    RunPaths,
    StoredRun,
    find,
    packed,
    read,
    read_pack,
    to_json,
)

DETAILS = Path(__file__).resolve().parent / "stored_runs.json"


def measure(runs: int, some: int, place: Path) -> dict[str, Any]:
    """Processor seconds of each, for all runs or for some."""
    seconds: dict[str, Any] = {"runs": runs, "read": some}
    clock = _clock(seconds)
    stored, paths = _stored(place / "one"), RunPaths(place / "out")
    copies = [_with_seed(stored, seed) for seed in range(runs)]
    with clock("key of all"):
        files = [paths.run(each.experiment.configuration) for each in copies]
    contents = [to_json(each) for each in copies[:some]]
    seconds["bytes of a run"] = len(contents[0])
    files[0].parent.mkdir(parents=True)
    for number, file in enumerate(files):  # the others are listed only
        file.write_bytes(contents[number] if number < some else b"")
    with clock("list all, a directory"):
        found = [entry.name for entry in os.scandir(files[0].parent)]
    assert len(found) == runs
    files_at = FilesAt(f"file://{place}/out")
    with clock("list all, by fsspec"):
        listed = files_at.sizes(PurePosixPath("runs"))
    assert len(listed) == runs
    with clock("look whether each of all is there"):
        assert all(file.exists() for file in files)
    with clock("find some: read, verify, compare"):
        for each in copies[:some]:
            assert find(paths, each.experiment.configuration) is not None
    with clock("copy some to another machine"):
        files_at.copy(
            {PurePosixPath(f.relative_to(place / "out")): place / f.name for f in files[:some]}
        )
    with clock("summarise some: means over seeds"):
        scores = [read(file).run.summary.auroc or 0.0 for file in files[:some]]
        seconds["mean"] = sum(scores) / some
    with clock("pack some"):
        (place / "pack.jsonl.xz").write_bytes(packed(copies[:some]))
    with clock("read the pack of some"):
        assert len(read_pack(place / "pack.jsonl.xz").runs) == some
    jobs = [Job(each.experiment.configuration, place / "out") for each in copies]
    with clock("choose 1,000 of all that are ready"):
        assert len(Line(jobs).next(1000)) == min(1000, runs)
    return seconds


def _stored(out: Path) -> StoredRun:
    chosen = recipe("rehearsal", "small")
    return perform(Job(chosen.configuration(chosen.chosen(["DNN"], ["tasks"])[0], 0), out))


def _with_seed(stored: StoredRun, seed: int) -> StoredRun:
    configuration = msgspec.structs.replace(stored.experiment.configuration, seed=seed)
    return StoredRun(Experiment(configuration.key, configuration), stored.run)


def _clock(seconds: dict[str, Any]) -> Callable[[str], Any]:
    @contextmanager
    def clock(name: str) -> Iterator[None]:
        began = time.process_time()
        yield
        seconds[name] = round(time.process_time() - began, 3)

    return clock


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--runs", type=int, default=100_000)
    parser.add_argument("--read", type=int, default=2000)
    asked = parser.parse_args()
    with tempfile.TemporaryDirectory() as place:
        found = measure(asked.runs, asked.read, Path(place))
    found["load average"] = os.getloadavg()[0]
    DETAILS.write_text(json.dumps(found, indent=1) + "\n")
    print(json.dumps(found, indent=1))


if __name__ == "__main__":
    main()
