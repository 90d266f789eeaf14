"""How good is it? The result matrix, the mean over learned tasks, and each task at the end."""

from collections.abc import Sequence

import altair as alt
import numpy as np

from lifelong.evaluation.metrics import heading
from lifelong.evaluation.results import MEANING
from lifelong.evaluation.runs import Run
from lifelong.report.figures.drawing import (
    ENDS,
    GROUPED,
    OVER_SEEDS,
    ROWS,
    Column,
    Figure,
    Height,
    Pivot,
    View,
    all_tasks,
    bins,
    by_measure,
    by_run_and_measure,
    from_data,
    label,
    layered,
    method_color,
    method_shape,
    methods,
    on_one_scale,
    over_seeds_told,
    rounded,
    rows,
    score_told,
    spread,
    task_names,
    tasks_learned,
)

MOST = GROUPED[-1]  # rows of a heat map; with more tasks a cell averages several
_WRITTEN = 12  # most rows with room for a number in each cell
_POINTS = 100  # along a line


def matrix(runs: Sequence[Run]) -> Figure:
    """R[i, j] as a heat map: rows are points in time, columns are tasks."""
    count = len(runs[0].tasks)
    return Figure(
        "matrix",
        "Score of each task after each task",
        f"{MEANING}: a row is a point in time, a column is a task. A column that keeps its "
        "colour downwards is a task that is not forgotten. A colour is the same score for every "
        "method." + _blocks(count),
        heat_map(all_tasks(runs), "after learning task i", "score of task j", "score"),
        ("method", "seed", "measure"),
        on_one_scale(by_run_and_measure(runs, _matrix_view), "score"),
        Pivot("line", "task", Column("score", "score", 4), "after task i"),
        Height(share=0.9, least=280, most=640),
        "This method learned all tasks at once: there is nothing before the end.",
    )


def heat_map(names: Sequence[str], line: str, column: str, value: str) -> alt.LayerChart:
    """A heat map of `value` at (line, task), with numbers in the cells if they fit.

    The colours run between the ends that the data tells beside its rows.
    """
    base = from_data().encode(
        x=alt.X("task:N", sort=None, title=column, axis=task_names(names)),
        y=alt.Y("line:N", sort=None, title=line, axis=task_names(names)),
        tooltip=[
            alt.Tooltip("line:N", title=line),
            alt.Tooltip("task:N", title=column),
            score_told(value),
        ],
    )
    shade = alt.Color(
        f"{value}:Q",
        title=None,
        scale=alt.Scale(scheme="viridis", zero=False),
        legend=alt.Legend(format=".3~f", tickCount=4),
    )
    ends = from_data(ENDS).mark_rect(opacity=0).encode(color=shade)
    cells = base.mark_rect(strokeWidth=0).encode(color=shade)
    if len(names) > _WRITTEN:
        return layered(ends, cells)
    ink = alt.condition(
        f"luminance(scale('color', datum.{value})) > 0.3",
        alt.value("#111111"),
        alt.value("#ffffff"),
    )
    room = alt.expr("bandwidth('x') > 31 ? 1 : 0")
    written = base.mark_text(fontSize=11, baseline="middle", opacity=room).encode(
        text=alt.Text(f"{value}:Q", format=".3f"), color=ink
    )
    return layered(ends, cells, written)


def averages(runs: Sequence[Run]) -> Figure:
    """A_i, the mean over the tasks learned so far, of every method."""
    return Figure(
        "averages",
        "Mean over the tasks learned so far",
        "After each task, the mean score of all tasks up to it. Methods that learn all tasks at "
        "once are drawn as a dashed line at what they reach." + _band(runs),
        _lines(runs),
        ("measure",),
        by_measure(runs, _averages_view),
        (
            Column("method", "method"),
            Column("tasks", "tasks learned"),
            *OVER_SEEDS,
        ),
        Height(share=0.9, least=280, most=640),
    )


def by_task(runs: Sequence[Run]) -> Figure:
    """Every method on every task, at the end."""
    names = methods(runs)
    base = from_data().encode(
        x=alt.X("task:N", sort=None, title=None, axis=task_names(all_tasks(runs), grid=True)),
        xOffset=alt.XOffset("method:N", sort=list(names)),
        color=method_color(names),
        tooltip=[alt.Tooltip("method:N"), alt.Tooltip("task:N"), *over_seeds_told()],
    )
    scale = alt.Scale(zero=False)
    span = base.mark_rule(strokeWidth=3, opacity=0.35).encode(
        y=alt.Y("low:Q", scale=scale, title="score"), y2="high:Q"
    )
    points = base.mark_point(filled=True, size=45, opacity=1).encode(
        y=alt.Y("score:Q", scale=scale, title="score"),
        shape=method_shape(names),
    )
    return Figure(
        "tasks",
        "Each task at the end",
        "The score of each task after all were learned, method beside method; of tasks that all "
        "seeds have." + _band(runs) + _blocks(len(runs[0].tasks)),
        layered(span, points),
        ("measure",),
        by_measure(runs, _by_task_view) if _some_in_common(runs) else {},
        (
            Column("task", "task"),
            Column("method", "method"),
            *OVER_SEEDS,
        ),
        Height(share=0.4, least=280, most=420),
        wide=True,
    )


