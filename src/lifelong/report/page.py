"""Stored runs as one self-contained HTML page, which loads nothing."""

import base64
import gzip
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from functools import cache
from typing import Any, final

import msgspec
import numpy as np
import vl_convert
from jinja2 import Environment, PackageLoader, StrictUndefined

from lifelong.evaluation.metrics import METRICS, heading
from lifelong.evaluation.runs import Run, RunError, measures
from lifelong.evaluation.usage import grows, shared_by_several, tells
from lifelong.report.comparison import Comparison, flat
from lifelong.report.figures import answers, cost, drift, growth, heritage, scores, sharing
from lifelong.report.figures.drawing import LONGEST as LONGEST_NAME
from lifelong.report.figures.drawing import Figure, all_tasks, methods, short_names
from lifelong.report.figures.palette import variables
from lifelong.report.verdict import limits_reached, standard_error, verdict

_FIRST = ("DEN-auto", "DEN")  # what a page opens with, the first of these that is there
LIMIT = 1_900_000  # characters of a page, so that it can be sent by mail and opens at once


def page(runs: Sequence[Run]) -> str:
    """The page of one or more runs on the same tasks, or of one saved model."""
    return _fitting(sorted(runs, key=lambda run: (_rank(run.method), not tells(run))))


def compare(sets: Mapping[str, Sequence[Run]]) -> str:
    """The page of two sets of runs on the same tasks, by name: the second beside the first."""
    found = Comparison.of(sets)
    first = min(found.pairs, key=_rank)
    rank = dict.fromkeys(found.pairs[first][::-1], -1)
    runs = sorted(found.runs, key=lambda run: rank.get(run.method, 0))
    return _fitting(runs, found, found.pairs[first])


def _fitting(
    runs: Sequence[Run], comparison: Comparison | None = None, pair: tuple[str, str] = ("", "")
) -> str:
    """The page with the details of as many seeds as fit."""
    _refuse_strangers(runs)
    seeds = sorted({run.seed for run in runs})
    for kept in range(len(seeds), 0, -1):
        text = _page(runs, seeds[:kept], comparison, pair)
        if len(text) <= LIMIT:
            break
    return text


def forgetting_points(forgetting: float | None) -> str:
    """Forgetting in hundredths, or a dash if it is undefined."""
    return "–" if forgetting is None else f"{100 * forgetting + 0.0:.2f}"


@final
@dataclass(frozen=True)
class _Section:
    name: str
    word: str
    question: str
    figures: tuple[Figure, ...]


@final
@dataclass(frozen=True)
class _Line:
    """A method in the table of methods, with the results of each seed."""

    method: str
    about: str
    seeds: int
    cells: dict[str, str]
    best: frozenset[str]


def _page(
    runs: Sequence[Run], seeds: Sequence[int], comparison: Comparison | None, pair: tuple[str, str]
) -> str:
    sections = _sections(runs, [run for run in runs if run.seed in seeds])
    if comparison is not None:
        sections = [_compared(comparison), *sections]
    sections = [section for section in map(_filled, sections) if section.figures]
    figures = [figure for section in sections for figure in section.figures]
    rival, own = pair
    shown = next((run for run in runs if run.method == own), None) or _shown_first(runs)
    switches = _switches(runs, seeds, shown)
    return (
        _environment()
        .get_template("report.html")
        .render(
            runs=runs,
            shown=shown,
            sections=sections,
            lines=_lines(runs),
            verdict=verdict(runs, shown.method, rival or None),
            reached=limits_reached(shown),
            palette=variables(methods(runs)),
            columns=_columns(runs),
            switches=switches,
            facts=[
                *(("settings", line) for line in (comparison.settings() if comparison else ())),
                *_facts(runs, shown, seeds),
            ],
            seeds=len({run.seed for run in runs}),
            headline=_headline([run for run in runs if run.method == shown.method]),
            settings=_settings(runs),
            notes=_notes(runs),
            data=_packed(
                {
                    "switches": switches,
                    "figures": [_for_page(figure) for figure in figures],
                    "source": shown.source,
                }
            ),
            vega=_vega(),
        )
    )


