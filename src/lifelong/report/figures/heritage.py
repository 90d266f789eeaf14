"""What does a task change? The weights that it overwrites, and the task that it starts from."""

from collections.abc import Sequence

import altair as alt
import numpy as np

from lifelong.evaluation.runs import Run
from lifelong.evaluation.usage import changed_entries, changed_shares, overwrites, parents
from lifelong.report.figures.drawing import (
    ROWS,
    Column,
    Figure,
    Height,
    Pivot,
    View,
    all_tasks,
    by_run,
    from_data,
    layered,
    on_one_scale,
    rounded,
    rows,
    task_color,
    task_names,
    tasks_learned,
)
from lifelong.report.figures.scores import MOST, heat_map, parts_of

_NOTHING = "The tasks of this method overwrite no weights of earlier ones."
UNTRAINED = "the untrained network"
_WHAT = ("inherited", "changed")


def changed(runs: Sequence[Run]) -> Figure:
    """The share of each tensor that each task overwrites."""
    count = len(runs[0].tasks)
    tensors = max((len(run.entries) for run in runs), default=0)
    return Figure(
        "changed",
        "Which weights a task overwrites",
        "Of the entries that each tensor had when the task began, the share for which the task "
        "keeps values of its own; earlier tasks still have theirs. 0: it takes the tensor as it "
        "is, 1: it has all of it anew, as the first task and masks of the untrained network do."
        + (" With so many tasks, a cell is the mean of several." * (count > MOST)),
        heat_map(all_tasks(runs), "weights", "task", "share"),
        ("method", "seed"),
        on_one_scale(by_run(runs, _changed_view), "share"),
        Pivot("task", "line", Column("share", "share", 4), "task"),
        Height(pixels=150 + 30 * tensors, least=320),
        _NOTHING,
        wide=True,
    )


def inherited(runs: Sequence[Run]) -> Figure:
    """Of the weights that a task found, how many it keeps as they are and how many it changes."""
    chart = (
        from_data()
        .mark_bar(stroke="none")
        .encode(
            x=alt.X("task:N", sort=None, title=None, axis=task_names(all_tasks(runs))),
            y=alt.Y("entries:Q", title="weights", axis=alt.Axis(format="~s")),
            color=alt.Color(
                "what:N",
                title=None,
                scale=alt.Scale(domain=list(_WHAT), range=["#7d8fa3", "#e08a2e"]),
            ),
            order=alt.Order("place:Q"),
            tooltip=[
                "task:N",
                alt.Tooltip("from:N", title="starts from"),
                "what:N",
                alt.Tooltip("entries:Q", title="weights", format=",.0f"),
                alt.Tooltip("share:Q", format=".1%"),
            ],
        )
    )
    return Figure(
        "inherited",
        "Weights that a task inherits and changes",
        "Of the shared weights that there were when the task began: those that it uses as the task "
        "that it starts from has them, and those for which it keeps values of its own."
        + (" With so many tasks a bar is the mean of several." * (len(runs[0].tasks) > MOST)),
        layered(chart),
        ("method", "seed"),
        by_run(runs, _inherited_view),
        (
            Column("task", "task"),
            Column("from", "starts from"),
            Column("what", "weights"),
            Column("entries", "number"),
            Column("percent", "%", 1),
        ),
        Height(share=0.35, least=320, most=420),
        _NOTHING,
        wide=True,
    )


def heritage(runs: Sequence[Run]) -> Figure:
    """The task that each task starts from."""
    base = from_data().encode(
        x=tasks_learned("number").title("task"),
        tooltip=[
            "task:N",
            alt.Tooltip("from:N", title="starts from"),
            alt.Tooltip("entries:Q", title="entries overwritten", format=",.0f"),
        ],
    )
    axis = alt.Axis(tickMinStep=1, format="d")
    links = base.mark_rule(opacity=0.3).encode(
        y=alt.Y("parent:Q", title="starts from (0: untrained)", axis=axis), y2="number:Q"
    )
    points = base.mark_point(filled=True, size=60, opacity=1).encode(
        y="parent:Q", color=task_color(runs, "parent", legend=False)
    )
    return Figure(
        "heritage",
        "From whom a task inherits",
        "Each task starts from the network of one other, with all that this one overwrote: the "
        "task before it, or none (0), the untrained network. A point is the number of that task; "
        "its line reaches up to the task itself.",
        layered(links, points),
        ("method", "seed"),
        by_run(runs, _heritage_view),
        (
            Column("task", "task"),
            Column("from", "starts from"),
            Column("entries", "entries overwritten"),
        ),
        Height(share=0.6, most=420),
        _NOTHING,
    )


def _changed_view(run: Run) -> View | None:
    shares = changed_shares(run)
    if not overwrites(run) or not shares:
        return None
    cells = [
        (tensor, name, rounded(np.mean(share[list(part)])))
        for name, part in parts_of(run.tasks)
        for tensor, share in shares.items()
    ]
    said = "; ".join(f"{tensor}: {share.mean():.1%}" for tensor, share in shares.items())
    words = (
        f"Heat map, share of each tensor that each task of {run.method}, seed {run.seed}, "
        f"overwrites. On average {said}."
    )
    return View(words, {ROWS: rows(("line", "task", "share"), cells)})


def _inherited_view(run: Run) -> View | None:
    if not overwrites(run) or not run.entries:
        return None
    found = np.sum([np.array(each) for each in run.entries.values()], axis=0)
    changed = sum(changed_entries(run).values(), np.zeros(len(run.tasks)))
    starts = [(UNTRAINED, *run.tasks)[parent] for parent in parents(run)]
    told = []
    for name, part in parts_of(run.tasks):
        here = list(part)
        own, total = float(changed[here].mean()), float(found[here].mean())
        start = starts[part[0]] if len(part) == 1 else "several"
        for place, (what, number) in enumerate(zip(_WHAT, (total - own, own), strict=True)):
            share = rounded(number / max(total, 1))
            told.append((name, start, what, round(number), share, 100 * share, place))
    mean = float(np.mean(changed / np.maximum(found, 1)))
    words = f"Stacked bars. On average a task changes {mean:.1%} of the weights that it found."
    fields = ("task", "from", "what", "entries", "share", "percent", "place")
    return View(words, {ROWS: rows(fields, told)})


def _heritage_view(run: Run) -> View | None:
    if not overwrites(run):
        return None
    found, entries = parents(run), sum(changed_entries(run).values(), np.zeros(len(run.tasks)))
    names = (UNTRAINED, *run.tasks)
    told = [
        (names[number], number, parent, names[parent], int(count))
        for number, (parent, count) in enumerate(zip(found, entries, strict=True), 1)
    ]
    before = sum(parent == place for place, parent in enumerate(found) if place)
    words = (
        f"Points, the task that each starts from: {before} from the task before, "
        f"{found.count(0)} from {UNTRAINED}."
    )
    return View(words, {ROWS: rows(("task", "number", "parent", "from", "entries"), told)})
