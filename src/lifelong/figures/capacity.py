"""Parameters after each task, over those of DNN-MTL."""

from collections.abc import Mapping, Sequence

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import LogLocator, MaxNLocator, NullLocator, StrMethodFormatter

from lifelong.figures.drawing import COLORS, chart


def svg(capacity: Mapping[str, Sequence[float]], reference: str) -> str:
    """A line for each method that learns task after task, and one at 1 for `reference`."""
    ends = "; ".join(f"{method}: {values[-1]:.2f}" for method, values in capacity.items())
    alt = f"Lines, parameters after each task over those of {reference}. At the end {ends}."
    return chart("capacity", alt, (5.2, 3.2), lambda figure: _draw(figure, capacity, reference))


def _draw(figure: Figure, capacity: Mapping[str, Sequence[float]], reference: str) -> None:
    axes = figure.add_subplot()
    most = max(len(values) for values in capacity.values())
    for method, values in capacity.items():
        numbers = range(1, len(values) + 1)
        axes.plot(numbers, values, color=COLORS[method], marker="o", markersize=4, linewidth=1.8)
        _name(axes, len(values), values[-1], method)
    axes.plot([1, most], [1, 1], color=COLORS[reference], linewidth=1.8, linestyle=(0, (4, 2)))
    _name(axes, most, 1, reference)
    axes.set_yscale("log", base=2)
    axes.yaxis.set_major_locator(LogLocator(2))
    axes.yaxis.set_minor_locator(NullLocator())
    axes.yaxis.set_major_formatter(StrMethodFormatter("{x:g}"))
    axes.xaxis.set_major_locator(MaxNLocator(integer=True))
    axes.set_xlabel("tasks learned")
    axes.set_ylabel(f"parameters / {reference}'s")


def _name(axes: Axes, x: float, y: float, method: str) -> None:
    """Beside the end of the line, in place of a legend."""
    axes.annotate(
        method, (x, y), (8, 0), textcoords="offset points", va="center", color=COLORS[method]
    )
