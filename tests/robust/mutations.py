"""Damage models, checkpoints, runs and data files in every way that comes to mind.

    python tests/robust/mutations.py --count 100000

Each case is one mutation of a good file or directory, drawn from its number. What reads it must say
what is wrong with a documented error, or give what a good file gives: the identical model where
checksums tell, else one with which all can be done that is done with a model. A case may take 5
seconds of the processor and 1 GiB of memory, and nothing outside of the directory may be touched.

Cases run in batches, each in a process of its own, so that one that ends its process is found. A
number that gives the files of an earlier one is no case. A model or a run that an earlier case
gave, to the last bit of all that it holds, is not used again. Each kind of file has a result in
results/robustness/mutations, with which the next call goes on.
"""

import argparse
import gc
import json
import multiprocessing
import platform
import random
import resource
import shutil
import signal
import sys
import tempfile
import time
import traceback
import warnings
from collections import Counter, defaultdict
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any, TypeAlias
from unittest.mock import patch

import altair  # noqa: F401 (so that no case has to wait until it is there)
import sklearn.decomposition  # noqa: F401 (the same)
import torch
from damage import Files, mutated
from targets import Target, kinds, write_files

from lifelong.evaluation import measure
from lifelong.persistence.files import digest
from lifelong.report import page
from lifelong.tables.frames import TableError
from lifelong.tasks.datasets.files import DataError
from lifelong.tasks.kinds import TaskError
from lifelong.training.budget import SettingError
from lifelong.training.loop import TrainingError

MEMORY = 1 << 30  # bytes that reading may take on top of what the process has
SECONDS = 5  # of the processor, that one case may take
BATCH = 1000  # cases in one process
REPORTED = 200  # one in so many of what is used is shown as an HTML report too
USED = (TaskError, TrainingError, SettingError, TableError)  # by which a user may be told why not
FAULT, AGAIN, AS_BEFORE = "fault", "files of an earlier case", "as an earlier case, not used again"
PROJECT = Path(__file__).resolve().parents[2]
RESULTS = PROJECT / "results" / "robustness" / "mutations"
MEMORY_DISK = Path("/dev/shm")

Seen: TypeAlias = set[str]


class Hang(BaseException):
    """A case that took too long: not an error that a reader could take for one of its own."""


def run_case(target: Target, number: int, directory: Path, seen: Seen | None = None) -> str:
    """What became of it; anything but the documented is an exception, and a fault.

    Files, models and runs that were `seen` are not tried again; new ones are added.
    """
    seen = set() if seen is None else seen
    draw = random.Random(number)
    files, resealed = _drawn(target, draw)
    if not _is_new(seen, _files_key(files, resealed)):
        return AGAIN
    write_files(directory, files)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return _outcome(target, directory, resealed, seen, report=draw.randrange(REPORTED) == 0)


def _drawn(target: Target, draw: random.Random) -> tuple[Files, bool]:
    """Damaged files, and whether all their checksums are right again."""
    resealed = target.reseal is not None and draw.random() < 0.8
    change = target.reseal if resealed and target.reseal else mutated
    return change(target.files, draw), resealed


def _outcome(target: Target, directory: Path, resealed: bool, seen: Seen, report: bool) -> str:
    try:
        found = target.read(directory, resealed)
    except target.errors:
        return "refused"
    if found is None:
        return "read"
    if not _is_new(seen, found.key):
        return AS_BEFORE
    try:
        found.use(report)
    except USED:
        return "used, and told why not"
    return "used, and reported" if report else "used"


def _is_new(seen: Seen, key: str) -> bool:
    known = key in seen
    seen.add(key)
    return not known


def _files_key(files: Files, resealed: bool) -> str:
    """Checksum of files; what is not resealed must give the original model, so that it is apart."""
    parts = [(name.encode(), digest(content).encode()) for name, content in sorted(files.items())]
    return digest(bytes([resealed]), *(part for pair in parts for part in pair))


