"""How long runs take, from the seconds of stored ones: plain reading, without torch."""

import lzma
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TypeAlias, final

import msgspec

from lifelong.experiments.configuration import Configuration
from lifelong.experiments.stored import PACKED, RUNS

_Kind: TypeAlias = tuple[str, int, str, float, str]


@final
class _Made(msgspec.Struct):
    configuration: Configuration


@final
class _Summary(msgspec.Struct):
    seconds: float


@final
class _Timed(msgspec.Struct):
    """Of a stored run only what tells how long it took."""

    experiment: _Made
    summary: _Summary


@final
@dataclass(frozen=True)
class Expected:
    """Seconds of learning that some runs will take on one core, and of how many that is known."""

    seconds: float
    known: int
    runs: int

    def __str__(self) -> str:
        if not self.known:
            return "unknown"
        most = "" if self.known == self.runs else f" for {self.known} of {self.runs} runs"
        return f"{in_words(self.seconds)}{most}"


@final
class Durations:
    """Mean seconds of the stored runs of each kind: data, tasks, network and method."""

    def __init__(self, out: Path) -> None:
        found: dict[_Kind, list[float]] = {}
        for timed in _stored(out / RUNS):
            kind = _kind(timed.experiment.configuration)
            found.setdefault(kind, []).append(timed.summary.seconds)
        self._mean = {kind: sum(each) / len(each) for kind, each in found.items()}

    def expected(self, configurations: Iterable[Configuration]) -> Expected:
        """What these will take; settings and seeds are thought not to matter."""
        each = [self._mean.get(_kind(configuration)) for configuration in configurations]
        known = [seconds for seconds in each if seconds is not None]
        return Expected(sum(known), len(known), len(each))


def in_words(seconds: float) -> str:
    """To two digits: a run will not take exactly as long as another did."""
    for unit, size in (("h", 3600.0), ("min", 60.0)):
        if seconds >= 1.5 * size:
            return (
                f"{seconds / size:.1f} {unit}"
                if seconds < 10 * size
                else f"{seconds / size:.0f} {unit}"
            )
    return f"{max(1, round(seconds))} s"


def _kind(configuration: Configuration) -> _Kind:
    c = configuration
    return c.data, c.tasks, str(c.network), c.scale, c.method


def _stored(runs: Path) -> Iterator[_Timed]:
    """Damaged runs are left out: whoever needs their numbers will say so."""
    for file in sorted(runs.glob(f"*{PACKED}")):
        try:
            lines = lzma.decompress(file.read_bytes()).splitlines()
        except (lzma.LZMAError, EOFError, OSError):
            continue
        yield from _decoded(lines)
    for file in sorted(runs.glob("*/*.json")):
        yield from _decoded([file.read_bytes()])


def _decoded(lines: Iterable[bytes]) -> Iterator[_Timed]:
    for line in lines:
        try:
            yield msgspec.json.decode(line, type=_Timed)
        except (msgspec.MsgspecError, UnicodeDecodeError):
            continue
