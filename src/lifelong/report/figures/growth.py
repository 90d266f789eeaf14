"""How did it grow? Units in order of birth, and what happened to them at each task."""

from collections.abc import Iterator, Sequence

import altair as alt
import numpy as np

from lifelong.evaluation.runs import Run
from lifelong.evaluation.usage import EVENTS, grows, selected_shares, units_by_task
from lifelong.report.figures.drawing import (
    GROUPED,
    INK,
    ROWS,
    Column,
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
from lifelong.report.figures.scores import MOST, heat_map, parts_of

_LINES = GROUPED[0]
_WRITTEN = 26  # most columns with room for a number in each cell
NO_GROWTH = "The network of this method does not grow."


def births(runs: Sequence[Run]) -> Figure:
    """Each layer as a bar of its units in order of birth."""
    base = from_data().encode(y=alt.Y("layer:N", sort=None, title=None))
    tips = [
        alt.Tooltip("layer:N"),
        alt.Tooltip("task:N", title="introduced by"),
        alt.Tooltip("units:Q", title="units introduced"),
        *(alt.Tooltip(f"{event}:Q", title=f"{event} at this task") for event in EVENTS),
        alt.Tooltip("so_far:Q", title="units by then"),
    ]
    bars = base.mark_bar(height={"band": 0.62}, stroke="none").encode(
        x=alt.X("before:Q", title="units", axis=alt.Axis(tickMinStep=1, tickCount=10)),
        x2="so_far:Q",
        color=task_color(runs, "born"),
        tooltip=tips,
    )
    base_widths = (
        from_data("base")
        .mark_tick(color=INK, thickness=2.5, height={"band": 0.86})
        .encode(
            y=alt.Y("layer:N", sort=None),
            x="width:Q",
            tooltip=[alt.Tooltip("layer:N"), alt.Tooltip("width:Q", title="base network")],
        )
    )
    layers = max(len(run.widths) for run in runs)
    return Figure(
        "births",
        "Units of each layer, in order of birth",
        "Coloured by the task that introduced them. The mark is the layer's width in the base "
        "network, which the batch models have from the start.",
        layered(bars, base_widths),
        ("method", "seed"),
        by_run(runs, _births_view),
        (
            Column("layer", "layer"),
            Column("task", "introduced by"),
            Column("units", "units"),
            Column("so_far", "units by then"),
        ),
        Height(pixels=110 + 46 * layers, least=310),
        NO_GROWTH,
        wide=True,
    )


def events(runs: Sequence[Run]) -> Figure:
    """How many units were selected, added, dropped and split: one row per layer and event."""
    count = len(runs[0].tasks)
    layers = max(len(run.widths) for run in runs)
    base = from_data().encode(
        x=alt.X("task:N", sort=None, title=None, axis=task_names(all_tasks(runs))),
        y=alt.Y("line:N", sort=None, title=None),
        tooltip=[
            "layer:N",
            "task:N",
            *(alt.Tooltip(f"{event}:Q") for event in EVENTS),
            alt.Tooltip("units:Q", title="units after it"),
        ],
    )
    color = alt.Color(
        "event:N",
        title=None,
        scale=alt.Scale(domain=list(EVENTS), range=["#3b82d6", "#2a9d76", "#6f7c8a", "#e0457b"]),
    )
    depth = alt.Opacity("share:Q", legend=None, scale=alt.Scale(domain=[0, 1], range=[0.06, 0.9]))
    cells = base.mark_rect(strokeWidth=0, cornerRadius=2).encode(color=color, opacity=depth)
    drawn = [cells]
    if count <= _WRITTEN:
        drawn.append(base.mark_text(fontSize=11, color=INK).encode(text="number:Q"))
    listed = "; ".join(f"{event}: {what}" for event, what in EVENTS.items())
    return Figure(
        "events",
        "What happened to them at each task",
        f"{listed[0].upper()}{listed[1:]}. A line is shaded against its own highest number."
        + (" With so many tasks a column sums several." if count > _LINES else ""),
        layered(*drawn),
        ("method", "seed"),
        by_run(runs, _events_view),
        Pivot("task", "line", Column("number", "number"), "task"),
        Height(pixels=120 + 24 * len(EVENTS) * layers, least=200, most=1400),
        NO_GROWTH,
        wide=True,
    )


def selection(runs: Sequence[Run]) -> Figure:
    """The share of each layer's units that each task selects."""
    count = len(runs[0].tasks)
    layers = max(len(run.widths) for run in runs)
    return Figure(
        "selection",
        "What a task selects of each layer",
        "Of the units that there were when the task began, the share that its sparse head depends "
        "on: only these are retrained. 1: it selects them all."
        + (" With so many tasks, a cell is the mean of several." * (count > MOST)),
        heat_map(all_tasks(runs), "layer", "task", "share"),
        ("method", "seed"),
        on_one_scale(by_run(runs, _selection_view), "share"),
        Pivot("task", "line", Column("share", "share", 3), "task"),
        Height(pixels=150 + 30 * layers, least=320),
        NO_GROWTH,
        wide=True,
    )


def _selection_view(run: Run) -> View | None:
    if not grows(run) or len(run.tasks) < 2:
        return None
    shares = selected_shares(run)
    cells = [
        (layer, name, rounded(np.nanmean(share[list(part)])))
        for name, part in parts_of(run.tasks)
        for layer, share in shares.items()
        if not np.isnan(share[list(part)]).all()
    ]
    said = "; ".join(f"{layer}: {np.nanmean(share):.0%}" for layer, share in shares.items())
    words = f"Heat map, share of each layer's units that each task selects. On average {said}."
    return View(words, {ROWS: rows(("line", "task", "share"), cells)})


def _births_view(run: Run) -> View | None:
    if not grows(run):
        return None
    base = rows(("layer", "width"), ((group, run.widths[group]) for group in run.born))
    ends = "; ".join(
        f"{group}: {born.count(1)} units after the first task, {len(born)} at the end, "
        f"{run.widths[group]} in the base network"
        for group, born in run.born.items()
    )
    words = f"Stacked bars, units by the task that introduced them. {ends}."
    fields = ("layer", "task", "born", "before", "so_far", "units", *EVENTS)
    return View(words, {ROWS: rows(fields, _births(run)), "base": base})


def _births(run: Run) -> Iterator[tuple[object, ...]]:
    for group, born in run.born.items():
        before = 0
        for record, units in zip(run.records, units_by_task(born, len(run.tasks)), strict=True):
            if units:
                at = record.groups[group]
                happened = (getattr(at, event) for event in EVENTS)
                after = before + units
                yield group, record.task, record.number, before, after, units, *happened
                before = after


def _events_view(run: Run) -> View | None:
    if not grows(run):
        return None
    fields = ("layer", "event", "line", "task", "number", "share", "units", *EVENTS)
    totals = ", ".join(
        f"{sum(getattr(at, event) for r in run.records for at in r.groups.values())} {event}"
        for event in EVENTS
    )
    words = f"Grid of numbers by layer, event and task. Over all layers and tasks: {totals}."
    return View(words, {ROWS: rows(fields, _events(run))})


def _events(run: Run) -> Iterator[tuple[object, ...]]:
    parts = bins(len(run.records), _LINES)
    for group in run.born:
        counts = {
            event: [sum(getattr(run.records[i].groups[group], event) for i in p) for p in parts]
            for event in EVENTS
        }
        for event, numbers in counts.items():
            most = max(numbers)
            for place, part in enumerate(parts):
                yield (
                    group,
                    event,
                    f"{group} {event}",
                    label(run.tasks, part),
                    numbers[place],
                    round(numbers[place] / most, 3) if most else 0,
                    run.records[part[-1]].groups[group].units,
                    *(counts[each][place] for each in EVENTS),
                )
