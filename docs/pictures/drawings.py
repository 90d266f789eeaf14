"""The drawings of the page "DEN in ten minutes", and of patches.

python docs/pictures/drawings.py
"""

from collections.abc import Callable, Collection, Iterable
from itertools import pairwise
from pathlib import Path

import matplotlib
import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import Circle, FancyArrowPatch, FancyBboxPatch, Rectangle

HERE = Path(__file__).resolve().parent
LOOK = {
    "font.size": 10,
    "font.family": "DejaVu Sans",
    "svg.hashsalt": "lifelong",
    "savefig.facecolor": "white",
}
FIRST, SECOND, THIRD = "#005f87", "#dd8833", "#aa3377"  # born with task 1, 2 and 3
FAINT, TEXT = "#c4c9cf", "#222222"
Unit = tuple[int, int]  # layer, place
WIDE = 1.5  # from layer to layer


class Net:
    """A small network: circles in layers from left to right, and lines between neighbours."""

    def __init__(self, axes: Axes, sizes: Iterable[int], title: str) -> None:
        self.axes, self.sizes = axes, tuple(sizes)
        axes.set_title(title, fontsize=10, color=TEXT, loc="left")
        axes.set(xlim=(-0.5, 5.2), ylim=(-2.75, 2.4), aspect="equal")
        axes.set_axis_off()
        for layer, name in enumerate(("inputs", "layer 1", "layer 2", "heads")):
            axes.text(WIDE * layer, -2.65, name, ha="center", fontsize=8, color="#666666")

    def at(self, unit: Unit) -> tuple[float, float]:
        layer, place = unit
        return WIDE * layer, 0.82 * ((self.sizes[layer] - 1) / 2 - place)

    def units(self, layer: int, places: Collection[int] | None = None) -> list[Unit]:
        chosen = range(self.sizes[layer]) if places is None else places
        return [(layer, place) for place in chosen]

    def connect(self, senders: Iterable[Unit], receivers: Iterable[Unit], **style: object) -> None:
        line = {"color": FAINT, "linewidth": 0.9, "zorder": 1, **style}
        receiving = list(receivers)
        for sender in senders:
            for receiver in receiving:
                (x0, y0), (x1, y1) = self.at(sender), self.at(receiver)
                self.axes.plot([x0, x1], [y0, y1], **line)

    def draw(self, units: Iterable[Unit], colour: str, **style: object) -> None:
        look = {"facecolor": colour, "edgecolor": colour, "linewidth": 1.4, "zorder": 3, **style}
        for unit in units:
            self.axes.add_patch(Circle(self.at(unit), 0.23, **look))

    def say(self, unit: Unit, text: str, dx: float = 0.0, dy: float = 0.4, **style: object) -> None:
        x, y = self.at(unit)
        look = {"ha": "center", "fontsize": 8, "color": TEXT, **style}
        self.axes.text(x + dx, y + dy, text, **look)


def whole(net: Net, hidden: tuple[int, int] = (4, 3)) -> None:
    """Inputs, the first task's units and its head, with all connections."""
    first, second = net.units(1, range(hidden[0])), net.units(2, range(hidden[1]))
    net.connect(net.units(0), first)
    net.connect(first, second)
    net.connect(second, [(3, 0)])
    net.draw(net.units(0), "#8a9199")
    net.draw([*first, *second, (3, 0)], FIRST)


def retrain() -> Figure:
    """Algorithm 2: a sparse head selects, and what it selects is retrained."""
    figure, (left, right) = _two()
    net = Net(left, (4, 4, 3, 2), "1. A sparse head looks at the last layer")
    whole(net)
    net.connect([(2, 1)], [(3, 1)], color=SECOND, linewidth=2.6)
    net.draw([(3, 1)], SECOND)
    net.say((3, 1), "head of task 2", dx=-0.05, dy=-0.55, color=SECOND)
    net = Net(right, (4, 4, 3, 2), "2. What leads to it is retrained")
    whole(net)
    chosen = [(1, 1), (1, 2)]
    net.connect(net.units(0, (1, 2)), chosen, color=SECOND, linewidth=2.2, zorder=2)
    net.connect(chosen, [(2, 1)], color=SECOND, linewidth=2.2, zorder=2)
    net.connect([(2, 1)], [(3, 1)], color=SECOND, linewidth=2.2, zorder=2)
    net.draw([*chosen, (2, 1)], FIRST, edgecolor=SECOND, linewidth=3)
    net.draw([(3, 1)], SECOND)
    return figure


