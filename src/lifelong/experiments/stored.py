"""Runs on disk: written completely or not at all, and verified when they are read.

Each new run is a file of its own, so that writers do not conflict and a kill loses nothing else;
`lifelong pack` moves finished runs into one compressed file per data set. Either way a run is one
line of JSON: a `Run`, which any reader of runs accepts, with two more members: `experiment` (the
configuration, its key and the device) and `checksum` (of the rest). Scores are rounded to six
decimals and drifts to three digits, which is finer than the differences between seeds and a quarter
of the size.

    OUT/runs/DATA/METHOD-seed-N-KEY.json      a finished run
    OUT/runs/DATA.jsonl.xz                    finished runs, packed: one per line
    OUT/failed/DATA/METHOD-seed-N-KEY.json    why one failed, until it succeeds
    OUT/models/DATA/METHOD-seed-N-KEY/        its final model
    OUT/working/DATA/METHOD-seed-N-KEY/       what a killed run resumes from
"""

import hashlib
import lzma
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any, final

import msgspec

from lifelong.evaluation.runs import Run, RunError
from lifelong.experiments.configuration import Configuration, differences, slug

RUNS, FAILED, MODELS, WORKING = "runs", "failed", "models", "working"
PACKED, DAMAGED = ".jsonl.xz", ".damaged"
_DECIMALS = 6
_DIGITS = 3


class StoredError(ValueError):
    """A damaged or mismatched stored run; the message names the file and the reason."""


@final
class Experiment(msgspec.Struct, frozen=True):
    """What made a stored run. The device is recorded, but is not part of the key."""

    key: str
    configuration: Configuration
    device: str = "cpu"


@final
@dataclass(frozen=True)
class StoredRun:
    """One run, and what made it."""

    experiment: Experiment
    run: Run


@final
@dataclass(frozen=True)
class Pack:
    """The runs in a packed file by key, and descriptions of damaged lines."""

    runs: Mapping[str, StoredRun]
    damaged: tuple[str, ...] = ()


@final
class Failure(msgspec.Struct, frozen=True):
    """Why a run failed."""

    experiment: Experiment
    error: str
    traceback: str
    versions: dict[str, str]
    command: str


@final
@dataclass(frozen=True)
class RunPaths:
    """The paths of the parts of a run below a directory."""

    out: Path

    def run(self, configuration: Configuration) -> Path:
        return self.out / RUNS / f"{configuration.place}.json"

    def pack(self, data: str) -> Path:
        return self.out / RUNS / f"{slug(data)}{PACKED}"

    def failed(self, configuration: Configuration) -> Path:
        return self.out / FAILED / f"{configuration.place}.json"

    def model(self, configuration: Configuration) -> Path:
        return self.out / MODELS / configuration.place

    def working(self, configuration: Configuration) -> Path:
        return self.out / WORKING / configuration.place


def to_json(stored: StoredRun) -> bytes:
    """One line of JSON that `from_json` reads."""
    members = msgspec.json.decode(stored.run.to_json())
    members = {"experiment": msgspec.to_builtins(stored.experiment), **_rounded(members)}
    return msgspec.json.encode({"checksum": _checksum(members), **members}) + b"\n"


def from_json(text: bytes) -> StoredRun:
    """Read a run, and verify its checksum and key."""
    try:
        members = msgspec.json.decode(text, type=dict[str, Any])
        checksum = members.pop("checksum", None)
        experiment = msgspec.convert(members.get("experiment"), Experiment)
        run = Run.from_json(text)
    except (msgspec.MsgspecError, UnicodeDecodeError, RunError) as error:
        raise StoredError(f"not a stored run: {error}") from error
    if checksum != _checksum(members):
        raise StoredError("its checksum differs, so that something in it was changed")
    if experiment.key != experiment.configuration.key:
        raise StoredError("its key is not that of its configuration")
    return StoredRun(experiment, run)


