"""A learning in the course of being done, on disk, so that it can go on after a kill.

To learn is a sequence of trainings with nothing but arithmetic between them, and the arithmetic is
the same each time. So only trainings are kept: each that has ended with what came out of it, and
the one that is running with all that its next step depends on. To go on, the learning is simply
started again: trainings that have ended answer from the journal, and the last one goes on.

A journal is a directory: `journal.json`, which names a file of tensors for each training by its
checksum and is replaced in one rename. It is bound to what is learned and by whom.
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
    """One training: its name, how far it is in numbers, and its tensors."""

    stage: str
    ended: bool
    facts: dict[str, Any]
    tensors: Mapping[str, Tensor]


@final
class _Entry(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A page on disk."""

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
    """The trainings of one learning. `about` says which: what differs is told to the user."""

    def __init__(self, directory: Path, about: Mapping[str, str]) -> None:
        self._directory = directory
        self._about = dict(about)
        self._stored: list[_Entry] = []
        self._snapshots: list[
            _Entry | StageSnapshot
        ] = []  # of the trainings that have ended, in order
        self._cost, self._last = _FIRST_COST, time.monotonic()

    @classmethod
    @contextmanager
    def at(cls, directory: Path, about: Mapping[str, str]) -> Iterator[Self]:
        """What is kept in this directory, to go on from; nobody else may use it meanwhile."""
        with ExitStack() as held:
            try:
                make_directory(directory)
                held.enter_context(directory_lock(directory, patience=1.0))
            except OSError as error:
                raise CheckpointError(
                    f"{directory}: cannot hold a checkpoint: {error.strerror}; give another "
                    "directory, or end what is using it"
                ) from error
            journal = cls(directory, about)
            journal._stored = journal._read()
            yield journal

    def turn(self, stage: str) -> StageSnapshot | None:
        """Turn to the next training; what is kept of it, if anything."""
        number = len(self._snapshots)
        if number >= len(self._stored):
            return None
        entry = self._stored[number]
        if entry.stage != stage:
            raise self._refusal(f"training {number + 1} is {entry.stage!r} there, now {stage!r}")
        snapshot = self._snapshot(entry)
        if entry.ended:
            self._snapshots.append(entry)
        return snapshot

    def keep(self, snapshot: Callable[[], StageSnapshot]) -> None:
        """Write down how far the running training is, unless it was done a moment ago."""
        if self._due():
            self._snapshots[:] = self._write([*self._snapshots, snapshot()])[:-1]

    def end(self, snapshot: StageSnapshot) -> None:
        """The running training has ended."""
        self._snapshots.append(snapshot)
        if self._due():
            self._snapshots[:] = self._write(self._snapshots)

    def complete(self) -> None:
        """All trainings have ended; who is killed now need not start again.

        What was written a moment ago is left as it is, and only marked.
        """
        if self._due():
            self._write(self._snapshots, complete=True)
        elif self._stored:
            self._write(self._stored, complete=True)

    def remove(self) -> None:
        """Nothing is to be gone on with."""
        with suppress(OSError):
            (self._directory / FILE).unlink(missing_ok=True)
            self._drop_files_but(set())

    def _due(self) -> bool:
        return time.monotonic() - self._last >= APART * self._cost

    def _write(
        self, pages: Sequence[_Entry | StageSnapshot], complete: bool = False
    ) -> list[_Entry]:
        began = time.monotonic()
        try:
            entries = [self._entry(snapshot) for snapshot in pages]
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
            return []  # of something that was learned: its model has gone on since
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
    """What is not the same, both sides of it."""
    names = [name for name in {**kept, **now} if kept.get(name) != now.get(name)]
    told = [f"{name[:99]} is {kept.get(name)} there, now {now.get(name)}" for name in names[:20]]
    return ", ".join(each if len(each) < _TOLD else each[:_TOLD] + "…" for each in told)