def _sections(runs: Sequence[Run], detailed: Sequence[Run]) -> list[_Section]:
    """The questions of the page."""
    return [
        _Section(
            "good",
            "Quality",
            "How good is it?",
            (
                scores.averages(runs),
                scores.matrix(detailed),
                scores.by_task(runs),
                answers.probabilities(detailed),
                answers.confusion(detailed),
            ),
        ),
        _Section(
            "cost",
            "Cost",
            "What did it cost?",
            (cost.performance(runs), cost.sizes(runs), cost.seconds(detailed)),
        ),
        _Section(
            "grow",
            "Growth",
            "How did it grow?",
            (growth.births(detailed), growth.events(detailed), growth.selection(detailed)),
        ),
        _Section(
            "share",
            "Sharing",
            "Who shares what?",
            (
                sharing.weave(detailed),
                sharing.sources(detailed),
                sharing.overlap(detailed),
                heritage.inherited(detailed),
                heritage.changed(detailed),
                heritage.heritage(detailed),
            ),
        ),
        _Section(
            "drift",
            "Drift",
            "Did anything drift?",
            (drift.curves(detailed), drift.distances(detailed)),
        ),
    ]


def _compared(comparison: Comparison) -> _Section:
    figures = (comparison.differences(),)
    return _Section("compared", "Compared", "What became better?", figures)


def _filled(section: _Section) -> _Section:
    return replace(section, figures=tuple(each for each in section.figures if each.views))


def _refuse_strangers(runs: Sequence[Run]) -> None:
    if not runs:
        raise RunError("a report needs at least one run, but none was given")
    first, seen = runs[0], set()
    tasks: dict[int, Run] = {}
    for run in runs:
        for what in ("data", "source"):
            if getattr(run, what) != getattr(first, what):
                raise RunError(
                    f"runs on different data cannot stand in one report: {first.method}, seed "
                    f"{first.seed} has {what} {getattr(first, what)!r}, {run.method}, seed "
                    f"{run.seed} has {getattr(run, what)!r}; report them apart"
                )
        # Tasks and their order may depend on the seed, but must be the same for every method.
        other = tasks.setdefault(run.seed, run)
        other = other if run.tasks != other.tasks else first
        if run.tasks != tasks[run.seed].tasks or len(run.tasks) != len(first.tasks):
            raise RunError(
                f"runs on different tasks cannot stand in one report: {other.method}, seed "
                f"{other.seed} learned {len(other.tasks)} ({_few(other.tasks)}), {run.method}, "
                f"seed {run.seed} {len(run.tasks)} ({_few(run.tasks)}); report them apart"
            )
        if (run.method, run.seed) in seen:
            raise RunError(
                f"two runs of {run.method} with seed {run.seed}; give one of them, or report them "
                "apart"
            )
        seen.add((run.method, run.seed))


def _few(names: Sequence[str]) -> str:
    return ", ".join(map(repr, names[:3])) + (", …" if len(names) > 3 else "")


def _rank(method: str) -> int:
    return _FIRST.index(method) if method in _FIRST else len(_FIRST)


def _shown_first(runs: Sequence[Run]) -> Run:
    """The run that the page shows first: DEN-auto's, or the first of those with most details."""
    if _rank(runs[0].method) < len(_FIRST):
        return runs[0]
    return max(runs, key=lambda run: (tells(run), grows(run), run.results is not None))


def _switches(runs: Sequence[Run], seeds: Sequence[int], shown: Run) -> dict[str, dict[str, Any]]:
    seed = shown.seed if shown.seed in seeds else seeds[0]
    tasks = answers.shown_tasks([run for run in runs if run.seed in seeds])
    return {
        "measure": {
            "now": [*measures(runs), *METRICS][0],
            "options": [(name, heading(name)) for name in measures(runs)],
        },
        "method": {"now": shown.method, "options": [(name, name) for name in methods(runs)]},
        "seed": {"now": seed, "options": [(seed, str(seed)) for seed in seeds]},
        "task": {"now": next(iter(tasks), ""), "options": [(name, name) for name in tasks]},
    }


