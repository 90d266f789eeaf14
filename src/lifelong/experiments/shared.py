"""Runs at an address that machines share: `s3://bucket/study`, `gs://…`, or `file:///…` on a mount.

The address has the layout of a directory of runs (`stored`). A machine works in a directory of its
own, and copies to the address what another one needs to go on. fsspec speaks to the store.

Who makes a run holds its claim, `working/DATA/RUN/claim-N`, and touches it every few seconds. To
create a file that must not exist is one atomic act in every store, so that two never hold the same
claim; a claim that nobody has touched for a minute is taken over by creating the next number. Who
has lost its claim stores nothing.
"""

import os
import platform
import re
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from datetime import UTC, datetime
from functools import cache
from hashlib import sha256
from pathlib import Path, PurePosixPath
from typing import Any, final

import fsspec
import msgspec

from lifelong.experiments.configuration import Configuration, slug
from lifelong.experiments.stored import (
    DAMAGED,
    RUNS,
    RunPaths,
    StoredError,
    StoredRun,
    find,
)
from lifelong.extras import require_extra

BEAT, STALE = 10.0, 60.0  # seconds between signs of life; without one for so long, it is dead
WAIT = 0.5  # seconds between two looks at a claim that is held
BULK = 500  # files that are asked for at once
INDICES = ("manifest.json", "progress.json", "journal.json")  # name other files: copied last
_ADDRESS = re.compile(r"[a-z][a-z0-9+.-]+://")
_COPIED = ""  # among the copies: the files that name others, as they were
_CLAIM = re.compile(r"claim-(\d{6})")


class RunLocked(RuntimeError):
    """Another process is making this run."""


def is_address(text: str) -> bool:
    """Whether this is an address, and not a directory."""
    return _ADDRESS.match(text) is not None


@final
class Sign(msgspec.Struct, frozen=True):
    """A sign of life of the process that makes a run: where it is, and how far."""

    machine: str
    process: int
    node: str
    what: str = ""
    done: int = 0
    free: bool = False  # given back: whoever comes next may take it at once

    @classmethod
    def here(cls, what: str = "", done: int = 0, free: bool = False) -> "Sign":
        return cls(_machine(), os.getpid(), platform.node(), what, done, free)

    @property
    def where(self) -> str:
        return f"{self.node}:{self.process}"

    @property
    def dead(self) -> bool:
        """Whether its process was on this machine, and is no more."""
        if not self.machine or self.machine != _machine():
            return False
        try:
            status = Path(f"/proc/{self.process}/stat").read_text()
        except OSError:
            return True
        return status.rpartition(")")[2].split()[0] == "Z"


@cache
def _machine() -> str:
    """This machine since it was started, and the processes that it numbers alike; if it says so."""
    try:
        boot = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
        return f"{boot} {Path('/proc/self/ns/pid').readlink()}"
    except OSError:
        return ""


