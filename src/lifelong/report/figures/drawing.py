"""What all charts share: the structure of a figure, colours, and how many tasks fit.

Text and axes have the page's own colour (`currentColor`), so that a chart is readable on light and
dark pages; all other colours must be readable on both. A chart refers to its data by name, and the
page supplies the rows of the selected run: one chart description serves all runs.
"""

import json
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from itertools import takewhile
from math import inf
from typing import Any, TypeAlias, final

import altair as alt
import numpy as np
import vl_convert
from numpy.typing import NDArray

from lifelong.evaluation.runs import Run, measures
from lifelong.report.figures.palette import colour, shapes

Columns: TypeAlias = Mapping[str, Sequence[Any]]

INK = "currentColor"
ROWS = "rows"  # the data that a figure's table shows
ENDS = "ends"  # the lowest and the highest value of a colour scale
LONGEST = 17  # characters of a name on an axis
GROUPED = (60, 80)  # most lines of charts, beyond which neighbours share one
HOVERED = 0.001  # opacity of an invisible mark that only carries a tooltip
_VEGA_LITE = ".".join(alt.SCHEMA_VERSION.removeprefix("v").split(".")[:2])

# From the first task to the last, lightness rises, so that the order is visible without telling
# hues apart; neither end fades into white or black.
_TASKS = ["#5a4fcf", "#8b46d1", "#bd3fb2", "#e04a83", "#ee6c52", "#f0953c", "#eabf45"]


@final
@dataclass(frozen=True)
class Column:
    """A column of a table: its field, its heading, and the number of decimals."""

    field: str
    heading: str
    decimals: int = 0


@final
@dataclass(frozen=True)
class Pivot:
    """A table with one row per value of one field and one column per value of another."""

    line: str
    column: str
    value: Column
    heading: str


OVER_SEEDS = (
    Column("score", "score", 4),
    Column("low", "lowest seed", 4),
    Column("high", "highest seed", 4),
)
Key: TypeAlias = tuple[str | int, ...]
Table: TypeAlias = tuple[Column, ...] | Pivot


@final
@dataclass(frozen=True)
class Height:
    """Height of a figure: the larger of some pixels and a share of its width, within limits."""

    pixels: float = 0
    share: float = 0.0
    least: float = 240
    most: float = 640


@final
@dataclass(frozen=True)
class View:
    """A figure for one choice: a description in words, and its data as columns."""

    words: str
    data: Mapping[str, Columns]


Views: TypeAlias = Mapping[Key, View]


@final
@dataclass(frozen=True)
class Figure:
    """One chart with all its views.

    Attributes:
        name: unique in the page.
        title, lead: heading and explanation.
        chart: the chart description, which refers to its data by name.
        by: the switches that select a view, of "measure", "method" and "seed".
        views: the view of each choice; a choice without a view shows `absent`.
        table: the columns of the table under the chart.
        absent: text for a choice without a view.
        wide: whether it takes the full width of the page.
    """

    name: str
    title: str
    lead: str
    chart: alt.LayerChart
    by: tuple[str, ...]
    views: Views
    table: Table
    height: Height
    absent: str = ""
    wide: bool = False

    def spec(self) -> dict[str, Any]:
        """The Vega description, compiled here so that the page need not do it."""
        fitted = self.chart.properties(
            width=400, height=300, autosize=alt.AutoSizeParams(type="fit", contains="padding")
        )
        # Compiling finds errors; validation against the schema would take another second.
        return _compiled(fitted.configure(**_CONFIG).to_json(indent=None, validate=False))


@cache
def _compiled(vega_lite: str) -> dict[str, Any]:
    compiled: dict[str, Any] = vl_convert.vegalite_to_vega(vega_lite, vl_version=_VEGA_LITE)
    return compiled


def by_run(runs: Sequence[Run], view: Callable[[Run], View | None]) -> Views:
    """One view per run, selected by method and seed."""
    seen = {(run.method, run.seed): view(run) for run in runs}
    return {key: shown for key, shown in seen.items() if shown is not None}


