"""What did it cost? Performance over capacity, stored bytes over tasks, seconds per task."""

from collections.abc import Iterator, Sequence
from operator import attrgetter

import altair as alt
import numpy as np

from lifelong.evaluation.metrics import heading
from lifelong.evaluation.runs import Run
from lifelong.report.figures.drawing import (
    GROUPED,
    ROWS,
    Column,
    Figure,
    Height,
    View,
    Views,
    all_tasks,
    bins,
    by_measure,
    by_run,
    from_data,
    label,
    layered,
    method_color,
    method_shape,
    methods,
    rounded,
    rows,
    score_told,
    task_names,
    tasks_learned,
)

_BARS = GROUPED[0]
_LABELLED = 5  # most methods whose names fit beside their points
_REST = "surgery and the rest"
_OVER_BASE = "stored bytes / base network's"
_SIZES = ("bytes", "parameters", "nonzero")


def performance(runs: Sequence[Run]) -> Figure:
    """Score at the end over stored bytes at the end: up and to the left is good."""
    names = methods(runs)
    crowded = len(names) > _LABELLED
    tips = [
        alt.Tooltip("method:N"),
        alt.Tooltip("capacity:Q", title=_OVER_BASE, format=".3f"),
        alt.Tooltip("values:Q", title="values stored", format=",.0f"),
        score_told(),
        alt.Tooltip("seed:N", title="seed"),
    ]
    base = from_data().encode(
        x=alt.X(
            "capacity:Q",
            title=_OVER_BASE,
            scale=alt.Scale(type="log", base=2, nice=False, padding=30),
            axis=alt.Axis(format="~g", tickCount=6),
        ),
        y=alt.Y(
            "score:Q",
            title="mean score at the end",
            scale=alt.Scale(zero=False, nice=False, padding=24),
        ),
        color=method_color(names) if crowded else method_color(names).legend(None),
        shape=method_shape(names) if crowded else method_shape(names).legend(None),
        tooltip=tips,
    )
    means = base.transform_filter("datum.seed == 'mean'")
    seeds = base.transform_filter("datum.seed != 'mean'").mark_point(filled=True, opacity=0.4)
    return Figure(
        "performance",
        "Performance over capacity",
        "At the end: the mean score over the bytes that are stored, relative to the base network "
        "with a head for each task. Up is better, left is smaller; the scale doubles from step "
        "to step. Small points are single seeds.",
        layered(
            seeds.encode(size=alt.value(30)),
            means.mark_point(filled=True, opacity=1, size=130),
            *([] if crowded else [means.mark_text(dy=-14, fontSize=12).encode(text="method:N")]),
        ),
        ("measure",),
        by_measure(runs, _performance_view),
        (
            Column("method", "method"),
            Column("seed", "seed"),
            Column("capacity", _OVER_BASE, 3),
            Column("values", "values"),
            Column("score", "mean score", 4),
        ),
        Height(share=0.6, most=420),
    )


def sizes(runs: Sequence[Run]) -> Figure:
    """Stored bytes after each task, with the values in them."""
    chart = from_data().encode(
        x=tasks_learned(),
        y=alt.Y(
            "bytes:Q",
            title="stored bytes",
            scale=alt.Scale(type="log", base=2),
            axis=alt.Axis(format=".3~s", tickCount=6),
        ),
        color=method_color(methods(runs)),
        tooltip=[
            "method:N",
            alt.Tooltip("tasks:Q", title="tasks learned"),
            alt.Tooltip("bytes:Q", title="stored bytes", format=",.0f"),
            alt.Tooltip("parameters:Q", title="values", format=",.0f"),
            alt.Tooltip("nonzero:Q", title="of them not zero", format=",.0f"),
        ],
    )
    return Figure(
        "sizes",
        "Stored bytes after each task",
        "All that predictions need after each task: values, and the places of those that "
        "overwrite others; the mean over seeds. The scale doubles from step to step. A method "
        "that learns all tasks at once has its size from the start.",
        layered(
            chart.mark_line(strokeWidth=2.2),
            chart.mark_point(filled=True, size=50, opacity=1).encode(
                shape=method_shape(methods(runs))
            ),
        ),
        (),
        _sizes_views(runs),
        (
            Column("method", "method"),
            Column("tasks", "tasks learned"),
            Column("bytes", "stored bytes"),
            Column("parameters", "values"),
            Column("nonzero", "of them not zero"),
        ),
        Height(share=0.6, most=420),
    )


