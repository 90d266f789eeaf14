"""The result matrix as a heat map: R[i, j] is the score of task j after learning task i."""

import numpy as np
from matplotlib import colormaps
from matplotlib.axes import Axes
from matplotlib.collections import QuadMesh
from matplotlib.colors import Normalize
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from lifelong.figures.drawing import chart, short
from lifelong.results import MEANING, Matrix, ResultMatrix

_CELLS = 16  # with more tasks than that the numbers would not be readable, nor every name


def svg(results: ResultMatrix, measure: str = "auroc") -> str:
    """Rows are moments, columns are tasks."""
    r = results.matrix(measure)
    known = r[np.tril_indices(len(r))]
    alt = f"Heat map. {MEANING}. Lowest {known.min():.4f}, highest {known.max():.4f}."
    return chart("matrix", alt, (5.2, 5.0), lambda figure: _draw(figure, results, measure))


def _draw(figure: Figure, results: ResultMatrix, measure: str) -> None:
    r = results.matrix(measure)
    count = len(r)
    axes = figure.add_subplot()
    known = r[np.tril_indices(count)]
    scale = Normalize(min(float(known.min()), 0.98), 1)
    mesh = axes.pcolormesh(
        np.ma.masked_invalid(r), cmap="viridis", norm=scale, edgecolor="none", antialiased=False
    )
    axes.set_aspect("equal")
    axes.invert_yaxis()
    for side in ("left", "bottom"):
        axes.spines[side].set_visible(False)
    names = [short(name) for name in results.tasks]
    shown = range(0, count, -(-count // _CELLS))
    axes.set_xticks([j + 0.5 for j in shown], [names[j] for j in shown], rotation=45, ha="right")
    axes.set_yticks([i + 0.5 for i in shown], [names[i] for i in shown])
    axes.tick_params(length=0)
    axes.set_xlabel("score of task j")
    axes.set_ylabel("after learning task i")
    if count <= _CELLS:
        _write_scores(axes, r, scale)
    if count > 1:
        _write_scale(figure, axes, mesh, measure)


def _write_scores(axes: Axes, r: Matrix, scale: Normalize) -> None:
    ramp = colormaps["viridis"]
    for i, j in zip(*np.tril_indices(len(r)), strict=True):
        red, green, blue, _ = ramp(scale(r[i, j]))
        bright = 0.3 * red + 0.59 * green + 0.11 * blue > 0.5
        text = f"{r[i, j]:.3f}".removeprefix("0")
        ink = "#111111" if bright else "#ffffff"
        axes.text(j + 0.5, i + 0.5, text, ha="center", va="center", fontsize=8.5, color=ink)


def _write_scale(figure: Figure, axes: Axes, mesh: QuadMesh, measure: str) -> None:
    """In the corner that tasks not learned yet leave free."""
    corner = axes.inset_axes((0.58, 0.93, 0.4, 0.03))
    bar = figure.colorbar(mesh, cax=corner, orientation="horizontal", label=measure.upper())
    bar.locator = MaxNLocator(3)
    bar.outline.set_visible(False)
