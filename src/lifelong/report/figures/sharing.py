"""Who shares what? Units used by each task, the tasks that introduced them, units in common."""

from collections.abc import Iterator, Sequence

import altair as alt
import numpy as np

from lifelong.evaluation.runs import Run
from lifelong.evaluation.usage import Use, common, tells, used_units
from lifelong.report.figures.drawing import (
    GROUPED,
    HOVERED,
    INK,
    ROWS,
    Column,
    Columns,
    Figure,
    Height,
    Pivot,
    View,
    all_tasks,
    bins,
    by_run,
    from_data,
    label,
    layered,
    on_one_scale,
    rounded,
    rows,
    task_color,
    task_names,
)
from lifelong.report.figures.scores import MOST, heat_map

_LINES = GROUPED[0]  # rows of the chart of units; with more tasks a row stands for several
_COLUMNS = 160  # columns of that chart, if there are too many units for one each
_CELLS = 6000  # beyond which neighbours share a cell
_APART = 1500  # beyond which there is no gap between neighbours
_NAMED = 8  # tasks that use a unit, before "and more"
_NOBODY = "This method cannot tell which units a task uses."


def weave(runs: Sequence[Run]) -> Figure:
    """One row per task, one column per unit: filled if the task uses the unit."""
    cells = (
        from_data("cells")
        .mark_rect(stroke="none")
        .encode(
            x=alt.X("start:Q", axis=None),
            x2="end:Q",
            y=_task_lines(runs),
            color=task_color(runs, "born", legend=False),
            opacity=alt.Opacity("share:Q", legend=None, scale=_FROM_0_TO_1),
        )
    )
    pointed = alt.selection_point(on="pointerover", clear="pointerout", empty=False, nearest=False)
    units = (
        from_data()
        .mark_rect(stroke=INK)
        .encode(
            x=alt.X("start:Q", axis=None),
            x2="end:Q",
            fill=alt.value(INK),
            fillOpacity=alt.condition(pointed, alt.value(0.18), alt.value(HOVERED)),
            strokeWidth=alt.condition(pointed, alt.value(1), alt.value(0)),
            tooltip=[
                "layer:N",
                alt.Tooltip("unit:N"),
                alt.Tooltip("with:N", title="introduced by"),
                alt.Tooltip("tasks:Q", title="tasks that use it"),
                alt.Tooltip("names:N", title="they are"),
            ],
        )
        .add_params(pointed)
    )
    own = (
        from_data("tasks")
        .mark_rect(stroke="none", cornerRadius=2)
        .encode(
            x=alt.X("start:Q", axis=None),
            x2="end:Q",
            y=_task_lines(runs),
            color=task_color(runs, "number", legend=False),
            tooltip=[
                "task:N",
                alt.Tooltip("used:Q", title="units used"),
                alt.Tooltip("old:Q", title="of earlier tasks"),
                alt.Tooltip("own:Q", title="introduced for it"),
            ],
        )
    )
    there = (
        from_data("there")
        .mark_rect(stroke="none", fill=INK, opacity=0.07)
        .encode(
            x=alt.X("start:Q", axis=None, scale=alt.Scale(nice=False, zero=False)),
            x2="end:Q",
            y=alt.Y(
                "task:N",
                sort=None,
                title=None,
                axis=task_names(all_tasks(runs)),
                scale=alt.Scale(paddingInner=0.12),
            ),
        )
    )
    heads = (
        from_data("layers")
        .mark_text(align="left", fontSize=12, fontWeight=600, color=INK, dy=-8)
        .encode(x=alt.X("start:Q", axis=None), y=alt.value(0), text="title:N")
    )
    lines = min(len(runs[0].tasks), _LINES)
    return Figure(
        "weave",
        "Which task uses which unit",
        "A row is a task, a column is a unit, in order of birth. A unit is drawn in the row of "
        "each task that uses it, in the colour of the task that introduced it: a row in many "
        "colours is a task that builds on many others. Grey: there, but not used. "
        "Point at a column to see who uses the unit." + _neighbours(runs),
        layered(there, cells, own, heads, units),
        ("method", "seed"),
        by_run(runs, _weave_view),
        (
            Column("layer", "layer"),
            Column("unit", "unit"),
            Column("with", "introduced by"),
            Column("tasks", "tasks that use it"),
            Column("names", "they are"),
        ),
        Height(pixels=90 + max(14, 34 - 0.4 * lines) * lines, least=200, most=1100),
        _NOBODY,
        wide=True,
    )