_SIZES = {
    "capacity": "capacity",
    "bytes": "bytes",
    "parameters": "values",
    "nonzero": "non-zero",
    "seconds": "seconds",
}
_FORMATS = {
    "forgetting": ".2f",
    "capacity": ".2f",
    "bytes": ",.0f",
    "parameters": ",.0f",
    "nonzero": ",.0f",
    "seconds": ".1f",
}


def _columns(runs: Sequence[Run]) -> dict[str, str]:
    """Headings of the table of methods; only sizes for a saved model, which has no scores."""
    scored = {name: heading(name) for name in measures(runs)}
    return {**scored, "forgetting": "forgetting", **_SIZES} if scored else _SIZES


def _lines(runs: Sequence[Run]) -> list[_Line]:
    """The table of methods, with the best of each column."""
    names, columns = methods(runs), _columns(runs)
    own = {method: [run for run in runs if run.method == method] for method in names}
    known = {
        method: {column: _known(own[method], column) for column in columns} for method in names
    }
    best = {column: _best(column, {m: known[m][column] for m in names}) for column in columns}
    return [
        _Line(
            method,
            own[method][0].about,
            len(own[method]),
            {column: _cell(column, known[method][column]) for column in columns},
            frozenset(column for column in columns if method in best[column]),
        )
        for method in names
    ]


def _known(own: Sequence[Run], column: str) -> list[float]:
    """A number of each seed that has it; forgetting in points."""
    scale = 100.0 if column == "forgetting" else 1.0
    numbers = (
        getattr(run.summary, column) if column in _FORMATS else run.average(column) for run in own
    )
    return [scale * number for number in numbers if number is not None]


def _best(column: str, known: Mapping[str, Sequence[float]]) -> set[str]:
    """The methods whose mean is the best of a column, as it is shown; none if there is no other."""
    means = {method: _mean(column, values) for method, values in known.items() if values}
    if len(means) < 2:
        return set()
    higher = column not in _FORMATS and METRICS[column].higher_is_better
    number = (max if higher else min)(float(np.mean(values)) for values in known.values() if values)
    shown = _mean(column, [number])
    return {method for method, mean in means.items() if mean == shown}


def _mean(column: str, values: Sequence[float]) -> str:
    return f"{np.mean(values) + 0.0:{_FORMATS.get(column, '.4f')}}"


def _cell(column: str, values: Sequence[float]) -> str:
    """The value of the one seed, or mean ± standard error over seeds."""
    if not values:
        return "–"
    mean, form = _mean(column, values), _FORMATS.get(column, ".4f")
    return mean if len(values) == 1 else f"{mean} ± {standard_error(values):{form}}"


def _headline(own: Sequence[Run]) -> list[tuple[str, str, str]]:
    """The headline numbers: name, value and meaning of each."""
    run, seeds = own[0], len(own)
    at_once = len(run.records) < len(run.tasks)
    tiles = [("tasks learned", str(len(run.tasks)), "all at once" if at_once else "one by one")]
    over = "tasks at the end" if seeds == 1 else f"tasks at the end and {seeds} seeds"
    for measure in measures(own):
        values = [value for each in own if (value := each.average(measure)) is not None]
        tiles.append((heading(measure), f"{np.mean(values):.4f}", f"mean over {over}"))
    lost = [each.summary.forgetting for each in own if each.summary.forgetting is not None]
    if lost:
        points = forgetting_points(float(np.mean(lost)))
        what = heading(next(iter(measures(own)), "auroc"))
        tiles.append(("forgetting", points, f"points of {what} lost since the best"))
    capacity = np.mean([each.summary.capacity for each in own])
    numbers = np.mean([each.summary.parameters for each in own])
    stored = f"the base network's bytes; {numbers:,.0f} values"
    tiles.append(("capacity", f"{capacity:.2f} ×", stored))
    with_seed = f", seed {run.seed}" if seeds > 1 else ""
    if grows(run):
        units = sum(map(len, run.born.values()))
        first = sum(born.count(1) for born in run.born.values())
        tiles.append(("units", f"{first} → {units}", f"after the first task, and now{with_seed}"))
    if tells(run) and len(run.tasks) > 1:
        shared = f"{shared_by_several(run):.0%}"
        tiles.append(("shared", shared, f"of all units serve several tasks{with_seed}"))
    return tiles


