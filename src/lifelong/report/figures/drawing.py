"""What all charts share: what a figure is, colours, and how many tasks fit.

Ink is the page's own colour (`currentColor`), so that a chart is readable on light and on dark; all
other colours must be readable on both. Charts name their data and the page hands them the rows of
the run that is chosen, so that a chart is described once however many runs there are.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any, TypeAlias, final

import altair as alt
import numpy as np
import vl_convert
from numpy.typing import NDArray

from lifelong.evaluation.runs import Run, measures

Columns: TypeAlias = Mapping[str, Sequence[Any]]

INK = "currentColor"
ROWS = "rows"  # the data that a figure's table shows
HOVERED = 0.001  # opacity of a mark that is there to be pointed at and not to be seen
_VEGA_LITE = ".".join(alt.SCHEMA_VERSION.removeprefix("v").split(".")[:2])

# From the first task to the last: lightness rises all the way, so that the order can be seen
# without telling hues apart; neither end fades into white or into black.
_TASKS = ["#5a4fcf", "#8b46d1", "#bd3fb2", "#e04a83", "#ee6c52", "#f0953c", "#eabf45"]
_METHODS = [
    "#3b82d6",
    "#d9822b",
    "#2a9d76",
    "#c2539b",
    "#8a63d2",
    "#b0453a",
    "#5f9ea0",
    "#9a8a2e",
    "#7d8894",
    "#d06a9f",
]


@final
@dataclass(frozen=True)
class Column:
    """Of a table: the field it shows, its heading, and how many decimals numbers get."""

    field: str
    heading: str
    decimals: int = 0


@final
@dataclass(frozen=True)
class Pivot:
    """A table with a line for each value of one field and a column for each of another."""

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
    """Of a figure: the larger of so many pixels and a share of its width, within limits."""

    pixels: float = 0
    share: float = 0.0
    least: float = 180
    most: float = 640


@final
@dataclass(frozen=True)
class View:
    """A figure for one choice: what it says in words, and the rows of its data as columns."""

    words: str
    data: Mapping[str, Columns]


Views: TypeAlias = Mapping[Key, View]


@final
@dataclass(frozen=True)
class Figure:
    """One chart with all that it can show.

    Attributes:
        name: unique in the page.
        title, lead: what is seen, in words.
        chart: how it is drawn, from data that it names.
        by: the switches that choose what is shown, of "measure", "method" and "seed".
        views: for each choice what is shown; a choice without one has nothing to show.
        table: what the table behind the chart shows of the rows.
        absent: what is said where there is nothing to show.
        wide: whether it takes the page's whole width.
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
        """For Vega, compiled here so that the page need not."""
        fitted = self.chart.properties(
            width=400, height=300, autosize=alt.AutoSizeParams(type="fit", contains="padding")
        )
        # Compiling finds what is wrong with it; checking it by its schema first takes a second.
        return _compiled(fitted.configure(**_CONFIG).to_json(indent=None, validate=False))


@cache
def _compiled(vega_lite: str) -> dict[str, Any]:
    compiled: dict[str, Any] = vl_convert.vegalite_to_vega(vega_lite, vl_version=_VEGA_LITE)
    return compiled


def by_run(runs: Sequence[Run], view: Callable[[Run], View | None]) -> Views:
    """What each run shows, chosen by method and seed."""
    seen = {(run.method, run.seed): view(run) for run in runs}
    return {key: shown for key, shown in seen.items() if shown is not None}


def by_run_and_measure(runs: Sequence[Run], view: Callable[[Run, str], View | None]) -> Views:
    """What each run shows in each measure, chosen by method, seed and measure."""
    seen = {
        (run.method, run.seed, measure): view(run, measure)
        for run in runs
        for measure in run.scores
    }
    return {key: shown for key, shown in seen.items() if shown is not None}


def by_measure(runs: Sequence[Run], view: Callable[[Sequence[Run], str], View]) -> Views:
    """What all runs that were scored show together, chosen by measure."""
    return {
        (measure,): view([run for run in runs if measure in run.scores], measure)
        for measure in measures(runs)
    }


def score_told(value: str = "score") -> alt.Tooltip:
    """A score, to whoever points at it."""
    return alt.Tooltip(f"{value}:Q", format=".4f")


def over_seeds_told() -> list[alt.Tooltip]:
    """A score with the lowest and the highest seed."""
    return [
        score_told(),
        *(score_told(each).title(f"{each}est seed") for each in ("low", "high")),
    ]


def methods(runs: Iterable[Run]) -> tuple[str, ...]:
    """Names, each once, in the order of the runs."""
    return tuple(dict.fromkeys(run.method for run in runs))


def task_color(field: str = "born", legend: bool = True) -> alt.Color:
    """By the number of a task, from the first to the last."""
    key = alt.Legend(title="task that introduced them", format="d", tickMinStep=1)
    return alt.Color(
        f"{field}:Q", scale=alt.Scale(range=_TASKS, nice=False), legend=key if legend else None
    )


def method_color(names: Sequence[str]) -> alt.Color:
    colors = [_METHODS[place % len(_METHODS)] for place in range(len(names))]
    return alt.Color("method:N", scale=alt.Scale(domain=list(names), range=colors), title=None)


def from_data(name: str = ROWS) -> alt.Chart:
    """A chart of the data of this name."""
    return alt.Chart(alt.NamedData(name))


def task_names(**options: Any) -> alt.Axis:
    """An axis with the names of tasks; of a long one the beginning and the end."""
    shortened = "length(datum.label) > 17 ? slice(datum.label, 0, 8) + '…' + slice(datum.label, -8)"
    return alt.Axis(labelExpr=f"{shortened} : datum.label", **options)


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
    """So many things in order, in at most `most` neighbourhoods of one size."""
    size = -(-count // most)
    return [range(start, min(start + size, count)) for start in range(0, count, size)]


def label(names: Sequence[str], part: range) -> str:
    """What stands at an axis for neighbours."""
    first, last = names[part[0]], names[part[-1]]
    return first if len(part) == 1 else f"{first} … {last}"


def rounded(value: "float | np.floating[Any]") -> float:
    """To as many digits as anyone reads."""
    return float(f"{value:.6g}")


def spread(values: Sequence[float] | NDArray[np.float64]) -> tuple[float, float, float]:
    """Mean, lowest and highest."""
    array = np.asarray(values)
    return rounded(array.mean()), rounded(array.min()), rounded(array.max())


_CONFIG: dict[str, Any] = {
    "aria": False,  # the figure as a whole has words, and a table
    "background": "transparent",
    "font": "system-ui, sans-serif",
    "view": {"stroke": None},
    "axis": {
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
