"""Two sets of runs beside each other: what became better, and what is set otherwise."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, final

import altair as alt
import msgspec
import numpy as np

from lifelong.evaluation.metrics import heading
from lifelong.evaluation.runs import Run, RunError
from lifelong.report.figures.drawing import (
    INK,
    ROWS,
    Column,
    Figure,
    Height,
    View,
    all_tasks,
    bins,
    by_measure,
    from_data,
    label,
    layered,
    rounded,
    rows,
    task_names,
)
from lifelong.report.figures.scores import MOST


@final
@dataclass(frozen=True)
class Comparison:
    """Runs of two sets, each under its method's name and that of its set.

    Attributes:
        runs: of both sets.
        pairs: of each method that both have, its names in the first and in the second.
    """

    runs: tuple[Run, ...]
    pairs: Mapping[str, tuple[str, str]]

    @classmethod
    def of(cls, sets: Mapping[str, Sequence[Run]]) -> "Comparison":
        """Of two sets of runs by name."""
        (one, first), (other, second) = sets.items()
        common = [m for m in _methods(second) if m in _methods(first)]
        if not common:
            raise RunError(
                f"{one} has {', '.join(_methods(first))} and {other} {', '.join(_methods(second))}:"
                " no method in common to compare; report them together instead"
            )
        named = [
            msgspec.structs.replace(run, method=f"{run.method} ({name})")
            for name, runs in ((other, second), (one, first))
            for run in runs
        ]
        pairs = {method: (f"{method} ({one})", f"{method} ({other})") for method in common}
        return cls(tuple(named), pairs)

    def settings(self) -> list[str]:
        """The settings that differ, as lines."""
        found = []
        for method, names in self.pairs.items():
            first, second = (_settings(self.runs, name) for name in names)
            found += [
                f"{method}: {name} is {first.get(name, 'not set')} in the first and "
                f"{second.get(name, 'not set')} in the second"
                for name in {**first, **second}
                if first.get(name) != second.get(name)
            ]
        return found or ["no setting differs"]

    def differences(self) -> Figure:
        """Each task's score in the second set minus that in the first."""
        chart = from_data().encode(
            x=alt.X("task:N", sort=None, title=None, axis=task_names(all_tasks(self.runs))),
            y=alt.Y("difference:Q", title="second minus first"),
            tooltip=[
                "task:N",
                "method:N",
                alt.Tooltip("first:Q", format=".4f"),
                alt.Tooltip("second:Q", format=".4f"),
                alt.Tooltip("difference:Q", format="+.4f"),
            ],
        )
        bars = chart.mark_bar().encode(
            xOffset="method:N",
            color=alt.Color("method:N", title=None, scale=alt.Scale(scheme="tableau10")),
        )
        zero = from_data("zero").mark_rule(color=INK, opacity=0.5).encode(y="difference:Q")
        return Figure(
            "differences",
            "Each task in the second beside the first",
            "The score of each task at the end in the second set of runs minus that in the first, "
            "for each method that both have; the mean over the seeds that both have."
            + (" With so many tasks a bar is the mean of several." * self._crowded),
            layered(bars, zero),
            ("measure",),
            by_measure(self.runs, self._view),
            (
                Column("task", "task"),
                Column("method", "method"),
                Column("first", "first", 4),
                Column("second", "second", 4),
                Column("difference", "difference", 4),
            ),
            Height(share=0.4, least=300, most=420),
            wide=True,
        )

    @property
    def _crowded(self) -> bool:
        return len(self.runs[0].tasks) > MOST

    def _view(self, runs: Sequence[Run], measure: str) -> View:
        found = [
            row
            for method, names in self.pairs.items()
            for row in _rows(runs, measure, method, names)
        ]
        means = {
            method: np.mean([row[4] for row in found if row[1] == method])
            for method in self.pairs
            if any(row[1] == method for row in found)
        }
        said = ", ".join(f"{method} {mean:+.4f}" for method, mean in means.items())
        fields = ("task", "method", "first", "second", "difference")
        return View(
            f"Bars, {heading(measure)} of the second minus that of the first. On average: {said}.",
            {ROWS: rows(fields, found), "zero": {"difference": [0]}},
        )


def _rows(
    runs: Sequence[Run], measure: str, method: str, names: tuple[str, str]
) -> list[tuple[str, str, float, float, float]]:
    first, second = ({run.seed: run for run in runs if run.method == name} for name in names)
    seeds = [seed for seed in first if seed in second]
    if not seeds:
        return []
    tasks = [n for n in first[seeds[0]].tasks if all(n in first[seed].tasks for seed in seeds)]
    found = []
    for part in bins(len(tasks), MOST):
        chosen = [tasks[place] for place in part]
        one, other = (
            float(np.mean([_score(each[seed], measure, name) for seed in seeds for name in chosen]))
            for each in (first, second)
        )
        row = (label(tasks, part), method, rounded(one), rounded(other), rounded(other - one))
        found.append(row)
    return found


def _score(run: Run, measure: str, task: str) -> float:
    return run.scores[measure][run.tasks.index(task)]


def _methods(runs: Sequence[Run]) -> list[str]:
    return list(dict.fromkeys(run.method for run in runs))


def _settings(runs: Sequence[Run], method: str) -> dict[str, Any]:
    return flat(next(run for run in runs if run.method == method).settings)


def flat(settings: Mapping[str, Any], prefix: str = "") -> dict[str, str]:
    """Settings within settings as one list of names, each value in JSON."""
    lines: dict[str, str] = {}
    for name, value in settings.items():
        if isinstance(value, dict):
            lines |= flat(value, f"{prefix}{name}.")
        else:
            lines[prefix + name] = msgspec.json.encode(value).decode()
    return lines