def seconds(runs: Sequence[Run]) -> Figure:
    """Seconds of learning per task, by stage."""
    stages = [*dict.fromkeys(s.name for run in runs for r in run.records for s in r.stages), _REST]
    chart = (
        from_data()
        .mark_bar()
        .encode(
            x=alt.X("task:N", sort=None, title=None, axis=task_names(all_tasks(runs))),
            y=alt.Y("seconds:Q", title="seconds"),
            color=alt.Color(
                "stage:N",
                title=None,
                sort=alt.EncodingSortField("place"),
                scale=alt.Scale(scheme="tableau10"),
            ),
            order=alt.Order("place:Q"),
            tooltip=[
                "task:N",
                "stage:N",
                alt.Tooltip("seconds:Q", format=".2f"),
                alt.Tooltip("steps:Q", title="steps of training"),
            ],
        )
    )
    return Figure(
        "seconds",
        "Seconds per task, by stage",
        "How long each task took to learn, by training stage; evaluation is not counted."
        + (" With so many tasks a bar sums several." if len(runs[0].tasks) > _BARS else ""),
        layered(chart),
        ("method", "seed"),
        by_run(runs, lambda run: _seconds_view(run, stages)),
        (
            Column("task", "task"),
            Column("stage", "stage"),
            Column("seconds", "seconds", 3),
            Column("steps", "steps"),
        ),
        Height(share=0.35, least=280, most=420),
        wide=True,
    )


def _performance_view(runs: Sequence[Run], measure: str) -> View:
    found: list[tuple[str, str, float, float, float]] = []
    for method in methods(runs):
        own = [run for run in runs if run.method == method]
        points = [
            (run.summary.capacity, run.summary.parameters, float(np.mean(run.scores[measure])))
            for run in own
        ]
        seeds = ("mean", *(str(run.seed) for run in own))
        for seed, (size, values, score) in zip(
            seeds, [np.mean(points, axis=0), *points], strict=True
        ):
            found.append((method, seed, rounded(size), round(values), rounded(score)))
    said = [f"{m}: {s:.4f} at {c:.2f}" for m, seed, c, _, s in found if seed == "mean"]
    words = f"Points, {heading(measure)} at the end over capacity. {'; '.join(said)}."
    return View(words, {ROWS: rows(("method", "seed", "capacity", "values", "score"), found)})


def _sizes_views(runs: Sequence[Run]) -> Views:
    found = [row for method in methods(runs) for row in _sizes_of(runs, method)]
    if not found:
        return {}
    ends = "; ".join(f"{m}: {size:,}" for m, t, size, *_ in found if t == len(runs[0].tasks))
    words = f"Lines, stored bytes after each task. At the end: {ends}."
    return {(): View(words, {ROWS: rows(("method", "tasks", *_SIZES), found)})}


def _sizes_of(runs: Sequence[Run], method: str) -> Iterator[tuple[str, int, int, int, int]]:
    own = [run for run in runs if run.method == method and _sizes_known(run)]
    count = len(runs[0].tasks)
    if not own:
        return
    of = attrgetter(*_SIZES)
    grown = [[of(size) for size in r.capacity] for run in own if (r := run.results) is not None]
    sizes = np.mean(grown or [[of(run.summary)] * count for run in own], axis=0)
    places = [part[-1] for part in bins(count, 100)] if grown else sorted({0, count - 1})
    for place in places:
        size, values, nonzero = (round(number) for number in sizes[place])
        yield method, place + 1, size, values, nonzero


def _sizes_known(run: Run) -> bool:
    """Capacity after each task; a saved model knows only its final capacity."""
    return run.results is not None or len(run.records) < len(run.tasks)


def _seconds_view(run: Run, stages: Sequence[str]) -> View | None:
    if not run.records:
        return None
    found = [row for part in bins(len(run.records), _BARS) for row in _stages_of(run, part)]
    total = sum(row[2] for row in found)
    words = f"Stacked bars, seconds of {run.method}, seed {run.seed}: {total:.1f} in all."
    placed = [(*row, stages.index(row[1])) for row in found]
    fields = ("task", "stage", "seconds", "steps", "place")
    return View(words, {ROWS: rows(fields, placed)})


def _stages_of(run: Run, part: range) -> Iterator[tuple[str, str, float, int]]:
    records = [run.records[place] for place in part]
    together = len(run.records) == 1 < len(run.tasks)
    name = "all tasks" if together else label(run.tasks, part)
    stages = [stage for record in records for stage in record.stages]
    for each in dict.fromkeys(stage.name for stage in stages):
        own = [stage for stage in stages if stage.name == each]
        yield name, each, rounded(sum(s.seconds for s in own)), sum(s.steps for s in own)
    results = run.results
    whole = run.summary.seconds if results is None else sum(results.seconds[list(part)])
    rest = whole - sum(stage.seconds for stage in stages)
    if (together or results is not None) and rest > 0:
        yield name, _REST, rounded(rest), 0
