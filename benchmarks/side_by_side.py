"""Ratios of two ways to do the same, measured in turns in one run, and their table.

A machine that is busy or slow is so for both, so a ratio means more than a time. The ratio of each
turn is taken, and of these the median. Seconds are those of the processor, which do not count what
others were given of it meanwhile; with one thread on a free machine they are those of the clock.
"""

import time
from collections.abc import Callable, Sequence
from pathlib import Path
from statistics import median

import msgspec
import torch

RESULTS = Path(__file__).resolve().parent / "results.json"


class Figure(msgspec.Struct):
    """A ratio, and the most that it may be; None where there is no target."""

    name: str
    ratio: float
    target: float | None
    holds: bool | None
    threads: int


def figure(name: str, ratio: float, target: float | None) -> Figure:
    ratio = round(ratio, 4)
    holds = None if target is None else ratio <= target
    return Figure(name, ratio, target, holds, torch.get_num_threads())


def ratio(
    ours: Callable[[], object], theirs: Callable[[], object], *, turns: int = 9, warm: int = 1
) -> float:
    """How many times as long ours takes as theirs."""
    for _ in range(warm):
        ours()
        theirs()
    return median(_seconds(ours) / _seconds(theirs) for _ in range(turns))


def _seconds(work: Callable[[], object]) -> float:
    start = time.process_time()
    work()
    return time.process_time() - start


def publish(figures: Sequence[Figure]) -> None:
    """Keep these figures, and print their table."""
    keep(figures)
    print("| what | ratio | target | holds | threads |\n|---|---|---|---|---|")
    for one in figures:
        target = "" if one.target is None else f"{one.target:.3g}"
        holds = {None: "", True: "yes", False: "no"}[one.holds]
        print(f"| {one.name} | {one.ratio:.3f} | {target} | {holds} | {one.threads} |")


def keep(figures: Sequence[Figure]) -> None:
    """Put these figures in the place of earlier ones of the same name."""
    old = msgspec.json.decode(RESULTS.read_bytes(), type=list[Figure]) if RESULTS.exists() else []
    merged = {one.name: one for one in [*old, *figures]}
    RESULTS.write_bytes(msgspec.json.format(msgspec.json.encode(list(merged.values()))) + b"\n")
