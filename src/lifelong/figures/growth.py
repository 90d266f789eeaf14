"""Units of each layer, stacked in order of birth and coloured by the task that introduced them."""

from collections.abc import Mapping, Sequence

from matplotlib.figure import Figure
from matplotlib.patches import Patch

from lifelong.figures.drawing import chart, shades, short

_MARK = "#e0457b"
_NAMED = 12  # tasks that a legend has room for


def units_by_task(born: Sequence[int], tasks: int) -> list[int]:
    """How many units appeared with each task, of a group whose `born` are numbers from 1."""
    return [list(born).count(number) for number in range(1, tasks + 1)]


def svg(born: Mapping[str, Sequence[int]], widths: Mapping[str, int], tasks: Sequence[str]) -> str:
    """One bar for each group, the base network's width marked on it."""
    sizes = "; ".join(f"{group}: {len(units)} units" for group, units in born.items())
    alt = f"Stacked bars, units of each layer by the task that introduced them. {sizes}."
    size = (5.2, 1.6 + 0.55 * len(born))
    return chart("growth", alt, size, lambda figure: _draw(figure, born, widths, tasks))


def _draw(
    figure: Figure,
    born: Mapping[str, Sequence[int]],
    widths: Mapping[str, int],
    tasks: Sequence[str],
) -> None:
    axes = figure.add_subplot()
    colors = shades(len(tasks))
    for row, (group, stamps) in enumerate(born.items()):
        left = 0
        for color, units in zip(colors, units_by_task(stamps, len(tasks)), strict=True):
            axes.barh(row, units, left=left, height=0.6, color=color, linewidth=0)
            left += units
        axes.plot([widths[group]] * 2, [row - 0.4, row + 0.4], color=_MARK, linewidth=2)
    axes.set_yticks(range(len(born)), [short(group) for group in born])
    axes.invert_yaxis()
    axes.tick_params(axis="y", length=0)
    axes.spines["left"].set_visible(False)
    axes.set_xlabel("units (the mark: width in the base network)")
    if len(tasks) <= _NAMED:
        keys = [Patch(color=c, label=short(name)) for c, name in zip(colors, tasks, strict=True)]
        figure.legend(handles=keys, loc="outside upper center", ncols=5, fontsize=8, handlelength=1)