def _matrix_view(run: Run, measure: str) -> View | None:
    results = run.results
    if results is None or measure not in results.scores:
        return None
    r = results.matrix(measure)
    parts = bins(len(r), MOST)
    cells = []
    for i, moments in enumerate(parts):
        for tasks in parts[: i + 1]:
            block = r[np.ix_(moments, tasks)]
            names = label(run.tasks, moments), label(run.tasks, tasks)
            cells.append((*names, rounded(np.nanmean(block))))
    known = r[np.tril_indices(len(r))]
    words = (
        f"Heat map of {heading(measure)} of {run.method}, seed {run.seed}. {MEANING}. "
        f"Lowest {known.min():.4f}, highest {known.max():.4f}, mean at the end {r[-1].mean():.4f}."
    )
    return View(words, {ROWS: rows(("line", "task", "score"), cells)})


def parts_of(names: Sequence[str]) -> list[tuple[str, range]]:
    """The rows or columns of a heat map: a label, and the tasks that it stands for."""
    return [(label(names, part), part) for part in bins(len(names), MOST)]


def _some_in_common(runs: Sequence[Run]) -> bool:
    """Whether there are tasks that every run learned, whatever its seed."""
    return bool(set.intersection(*(set(run.tasks) for run in runs)))


def _averages_view(runs: Sequence[Run], measure: str) -> View:
    found = []
    ends = []
    for method in methods(runs):
        own = [run for run in runs if run.method == method]
        curves = [r.averages(measure) for run in own if (r := run.results) is not None]
        count = len(own[0].tasks)
        if curves:
            values, places = np.array(curves), [part[-1] for part in bins(count, _POINTS)]
        else:  # constant from the first to the last, since nothing is measured in between
            finals = [np.mean(run.scores[measure]) for run in own]
            values, places = np.array([[f] * count for f in finals]), sorted({0, count - 1})
        for i in places:
            found.append((method, "" if curves else "batch", i + 1, *spread(values[:, i])))
        ends.append(f"{method} {values[:, -1].mean():.4f}")
    words = f"Lines, mean {heading(measure)} after each task. At the end: {', '.join(ends)}."
    return View(words, {ROWS: rows(("method", "how", "tasks", "score", "low", "high"), found)})


def _by_task_view(runs: Sequence[Run], measure: str) -> View:
    names = [n for n in runs[0].tasks if all(n in run.tasks for run in runs)]
    found = []
    for part in bins(len(names), MOST):
        chosen = {names[place] for place in part}
        for method in methods(runs):
            seeds = [
                np.mean(
                    [s for n, s in zip(run.tasks, run.scores[measure], strict=True) if n in chosen]
                )
                for run in runs
                if run.method == method
            ]
            found.append((label(names, part), method, *spread(np.array(seeds))))
    words = f"Points, {heading(measure)} of each of {len(names)} tasks at the end for each method."
    return View(words, {ROWS: rows(("task", "method", "score", "low", "high"), found)})


def _lines(runs: Sequence[Run]) -> alt.LayerChart:
    """One line per method with the band between its seeds."""
    base = from_data().encode(
        x=tasks_learned(),
        color=method_color(methods(runs)),
    )
    scale = alt.Scale(zero=False)
    band = base.mark_area(opacity=0.2).encode(
        y=alt.Y("low:Q", scale=scale, title="mean score"), y2="high:Q"
    )
    dash = alt.StrokeDash(
        "how:N", legend=None, scale=alt.Scale(domain=["", "batch"], range=[[1, 0], [5, 4]])
    )
    y = alt.Y("score:Q", scale=scale, title="mean score")
    line = base.mark_line(strokeWidth=2.2).encode(y=y, strokeDash=dash)
    points = base.mark_point(filled=True, size=60, opacity=1).encode(
        y=y,
        shape=method_shape(methods(runs)),
        tooltip=[
            alt.Tooltip("method:N"),
            alt.Tooltip("tasks:Q", title="tasks learned"),
            *over_seeds_told(),
        ],
    )
    return layered(band, line, points)


def _band(runs: Sequence[Run]) -> str:
    seeds = len({run.seed for run in runs})
    return f" Bands reach from the lowest to the highest of {seeds} seeds." if seeds > 1 else ""


def _blocks(count: int) -> str:
    size = len(bins(count, MOST)[0])
    return f" With so many tasks, a place stands for the mean of {size}." if size > 1 else ""