def sources(runs: Sequence[Run]) -> Figure:
    """How many of the units that a task uses each task introduced."""
    chart = (
        from_data()
        .mark_bar(stroke="none")
        .encode(
            y=_task_lines(runs),
            x=alt.X("units:Q", title="units used", axis=alt.Axis(tickMinStep=1)),
            color=task_color(runs, "born"),
            order=alt.Order("born:Q"),
            tooltip=[
                "task:N",
                alt.Tooltip("with:N", title="units introduced by"),
                alt.Tooltip("units:Q"),
                alt.Tooltip("share:Q", title="of all it uses", format=".0%"),
            ],
        )
    )
    lines = min(len(runs[0].tasks), _LINES)
    return Figure(
        "sources",
        "Where a task's units come from",
        "The units that each task uses, in all layers, by the task that introduced them. What "
        "is not in a task's own colour was there before."
        + (
            " With so many tasks a bar is the mean of several."
            if len(runs[0].tasks) > lines
            else ""
        ),
        layered(chart),
        ("method", "seed"),
        by_run(runs, _sources_view),
        (
            Column("task", "task"),
            Column("with", "units introduced by"),
            Column("units", "units"),
            Column("percent", "% of all it uses", 1),
        ),
        Height(pixels=110 + 12 * lines, share=0.9, least=280, most=max(640, 110 + 12 * lines)),
        _NOBODY,
    )


def overlap(runs: Sequence[Run]) -> Figure:
    """Units that two tasks both use over the units that either uses, for every pair."""
    count = len(runs[0].tasks)
    return Figure(
        "overlap",
        "Units in common",
        "For every two tasks: the units that both use over the units that either uses, in all "
        "layers. 1: the same units; 0: none."
        + (" With so many tasks, a cell is the mean of several." if count > MOST else ""),
        heat_map(all_tasks(runs), "task", "and task", "overlap"),
        ("method", "seed"),
        on_one_scale(by_run(runs, _overlap_view), "overlap"),
        Pivot("line", "task", Column("overlap", "units in common", 3), "task"),
        Height(share=0.9, least=280, most=640),
        _NOBODY,
    )


def _neighbours(runs: Sequence[Run]) -> str:
    crowded = any(_crowded(Use(run)) for run in runs if tells(run))
    return " Where there are many, neighbours share a cell." if crowded else ""


def _crowded(use: Use) -> bool:
    return int(use.whole.sum()) > _CELLS or len(use.run.tasks) > _LINES


def _task_lines(runs: Sequence[Run]) -> alt.Y:
    return alt.Y("task:N", sort=None, title=None, axis=task_names(all_tasks(runs)))


_FROM_0_TO_1 = alt.Scale(domain=[0, 1], range=[0, 1])


