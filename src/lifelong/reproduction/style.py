"""The style of the paper's figures: for print, on white, each method the same in all of them."""

from collections.abc import Callable, Iterable, Sequence
from functools import wraps
from pathlib import Path
from typing import Any, ParamSpec

import matplotlib
from matplotlib.artist import Artist
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from PIL import Image

from lifelong.looks import look
from lifelong.reproduction.series import Series

P = ParamSpec("P")
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
    "savefig.dpi": 200,
    "svg.hashsalt": "lifelong",  # reproducible files
    "svg.fonttype": "none",
    "pdf.fonttype": 42,
}


def styled(draw: Callable[P, Figure]) -> Callable[P, Figure]:
    """Apply the style within a `with` block."""

    @wraps(draw)
    def inside(*given: P.args, **named: P.kwargs) -> Figure:
        with matplotlib.rc_context(_SETTINGS):
            return draw(*given, **named)

    return inside


def page(rows: int, columns: int, height: float, **given: Any) -> tuple[Figure, Any]:
    """A figure of the text width with a grid of panels."""
    figure = Figure(figsize=(WIDE, height), layout="constrained")
    return figure, figure.subplots(rows, columns, squeeze=False, **given)


def legend_below(figure: Figure, axes: Any, key: str = "") -> None:
    """One legend for all panels, with each method once, in as many columns as fit.

    The key, which says what marks and bands are, stands above the methods.
    """
    shown = handles(axes.flat)
    for columns in range(max(1, min(8, len(shown))), 0, -1):
        legend = figure.legend(
            list(shown.values()),
            list(shown),
            loc="outside lower center",
            ncols=columns,
            title=key,
            title_fontsize=7,
        )
        if columns == 1 or legend.get_window_extent().width <= figure.bbox.width:
            return
        legend.remove()


def handles(panels: Iterable[Axes]) -> dict[str, Artist]:
    """What a legend shows of these panels: each label once."""
    shown: dict[str, Artist] = {}
    for axes in panels:
        for handle, label in zip(*axes.get_legend_handles_labels(), strict=True):
            shown.setdefault(label, handle)
    return shown


def key_of(drawn: Iterable[Series], spread: str = "band: ± one standard error") -> str:
    """What filled and hollow marks, and the spread around them, are in this figure."""
    seeds = {point.seeds for each in drawn for point in each.points}
    several = sorted(seeds - {1})
    told = []
    if several:
        number = f"{several[0]}" if len(several) == 1 else f"{several[0]} to {several[-1]}"
        told.append(f"filled mark: mean of {number} seeds, {spread}")
    if 1 in seeds:
        told.append("hollow mark: one seed")
    return "; ".join(told)


def draw_line(axes: Axes, series: Series, *, label: str | None = None) -> None:
    """A line with a band of one standard error; marks of a single seed are hollow."""
    style = look(series.method)
    line = {"color": style.colour, "linestyle": style.line, "linewidth": style.width, "zorder": 3}
    axes.plot(series.x, series.y, **line)
    axes.fill_between(
        series.x, series.low, series.high, color=style.colour, alpha=0.2, linewidth=0, zorder=2
    )
    marked = series.points[:: max(1, len(series.points) // 10)]
    for hollow in (True, False):
        points = [point for point in marked if (point.seeds == 1) == hollow]
        axes.plot(
            [point.x for point in points],
            [point.y for point in points],
            linestyle="none",
            zorder=3.5,
            **mark(series.method, hollow=hollow),
        )
    only_hollow = all(point.seeds == 1 for point in series.points)
    axes.plot(
        [], [], label=label or series.label, **mark(series.method, hollow=only_hollow), **line
    )
    if len(series.points) == 1:
        errors = [point.error for point in series.points]
        axes.errorbar(series.x, series.y, errors, color=style.colour, capsize=2, zorder=3)


def mark(method: str, *, hollow: bool) -> dict[str, Any]:
    """How the points of a method are marked."""
    style = look(method)
    return {
        "marker": style.marker,
        "markersize": 6 if style.marker == "*" else 4,  # or it could not be told hollow
        "markerfacecolor": "white" if hollow else style.colour,
        "markeredgecolor": style.colour,
    }


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
