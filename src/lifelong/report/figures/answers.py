"""What does it answer? The predictions for a chosen task's test rows, at the end."""

from collections.abc import Callable, Sequence
from itertools import pairwise

import altair as alt
import numpy as np

from lifelong.evaluation.runs import Run
from lifelong.records import Answers
from lifelong.report.figures.drawing import (
    ROWS,
    Column,
    Figure,
    Height,
    Key,
    Pivot,
    View,
    Views,
    bins,
    from_data,
    layered,
    rows,
)

MOST = 60  # tasks whose predictions a page holds
_NOT_KEPT = "The predictions for this task were not kept with the run."


def probabilities(runs: Sequence[Run]) -> Figure:
    """How many rows got which probability, apart by the truth."""
    chart = (
        from_data()
        .mark_bar(opacity=0.75)
        .encode(
            x=alt.X(
                "low:Q",
                title="predicted probability",
                bin="binned",
                scale=alt.Scale(domain=[0, 1]),  # the same for every method and task
            ),
            x2="high:Q",
            y=alt.Y("share:Q", title="share of the rows of this truth", stack=None),
            color=alt.Color(
                "truth:N",
                title="truth",
                scale=alt.Scale(domain=["no", "yes"], range=["#7d8fa3", "#e08a2e"]),
            ),
            tooltip=[
                "truth:N",
                alt.Tooltip("low:Q", title="probability from", format=".2f"),
                alt.Tooltip("high:Q", title="to", format=".2f"),
                alt.Tooltip("number:Q", title="rows"),
                alt.Tooltip("share:Q", format=".1%"),
            ],
        )
    )
    return Figure(
        "probabilities",
        "Predictions for a task",
        "At the end, the probabilities that the test rows of the chosen task get, apart by what is "
        "true of them. The further apart the two, the surer; above one half counts as yes."
        + _some(runs),
        layered(chart),
        ("method", "seed", "task"),
        _views(runs, "probability", _probabilities_view),
        (
            Column("truth", "truth"),
            Column("low", "probability from", 2),
            Column("high", "to", 2),
            Column("number", "rows"),
        ),
        Height(share=0.5, least=300, most=420),
        _NOT_KEPT,
        wide=True,
    )


def confusion(runs: Sequence[Run]) -> Figure:
    """How many rows of each class were taken for which."""
    base = from_data().encode(
        x=alt.X("answer:N", sort=None, title="predicted class", axis=alt.Axis(labelAngle=0)),
        y=alt.Y("truth:N", sort=None, title="class"),
        tooltip=["truth:N", "answer:N", alt.Tooltip("number:Q", title="rows")],
    )
    cells = base.mark_rect(strokeWidth=0).encode(
        color=alt.Color("share:Q", title=None, scale=alt.Scale(scheme="viridis", domain=[0, 1]))
    )
    ink = alt.condition(
        "luminance(scale('color', datum.share)) > 0.3", alt.value("#111111"), alt.value("#ffffff")
    )
    numbers = base.mark_text(fontSize=11).encode(text="number:Q", color=ink)
    return Figure(
        "confusion",
        "Predictions for a task, by class",
        "At the end, the test rows of the chosen task: how many of each class (down) were taken "
        "for which (across). Colours are shares of a row." + _some(runs),
        layered(cells, numbers),
        ("method", "seed", "task"),
        _views(runs, "class", _confusion_view),
        Pivot("truth", "answer", Column("number", "rows"), "class"),
        Height(share=0.5, least=320, most=520),
        _NOT_KEPT,
        wide=True,
    )


def shown_tasks(runs: Sequence[Run]) -> tuple[str, ...]:
    """The tasks whose predictions can be chosen; none if no run kept any."""
    told = [run for run in runs if run.answers]
    return tuple(dict.fromkeys(run.tasks[place] for run in told for place in _places(run)))


def _places(run: Run) -> list[int]:
    return [part[0] for part in bins(len(run.tasks), MOST)]


def _views(runs: Sequence[Run], kind: str, view: Callable[[str, Answers], View]) -> Views:
    views: dict[Key, View] = {}
    for run in runs:
        for place in _places(run) if run.answers else ():
            if run.answers[place].kind == kind:
                name = run.tasks[place]
                views[run.method, run.seed, name] = view(name, run.answers[place])
    return views


def _probabilities_view(task: str, answers: Answers) -> View:
    counts = np.array(answers.counts)
    edges = np.linspace(0, 1, counts.shape[1] + 1).round(4).tolist()
    found = [
        (truth, low, high, number, round(number / max(1, sum(row)), 4))
        for truth, row in zip(("no", "yes"), counts.tolist(), strict=True)
        for (low, high), number in zip(pairwise(edges), row, strict=True)
        if number
    ]
    half = counts.shape[1] // 2
    words = (
        f"Histogram of the probabilities for {task}. Of {counts[1].sum():,} rows of which it is "
        f"true, {counts[1][half:].sum():,} get one half or more; of {counts[0].sum():,} others "
        f"{counts[0][half:].sum():,}."
    )
    return View(words, {ROWS: rows(("truth", "low", "high", "number", "share"), found)})


def _confusion_view(task: str, answers: Answers) -> View:
    counts = np.array(answers.counts)
    shares = counts / np.maximum(counts.sum(axis=1, keepdims=True), 1)
    found = [
        (str(truth), str(answer), int(number), round(float(shares[truth, answer]), 4))
        for (truth, answer), number in np.ndenumerate(counts)
    ]
    right = f"{np.trace(counts):,} of {counts.sum():,}"
    words = f"Grid of rows by class and prediction for {task}: {right} are right."
    return View(words, {ROWS: rows(("truth", "answer", "number", "share"), found)})


def _some(runs: Sequence[Run]) -> str:
    count = len(runs[0].tasks)
    return f" {len(_places(runs[0]))} of the {count} tasks can be chosen." * (count > MOST)
