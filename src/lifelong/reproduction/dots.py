"""Methods one above the other: AUROC with its interval, and size. For what the paper has no figure.

A point's x is the capacity, its y the AUROC.
"""

from collections.abc import Sequence

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import LogLocator, MaxNLocator, NullLocator, StrMethodFormatter

from lifelong.looks import look
from lifelong.reproduction import style
from lifelong.reproduction.measured import Measured, Row, rows
from lifelong.reproduction.series import Series, auroc_of, point

PANEL = "AUROC over capacity"
WIDTHS = 2  # standard errors to each side, as in the verdicts
FACTOR = 4  # between sizes, from which on their axis is logarithmic


def series(measured: Sequence[Measured]) -> tuple[Series, ...]:
    """One point per row of the recipe, the best first."""
    return tuple(sorted(map(_one, rows(measured)), key=lambda each: -each.y[0]))


@style.styled
def draw(measured: Sequence[Measured], title: str = "") -> Figure:
    """AUROC on the left, size on the right, the best method on top."""
    drawn = series(measured)
    figure, axes = style.page(
        1, 2, height=0.9 + 0.17 * len(drawn), sharey=True, width_ratios=(3, 2)
    )
    left, right = axes[0]
    for place, each in enumerate(drawn):
        _draw_row(left, right, place, each)
    left.set_yticks(range(len(drawn)), [each.label for each in drawn])
    left.set_ylim(len(drawn) - 0.4, -0.6)
    left.set_xlabel("average AUROC at the end")
    left.xaxis.set_major_locator(MaxNLocator(6))
    _draw_numbers(left, drawn)
    _scale_sizes(right, [each.x[0] for each in drawn])
    right.set_xlabel("stored bytes / base network's")
    figure.suptitle(title)
    style.legend_below(figure, axes, style.key_of(drawn, f"bar: ± {WIDTHS} standard errors"))
    return figure


def _one(row: Row) -> Series:
    found = point(row.capacity.value, [auroc_of(run) for run in row.runs])
    return Series(PANEL, row.method, row.method if row.plain else row.label, (found,))


def _draw_row(left: Axes, right: Axes, place: int, each: Series) -> None:
    (only,) = each.points
    marked = style.mark(each.method, hollow=only.seeds == 1)
    colour = look(each.method).colour
    left.errorbar(only.y, place, xerr=WIDTHS * only.error, ecolor=colour, capsize=2, **marked)
    right.plot(only.x, place, linestyle="none", **marked)


def _scale_sizes(axes: Axes, sizes: Sequence[float]) -> None:
    """By factors if sizes differ much: a log scale of less than a few has no ticks to read."""
    if max(sizes) < FACTOR * min(sizes):
        axes.xaxis.set_major_locator(MaxNLocator(5))
        return
    axes.set_xscale("log")
    axes.xaxis.set_major_locator(LogLocator(10, subs=(1.0, 2.0, 5.0)))
    axes.xaxis.set_minor_locator(NullLocator())
    axes.xaxis.set_major_formatter(StrMethodFormatter("{x:g}"))


def _draw_numbers(axes: Axes, drawn: Sequence[Series]) -> None:
    """The means, in a column of their own at the right of the panel."""
    numbers = axes.secondary_yaxis("right")
    numbers.set_yticks(range(len(drawn)), [f"{each.y[0]:.4f}" for each in drawn])
    numbers.tick_params(length=0)
    numbers.spines["right"].set_visible(False)