def _facts(runs: Sequence[Run], shown: Run, detailed: Sequence[int]) -> list[tuple[str, str]]:
    """What is needed to repeat these runs."""
    seeds = sorted({run.seed for run in runs})
    covered = ", ".join(map(str, seeds))
    if len(detailed) < len(seeds):
        left = ", ".join(str(seed) for seed in seeds if seed not in detailed)
        covered += f"; to keep this file small, only tables and means over seeds cover {left}"
    order = ", ".join(shown.tasks)
    if len({run.tasks for run in runs}) > 1:
        same = len({frozenset(run.tasks) for run in runs}) == 1
        what = "the order is another" if same else "they are others"
        order += f" (with seed {shown.seed}; {what} for each seed)"
    base = [f"{' × '.join(map(str, shown.inputs))} inputs"]
    base += [f"{group} {width}" for group, width in shown.widths.items()]
    versions = [", ".join(f"{n} {v}" for n, v in run.versions.items()) for run in runs]
    return [
        *(
            ("command", command)
            for command in dict.fromkeys(run.command for run in runs)
            if command
        ),
        *([("data", f"{shown.data}: {shown.source}")] if shown.data or shown.source else []),
        ("seeds" if len(seeds) > 1 else "seed", covered),
        ("base network", ", ".join(base)),
        *(("versions", each) for each in dict.fromkeys(versions)),
        ("tasks in order", order),
        *_names(runs),
    ]


def _names(runs: Sequence[Run]) -> list[tuple[str, str]]:
    """What stands on axes in place of names that are too long for them."""
    names = all_tasks(runs)
    if all(len(name) <= LONGEST_NAME for name in names):
        return []
    short = short_names(names)
    return [("names on axes", "; ".join(f"{short[name]}: {name}" for name in names))]


def _notes(runs: Sequence[Run]) -> list[str]:
    """Caveats for reading the numbers."""
    given = [f"{run.method}, seed {run.seed}: {note}" for run in runs for note in run.warnings]
    seeds = len({run.seed for run in runs})
    scored = any(run.scores for run in runs)
    if runs[0].look_alike:
        given.append("The data is a look-alike of the original: compare methods, not with papers.")
    reached = {run.method: limits_reached(run) for run in reversed(runs)}
    given += [f"{method}: {said}" for method, said in reversed(reached.items()) if said]
    if seeds == 1 and scored:
        given.append("One seed: differences in the third decimal say little.")
    if not scored:
        given.append("A saved model has no test rows with it, so nothing here is scored.")
    return given


def _settings(runs: Sequence[Run]) -> list[tuple[str, str, str]]:
    """One row per setting of each method, in JSON notation."""
    found: dict[tuple[str, str], list[str]] = {}
    for run in runs:
        for name, value in flat(run.settings).items():
            values = found.setdefault((run.method, name), [])
            if value not in values:
                values.append(value)
    return [(method, name, " or ".join(values)) for (method, name), values in found.items()]


def _for_page(figure: Figure) -> dict[str, Any]:
    table = figure.table
    pivot = {} if isinstance(table, tuple) else {**asdict(table), "pivot": True}
    return {
        "name": figure.name,
        "title": figure.title,
        "spec": figure.spec(),
        "by": figure.by,
        "height": asdict(figure.height),
        "absent": figure.absent,
        "wide": figure.wide,
        "table": [asdict(column) for column in table] if isinstance(table, tuple) else pivot,
        "views": [
            {"key": key, "words": view.words, "data": view.data}
            for key, view in figure.views.items()
        ],
    }


def _packed(document: Any) -> str:
    """Base64 of gzip of JSON: a tenth of the size, and no characters that are special in HTML."""
    return base64.b64encode(gzip.compress(msgspec.json.encode(document), mtime=0)).decode()


@cache
def _vega() -> str:
    """The JavaScript that draws the charts, from vl-convert."""
    bundle: str = vl_convert.javascript_bundle(None)  # type: ignore[arg-type]
    if "</script" in bundle.lower():
        raise RuntimeError("the drawing library cannot stand in a page as it is")
    return bundle


def _environment() -> Environment:
    return Environment(
        loader=PackageLoader("lifelong.report"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
