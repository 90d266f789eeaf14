"""Figure 3: average AUROC over the number of tasks (top), and over capacity (bottom)."""

from collections.abc import Mapping, Sequence

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import LogLocator, MaxNLocator, NullLocator, StrMethodFormatter

from lifelong.evaluation.results import ResultMatrix
from lifelong.reproduction import style
from lifelong.reproduction.measured import TASKS, Measured, Row, rows
from lifelong.reproduction.series import Point, Series, auroc_of, curve, point

OVER_TASKS, OVER_CAPACITY = "over tasks", "over capacity"


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
    """One column per data set; for a single data set its two panels side by side."""
    single = len(panels) == 1
    shape = (1, 2) if single else (2, len(panels))
    figure, axes = style.page(*shape, height=2.9 if single else 4.6)
    for number, (title, measured) in enumerate(panels.items()):
        drawn = series(measured)
        top, bottom = (axes[0, 0], axes[0, 1]) if single else (axes[0, number], axes[1, number])
        _draw_tasks(top, drawn, title)
        _draw_capacity(bottom, drawn)
    style.legend_below(figure, axes)
    return figure


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
    for each in drawn:
        if each.panel == OVER_TASKS:
            style.draw_line(axes, each)
    axes.set_title(title)
    axes.set_xlabel("number of tasks learned")
    axes.set_ylabel("average AUROC")
    axes.xaxis.set_major_locator(MaxNLocator(integer=True))


def _draw_capacity(axes: Axes, drawn: Sequence[Series]) -> None:
    shown = [each for each in drawn if each.panel == OVER_CAPACITY]
    for each in shown:
        style.draw_line(axes, each)
    axes.set_xscale("log")
    sizes = [x for each in shown for x in each.x]
    axes.xaxis.set_major_locator(LogLocator(10, subs=_labelled(sizes)))
    axes.xaxis.set_minor_locator(NullLocator())
    axes.xaxis.set_major_formatter(StrMethodFormatter("{x:g}"))
    axes.set_xlabel("capacity relative to DNN-MTL")
    axes.set_ylabel("average AUROC at the end")


def _labelled(sizes: Sequence[float]) -> tuple[float, ...]:
    """Ticks per decade: as many as fit without overlap."""
    few = max(sizes) < 15 * min(sizes)
    return (1.0, 2.0, 5.0) if few else (1.0, 3.0)