def expand() -> Figure:
    """Algorithm 3: newcomers join each layer, and the useless ones go again."""
    figure, (left, right) = _two()
    net = Net(left, (4, 6, 5, 2), "1. If the loss is above τ, newcomers join")
    whole(net)
    newcomers = [(1, 4), (1, 5), (2, 3), (2, 4)]
    net.connect(net.units(0), newcomers[:2], color=SECOND, alpha=0.5)
    net.connect(net.units(1), newcomers[2:], color=SECOND, alpha=0.5)
    net.connect(newcomers[2:], [(3, 1)], color=SECOND, alpha=0.5)
    net.draw(newcomers, "white", edgecolor=SECOND, linestyle="--")
    net.draw([(3, 1)], SECOND)
    net = Net(right, (4, 6, 5, 2), "2. Those that turn out useless go")
    whole(net)
    net.connect(net.units(0, (0, 3)), [(1, 4)], color=SECOND, linewidth=2.2)
    net.connect([(1, 1), (1, 4)], [(2, 3)], color=SECOND, linewidth=2.2)
    net.connect([(2, 3)], [(3, 1)], color=SECOND, linewidth=2.2)
    net.draw([(1, 4), (2, 3), (3, 1)], SECOND)
    for gone in ((1, 5), (2, 4)):
        net.draw([gone], "white", edgecolor=FAINT, linestyle=":")
        net.say(gone, "×", dy=-0.13, fontsize=14, color="#888888")
    return figure


def split() -> Figure:
    """Algorithm 4: a unit that moved too far becomes two."""
    figure, (left, right) = _two()
    net = Net(left, (4, 4, 3, 2), "1. Retraining moved a unit further than σ")
    whole(net)
    net.connect(net.units(0), [(1, 3)], color=SECOND, linewidth=2.2, zorder=2)
    net.draw([(1, 3)], FIRST, edgecolor=SECOND, linewidth=4)
    net.draw([(3, 1)], SECOND)
    net.say((1, 3), "drift > σ", dy=-0.55, color=SECOND)
    net = Net(right, (4, 5, 3, 2), "2. A copy keeps the change; it is restored")
    whole(net)
    net.connect(net.units(0), [(1, 4)], color=SECOND, linewidth=2.2, zorder=2)
    net.connect([(1, 4)], net.units(2), color=SECOND, alpha=0.6)
    net.connect(net.units(2), [(3, 1)], color=SECOND, alpha=0.6)
    net.draw([(1, 4), (3, 1)], SECOND)
    net.say((1, 4), "the copy", dy=-0.55, color=SECOND)
    return figure


def stamps() -> Figure:
    """Timestamped inference: a task sees what was there when it was learned."""
    figure, (left, right) = _two()
    for axes, title, seen in (
        (left, "As of task 1: its units, as they were", 1),
        (right, "As of task 2: those, and its own", 2),
    ):
        net = Net(axes, (4, 5, 4, 2), title)
        older, newer = [(1, 4), (2, 3)], seen == 2
        whole(net)
        if newer:
            net.connect(net.units(0), [(1, 4)], color=SECOND, alpha=0.6)
            net.connect(net.units(1), [(2, 3)], color=SECOND, alpha=0.6)
            net.connect(net.units(2), [(3, 1)], color=SECOND, alpha=0.6)
            net.draw([*older, (3, 1)], SECOND)
            net.draw([(3, 0)], "white", edgecolor=FAINT, linestyle=":", zorder=4)
        else:
            net.draw([*older, (3, 1)], "white", edgecolor=FAINT, linestyle=":")
    return figure


