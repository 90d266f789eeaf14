"""Figure 5: scores of tasks 1, 4 and 7 as later tasks are learned."""

from collections.abc import Sequence

import numpy as np
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator
from numpy.typing import NDArray

from lifelong.evaluation.results import ResultMatrix
from lifelong.reproduction import style
from lifelong.reproduction.measured import Measured, Row, plain
from lifelong.reproduction.series import Series, curve

TASKS = (1, 4, 7)


def series(measured: Sequence[Measured]) -> tuple[Series, ...]:
    """One panel per task of Figure 5 that the stream has."""
    found = plain(measured)
    each = [_drift(row, task) for task in TASKS for row in found.values()]
    return tuple(one for one in each if one.points)


@style.styled
def draw(measured: Sequence[Measured], title: str = "") -> Figure:
    """The panels side by side, on one scale."""
    drawn = series(measured)
    panels = list(dict.fromkeys(each.panel for each in drawn))
    figure, axes = style.page(1, max(1, len(panels)), height=2.9, sharey=True)
    for place, panel in zip(axes[0], panels, strict=False):
        for each in drawn:
            if each.panel == panel:
                style.draw_line(place, each)
        place.set_title(panel)
        place.set_xlabel("tasks learned so far")
        place.xaxis.set_major_locator(MaxNLocator(integer=True))
    axes[0, 0].set_ylabel("AUROC of the task")
    figure.suptitle(title)
    style.legend_below(figure, axes, style.key_of(drawn))
    return figure


def _drift(row: Row, task: int) -> Series:
    def one(results: ResultMatrix) -> NDArray[np.float64]:
        return results.curve(results.tasks[task - 1])

    short = any(run.results is None or len(run.tasks) < task for run in row.runs)
    points = () if short else curve(row, one, first=task)
    return Series(f"task {task}", row.method, row.method, points)