def _weave_view(run: Run) -> View | None:
    if not tells(run):
        return None
    use = Use(run)
    lines = bins(len(run.tasks), _LINES)
    most = _COLUMNS if _crowded(use) else use.whole.shape[1]
    size = -(-use.whole.shape[1] // most)
    counts = use.whole.sum(axis=0)
    words = (
        f"Grid, {len(run.tasks)} tasks by {len(counts)} units. {int((counts > 1).sum())} units are "
        f"used by more than one task, {int((counts == len(run.tasks)).sum())} by all, "
        f"{int((counts == 0).sum())} by none."
    )
    layers = ((layer.start, f"{layer.name} · {len(layer.units)}") for layer in use.layers)
    return View(
        words,
        {
            "cells": rows(("start", "end", "task", "born", "share"), _cells(use, lines, size)),
            ROWS: _units(use),
            "tasks": rows(
                ("start", "end", "task", "number", "used", "old", "own"), _own(use, lines)
            ),
            "there": rows(("start", "end", "task"), _there(use, lines)),
            "layers": rows(("start", "title"), layers),
        },
    )


def _cells(use: Use, lines: list[range], size: int) -> Iterator[tuple[object, ...]]:
    """The cells of each row; of many, neighbours that look the same are drawn as one."""
    born = {group: np.array(stamps) for group, stamps in use.run.born.items()}
    many = int(use.whole.sum()) > _APART
    air = 0.08 if size == 1 and not many else 0
    for line in lines:
        name = label(use.run.tasks, line)
        for layer in use.layers:
            used = use.by_group[layer.name]
            cells: list[list[float]] = []  # start, end, born, share
            for first in range(0, len(layer.units), size):
                units = layer.units[first : first + size]
                share = round(float(used[np.ix_(line, units)].mean()), 3)
                start, stamp = layer.start + first, rounded(born[layer.name][list(units)].mean())
                if many and cells and cells[-1][1:] == [start, stamp, share]:
                    cells[-1][1] = start + len(units)
                elif share > 0:
                    cells.append([start + air, start + len(units) - air, stamp, share])
            for begin, end, *look in cells:
                yield begin, end, name, *look


def _there(use: Use, lines: list[range]) -> Iterator[tuple[object, ...]]:
    """The units that existed when a task was learned, used or not."""
    for line in lines:
        for layer in use.layers:
            units = sum(number <= line[-1] + 1 for number in use.run.born[layer.name])
            yield layer.start, layer.start + units, label(use.run.tasks, line)


def _units(use: Use) -> Columns:
    """One row per unit, for the tooltip and the table."""
    found = []
    for layer in use.layers:
        for place, unit in enumerate(layer.units, layer.start):
            users = np.flatnonzero(use.by_group[layer.name][:, unit])
            names = [use.run.tasks[task] for task in users[:_NAMED]]
            more = f" and {len(users) - _NAMED} more" if len(users) > _NAMED else ""
            metadata = use.run.tasks[use.run.born[layer.name][unit] - 1]
            listed = ", ".join(names) + more
            found.append((place, place + 1, layer.name, unit, metadata, len(users), listed))
    return rows(("start", "end", "layer", "unit", "with", "tasks", "names"), found)


def _own(use: Use, lines: list[range]) -> Iterator[tuple[object, ...]]:
    """A patch in each task's own colour at the start of its row."""
    wide = use.end / 45
    for line in lines:
        used = int(use.whole[line].sum(axis=1).mean().round())
        own = int(np.mean([use.whole[task][use.born == task + 1].sum() for task in line]).round())
        number = 1 + float(np.mean(line))
        name = label(use.run.tasks, line)
        yield -1.6 * wide, -0.5 * wide, name, number, used, used - own, own


def _sources_view(run: Run) -> View | None:
    if not tells(run):
        return None
    use, parts = Use(run), bins(len(run.tasks), _LINES)
    found = []
    for part in parts:
        whole = use.whole[part].sum(axis=1).mean()
        for metadata in parts:
            among = (use.born > metadata[0]) & (use.born <= metadata[-1] + 1)
            units = use.whole[part][:, among].sum(axis=1).mean()
            if units:
                born, names = float(np.mean(metadata)) + 1, label(run.tasks, metadata)
                share = rounded(units / whole)
                row = (label(run.tasks, part), names, born, rounded(units), share, 100 * share)
                found.append(row)
    shares = [older / max(1, used) for used, older in used_units(run)]
    later = f"{np.mean(shares[1:]):.0%}" if len(shares) > 1 else "none"
    words = f"Stacked bars. Of the units that a later task uses, on average {later} are older."
    return View(words, {ROWS: rows(("task", "with", "born", "units", "share", "percent"), found)})


def _overlap_view(run: Run) -> View | None:
    if not tells(run) or len(run.tasks) < 2:
        return None
    shares = common(run)
    parts = bins(len(run.tasks), MOST)
    found = []
    for i, some in enumerate(parts):
        for others in parts[: i + 1]:
            pairs = [shares[a, b] for a in some for b in others if a > b]
            if pairs:
                names = label(run.tasks, some), label(run.tasks, others)
                found.append((*names, rounded(np.mean(pairs))))
    known = shares[np.tril_indices(len(shares), -1)]
    words = (
        f"Heat map, share of units that two tasks have in common. Lowest {known.min():.3f}, "
        f"mean {known.mean():.3f}, highest {known.max():.3f}."
    )
    return View(words, {ROWS: rows(("line", "task", "overlap"), found)})
