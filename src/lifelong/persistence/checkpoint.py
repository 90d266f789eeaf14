"""Checkpoints on disk, from which a killed learning resumes.

To learn a task is a sequence of trainings with only deterministic arithmetic between them, so only
trainings are stored: the results of those that have ended, and the full state of the running one.
To resume, the learning is started again: ended trainings return their stored results, and the
running one continues.

A checkpoint is a directory. Its index `journal.json` names one file of tensors per training by
checksum and is replaced in one rename. A checkpoint is bound to its learner, settings and data.
"""

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self, final

import msgspec
from torch import Tensor

from lifelong.persistence.files import (
    MOST,
    MOST_TRAININGS,
    NOT_DECODED,
    LimitError,
    TensorFileError,
    digest,
    directory_lock,
    make_directory,
    packed,
    read_file,
    replace_file,
    require_at_most,
    require_decodable,
    unpacked,
)

FORMAT = "lifelong checkpoint"
VERSION = 1
FILE = "journal.json"
APART = 25  # a write may take one part in so many of the time between two
_FIRST_COST = 0.01  # seconds that a write is thought to take until one was measured
_TOLD = 2000  # characters of a difference


class CheckpointError(ValueError):
    """A checkpoint that cannot be used; the message says which, why, and what to do."""


@final
@dataclass(frozen=True, eq=False)
class StageSnapshot:
    """The saved state of one training: its name, plain data, and tensors."""

    stage: str
    ended: bool
    facts: dict[str, Any]
    tensors: Mapping[str, Tensor]