@final
class SharedStore:
    """The runs at an address."""

    def __init__(self, address: str) -> None:
        self.address = address
        try:
            self._files, root = fsspec.url_to_fs(address, use_listings_cache=False)
        except (ImportError, ValueError) as error:
            raise StoredError(
                f"{address}: no such store can be reached from here: {error}; install what speaks "
                "to it (s3fs, gcsfs, adlfs), or give a directory"
            ) from error
        self._root = root.rstrip("/")
        self._paths = RunPaths(Path())  # relative: where things are below the address

    def mirror(self) -> Path:
        """A directory of this machine for the runs of this address."""
        require_extra("pooch", extra="data")
        import pooch

        name = f"{slug(self.address)[-40:]}-{sha256(self.address.encode()).hexdigest()[:12]}"
        return Path(pooch.os_cache("lifelong")) / "stores" / name

    def refresh(self, out: Path) -> None:
        """Make the runs in a directory those of the address; each is copied once."""
        there = self._listed(PurePosixPath(RUNS))
        for file in sorted((out / RUNS).rglob("*.json")):
            if _relative(file, out) not in there:
                file.unlink()
        known = {name: out / name for name in there if not name.name.endswith(".incoming")}
        self._copy_here({n: f for n, f in known.items() if not _has_size(f, there[n])})

    def copy_run(self, configuration: Configuration, out: Path) -> None:
        """Copy one finished run to a directory."""
        name = _posix(self._paths.run(configuration))
        self._copy_here({name: out / name})

    def find(self, configuration: Configuration, scratch: Path) -> StoredRun | None:
        """The run of this configuration, read by way of a directory of this machine."""
        for file in (self._paths.run(configuration), self._paths.pack(configuration.data)):
            with suppress(FileNotFoundError):
                self._copy_here({_posix(file): scratch / file})
        return find(RunPaths(scratch), configuration)

    def put_run(self, configuration: Configuration, out: Path) -> None:
        """Copy what a run left in a directory to the address: first its model, then the run."""
        model = self._paths.model(configuration)
        self._remove(_posix(model))
        for file in _files_below(out / model):
            self._put(_relative(file, out), file.read_bytes())
        name = self._paths.run(configuration)
        self._put(_posix(name), (out / name).read_bytes())

    def clear(self, configuration: Configuration) -> None:
        """Remove what a finished run does not need: how far it was, and why it failed before."""
        self._remove(_posix(self._paths.failed(configuration)))
        self._remove(_posix(self._paths.working(configuration)))

    def put_failure(self, configuration: Configuration, content: bytes) -> None:
        self._put(_posix(self._paths.failed(configuration)), content)

    def set_aside(self, configuration: Configuration) -> None:
        """Rename a damaged run, so that it can be made again."""
        name = self._at(_posix(self._paths.run(configuration)))
        with suppress(FileNotFoundError):
            self._files.mv(name, f"{name}{DAMAGED}")

    def copy_model(self, configuration: Configuration, out: Path) -> None:
        """Copy the model of a run to a directory, if there is one."""
        self._copy_tree(self._paths.model(configuration), out)

    def copy_working(self, configuration: Configuration, out: Path) -> None:
        """Copy what a killed run goes on from to a directory, but no claims."""
        self._copy_tree(self._paths.working(configuration), out)

    def put_working(self, configuration: Configuration, out: Path, known: dict[str, Any]) -> None:
        """Copy what another machine could go on from to the address.

        The run goes on meanwhile. Files that name others are read first and copied last, and not at
        all if they have changed: the others may then be gone. `known` are the copies made before.
        """
        top = out / self._paths.working(configuration)
        before = _indices(top)
        if not before or before == known.get(_COPIED):
            return
        files = [f for f in _files_below(top) if f.name not in INDICES]
        try:
            for file in files:
                self._put_once(_relative(file, out), file, known)
        except FileNotFoundError:
            return
        if _indices(top) == before:
            for file, content in before.items():
                self._put(_relative(file, out), content)
            known[_COPIED] = before
            self._forget(configuration, {_relative(f, out) for f in (*files, *before)}, known)

    def sign_of(self, configuration: Configuration) -> Sign | None:
        """The last sign of life of who makes this run."""
        claims = self._claims(configuration)
        return self._sign(claims[max(claims)]) if claims else None

    @contextmanager
    def claimed(self, configuration: Configuration, patience: float) -> Iterator["Claim"]:
        """Hold the claim on a run; waits for it for so many seconds."""
        until = time.monotonic() + patience
        while (claim := self._claim(configuration)) is None:
            if time.monotonic() >= until:
                sign = self.sign_of(configuration)
                by = "" if sign is None else f", at {sign.where}"
                raise RunLocked(f"another process is making this run{by}")
            time.sleep(min(WAIT, patience))
        try:
            yield claim
        finally:
            claim.give_back()

    def _claim(self, configuration: Configuration) -> "Claim | None":
        claims = self._claims(configuration)
        last = max(claims, default=0)
        if claims and not self._abandoned(claims[last]):
            return None
        name = _posix(self._paths.working(configuration)) / f"claim-{last + 1:06}"
        try:
            self._make_parents(name)
            with self._files.open(self._at(name), "xb") as stream:
                stream.write(msgspec.json.encode(Sign.here()))
        except (FileExistsError, FileNotFoundError):  # another one was faster, or has just ended
            return None
        return Claim(self, configuration, last + 1)

    def _abandoned(self, name: str) -> bool:
        sign = self._sign(name)
        if sign is not None and (sign.free or sign.dead):
            return True
        try:
            touched: datetime = self._files.modified(name)
        except FileNotFoundError:
            return True
        aware = touched if touched.tzinfo else touched.replace(tzinfo=UTC)
        return (datetime.now(UTC) - aware).total_seconds() > STALE

    def _claims(self, configuration: Configuration) -> dict[int, str]:
        """The claims on a run by number."""
        try:
            names = self._files.ls(self._at(_posix(self._paths.working(configuration))), False)
        except (FileNotFoundError, NotADirectoryError):
            return {}
        found = ((_CLAIM.fullmatch(PurePosixPath(name).name), name) for name in names)
        return {int(match[1]): name for match, name in found if match}

    def _sign(self, name: str) -> Sign | None:
        try:
            return msgspec.json.decode(self._files.cat_file(name), type=Sign)
        except (FileNotFoundError, msgspec.MsgspecError):
            return None

    def _put_once(self, name: PurePosixPath, file: Path, known: dict[str, Any]) -> None:
        """These files do not change once they are named; so each is copied once."""
        status = file.stat()
        stamp = (status.st_size, status.st_mtime_ns)
        if known.get(str(name)) != stamp:
            self._put(name, file.read_bytes())
            known[str(name)] = stamp

    def _forget(
        self, configuration: Configuration, kept: set[PurePosixPath], known: dict[str, Any]
    ) -> None:
        for name in self._listed(_posix(self._paths.working(configuration))):
            if name not in kept and not _CLAIM.fullmatch(name.name):
                self._remove(name)
                known.pop(str(name), None)

    def _put(self, name: PurePosixPath, content: bytes) -> None:
        """Write a file completely or not at all."""
        self._make_parents(name)
        mine = f"{platform.node()}-{os.getpid()}-{threading.get_ident()}"
        aside = self._at(name.with_name(f"{name.name}.{mine}.incoming"))
        self._files.pipe_file(aside, content)
        self._files.mv(aside, self._at(name))

    def _make_parents(self, name: PurePosixPath) -> None:
        self._files.makedirs(self._at(name.parent), exist_ok=True)

    def _copy_tree(self, below: Path, out: Path) -> None:
        names = [n for n in self._listed(_posix(below)) if not _CLAIM.fullmatch(n.name)]
        with suppress(FileNotFoundError):  # removed meanwhile: there is less to go on from
            self._copy_here({name: out / name for name in names})

    def _copy_here(self, wanted: Mapping[PurePosixPath, Path]) -> None:
        names = list(wanted)
        for first in range(0, len(names), BULK):
            bulk = {self._at(name): wanted[name] for name in names[first : first + BULK]}
            for name, content in self._cat(list(bulk)).items():
                _write(bulk[name], content)

    def _cat(self, names: list[str]) -> dict[str, bytes]:
        found = self._files.cat(names) if len(names) > 1 else None
        return found or {name: self._files.cat_file(name) for name in names}

    def _listed(self, below: PurePosixPath) -> dict[PurePosixPath, int]:
        """The files below a place, by name relative to the address, with their sizes."""
        found = self._files.find(self._at(below), detail=True)
        names = {PurePosixPath(name).relative_to(self._root): i for name, i in found.items()}
        return {n: int(info["size"]) for n, info in names.items() if ".." not in n.parts}

    def _remove(self, name: PurePosixPath) -> None:
        with suppress(FileNotFoundError):
            self._files.rm(self._at(name), recursive=True)

    def _at(self, name: PurePosixPath) -> str:
        return f"{self._root}/{name}"