def loop() -> Figure:
    """Algorithm 1: the way of a task."""
    figure = Figure(figsize=(9.2, 1.5), layout="constrained")
    axes = figure.subplots()
    axes.set(xlim=(0, 18.4), ylim=(-1.0, 1.0))
    axes.set_axis_off()
    steps = (
        (1.6, "a task arrives\nwith its rows", "white", "#8a9199"),
        (5.4, "Algorithm 2\nselect and retrain", "#e8f2f7", FIRST),
        (9.2, "Algorithm 3\nadd units,\nif loss > τ", "#fdf1e4", SECOND),
        (13.0, "Algorithm 4\nsplit units\nwhose drift > σ", "#f8e9f1", THIRD),
        (16.8, "new units get the\ntask's number;\nrows are let go", "white", "#8a9199"),
    )
    for x, text, colour, edge in steps:
        box = FancyBboxPatch(
            (x - 1.45, -0.75), 2.9, 1.5, "round,pad=0.1", facecolor=colour, edgecolor=edge
        )
        axes.add_patch(box)
        axes.text(x, 0, text, ha="center", va="center", fontsize=9, color=TEXT)
    for (x0, *_), (x1, *_) in pairwise(steps):
        arrow = FancyArrowPatch(
            (x0 + 1.6, 0), (x1 - 1.6, 0), arrowstyle="-|>", mutation_scale=12, color="#666666"
        )
        axes.add_patch(arrow)
    return figure


def patches() -> Figure:
    """The weights of one layer, as each of three tasks sees them."""
    figure = Figure(figsize=(9.2, 2.1), layout="constrained")
    panels = figure.subplots(1, 4)
    generator = np.random.default_rng(3)
    place = generator.permutation(60).reshape(6, 10)
    second, third = place < 5, (place >= 5) & (place < 9)
    overwritten = np.where(second, 2, 1)
    later = np.where(third, 3, overwritten)
    names = ("as of task 1", "as of task 2", "as of task 3", "what is stored")
    for axes, name, owner in zip(
        panels[:3], names, (np.ones((6, 10)), overwritten, later), strict=False
    ):
        _grid(axes, name, owner)
    _grid(panels[3], names[3], np.ones((6, 10)), height=4.0)
    for line, (patch, colour) in enumerate(((second, SECOND), (third, THIRD)), 1):
        for column in range(int(patch.sum())):
            panels[3].add_patch(
                Rectangle((column, 4.6 + 1.2 * (line - 1)), 0.86, 0.8, facecolor=colour)
            )
        panels[3].text(
            5.4, 5.05 + 1.2 * (line - 1), f"patch of task {line + 1}", va="center", fontsize=8
        )
    return figure


def _grid(axes: Axes, name: str, owner: np.ndarray, height: float = 6.0) -> None:
    """Weights as squares, coloured by the task whose value it is."""
    rows, columns = owner.shape
    for (row, column), task in np.ndenumerate(owner):
        colour = {1: FIRST, 2: SECOND, 3: THIRD}[int(task)]
        step = height / rows
        axes.add_patch(Rectangle((column, row * step), 0.86, 0.86 * step, facecolor=colour))
    axes.set(xlim=(-0.3, columns + 0.3), ylim=(7.0, -0.4), aspect="equal")
    axes.set_title(name, fontsize=10, color=TEXT)
    axes.set_axis_off()


def _two() -> tuple[Figure, tuple[Axes, Axes]]:
    figure = Figure(figsize=(9.2, 4.0), layout="constrained")
    left, right = figure.subplots(1, 2)
    return figure, (left, right)


DRAWINGS: dict[str, Callable[[], Figure]] = {
    "den-loop": loop,
    "den-retrain": retrain,
    "den-expand": expand,
    "den-split": split,
    "den-stamps": stamps,
    "patches": patches,
}

if __name__ == "__main__":
    with matplotlib.rc_context(LOOK):
        for drawing, draw in DRAWINGS.items():
            draw().savefig(HERE / f"{drawing}.svg", metadata={"Date": None})