@final
class _Entry(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A snapshot as listed in the index; `tensors` is the checksum of its file."""

    stage: str
    ended: bool
    facts: dict[str, Any]
    tensors: str
    bytes: int


@final
class _Index(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    format: str
    version: int
    about: dict[str, str]
    entries: list[_Entry]
    complete: bool
    seal: str = ""

    def sealed(self) -> "_Index":
        unsealed = msgspec.structs.replace(self, seal="")
        return msgspec.structs.replace(self, seal=digest(msgspec.json.encode(unsealed)))


@final
class Checkpoint:
    """The stored trainings of one learning, which `about` identifies."""

    def __init__(self, directory: Path, about: Mapping[str, str]) -> None:
        self._directory = directory
        self._about = dict(about)
        self._stored: list[_Entry] = []
        self._ended: list[_Entry | StageSnapshot] = []  # snapshots of ended trainings, in order
        self._cost, self._last = _FIRST_COST, time.monotonic()

    @classmethod
    @contextmanager
    def at(cls, directory: Path, about: Mapping[str, str]) -> Iterator[Self]:
        """Open the checkpoint in this directory, and lock it."""
        with ExitStack() as held:
            try:
                make_directory(directory)
                held.enter_context(directory_lock(directory, patience=1.0))
            except OSError as error:
                raise CheckpointError(
                    f"{directory}: cannot hold a checkpoint: {error.strerror}; give another "
                    "directory, or end what is using it"
                ) from error
            checkpoint = cls(directory, about)
            checkpoint._stored = checkpoint._read()
            yield checkpoint

    def turn(self, stage: str) -> StageSnapshot | None:
        """Begin the next training; returns its stored snapshot, if there is one."""
        number = len(self._ended)
        if number >= len(self._stored):
            return None
        entry = self._stored[number]
        if entry.stage != stage:
            raise self._refusal(f"training {number + 1} is {entry.stage!r} there, now {stage!r}")
        snapshot = self._snapshot(entry)
        if entry.ended:
            self._ended.append(entry)
        return snapshot

    def keep(self, snapshot: Callable[[], StageSnapshot]) -> None:
        """Store the running training, unless the last write was too recent."""
        if self._due():
            self._ended[:] = self._write([*self._ended, snapshot()])[:-1]

    def end(self, snapshot: StageSnapshot) -> None:
        """Store the result of the running training, which has ended."""
        self._ended.append(snapshot)
        if self._due():
            self._ended[:] = self._write(self._ended)

    def complete(self) -> None:
        """Mark the learning as complete: all trainings have ended.

        If the last write was too recent, the stored trainings are only marked.
        """
        if self._due():
            self._write(self._ended, complete=True)
        elif self._stored:
            self._write(self._stored, complete=True)

    def remove(self) -> None:
        """Delete the checkpoint."""
        with suppress(OSError):
            (self._directory / FILE).unlink(missing_ok=True)
            self._drop_files_but(set())

    def _due(self) -> bool:
        return time.monotonic() - self._last >= APART * self._cost

    def _write(
        self, snapshots: Sequence[_Entry | StageSnapshot], complete: bool = False
    ) -> list[_Entry]:
        began = time.monotonic()
        try:
            entries = [self._entry(snapshot) for snapshot in snapshots]
            index = _Index(FORMAT, VERSION, self._about, entries, complete).sealed()
            content = msgspec.json.encode(index)
            require_at_most(MOST_TRAININGS, "trainings", len(entries))
            require_decodable(content)
            replace_file(self._directory / FILE, content)
        except LimitError as error:
            raise CheckpointError(
                f"{self._directory}: the checkpoint cannot be written: {error}; learn without one"
            ) from error
        except OSError as error:
            raise CheckpointError(
                f"{self._directory}: the checkpoint cannot be written: {error.strerror}; the one "
                "before is still there: mend this, and learn the same again to go on from it"
            ) from error
        self._stored = entries
        self._drop_files_but({entry.tensors for entry in entries})
        self._last = time.monotonic()
        self._cost = self._last - began
        return entries

    def _entry(self, snapshot: _Entry | StageSnapshot) -> _Entry:
        if isinstance(snapshot, _Entry):
            return snapshot
        content = packed(snapshot.tensors)
        name = digest(content)
        replace_file(self._file(name), content)
        return _Entry(snapshot.stage, snapshot.ended, snapshot.facts, name, len(content))

    def _read(self) -> list[_Entry]:
        file = self._directory / FILE
        try:
            content = read_file(file, most=MOST)
            require_decodable(content)
            index = msgspec.json.decode(content, type=_Index)
            require_at_most(MOST_TRAININGS, "trainings", len(index.entries))
        except FileNotFoundError:
            return []
        except OSError as error:
            raise self._damage(f"{FILE} cannot be read: {error.strerror}") from error
        except NOT_DECODED as error:
            raise self._damage(f"{FILE}: {error}") from error
        if (index.format, index.version) != (FORMAT, VERSION):
            raise self._refusal(
                f"it is a {index.format!r} of version {index.version}, this release goes on from "
                f"a {FORMAT!r} of version {VERSION}"
            )
        if index.seal != index.sealed().seal:
            raise self._damage(f"the checksum of {FILE} differs")
        if index.about == self._about:
            return index.entries
        if index.complete:
            return []  # of an earlier learning that has ended
        raise self._refusal(_differences(index.about, self._about))

    def _snapshot(self, entry: _Entry) -> StageSnapshot:
        try:
            content = read_file(self._file(entry.tensors), size=entry.bytes)
            if digest(content) != entry.tensors:
                raise self._damage(f"the checksum of {entry.stage!r} differs")
            return StageSnapshot(entry.stage, entry.ended, entry.facts, unpacked(content))
        except OSError as error:
            raise self._damage(f"{entry.stage!r} cannot be read: {error.strerror}") from error
        except TensorFileError as error:
            raise self._damage(f"{entry.stage!r}: {error}") from error

    def _file(self, checksum: str) -> Path:
        if not (len(checksum) == 64 and set(checksum) <= set("0123456789abcdef")):
            raise self._damage(f"{checksum!r} is no checksum")
        return self._directory / f"training-{checksum}.safetensors"

    def _drop_files_but(self, kept: set[str]) -> None:
        names = {self._file(checksum).name for checksum in kept}
        for file in self._directory.glob("training-*.safetensors"):
            if file.name not in names:
                with suppress(OSError):
                    file.unlink(missing_ok=True)

    def _damage(self, what: str) -> CheckpointError:
        return CheckpointError(
            f"{self._directory}: the checkpoint is damaged: {what}; remove the directory to learn "
            "from the start"
        )

    def _refusal(self, why: str) -> CheckpointError:
        return CheckpointError(
            f"{self._directory}: holds the checkpoint of another learning: {why}; finish that one, "
            "give another directory, or remove this one to learn from the start"
        )


def _differences(kept: Mapping[str, str], now: Mapping[str, str]) -> str:
    """The entries that differ, with both values."""
    names = [name for name in {**kept, **now} if kept.get(name) != now.get(name)]
    told = [f"{name[:99]} is {kept.get(name)} there, now {now.get(name)}" for name in names[:20]]
    return ", ".join(each if len(each) < _TOLD else each[:_TOLD] + "…" for each in told)