def by_run_and_measure(runs: Sequence[Run], view: Callable[[Run, str], View | None]) -> Views:
    """One view per run and metric, selected by method, seed and metric."""
    seen = {
        (run.method, run.seed, measure): view(run, measure)
        for run in runs
        for measure in run.scores
    }
    return {key: shown for key, shown in seen.items() if shown is not None}


def by_measure(runs: Sequence[Run], view: Callable[[Sequence[Run], str], View]) -> Views:
    """One view of all scored runs together, selected by metric."""
    return {
        (measure,): view([run for run in runs if measure in run.scores], measure)
        for measure in measures(runs)
    }


def score_told(value: str = "score") -> alt.Tooltip:
    """The tooltip of a score."""
    return alt.Tooltip(f"{value}:Q", format=".4f")


def over_seeds_told() -> list[alt.Tooltip]:
    """The tooltip of a score with the lowest and the highest seed."""
    return [
        score_told(),
        *(score_told(each).title(f"{each}est seed") for each in ("low", "high")),
    ]


def methods(runs: Iterable[Run]) -> tuple[str, ...]:
    """Names of the methods, each once, in the order of the runs."""
    return tuple(dict.fromkeys(run.method for run in runs))


def task_color(runs: Sequence[Run], field: str = "born", legend: bool = True) -> alt.Color:
    """Colour by task number, from the first to the last: the same in every chart."""
    ends = [1, max(2, len(runs[0].tasks))]
    key = alt.Legend(title="task that introduced them", format="d", values=ends)
    scale = alt.Scale(range=_TASKS, domain=ends, clamp=True, nice=False)
    return alt.Color(f"{field}:Q", scale=scale, legend=key if legend else None)


def method_color(names: Sequence[str]) -> alt.Color:
    scale = alt.Scale(domain=list(names), range=[colour(name) for name in names])
    return alt.Color("method:N", scale=scale, title=None)


def method_shape(names: Sequence[str]) -> alt.Shape:
    """A shape for each method, which joins its colour in the legend."""
    scale = alt.Scale(domain=list(names), range=shapes(names))
    return alt.Shape("method:N", scale=scale, title=None)


def from_data(name: str = ROWS) -> alt.Chart:
    """A chart of the data of this name."""
    return alt.Chart(alt.NamedData(name))


def task_names(names: Sequence[str], **options: Any) -> alt.Axis:
    """An axis with task names; long names are shortened to what tells them apart."""
    shortened = "length(datum.label) > 17 ? slice(datum.label, 0, 8) + '…' + slice(datum.label, -8)"
    told = f"({shortened} : datum.label)"
    if short := axis_labels(names):
        # In ASCII: a name may hold what ends a line in JavaScript.
        told = f"{json.dumps(short)}[datum.label] || {told}"
    return alt.Axis(labelExpr=told, **options)


def all_tasks(runs: Iterable[Run]) -> tuple[str, ...]:
    """The tasks of all runs, each once; seeds may have tasks of their own."""
    return tuple(dict.fromkeys(name for run in runs for name in run.tasks))


def axis_labels(names: Sequence[str]) -> dict[str, str]:
    """What stands on an axis for each name, and for groups of neighbours; empty if names fit."""
    if all(len(name) <= LONGEST for name in names):
        return {}
    short = short_names(names)
    groups = [part for most in GROUPED for part in bins(len(names), most) if len(part) > 1]
    together = {
        label(names, part): f"{short[names[part[0]]]} … {short[names[part[-1]]]}" for part in groups
    }
    return {**short, **together}


def short_names(names: Sequence[str]) -> dict[str, str]:
    """Names without what all share; in the middle shortened if still long; or else numbers."""
    before, after = shared_ends(names)
    cores = [name[len(before) : len(name) - len(after)] for name in names]
    for most in (LONGEST, 3 * LONGEST):
        short = [_middle(core, most) for core in cores]
        if len(set(short)) == len(names) and all(short) and max(map(len, short)) <= LONGEST:
            marks = "…" * bool(before), "…" * bool(after)
            return {
                name: f"{marks[0]}{core}{marks[1]}" for name, core in zip(names, short, strict=True)
            }
    return {name: str(number) for number, name in enumerate(names, 1)}