@dataclass
class Result:
    """Of one kind of file: how many numbers were tried, from the first one on, and what became of
    the cases. Notes are for what people have to say about it.
    """

    numbers: int = 0
    cases: int = 0
    seconds: float = 0.0
    first: int = 0
    notes: dict[str, str] = field(default_factory=dict)
    outcomes: dict[str, Counter[str]] = field(default_factory=lambda: defaultdict(Counter))
    faults: list[str] = field(default_factory=list)

    def add(self, target: str, outcome: str, faults: list[str]) -> None:
        self.numbers += 1
        self.cases += outcome != AGAIN
        self.outcomes[target][outcome] += 1
        self.faults += faults


class Torture:
    """The cases of one kind of file, from whatever number."""

    def __init__(self, made: Mapping[str, Target], root: Path) -> None:
        self.made, self.root = dict(made), root
        self.names = list(made)
        self.seen: dict[str, Seen] = {name: set() for name in made}

    def remember(self, numbers: range) -> None:
        """The files of cases that were tried in earlier calls."""
        for number in numbers:
            name = self.names[number % len(self.names)]
            self.seen[name].add(_files_key(*_drawn(self.made[name], random.Random(number))))

    def run(self, numbers: range, result: Result) -> None:
        """These cases, in batches; the targets take turns."""
        outside = self.root / "outside"
        outside.write_text("mine")
        for first in range(numbers.start, numbers.stop, BATCH):
            self._batch(range(first, min(first + BATCH, numbers.stop)), result)
        assert sorted(path.name for path in self.root.iterdir()) == ["outside"], "files outside"
        assert outside.read_text() == "mine"

    def _batch(self, numbers: range, result: Result) -> None:
        """In a process of its own, and in another one after the case that ended it."""
        fork = multiprocessing.get_context("fork")
        here, there = fork.Pipe(duplex=False)
        process = fork.Process(target=self._cases, args=(numbers, there))
        process.start()
        there.close()
        for number in numbers:
            name = self.names[number % len(self.names)]
            try:
                told = here.recv() if here.poll(20 * SECONDS) else None
            except EOFError:
                told = None
            if told is None:  # it was ended, or blocks
                process.kill()
                process.join()
                ended = f"the process ended with {process.exitcode}, or did not answer"
                result.add(name, FAULT, [f"{name} {number}: {ended}"])
                return self._batch(range(number + 1, numbers.stop), result)
            outcome, faults, keys = told
            self.seen[name] |= keys
            result.add(name, outcome, faults)
        process.join()
        shutil.rmtree(self.root / "case", ignore_errors=True)
        return None

    def _cases(self, numbers: range, say: Any) -> None:
        limited()
        measure.versions = cache(measure.versions)  # reading them takes longer than most cases
        page._vega = str  # the code that draws charts, the same for all: seconds and much memory
        with patch("lifelong.tasks.datasets.files._download", _no_network):
            for number in numbers:
                say.send(self._case(self.names[number % len(self.names)], number))

    def _case(self, name: str, number: int) -> tuple[str, list[str], Seen]:
        directory = self.root / "case"
        shutil.rmtree(directory, ignore_errors=True)
        seen = _Additions(self.seen[name])
        signal.setitimer(signal.ITIMER_PROF, SECONDS)
        try:
            return run_case(self.made[name], number, directory, seen), [], seen.new
        except (Exception, Hang) as error:
            told = repr(error).replace(str(self.root), "")
            return FAULT, [f"{name} {number}: {told} {_where(error)}"], set()
        finally:
            signal.setitimer(signal.ITIMER_PROF, 0)


def _where(error: BaseException) -> str:
    """The last places in the project that an error came through, without the way to it."""
    frames = traceback.extract_tb(error.__traceback__)
    own = [frame for frame in frames if Path(frame.filename).is_relative_to(PROJECT)]
    places = [f"{Path(f.filename).relative_to(PROJECT)}:{f.lineno}" for f in own]
    return "at " + ", ".join(places[-4:])


