"""Did anything drift? Each task's score as later tasks are learned, and how far units moved."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import final

import altair as alt
import numpy as np

from lifelong.evaluation.metrics import heading
from lifelong.evaluation.runs import Run
from lifelong.report.figures.drawing import (
    INK,
    ROWS,
    Column,
    Figure,
    Height,
    View,
    bins,
    by_run,
    by_run_and_measure,
    from_data,
    layered,
    rounded,
    rows,
    score_told,
    task_color,
    tasks_learned,
)

_CURVES = 30
_POINTS = 60
_DOUBLINGS = 5  # bins below sigma, and above
_LARGEST = 1023  # the largest power of two that is a number
_LAYERS = ("#3b82d6", "#e08a2e", "#2a9d76", "#b05cc0", "#8a8f99", "#c9524a")


def curves(runs: Sequence[Run]) -> Figure:
    """Each task's score since it was learned."""
    count = len(runs[0].tasks)
    pointed = alt.selection_point(
        on="pointerover", clear="pointerout", fields=["task"], empty=True, nearest=False
    )
    base = from_data().encode(
        x=tasks_learned("stage"),
        y=alt.Y("score:Q", title="score", scale=alt.Scale(zero=False)),
        detail="task:N",
        color=task_color(runs, "number", legend=False),
        opacity=alt.condition(pointed, alt.value(1), alt.value(0.15)),
    )
    points = base.mark_point(filled=True, size=45).encode(
        tooltip=[
            "task:N",
            alt.Tooltip("after:N", title="after learning"),
            score_told(),
            alt.Tooltip("change:Q", format="+.4f", title="since it was learned"),
        ]
    )
    return Figure(
        "curves",
        "Each task's score as others are learned",
        "One line per task, since it was learned, in the task's colour. A flat line is a task "
        "whose score has not changed."
        + (f" {_CURVES} of the {count} tasks are drawn." if count > _CURVES else ""),
        layered(base.mark_line(strokeWidth=2), points.add_params(pointed)),
        ("method", "seed", "measure"),
        by_run_and_measure(runs, _curves_view),
        (
            Column("task", "task"),
            Column("after", "after learning"),
            Column("score", "score", 4),
            Column("change", "since it was learned", 4),
        ),
        Height(share=0.6, most=460),
        "This method learned all tasks at once: there is nothing before the end.",
    )


def distances(runs: Sequence[Run]) -> Figure:
    """How many old units moved how far while a task was learned, with sigma."""
    axis = alt.Axis(labelAngle=0, labelOverlap="parity")  # every other one where it is narrow
    x = alt.X("bin:N", sort=None, title="drift of a unit: up to this much", axis=axis)
    layers = list(dict.fromkeys(group for run in runs for group in run.widths))
    colours = alt.Scale(
        domain=layers, range=[_LAYERS[i % len(_LAYERS)] for i in range(len(layers))]
    )
    bars = (
        from_data()
        .mark_bar(stroke="none")
        .encode(
            x=x,
            y=alt.Y("units:Q", title="units, over all tasks", axis=alt.Axis(tickMinStep=1)),
            color=alt.Color("layer:N", title=None, scale=colours),
            tooltip=[
                "layer:N",
                alt.Tooltip("from:N", title="drift from"),
                alt.Tooltip("to:N", title="to"),
                alt.Tooltip("units:Q", title="units"),
            ],
        )
    )
    line = (
        from_data("sigma")
        .mark_rule(color=INK, strokeWidth=1.5, strokeDash=[5, 3])
        .encode(x=alt.X("bin:N", sort=None, bandPosition=1))
    )
    told = (
        from_data("sigma")
        .mark_text(align="right", baseline="bottom", dy=-4, color=INK, fontSize=12)
        .encode(x=alt.value("width"), y=alt.value(0), text="title:N")
    )
    return Figure(
        "distances",
        "How far units drifted",
        "Over all tasks and layers, the old units by how far they moved while a task was learned, "
        "measured as sigma is; those that did not move stand first. A bar is one doubling. Right "
        "of the dashed line is what is above sigma: it is split, as far as the limit on new units "
        "allows.",
        layered(bars, line, told),
        ("method", "seed"),
        by_run(runs, _distances_view),
        (
            Column("layer", "layer"),
            Column("from", "drift from"),
            Column("to", "to"),
            Column("units", "units"),
        ),
        Height(share=0.6, most=460),
        "This method records no drift.",
    )


