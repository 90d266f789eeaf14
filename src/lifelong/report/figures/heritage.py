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
    by_run,
    from_data,
    layered,
    rounded,
    rows,
    task_color,
    tasks_learned,
)
from lifelong.report.figures.scores import MOST, heat_map, parts_of

_NOTHING = "The tasks of this method overwrite no weights of earlier ones."
UNTRAINED = "the untrained network"


def changed(runs: Sequence[Run]) -> Figure:
    """The share of each tensor that each task overwrites."""
    count = len(runs[0].tasks)
    tensors = max((len(run.entries) for run in runs), default=0)
    return Figure(
        "changed",
        "Which weights a task overwrites",
        "Of the entries that each tensor had when the task began, the share for which the task "
        "keeps values of its own; earlier tasks still have theirs. 0: it takes the tensor as it "
        "is." + (" With so many tasks, a cell is the mean of several." * (count > MOST)),
        heat_map(count, "weights", "task", "share"),
        ("method", "seed"),
        by_run(runs, _changed_view),
        Pivot("task", "line", Column("share", "share", 4), "task"),
        Height(pixels=150 + 30 * tensors, least=200),
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
        y="parent:Q", color=task_color("parent", legend=False)
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
