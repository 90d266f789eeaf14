"""The style of the paper's figures: for print, on white, each method the same in all of them."""

from collections.abc import Callable, Sequence
from functools import wraps
from pathlib import Path
from typing import Any, TypeVar

import matplotlib
from matplotlib.artist import Artist
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from PIL import Image

from lifelong.looks import look
from lifelong.reproduction.series import Series

P = TypeVar("P")
FORMATS = ("png", "svg", "pdf")
WIDE = 7.0  # inches: the text width of a page
_SETTINGS: dict[Any, Any] = {
    "font.size": 8,
    "axes.titlesize": 9,
    "axes.labelsize": 8,
    "legend.fontsize": 7,
    "legend.columnspacing": 1.2,
    "legend.handlelength": 2.2,
    "legend.frameon": False,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.grid": True,
    "grid.color": "#e4e4e4",
    "grid.linewidth": 0.6,
    "axes.axisbelow": True,
    "lines.linewidth": 1.3,
    "lines.markersize": 4,
    "savefig.dpi": 200,
    "svg.hashsalt": "lifelong",  # reproducible files
    "svg.fonttype": "none",
    "pdf.fonttype": 42,
}


def styled(draw: Callable[[P], Figure]) -> Callable[[P], Figure]:
    """Apply the style within a `with` block."""

    @wraps(draw)
    def inside(given: P) -> Figure:
        with matplotlib.rc_context(_SETTINGS):
            return draw(given)

    return inside


def page(rows: int, columns: int, height: float, **given: Any) -> tuple[Figure, Any]:
    """A figure of the text width with a grid of panels."""
    figure = Figure(figsize=(WIDE, height), layout="constrained")
    return figure, figure.subplots(rows, columns, squeeze=False, **given)


def legend_below(figure: Figure, axes: Any) -> None:
    """One legend for all panels, with each method once, in as many columns as fit."""
    shown: dict[str, Artist] = {}
    for one in axes.flat:
        for handle, label in zip(*one.get_legend_handles_labels(), strict=True):
            shown.setdefault(label, handle)
    for columns in range(min(8, len(shown)), 0, -1):
        legend = figure.legend(
            list(shown.values()), list(shown), loc="outside lower center", ncols=columns
        )
        if columns == 1 or legend.get_window_extent().width <= figure.bbox.width:
            return
        legend.remove()


def draw_line(axes: Axes, series: Series, *, label: str | None = None) -> None:
    """A line with a band of one standard error; only a marker if there is one point."""
    style = look(series.method)
    axes.plot(
        series.x,
        series.y,
        color=style.colour,
        linestyle=style.line,
        linewidth=style.width,
        marker=style.marker,
        markevery=max(1, len(series.points) // 10),
        label=label or series.label,
        zorder=3,
    )
    axes.fill_between(
        series.x, series.low, series.high, color=style.colour, alpha=0.2, linewidth=0, zorder=2
    )
    if len(series.points) == 1:
        errors = [point.error for point in series.points]
        axes.errorbar(series.x, series.y, errors, color=style.colour, capsize=2, zorder=3)


def save(figure: Figure, directory: Path, name: str, formats: Sequence[str]) -> list[Path]:
    """Save the figure in each format."""
    directory.mkdir(parents=True, exist_ok=True)
    files = [directory / f"{name}.{ending}" for ending in formats]
    for file in files:
        metadata = {"svg": {"Date": None}, "pdf": {"CreationDate": None}}.get(file.suffix[1:])
        with matplotlib.rc_context(_SETTINGS):
            figure.savefig(file, metadata=metadata)
        if file.suffix == ".png":
            _few_colours(file)
    return files


def _few_colours(file: Path) -> None:
    """Reduce a PNG to 256 colours: enough for a chart, and a third of the size."""
    with Image.open(file) as picture:
        reduced = picture.convert("RGB").quantize(256, dither=Image.Dither.NONE)
    reduced.save(file, optimize=True)