def read(file: Path) -> StoredRun:
    """Read the run in a file; any problem raises a `StoredError` that names the file."""
    try:
        return from_json(file.read_bytes())
    except StoredError as error:
        raise StoredError(f"{file}: {error}") from error


def find(places: RunPaths, configuration: Configuration) -> StoredRun | None:
    """The run of this configuration, from its own file or else from the pack.

    A damaged file is refused. A damaged line of a pack counts as missing, so that the run is made
    again; `Pack.damaged` names it.
    """
    file = places.run(configuration)
    if not file.exists():
        return read_pack(places.pack(configuration.data)).runs.get(configuration.key)
    stored = read(file)
    found = stored.experiment.configuration
    if found != configuration:
        raise StoredError(
            f"{file}: a run of another configuration: {differences(found, configuration)}"
        )
    return stored


def read_pack(file: Path) -> Pack:
    """Every run in a packed file, none if there is no file; read once per process."""
    try:
        status = file.stat()
    except FileNotFoundError:
        return Pack({})
    return _read_pack(file, status.st_mtime_ns, status.st_size)


@lru_cache(maxsize=16)
def _read_pack(file: Path, _written: int, _size: int) -> Pack:
    try:
        lines = lzma.decompress(file.read_bytes()).splitlines()
    except (lzma.LZMAError, EOFError) as error:
        return Pack({}, (f"{file}: not a pack of runs: {error}",))
    runs: dict[str, StoredRun] = {}
    damaged: list[str] = []
    for number, line in enumerate(lines, 1):
        try:
            stored = from_json(line)
            runs[stored.experiment.key] = stored
        except StoredError as error:
            damaged.append(f"{file}, line {number}: {error}")
    return Pack(runs, tuple(damaged))


def packed(runs: Iterable[StoredRun]) -> bytes:
    """What `read_pack` reads: the same bytes for the same runs, whatever their order."""
    ordered = sorted(runs, key=lambda stored: stored.experiment.configuration.place)
    return lzma.compress(b"".join(map(to_json, ordered)), preset=lzma.PRESET_EXTREME | 9)


def failure(places: RunPaths, configuration: Configuration) -> Failure | None:
    """Why this run failed last time; None if it did not."""
    file = places.failed(configuration)
    try:
        return msgspec.json.decode(file.read_bytes(), type=Failure)
    except (FileNotFoundError, msgspec.MsgspecError):
        return None


def set_aside(file: Path) -> Path:
    """Rename a damaged file, so that the run can be made again and nothing is lost."""
    for name in _free_names(file):
        if not name.exists():
            return file.rename(name)
    raise AssertionError("there is always one more name")


def _free_names(file: Path) -> Iterator[Path]:
    number = 0
    while True:
        yield file.with_name(f"{file.name}{DAMAGED}{number or ''}")
        number += 1


def _checksum(members: Mapping[str, Any]) -> str:
    return hashlib.sha256(msgspec.json.encode(members, order="sorted")).hexdigest()


def _rounded(members: dict[str, Any]) -> dict[str, Any]:
    scores = {name: _decimals(values) for name, values in members["scores"].items()}
    matrix = members["matrix"]
    if matrix is not None:
        scored = {name: _decimals(rows) for name, rows in matrix["scores"].items()}
        matrix = {**matrix, "scores": scored, "seconds": _decimals(matrix["seconds"])}
    records = [_record(record) for record in members["records"]]
    return {**members, "scores": scores, "matrix": matrix, "records": records}


def _record(record: dict[str, Any]) -> dict[str, Any]:
    groups = {
        name: {**group, "drift": [float(f"{drift:.{_DIGITS}g}") for drift in group["drift"]]}
        for name, group in record["groups"].items()
    }
    return {**record, "groups": groups}


def _decimals(value: Any) -> Any:
    """Round the numbers in nested lists."""
    if isinstance(value, list):
        return [_decimals(each) for each in value]
    return None if value is None else round(value, _DECIMALS)
