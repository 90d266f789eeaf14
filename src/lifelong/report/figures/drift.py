"""Did anything drift? Each task's score as later tasks are learned, and how far units moved."""

from collections.abc import Iterator, Sequence
from math import ceil, floor, log2

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
_FINE = 2  # bins for each doubling
_MOST_BINS = 14 * _FINE  # below sigma, and above


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
        color=task_color("number", legend=False),
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
    """How far old units moved while a task was learned, layer by layer, with sigma."""
    x = alt.X("low:Q", title="drift of a unit", scale=alt.Scale(type="log", base=2, nice=False))
    y = alt.Y("top:Q", axis=None, scale=alt.Scale(nice=False))
    bars = (
        from_data()
        .mark_rect(stroke="none")
        .encode(
            x=x.axis(format=".2~g", tickCount=6, labelOverlap="greedy"),
            x2="high:Q",
            y=y,
            y2="foot:Q",
            color=alt.Color(
                "where:N",
                title=None,
                scale=alt.Scale(
                    domain=["up to sigma", "above sigma"], range=["#7d8fa3", "#e0457b"]
                ),
            ),
            tooltip=[
                "layer:N",
                alt.Tooltip("low:Q", title="drift from", format=".3g"),
                alt.Tooltip("high:Q", title="to", format=".3g"),
                alt.Tooltip("units:Q", title="units"),
            ],
        )
    )
    names = (
        from_data("layers")
        .mark_text(align="left", baseline="top", color=INK, fontSize=12)
        .encode(x=alt.value(2), y="head:Q", text="title:N")
    )
    line = (
        from_data("sigma")
        .mark_rule(color=INK, strokeWidth=1.5, strokeDash=[5, 3])
        .encode(x="sigma:Q", tooltip=[alt.Tooltip("sigma:Q")])
    )
    layers = max(len(run.widths) for run in runs)
    return Figure(
        "distances",
        "How far units drifted",
        "Over all tasks, the old units that moved while a task was learned, by how far, measured "
        "as sigma is. The dashed line is sigma: what is beyond it is split, as far as the limit on "
        "new units allows.",
        layered(bars, line, names),
        ("method", "seed"),
        by_run(runs, _distances_view),
        (
            Column("layer", "layer"),
            Column("low", "drift from", 5),
            Column("high", "to", 5),
            Column("units", "units"),
        ),
        Height(pixels=90 + 95 * layers, share=0.6, most=max(460, 90 + 95 * layers)),
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
    moved = {group: drift for group, drift in drifts(run).items() if any(drift)}
    sigma = run.settings.get("sigma", 0)
    if not moved:
        return None
    found: list[tuple[object, ...]] = []
    layers, said = [], []
    for place, (group, drift) in enumerate(moved.items()):
        beyond = sum(d > sigma for d in drift)
        unmoved = sum(d == 0 for d in drift)
        title = f"{group}: {beyond} of {len(drift)} above sigma"
        foot = -float(place)
        layers.append((title, foot + 0.93))
        said.append(f"{title}, {unmoved} did not move")
        found += _histogram(group, [d for d in drift if d > 0], sigma, foot)
    fields = ("layer", "low", "high", "units", "where", "foot", "top")
    return View(
        f"Histograms of drift, sigma is {sigma:g}. {'; '.join(said)}.",
        {
            ROWS: rows(fields, found),
            "layers": rows(("title", "head"), layers),
            "sigma": rows(("sigma",), [(sigma,)] if sigma else []),
        },
    )


def drifts(run: Run) -> dict[str, list[float]]:
    """Drift of every old unit at every task, for each group that recorded it."""
    return {
        group: [d for record in run.records for d in record.groups[group].drift]
        for group in run.widths
        if all(group in record.groups for record in run.records)
    }


def _histogram(
    group: str, drift: Sequence[float], sigma: float, foot: float
) -> Iterator[tuple[object, ...]]:
    """Bins of equal ratio with an edge at sigma."""
    centre = log2(sigma) if sigma > 0 else log2(float(np.median(drift)))
    place = np.log2(np.array(drift)) - centre
    first = max(floor(place.min() * _FINE), -_MOST_BINS)
    last = min(max(ceil(place.max() * _FINE), first + 1), _MOST_BINS)
    # A unit with a drift of exactly sigma is not split, so a bin includes its upper edge.
    number = np.clip(np.ceil(place * _FINE) - 1, first, last - 1).astype(int)
    counts = {k: int((number == k).sum()) for k in range(first, last)}
    most = max(counts.values())
    for k, units in counts.items():
        if units:
            low, high = (rounded(2 ** (centre + edge / _FINE)) for edge in (k, k + 1))
            where = "above sigma" if sigma > 0 and k >= 0 else "up to sigma"
            yield group, low, high, units, where, foot, foot + 0.7 * units / most
