"""The weave: which units each task uses, from a real run on scikit-learn's digits.

python docs/pictures/weave.py
"""

from pathlib import Path

import matplotlib
import numpy as np
import torch
from matplotlib.colors import ListedColormap
from matplotlib.figure import Figure
from numpy.typing import NDArray

from lifelong import DEN, Budget, Settings, mlp
from lifelong.reproduction.style import save
from lifelong.tasks.datasets import load

HERE = Path(__file__).resolve().parent
TASKS = 10
LOOK = {
    "font.size": 9,
    "font.family": "DejaVu Sans",
    "savefig.facecolor": "white",
}
# Dark to light, so that births are in order in grey print too.
BIRTHS = matplotlib.colormaps["viridis"](np.linspace(0.02, 0.94, TASKS))


def learned() -> DEN:
    """A DEN that has learned the ten digits, one after another."""
    torch.set_num_threads(1)
    budget = Budget(steps=600, learning_rate=2e-3, check_every=20, patience=4)
    learner = DEN(mlp(64, [64, 32]), Settings(budget=budget), seed=1)
    for task in load("digits", seed=1):
        learner.learn(task)
    return learner


def births(learner: DEN) -> list[NDArray[np.float64]]:
    """Per layer a matrix (task, unit): the birth of each unit that the task uses, else NaN."""
    found = []
    for layer, used in learner.sharing().used.items():
        born = learner.network.born[layer].numpy().astype(float)
        order = np.lexsort((-used.sum(dim=0).numpy(), born))
        found.append(np.where(used.numpy(), born, np.nan)[:, order])
    return found


def draw(learner: DEN) -> Figure:
    """One strip per layer; rows are tasks, columns units in order of birth."""
    layers = births(learner)
    widths = [layer.shape[1] for layer in layers]
    figure = Figure(figsize=(9.2, 2.9), layout="constrained")
    strips = figure.subplots(1, len(layers), width_ratios=widths, sharey=True)
    for number, (strip, layer) in enumerate(zip(strips, layers, strict=True), 1):
        _strip(strip, layer)
        strip.set_title(f"hidden layer {number}: {layer.shape[1]} units", loc="left", fontsize=9)
        strip.set_xlabel("units, the oldest first")
    strips[0].set_yticks(range(TASKS), learner.tasks)
    colours = matplotlib.cm.ScalarMappable(
        matplotlib.colors.BoundaryNorm(np.arange(0.5, TASKS + 1), TASKS), ListedColormap(BIRTHS)
    )
    bar = figure.colorbar(colours, ax=strips, ticks=[1, 4, 7, 10], aspect=14, pad=0.01)
    bar.set_label("born with task")
    bar.outline.set_visible(False)
    bar.minorticks_off()
    return figure


def _strip(axes: matplotlib.axes.Axes, layer: NDArray[np.float64]) -> None:
    axes.pcolormesh(
        np.arange(layer.shape[1] + 1) - 0.5,
        np.arange(TASKS + 1) - 0.5,
        layer,
        cmap=ListedColormap(BIRTHS),
        vmin=0.5,
        vmax=TASKS + 0.5,
        edgecolor="white",
        linewidth=0.9,
    )
    axes.set_ylim(TASKS - 0.5, -0.5)
    axes.set_xticks([])
    axes.tick_params(length=0)
    axes.spines[:].set_visible(False)


if __name__ == "__main__":
    with matplotlib.rc_context(LOOK):
        save(draw(learned()), HERE, "weave", ("png",))