class _Additions(Seen):
    """What was seen, with what is new apart, for the process that has to know of it."""

    def __init__(self, before: Seen) -> None:
        super().__init__()
        self.before, self.new = before, set[str]()

    def __contains__(self, key: object) -> bool:
        return key in self.before

    def add(self, key: str) -> None:
        self.before.add(key)
        self.new.add(key)


def _no_network(*_: object) -> Path:
    raise DataError("not there, and not to be downloaded")


def limited() -> None:
    """Let this process take only so much more memory, and each case only so long.

    What counts is memory that can be written to: what draws the charts of a report reserves many
    times as many addresses as it ever uses.
    """
    with Path("/proc/self/statm").open() as statm:
        size = int(statm.read().split()[5]) * resource.getpagesize()
    resource.setrlimit(resource.RLIMIT_DATA, (size + MEMORY, size + MEMORY))

    def too_long(*_: object) -> None:
        raise Hang

    signal.signal(signal.SIGPROF, too_long)


# ---- results, which later calls go on with


def stored(file: Path) -> Result:
    if not file.exists():
        return Result()
    kept = json.loads(file.read_text())
    result = Result(kept["numbers"], kept["cases"], kept["seconds"], faults=kept["faults"])
    result.first, result.notes = kept.get("first number", 0), kept.get("notes", {})
    for target, counts in kept["outcomes by target"].items():
        result.outcomes[target].update(counts)
    return result


def store(file: Path, result: Result) -> None:
    total: Counter[str] = sum(result.outcomes.values(), Counter())
    content = {
        "cases": result.cases,
        "numbers": result.numbers,
        "first number": result.first,
        "faults": result.faults,
        "outcomes": dict(sorted(total.items())),
        "outcomes by target": {
            name: dict(sorted(c.items())) for name, c in result.outcomes.items()
        },
        "limits": f"{SECONDS} seconds of the processor, {MEMORY >> 20} MiB of memory",
        "seconds": round(result.seconds),
        "torch": torch.__version__,
        "python": platform.python_version(),
        "notes": result.notes,
    }
    file.parent.mkdir(parents=True, exist_ok=True)
    aside = file.with_suffix(".incoming")
    aside.write_text(json.dumps(content, indent=1) + "\n")
    aside.replace(file)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--count", type=int, default=100_000, help="cases of each kind of file")
    parser.add_argument("--minutes", type=float, default=float("inf"), help="after which to stop")
    parser.add_argument("--kinds", nargs="*", choices=list(kinds()), default=list(kinds()))
    parser.add_argument("--results", type=Path, default=RESULTS)
    given = parser.parse_args()
    torch.set_num_threads(1)
    tempfile.tempdir = str(MEMORY_DISK) if MEMORY_DISK.is_dir() else None
    until = time.monotonic() + 60 * given.minutes
    faults = 0
    for kind in given.kinds:
        with tempfile.TemporaryDirectory() as root:
            faults += _go_on(kind, given.results / f"{kind}.json", given.count, until, Path(root))
    sys.exit(bool(faults))


def _go_on(kind: str, file: Path, count: int, until: float, root: Path) -> int:
    """Make the cases that are missing, as long as there is time; the number of faults."""
    result = stored(file)
    if result.cases < count and time.monotonic() < until:
        torture = Torture(kinds()[kind](), root)
        torture.remember(range(result.first, result.first + result.numbers))
        gc.freeze()  # forked processes share it
        while result.cases < count and time.monotonic() < until:
            began = time.monotonic()
            size = min(BATCH, count - result.cases)
            start = result.first + result.numbers
            torture.run(range(start, start + size), result)
            result.seconds += time.monotonic() - began
            store(file, result)
    print(f"{kind}: {result.cases} cases, {len(result.faults)} faults", *result.faults, sep="\n")
    return len(result.faults)


if __name__ == "__main__":
    main()