@final
class Claim:
    """The right to make one run, as long as `held`."""

    def __init__(self, store: SharedStore, configuration: Configuration, number: int) -> None:
        self._store, self._configuration, self._number = store, configuration, number
        self._sign = Sign.here()
        self._known: dict[str, Any] = {}
        self._busy = threading.Lock()

    def tell(self, what: str, done: int) -> None:
        """Say how far the run is."""
        self._sign = Sign.here(what, done)
        self._touch()

    @property
    def held(self) -> bool:
        claims = self._store._claims(self._configuration)
        return self._number in claims and max(claims) == self._number

    def require(self) -> None:
        """Raise `RunLocked` if another process has taken the run over."""
        if not self.held:
            raise RunLocked("another process has taken this run over, since this one was silent")

    @contextmanager
    def copying(self, out: Path) -> Iterator[None]:
        """Until the end, give signs of life, and copy what another machine could go on from."""
        over = threading.Event()

        def beat() -> None:
            while not over.wait(BEAT):
                with suppress(Exception):  # each store has its errors: the next time, or it is lost
                    self._touch()
                    self.copy(out)

        thread = threading.Thread(target=beat, daemon=True)
        thread.start()
        try:
            yield
        except BaseException:
            over.set()
            thread.join()
            with suppress(Exception):  # what was copied before is there still
                self.copy(out)  # it was told to end: another process goes on from here
            raise
        finally:
            over.set()
            thread.join()

    def copy(self, out: Path) -> None:
        with self._busy:
            if self.held:
                self._store.put_working(self._configuration, out, self._known)

    def give_back(self) -> None:
        self._sign = Sign.here(free=True)
        with suppress(OSError):
            self._touch()

    def _touch(self) -> None:
        if self.held:
            name = _posix(RunPaths(Path()).working(self._configuration))
            self._store._put(name / f"claim-{self._number:06}", msgspec.json.encode(self._sign))


def _indices(top: Path) -> dict[Path, bytes]:
    """The files that name others."""
    found: dict[Path, bytes] = {}
    for file in _files_below(top):
        if file.name in INDICES:
            with suppress(FileNotFoundError):
                found[file] = file.read_bytes()
    return found


def _files_below(directory: Path) -> list[Path]:
    return sorted(
        file for file in directory.rglob("*") if file.is_file() and not file.name.startswith(".")
    )


def _has_size(file: Path, size: int) -> bool:
    try:
        return file.stat().st_size == size
    except OSError:
        return False


def _write(file: Path, content: bytes) -> None:
    file.parent.mkdir(parents=True, exist_ok=True)
    aside = file.with_name(f"{file.name}.{os.getpid()}.incoming")
    aside.write_bytes(content)
    aside.replace(file)


def _relative(file: Path, out: Path) -> PurePosixPath:
    return _posix(file.relative_to(out))


def _posix(path: Path) -> PurePosixPath:
    return PurePosixPath(path.as_posix())
