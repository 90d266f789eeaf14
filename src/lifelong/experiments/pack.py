"""Pack finished runs into one compressed file per data set; migrate runs of version 0.1."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, final

import msgspec

from lifelong.experiments.perform import keep
from lifelong.experiments.stored import (
    PACKED,
    RUNS,
    Experiment,
    RunPaths,
    StoredError,
    StoredRun,
    packed,
    read,
    read_pack,
    set_aside,
    to_json,
)
from lifelong.learners.registry import MethodError
from lifelong.learners.registry import method as method_named
from lifelong.persistence.files import directory_lock, make_directory
from lifelong.training.budget import with_new_names


@final
@dataclass(frozen=True)
class Packed:
    """Number of runs per pack written or read; what was left out, and why."""

    runs: dict[Path, int]
    left_out: tuple[str, ...]


@final
@dataclass(frozen=True)
class _Found:
    """The runs of a directory, in files and in packs; descriptions of what cannot be read."""

    files: dict[Path, StoredRun]
    packed: tuple[StoredRun, ...]
    left_out: tuple[str, ...]


def pack(out: Path, source: Path | None = None) -> Packed:
    """Pack the finished runs of a directory, and those of another one if it is given.

    A run that both have stays as it is in OUT. Files of OUT are removed once they are in a pack;
    the other directory is only read. A damaged file stays; a damaged pack is renamed.
    """
    make_directory(out)
    with directory_lock(out):  # two concurrent packs would each lose what the other has added
        return _pack(out, source)


def _pack(out: Path, source: Path | None) -> Packed:
    ours = _found(out)
    theirs = _found(source) if source is not None else _Found({}, (), ())
    together = (*theirs.packed, *theirs.files.values(), *ours.packed, *ours.files.values())
    by_data: dict[str, dict[str, StoredRun]] = {}
    for stored in together:
        experiment = stored.experiment
        by_data.setdefault(experiment.configuration.data, {})[experiment.key] = stored
    written = {_write(out, data, runs): len(runs) for data, runs in sorted(by_data.items())}
    for file in ours.files:
        file.unlink()
    return Packed(written, theirs.left_out + ours.left_out)


def unpack(out: Path) -> Packed:
    """Turn each packed run into a file; remove the packs unless they are damaged."""
    places, written, left_out = RunPaths(out), dict[Path, int](), list[str]()
    for file in _packs(out):
        found = read_pack(file)
        for stored in found.runs.values():
            keep(places.run(stored.experiment.configuration), to_json(stored))
        written[file] = len(found.runs)
        left_out += found.damaged
        if not found.damaged:
            file.unlink()
    return Packed(written, tuple(left_out))


def _packs(directory: Path) -> list[Path]:
    return sorted((directory / RUNS).glob(f"*{PACKED}"))


def _found(directory: Path) -> _Found:
    files: dict[Path, StoredRun] = {}
    together: list[StoredRun] = []
    left_out: list[str] = []
    for file in sorted((directory / RUNS).glob("*/*.json")):
        try:
            files[file] = carried_over(read(file))
        except (StoredError, MethodError) as error:
            left_out.append(f"{file}: {error}" if isinstance(error, MethodError) else str(error))
    for file in _packs(directory):
        found = read_pack(file)
        left_out += found.damaged
        together += [_carried_over_if_known(run) for run in found.runs.values()]
    return _Found(files, tuple(together), tuple(left_out))


def _carried_over_if_known(stored: StoredRun) -> StoredRun:
    """A packed run of a method that is not installed here stays as it is."""
    try:
        return carried_over(stored)
    except MethodError:
        return stored


def _write(out: Path, data: str, runs: Mapping[str, StoredRun]) -> Path:
    file = RunPaths(out).pack(data)
    if read_pack(file).damaged:
        set_aside(file)
    keep(file, packed(runs.values()))
    return file


def carried_over(stored: StoredRun) -> StoredRun:
    """A run with the current settings, and therefore a new key if any name changed or was added.

    A setting that was added has a default that does what was done before. Version 0.1 marked
    look-alike data only in the text of `source`.
    """
    experiment, run = stored.experiment, stored.run
    kind = method_named(experiment.configuration.method).learner.settings_type

    def current(settings: Mapping[str, Any]) -> dict[str, Any]:
        found = msgspec.convert(with_new_names(settings, kind), kind)
        # Made anew, because msgspec leaves the defaults of what is missing out of the object.
        complete = replace(found, budget=replace(found.budget))
        return msgspec.json.decode(msgspec.json.encode(complete), type=dict[str, Any])

    settings = current(experiment.configuration.settings)
    configuration = msgspec.structs.replace(experiment.configuration, settings=settings)
    look_alike = run.look_alike or "look-alike" in run.source
    run = msgspec.structs.replace(run, settings=current(run.settings), look_alike=look_alike)
    return StoredRun(Experiment(configuration.key, configuration, experiment.device), run)
