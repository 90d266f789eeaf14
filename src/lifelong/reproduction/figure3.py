"""Figure 3: average AUROC over the number of tasks (top), and over capacity (bottom)."""

from collections.abc import Mapping, Sequence

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import FixedLocator, LogLocator, MaxNLocator, NullLocator, StrMethodFormatter
from numpy.typing import NDArray

from lifelong.evaluation.results import ResultMatrix
from lifelong.reproduction import style
from lifelong.reproduction.measured import TASKS, Measured, Row, rows
from lifelong.reproduction.series import Point, Series, auroc_of, curve, point

OVER_TASKS, OVER_CAPACITY = "over tasks", "over capacity"
NEAR_ONE = 0.99  # from here on an axis shows 1 - AUROC on a log scale
SMALLEST_REST = 1e-6  # decimals that are stored


def series(measured: Sequence[Measured]) -> tuple[Series, ...]:
    """Both panels of one data set."""
    found = rows(measured)
    methods = list(dict.fromkeys(row.method for row in found))
    by_method = {name: [row for row in found if row.method == name] for name in methods}
    over_tasks = [_over_tasks(name, own) for name, own in by_method.items()]
    over_capacity = [_over_capacity(name, own) for name, own in by_method.items()]
    return tuple(each for each in (*over_tasks, *over_capacity) if each.points)


@style.styled
def draw(panels: Mapping[str, Sequence[Measured]]) -> Figure:
    """One column per data set; for a single data set its two panels side by side.

    Legends have the AUROC at the end, as in the paper, and the best method first.
    """
    single = len(panels) == 1
    most = max(len({each.method for each in measured}) for measured in panels.values())
    shape = (1, 2) if single else (2, len(panels))
    figure, axes = style.page(*shape, height=3.1 if single else 4.6 + 0.11 * most)
    every: list[Series] = []
    for number, (title, measured) in enumerate(panels.items()):
        drawn = series(measured)
        every += drawn
        top, bottom = (axes[0, 0], axes[0, 1]) if single else (axes[0, number], axes[1, number])
        _draw_tasks(top, drawn, title)
        _draw_capacity(bottom, drawn)
        if not single:
            _legend_of_column(top, bottom)
    style.legend_below(figure, axes if single else axes[:0], style.key_of(every))
    return figure


def _legend_of_column(top: Axes, bottom: Axes) -> None:
    shown = style.handles((top, bottom))
    bottom.legend(
        list(shown.values()),
        list(shown),
        loc="upper center",
        bbox_to_anchor=(0.45, -0.25),
        fontsize=6,
        borderpad=0,
        labelspacing=0.25,
    )


def _over_tasks(method: str, own: Sequence[Row]) -> Series:
    """After each task if the method learns one by one; else at each number of tasks measured."""
    line: tuple[Point, ...] = ()
    for row in own:
        if row.plain:
            line = curve(row, ResultMatrix.averages)
    if not line:
        counted = {len(row.runs[0].tasks): row for row in own if row.part == TASKS}
        line = tuple(
            point(count, [auroc_of(run) for run in row.runs])
            for count, row in sorted(counted.items())
        )
    return Series(OVER_TASKS, method, method, line)


def _over_capacity(method: str, own: Sequence[Row]) -> Series:
    """On all tasks, at every size."""
    most = max(len(run.tasks) for row in own for run in row.runs)
    whole = [row for row in own if len(row.runs[0].tasks) == most]
    points = [point(row.capacity.value, [auroc_of(run) for run in row.runs]) for row in whole]
    return Series(OVER_CAPACITY, method, method, tuple(sorted(points, key=lambda p: p.x)))


def _draw_tasks(axes: Axes, drawn: Sequence[Series], title: str) -> None:
    shown = [each for each in drawn if each.panel == OVER_TASKS]
    labels = _labels(drawn)
    for each in sorted(shown, key=lambda each: -each.y[-1]):
        style.draw_line(axes, each, label=labels[each.method])
    axes.set_title(title)
    axes.set_xlabel("number of tasks learned")
    axes.set_ylabel("average AUROC" + _scaled(axes, shown))
    axes.xaxis.set_major_locator(MaxNLocator(integer=True))


def _draw_capacity(axes: Axes, drawn: Sequence[Series]) -> None:
    shown = [each for each in drawn if each.panel == OVER_CAPACITY]
    labels = _labels(drawn)
    for each in shown:
        style.draw_line(axes, each, label=labels.get(each.method))
    axes.set_xscale("log")
    sizes = [x for each in shown for x in each.x]
    axes.xaxis.set_major_locator(LogLocator(10, subs=_labelled(sizes)))
    axes.xaxis.set_minor_locator(NullLocator())
    axes.xaxis.set_major_formatter(StrMethodFormatter("{x:g}"))
    axes.set_xlabel("stored bytes / base network's")
    axes.set_ylabel("average AUROC at the end" + _scaled(axes, shown))


def _labels(drawn: Sequence[Series]) -> dict[str, str]:
    """The methods on the base network with their AUROC at the end."""
    ends = [each for each in drawn if each.panel == OVER_TASKS]
    return {each.method: f"{each.label} {each.y[-1]:.4f}" for each in ends}


def _labelled(sizes: Sequence[float]) -> tuple[float, ...]:
    """Ticks per decade: as many as fit without overlap."""
    few = max(sizes) < 15 * min(sizes)
    return (1.0, 2.0, 5.0) if few else (1.0, 3.0)


def _scaled(axes: Axes, shown: Sequence[Series]) -> str:
    """Where methods come near to 1, what counts is the rest: make it logarithmic, and say so."""
    if max((each.y[-1] for each in shown), default=0.0) < NEAR_ONE:
        return ""
    axes.set_yscale("function", functions=(_to_rest, _from_rest))
    digits = _to_rest(np.array([limit for each in shown for limit in (*each.low, *each.high)]))
    pad = 0.05 * max(np.ptp(digits), 0.1)
    low, high = _from_rest(np.array([digits.min() - pad, digits.max() + pad]))
    axes.set_ylim(float(low), float(high))
    ticks = [1 - step * 10.0**-power for power in range(1, 6) for step in (5, 2, 1)]
    axes.yaxis.set_major_locator(FixedLocator([tick for tick in ticks if low <= tick <= high]))
    axes.yaxis.set_major_formatter(StrMethodFormatter("{x:.6g}"))
    return "\n(log scale of 1 - AUROC)"


def _to_rest(auroc: NDArray[np.float64]) -> NDArray[np.float64]:
    return -np.log10(np.maximum(1 - np.asarray(auroc), SMALLEST_REST))


def _from_rest(digits: NDArray[np.float64]) -> NDArray[np.float64]:
    return 1 - 10.0 ** -np.asarray(digits)
