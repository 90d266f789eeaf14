"""Figure 4: AUROC over training time (a), units selected (b), and the table of expansions (c)."""

from collections.abc import Sequence

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.transforms import Bbox

from lifelong.evaluation.runs import Run
from lifelong.looks import look
from lifelong.reproduction import style
from lifelong.reproduction.measured import Measured, Row, plain
from lifelong.reproduction.series import Point, Series, point

OVER_TIME, SELECTED = "AUROC over training time", "units selected by layer"
RETRAINING = ("DNN-L2", "DNN-L1", "L2-Selective")
EXPANSION = ("DNN-L2", "L2-Selective", "DEN-Constant-13", "DEN-Constant-20", "DEN-Dynamic")


def series(measured: Sequence[Measured]) -> tuple[Series, ...]:
    """What panels (a) and (b) show; the table has its own numbers."""
    found = plain(measured)
    over_time = [_over_time(found[name]) for name in RETRAINING if name in found]
    selected = [_selected(found["L2-Selective"])] if "L2-Selective" in found else []
    return tuple(each for each in (*over_time, *selected) if each.points)


@style.styled
def draw(measured: Sequence[Measured], title: str = "") -> Figure:
    """The three panels side by side."""
    drawn, found = series(measured), plain(measured)
    figure, axes = style.page(1, 3, height=2.8, width_ratios=(1.15, 0.85, 1.5))
    _draw_time(axes[0, 0], drawn)
    _draw_selected(axes[0, 1], drawn, found)
    _draw_table(axes[0, 2], [found[name] for name in EXPANSION if name in found])
    figure.suptitle(title)
    style.legend_below(figure, axes, style.key_of(drawn, "band or bar: ± one standard error"))
    return figure


def _over_time(row: Row) -> Series:
    """After each task: the seconds of learning so far, and the average AUROC."""
    results = [run.results for run in row.runs]
    matrices = [matrix for matrix in results if matrix is not None]
    stages = range(min((len(matrix.tasks) for matrix in matrices), default=0))
    points = [
        point(
            float(np.mean([matrix.seconds[: stage + 1].sum() for matrix in matrices])),
            [float(matrix.averages()[stage]) for matrix in matrices],
        )
        for stage in stages
    ]
    return Series(OVER_TIME, row.method, row.method, tuple(points))


def _selected(row: Row) -> Series:
    """For each layer, from the input on, the units that a task after the first selects."""
    layers = list(row.runs[0].widths)
    points = [
        point(number, [_mean_selected(run, layer) for run in row.runs])
        for number, layer in enumerate(layers, 1)
    ]
    return Series(SELECTED, row.method, row.method, tuple(points))


def _mean_selected(run: Run, layer: str) -> float:
    later = [record.groups[layer].selected for record in run.records[1:]]
    return float(np.mean(later)) if later else 0.0


def _draw_time(axes: Axes, drawn: Sequence[Series]) -> None:
    for each in drawn:
        if each.panel == OVER_TIME:
            style.draw_line(axes, each)
    axes.set_title("(a) AUROC over time")
    axes.set_xlabel("seconds of training")
    axes.set_ylabel("average AUROC")


def _draw_selected(axes: Axes, drawn: Sequence[Series], found: dict[str, Row]) -> None:
    axes.set_title("(b) selected units")
    axes.set_ylabel("units a task selects, of all")
    chosen = next((each for each in drawn if each.panel == SELECTED), None)
    if chosen is None:
        return
    widths = list(found["L2-Selective"].runs[0].widths.values())
    axes.bar(chosen.x, widths, color="none", edgecolor="#999999", width=0.6)
    colour = look(chosen.method).colour
    errors = [one.error for one in chosen.points]
    axes.bar(chosen.x, chosen.y, yerr=errors, color=colour, width=0.6, capsize=2)
    for one, width in zip(chosen.points, widths, strict=True):
        axes.annotate(_share(one, width), (one.x, width), ha="center", va="bottom", fontsize=7)
    axes.set_ylim(0, 1.25 * max(widths))  # room for the words
    axes.set_xticks(chosen.x, [f"layer {int(x)}" for x in chosen.x])
    axes.grid(visible=False, axis="x")


def _share(one: Point, width: int) -> str:
    return f"{one.y:.0f} of {width}\n{100 * one.y / width:.0f}%"


def _draw_table(axes: Axes, found: Sequence[Row]) -> None:
    axes.set_title("(c) expansion; bytes: over the base's")
    axes.axis("off")
    if not found:
        return
    cells = [[row.method, str(row.auroc), f"{row.capacity.value:.2f}"] for row in found]
    table = axes.table(
        cells,
        colLabels=["model", "AUROC", "bytes"],
        colWidths=[0.44, 0.38, 0.2],
        cellLoc="left",
        edges="horizontal",
        bbox=Bbox.from_bounds(0.0, 0.12, 1.0, 0.82),
    )
    table.auto_set_font_size(False)
    table.set_fontsize(7)