def _curves_view(run: Run, measure: str) -> View | None:
    results = run.results
    if results is None or measure not in results.scores:
        return None
    r, found = results.matrix(measure), []
    for task in (part[0] for part in bins(len(r), _CURVES)):
        stages = sorted({task, *(part[-1] for part in bins(len(r), _POINTS) if part[-1] > task)})
        for stage in stages:
            score = rounded(r[stage, task])
            change = rounded(r[stage, task] - r[task, task])
            number, after = task + 1, run.tasks[stage]
            found.append((run.tasks[task], number, stage + 1, after, score, change))
    changes = np.array([r[-1, j] - r[j, j] for j in range(len(r))])
    words = (
        f"Lines, {heading(measure)} of each task over time. From when a task was learned to "
        "the "
        f"end, the largest loss is {max(0.0, -changes.min()):.4f}, the largest gain "
        f"{max(0.0, changes.max()):.4f}."
    )
    fields = ("task", "number", "stage", "after", "score", "change")
    return View(words, {ROWS: rows(fields, found)})


def _distances_view(run: Run) -> View | None:
    drift = {group: values for group, values in drifts(run).items() if any(values)}
    if not drift:
        return None
    sigma = run.settings.get("sigma", 0)
    bins = _Doublings.of(sigma, [d for values in drift.values() for d in values if d > 0])
    found = [
        (group, bins.labels[place], *bins.told(place), units)
        for group, values in drift.items()
        for place, units in enumerate(bins.counts(values))
    ]
    every = [d for values in drift.values() for d in values]
    beyond = sum(d > sigma for d in every)
    title = f"sigma {sigma:g}: {beyond:,} of {len(every):,} units above ({beyond / len(every):.1%})"
    said = (
        f"{group}: {sum(d > sigma for d in values)} of {len(values)} above sigma, "
        f"{sum(d == 0 for d in values)} did not move"
        for group, values in drift.items()
    )
    return View(
        f"Histogram of drift, sigma is {sigma:g}. {'; '.join(said)}.",
        {
            ROWS: rows(("layer", "bin", "from", "to", "units"), found),
            "sigma": rows(("bin", "title"), [(bins.labels[bins.at_sigma], title)] if sigma else []),
        },
    )


def drifts(run: Run) -> dict[str, list[float]]:
    """Drift of every old unit at every task, for each group that recorded it."""
    return {
        group: [d for record in run.records for d in record.groups[group].drift]
        for group in run.widths
        if all(group in record.groups for record in run.records)
    }


@final
@dataclass(frozen=True)
class _Doublings:
    """Bins of drift: none at all, and one per doubling, with an edge at sigma.

    Attributes:
        sigma: 0 if there is none; edges are then plain powers of two.
        first, last: the lowest and the highest upper edge, as powers of two times the unit.
    """

    sigma: float
    first: int
    last: int

    @property
    def unit(self) -> float:
        return self.sigma or 1.0

    @classmethod
    def of(cls, sigma: float, moved: Sequence[float]) -> "_Doublings":
        unit = sigma or 1.0
        edges = np.ceil(np.log2(np.array(moved) / unit)).astype(int)
        if not sigma:
            low, high = (min(int(edge), _LARGEST) for edge in (edges.min(), edges.max()))
            return cls(sigma, max(low, high - 2 * _DOUBLINGS), high)
        low = min(max(int(edges.min()), -_DOUBLINGS), 0)
        return cls(sigma, low, max(min(int(edges.max()), _DOUBLINGS), 1))

    @property
    def at_sigma(self) -> int:
        """The place of the bin whose upper edge is sigma."""
        return 1 - self.first

    @cached_property
    def labels(self) -> tuple[str, ...]:
        """The upper edge of each bin."""
        return ("0", *(self._edge(power) for power in range(self.first, self.last + 1)))

    def told(self, place: int) -> tuple[str, str]:
        """From where to where a bin reaches; the outer ones hold all that is beyond them."""
        if place == 0:
            return "0", "0"
        power = self.first + place - 1
        low = "above 0" if power == self.first else f"above {self.unit * 2.0 ** (power - 1):.3g}"
        return low, "any" if self.sigma and power == self.last else f"{self.unit * 2.0**power:.3g}"

    def counts(self, drift: Sequence[float]) -> list[int]:
        """How many are in each bin. A drift of exactly sigma is not split: edges are inside."""
        values = np.array(drift)
        # Compared with the edges themselves: a rounded logarithm could move a unit past sigma.
        edges = self.unit * 2.0 ** np.arange(self.first, self.last)
        place = 1 + np.searchsorted(edges, values[values > 0], side="left")
        moved = np.bincount(place, minlength=len(self.labels))
        return [int((values == 0).sum()), *moved[1:].tolist()]

    def _edge(self, power: int) -> str:
        if not self.sigma:
            return f"{2.0**power:.2g}"
        more = ">" if power == self.last else ""
        power -= bool(more)
        times = f"{2**power}σ" if power > 0 else f"σ/{2**-power}"
        return more + ("σ" if power == 0 else times)
