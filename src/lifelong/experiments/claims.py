"""Who makes a run that machines share.

The one who makes it holds its claim, `claim-N` in the run's directory, and touches it every few
seconds. To create a file that must not exist is one atomic act in every store, so that two never
hold the same claim; a claim that nobody has touched for a minute is taken over by creating the next
number. Who has lost its claim stores nothing.
"""

import os
import platform
import re
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from functools import cache
from pathlib import Path, PurePosixPath
from typing import final

import msgspec

from lifelong.experiments.addresses import FilesAt

BEAT, STALE = 10.0, 60.0  # seconds between signs of life; without one for so long, it is dead
WAIT = 0.5  # seconds between two looks at a claim that is held
_CLAIM = re.compile(r"claim-(\d{6})")


class RunLocked(RuntimeError):
    """Another process is making this run."""


def is_claim(name: str) -> bool:
    """Whether a file of this name is a claim."""
    return _CLAIM.fullmatch(name) is not None


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
class Claims:
    """The claims on one run."""

    def __init__(self, files: FilesAt, directory: PurePosixPath) -> None:
        self._files, self._directory = files, directory

    @contextmanager
    def held(self, patience: float) -> Iterator["Claim"]:
        """Hold the claim on the run; waits for it for so many seconds."""
        until = time.monotonic() + patience
        while (claim := self.take()) is None:
            if time.monotonic() >= until:
                sign = self.sign()
                by = "" if sign is None else f", at {sign.where}"
                raise RunLocked(f"another process is making this run{by}")
            time.sleep(min(WAIT, patience))
        try:
            yield claim
        finally:
            claim.give_back()

    def take(self) -> "Claim | None":
        """The claim, if nobody holds it."""
        last = self.last
        if last and not self._abandoned(last):
            return None
        taken = self._files.create(self._name(last + 1), msgspec.json.encode(Sign.here()))
        return Claim(self, last + 1) if taken else None

    @property
    def last(self) -> int:
        """The number of the claim that counts; 0 if there is none."""
        found = map(_CLAIM.fullmatch, self._files.names_in(self._directory))
        return max((int(match[1]) for match in found if match), default=0)

    def sign(self) -> Sign | None:
        """The last sign of life of who makes the run."""
        last = self.last
        return self._sign(last) if last else None

    def put(self, number: int, sign: Sign) -> None:
        """Give a sign of life."""
        self._files.put(self._name(number), msgspec.json.encode(sign))

    def _abandoned(self, number: int) -> bool:
        sign = self._sign(number)
        if sign is not None and (sign.free or sign.dead):
            return True
        age = self._files.age(self._name(number))
        return age is None or age > STALE

    def _sign(self, number: int) -> Sign | None:
        content = self._files.read(self._name(number))
        try:
            return None if content is None else msgspec.json.decode(content, type=Sign)
        except msgspec.MsgspecError:
            return None

    def _name(self, number: int) -> PurePosixPath:
        return self._directory / f"claim-{number:06}"


@final
class Claim:
    """The right to make one run, as long as `held`."""

    def __init__(self, claims: Claims, number: int) -> None:
        self._claims, self._number = claims, number
        self._sign = Sign.here()
        self._busy = threading.Lock()

    def tell(self, what: str, done: int) -> None:
        """Say how far the run is."""
        self._sign = Sign.here(what, done)
        self._touch()

    @property
    def held(self) -> bool:
        return self._claims.last == self._number

    def require(self) -> None:
        """Raise `RunLocked` if another process has taken the run over."""
        if not self.held:
            raise RunLocked("another process has taken this run over, since this one was silent")

    @contextmanager
    def copying(self, put: Callable[[], None]) -> Iterator[None]:
        """Until the end, give signs of life, and copy what another machine could go on from."""
        over = threading.Event()

        def beat() -> None:
            while not over.wait(BEAT):
                with suppress(Exception):  # each store has its errors: the next time, or it is lost
                    self._touch()
                    self.copy(put)

        thread = threading.Thread(target=beat, daemon=True)
        thread.start()
        try:
            yield
        except BaseException:
            over.set()
            thread.join()
            with suppress(Exception):  # what was copied before is there still
                self.copy(put)  # it was told to end: another process goes on from here
            raise
        finally:
            over.set()
            thread.join()

    def copy(self, put: Callable[[], None]) -> None:
        """Copy what another machine could go on from, unless it has taken the run over."""
        with self._busy:
            if self.held:
                put()

    def give_back(self) -> None:
        """Let whoever comes next take the run at once."""
        self._sign = Sign.here(free=True)
        with suppress(OSError):
            self._touch()

    def _touch(self) -> None:
        if self.held:
            self._claims.put(self._number, self._sign)