def shared_ends(names: Sequence[str]) -> tuple[str, str]:
    """What all names begin with and end with, in whole words."""
    if len(names) < 2:
        return "", ""
    before = _shared_words(names)
    return before, _shared_words([name[len(before) :][::-1] for name in names])[::-1]


def _shared_words(names: Sequence[str]) -> str:
    letters = takewhile(lambda each: len(set(each)) == 1, zip(*names, strict=False))
    return re.sub(r"\w+$", "", "".join(each[0] for each in letters))


def _middle(text: str, most: int) -> str:
    half = LONGEST // 2
    return text if len(text) <= LONGEST or len(text) > most else f"{text[:half]}…{text[-half:]}"


def on_one_scale(views: Views, value: str) -> Views:
    """The same views, each with the ends of `value` over all of one metric.

    A colour then means the same number for every method and seed.
    """
    ends: dict[Key, tuple[float, float]] = {}
    for key, view in views.items():
        low, high = ends.get(key[2:], (inf, -inf))
        found = view.data[ROWS][value]
        ends[key[2:]] = min(low, *found), max(high, *found)
    return {
        key: View(view.words, {**view.data, ENDS: {value: list(ends[key[2:]])}})
        for key, view in views.items()
    }


def tasks_learned(field: str = "tasks") -> alt.X:
    """How many tasks were learned, from left to right."""
    return alt.X(
        f"{field}:Q",
        title="tasks learned",
        scale=alt.Scale(nice=False, zero=False),
        axis=alt.Axis(tickMinStep=1, format="d"),
    )


def layered(*charts: alt.Chart) -> alt.LayerChart:
    """The first at the bottom."""
    return alt.LayerChart(layer=list(charts))


def rows(fields: Sequence[str], values: Iterable[Sequence[Any]]) -> dict[str, list[Any]]:
    """Columns from rows."""
    listed = list(values)
    return {field: [row[place] for row in listed] for place, field in enumerate(fields)}


def bins(count: int, most: int) -> list[range]:
    """Divide `count` items in order into at most `most` groups of equal size."""
    size = -(-count // most)
    return [range(start, min(start + size, count)) for start in range(0, count, size)]


def label(names: Sequence[str], part: range) -> str:
    """Axis label of a group of neighbours."""
    first, last = names[part[0]], names[part[-1]]
    return first if len(part) == 1 else f"{first} … {last}"


def rounded(value: "float | np.floating[Any]") -> float:
    """Round to the number of digits that is shown."""
    return float(f"{value:.6g}")


def spread(values: Sequence[float] | NDArray[np.float64]) -> tuple[float, float, float]:
    """Mean, lowest and highest."""
    array = np.asarray(values)
    return rounded(array.mean()), rounded(array.min()), rounded(array.max())


_CONFIG: dict[str, Any] = {
    "aria": False,  # the figure as a whole has a description and a table
    "background": "transparent",
    "font": "system-ui, sans-serif",
    "view": {"stroke": None},
    "axis": {
        "aria": False,
        "labelColor": INK,
        "titleColor": INK,
        "domainColor": INK,
        "tickColor": INK,
        "gridColor": INK,
        "domainOpacity": 0.35,
        "tickOpacity": 0.35,
        "gridOpacity": 0.1,
        "labelFontSize": 12,
        "titleFontSize": 12,
        "titleFontWeight": "normal",
        "titlePadding": 8,
        "labelLimit": 150,
        "labelOverlap": True,
    },
    "axisXBand": {"labelAngle": -45},
    "axisBand": {"ticks": False, "domain": False, "labelPadding": 6},
    "legend": {
        "aria": False,
        "orient": "top",
        "labelColor": INK,
        "titleColor": INK,
        "labelFontSize": 12,
        "titleFontSize": 12,
        "titleFontWeight": "normal",
        "gradientLength": 140,
        "gradientThickness": 10,
        "columns": 3,
        "symbolOpacity": 1,
        "titleLimit": 260,
    },
}
