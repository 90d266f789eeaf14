"""AUROC over the bytes that are kept, with the frontier: what nothing smaller is better than."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import ceil
from typing import final

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, LogLocator, NullLocator

from lifelong.evaluation.runs import Run
from lifelong.looks import look
from lifelong.reproduction import style
from lifelong.reproduction.measured import Measured, Row, rows
from lifelong.reproduction.series import Point, Series, auroc_of, point

PANEL = "over bytes"


def bytes_of(run: Run) -> int:
    """All that a method keeps: to predict, and to learn the next task."""
    return run.summary.bytes + (run.summary.learning_bytes or 0)


@final
@dataclass(frozen=True)
class Place:
    """A method's mean bytes and AUROC."""

    row: Row
    point: Point


def places(measured: Sequence[Measured]) -> tuple[Place, ...]:
    """One for each method, the smallest first."""
    found = []
    for row in rows(measured):
        size = sum(map(bytes_of, row.runs)) / len(row.runs)
        found.append(Place(row, point(size, [auroc_of(run) for run in row.runs])))
    return tuple(sorted(found, key=lambda place: (place.point.x, -place.point.y)))


def frontier(measured: Sequence[Measured]) -> tuple[Place, ...]:
    """The methods that no other one of at most their size beats, the smallest first."""
    kept: list[Place] = []
    for place in places(measured):
        if not kept or place.point.y > kept[-1].point.y:
            kept.append(place)
    return tuple(kept)


def series(measured: Sequence[Measured]) -> tuple[Series, ...]:
    """One point for each method."""
    return tuple(
        Series(PANEL, place.row.method, place.row.label, (place.point,))
        for place in places(measured)
    )


@style.styled
def draw(panels: Mapping[str, Sequence[Measured]]) -> Figure:
    """One panel for each data set."""
    columns = min(3, len(panels))
    lines = ceil(len(panels) / columns)
    figure, axes = style.page(lines, columns, height=0.9 + 2.2 * lines)
    for number, (title, measured) in enumerate(panels.items()):
        _draw(axes[number // columns, number % columns], title, measured)
    for empty in list(axes.flat)[len(panels) :]:
        empty.set_visible(False)
    drawn = [each for measured in panels.values() for each in series(measured)]
    style.legend_below(figure, axes, style.key_of(drawn, "bar: ± one standard error"))
    return figure


def _draw(axes: Axes, title: str, measured: Sequence[Measured]) -> None:
    best = frontier(measured)
    axes.step(
        [place.point.x for place in best],
        [place.point.y for place in best],
        where="post",
        color="#444444",
        linewidth=0.9,
        label="frontier",
        zorder=1,
    )
    for each in series(measured):
        [only] = each.points
        axes.errorbar(
            each.x,
            each.y,
            only.error,
            color=look(each.method).colour,
            linestyle="none",
            capsize=2,
            label=each.label,
            zorder=3,
            **style.mark(each.method, hollow=only.seeds == 1),
        )
    axes.set_xscale("log")
    axes.xaxis.set_major_locator(LogLocator(10, subs=(1.0, 3.0)))
    axes.xaxis.set_minor_locator(NullLocator())
    axes.xaxis.set_major_formatter(FuncFormatter(lambda x, _: _size(x)))
    axes.set_title(title)
    axes.set_xlabel("bytes kept, to predict and to learn")
    axes.set_ylabel("average AUROC at the end")


def _size(count: float) -> str:
    for unit, size in (("GB", 1e9), ("MB", 1e6), ("kB", 1e3)):
        if count >= size:
            return f"{count / size:.3g} {unit}"
    return f"{count:.3g} B"
