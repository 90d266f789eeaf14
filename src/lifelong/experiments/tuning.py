"""Tune settings on validation rows, on seeds that are never reported, alike for every method.

Each method gets the same number of trials on the first tasks of its stream. The first trial has the
defaults, Optuna proposes the others. A trial is a stored run, so that a killed tuning resumes.

With `storage`, several processes share the trials of a study. A trial whose process was lost is
finished by another: its runs are stored, or made once more.
"""

import math
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any, final

import msgspec
import numpy as np
from rich.console import Console

from lifelong.evaluation.runs import Run
from lifelong.experiments.choices import Choice, Trial
from lifelong.experiments.configuration import Configuration
from lifelong.experiments.engines import DEFAULT, LOCAL, Engine, Resources
from lifelong.experiments.perform import Job
from lifelong.experiments.recipes import RECIPES, Entry, Recipe, Size
from lifelong.experiments.runner import RunCounts, run
from lifelong.experiments.stored import RunPaths, find
from lifelong.learners.registry import METHODS
from lifelong.learners.registry import method as method_named
from lifelong.plugins import did_you_mean
from lifelong.reproduction.claims import FIGURE_3

if TYPE_CHECKING:
    from optuna.trial import FrozenTrial

REPORTED = 100  # seeds below this are for reporting
# Times the base network's bytes, unless the defaults need more or the recipe sets the growth.
CEILING = 1.4
# Their growth depends on what is tuned. The last has the paper's capacity, whatever its defaults
# need; where the paper says nothing, that on MNIST-Variation.
GROWING = ("DEN", "DEN-Dynamic", "DEN-W", "DEN (paper)")
PAPERS = 1.8
WAIT = 1.0  # seconds until trials of other processes are looked at again
LOST = timedelta(minutes=2)  # after which a trial without settings is given up


class TuningError(ValueError):
    """An invalid tuning; the message says what is allowed."""


@final
@dataclass(frozen=True)
class Tuning:
    """The options of a tuning.

    Attributes:
        data: name of the data set.
        trials: per method, the defaults included.
        seeds: 100 or more, since lower seeds are reported.
        tasks: number of tasks, from the first of the stream.
        out: directory in which trials are stored.
        store: the address whose trials that directory is a copy of, if they are at one.
        storage: of Optuna, shared with other processes: a file for a journal, or a database.
        also: settings to try after the defaults; each method takes those that it searches.
    """

    data: str
    size: Size
    trials: int = 12
    seeds: tuple[int, ...] = (100, 101)
    tasks: int = 4
    out: Path = Path("results/tuning")
    store: str = ""
    storage: str = ""
    also: tuple[Mapping[str, float], ...] = ()

    def __post_init__(self) -> None:
        reported = [seed for seed in self.seeds if seed < REPORTED]
        if reported or not self.seeds:
            raise TuningError(
                f"seeds must be {REPORTED} or more, since those below are for reporting, not "
                f"{list(self.seeds)}"
            )
        if self.trials < 1 or self.tasks < 2:
            raise TuningError(
                f"tuning takes 1 trial and 2 tasks at the least, not {self.trials} and {self.tasks}"
            )


def tune(
    methods: Sequence[str],
    tuning: Tuning,
    *,
    console: Console,
    command: Callable[[str], str],
    engine: Engine = LOCAL,
    resources: Resources = DEFAULT,
) -> dict[str, Choice]:
    """The best settings of each method among its trials; methods are tuned in parallel."""
    names = tunable(methods, tuning.data)
    _check_also(names, tuning.also)
    studies = [_Study(name, tuning) for name in names]
    number = 0
    while jobs := [job for study in studies for job in study.ask()]:
        number += 1
        console.print(f"trial {number} of {tuning.trials}", highlight=False)
        counts = run(jobs, console=console, engine=engine, resources=resources)
        if counts.skipped and not tuning.storage:
            raise TuningError(
                "another process is making some of these trials; wait for it, or share them with "
                "--storage"
            )
        if len(counts.skipped) == len(jobs):
            time.sleep(WAIT)
        for study in studies:
            study.tell(counts)
    return {study.method: study.choice(command(study.method)) for study in studies}


def tunable(methods: Sequence[str], data: str) -> tuple[str, ...]:
    """These methods, or all that recipes run on this data; each once, by its tuning name."""
    known = _places(data, "paper")
    if list(methods) == ["all"]:
        return tuple(known)
    asked = [method_named(name) for name in methods]
    for row in asked:
        if not method_named(row.tuned_as).space:
            can = ", ".join(each.name for each in METHODS.values() if each.space)
            raise TuningError(f"{row.name} has nothing to tune; {can} have")
    return tuple(dict.fromkeys(row.tuned_as for row in asked))


def _check_also(methods: Sequence[str], also: Sequence[Mapping[str, float]]) -> None:
    """A setting that no method searches would be tried by none."""
    known = {name for each in methods for name in method_named(each).space}
    for name in (name for settings in also for name in settings):
        if name not in known:
            hint = did_you_mean(name, sorted(known))
            raise TuningError(
                f"no method here searches {name!r}; {hint}they search {sorted(known)}"
            )


def _places(data: str, size: Size) -> dict[str, tuple[Recipe, Entry]]:
    """The first entry of each method in a recipe on this data that uses what is chosen."""
    recipes = [made for named in RECIPES.values() if (made := named(size)).tuned]
    names = list(dict.fromkeys(recipe.data.name for recipe in recipes))
    if data not in names:
        hint = did_you_mean(data, names)
        raise TuningError(f"no recipe is on the data set {data!r}; {hint}there are {names}")
    places: dict[str, tuple[Recipe, Entry]] = {}
    for recipe in recipes:
        for entry in recipe.entries if recipe.data.name == data else ():
            if method_named(entry.method).space:
                places.setdefault(entry.method, (recipe, entry))
    return places


def _papers_capacity(data: str, size: Size) -> float:
    """Of the paper's DEN where it matches a network per task: its share of that, times tasks."""
    for name, share in FIGURE_3.items():
        if name in RECIPES and (plan := RECIPES[name](size).data).name == data:
            return share / 100 * plan.tasks
    return PAPERS


@final
class _Study:
    """The trials of one method."""

    def __init__(self, method: str, tuning: Tuning) -> None:
        from lifelong.experiments import studies

        self.method, self.tuning, self._optuna = method, tuning, studies
        row = method_named(method)
        places = _places(tuning.data, tuning.size)
        anywhere = next(iter(places.values()))
        self._recipe, self._entry = places.get(method, (anywhere[0], Entry(method)))
        self._space = row.space
        defaults = row.settings_with(changes=self._entry.changes)
        first = {name: getattr(defaults, name) for name in self._space}
        begin = [first, *self._also(first)]
        name = f"{method} on {tuning.data}, {tuning.size}, {tuning.tasks} tasks, {tuning.seeds}"
        try:
            self._study = studies.open_study(name, self._space, begin, tuning.storage)
        except studies.StorageError as error:
            raise TuningError(str(error)) from error
        self._asked: FrozenTrial | None = None
        self._elsewhere: set[int] = set()  # trials left for later

    def _also(self, first: Mapping[str, float]) -> list[dict[str, float]]:
        """The trials asked for that differ from the defaults in something this method searches."""
        asked = [{**first, **{n: v for n, v in s.items() if n in first}} for s in self.tuning.also]
        for name, value in (pair for settings in asked for pair in settings.items()):
            span = self._space[name]
            if value != first[name] and not span.low <= value <= span.high:
                raise TuningError(
                    f"{self.method} searches {name} from {span.low:g} to {span.high:g}; "
                    f"{value:g} is outside"
                )
        return [settings for settings in asked if settings != first]

    def ask(self) -> list[Job]:
        """The runs of the next trial; none when all have ended."""
        self._asked = self._next()
        if self._asked is None:
            return []
        settings = _settings(self._asked)
        first = self._trials()[0]  # which says how large others may be
        most = self._ceiling() if first.state.is_finished() else math.inf
        words = ", ".join(f"{name} {value:g}" for name, value in settings.items())
        return [
            Job(
                each,
                self.tuning.out,
                label=f"{self.method}, {words}, seed {each.seed}",
                store=self.tuning.store,
                most=most,
            )
            for each in self._configurations(settings)
        ]

    def tell(self, counts: RunCounts) -> None:
        """Record the outcome; a trial that failed or grew too large is not a candidate.

        A trial is left for later if another process makes one of its runs, or if the first has not
        ended, which says how large others may be.
        """
        if self._asked is None:
            return
        first = self._trials()[0]
        measured = self._measured(self._asked)
        earlier = first.number == self._asked.number or first.state.is_finished()
        unsure = self._limited and not earlier
        if unsure or (measured is None and counts.skipped):
            self._elsewhere.add(self._asked.number)
            return
        told = self._outcome(self._asked)
        value = measured[0] if measured is not None and told.feasible else None
        state = self._optuna.ENDED[value is None]
        self._optuna.tell(self._study, self._asked.number, value, state=state)

    def choice(self, command: str) -> Choice:
        trials = [self._outcome(each) for each in self._trials() if each.state.is_finished()]
        candidates = [trial for trial in trials if trial.feasible]
        if not candidates:
            raise TuningError(
                f"no trial of {self.method} ended with at most a capacity of {self._ceiling():g}; "
                f"see {self.tuning.out}/failed, or take more trials"
            )
        best = max(candidates, key=lambda trial: trial.auroc)
        return Choice(
            settings=best.settings,
            trials=tuple(trials),
            seeds=self.tuning.seeds,
            tasks=self.tuning.tasks,
            network=str(self._recipe.network),
            command=command,
        )

    def _trials(self) -> "list[FrozenTrial]":
        return self._optuna.trials_of(self._study)[: self.tuning.trials]

    def _next(self) -> "FrozenTrial | None":
        """One that has not ended, whose process may be lost; or a new one; or none.

        A new one is proposed by what is known of those before it. Hence they come first, and none
        is proposed while one of them has no settings: whoever is killed, proposals stay the same.
        """
        while True:
            going_on = [each for each in self._trials() if not each.state.is_finished()]
            ready = [each for each in going_on if len(each.params) == len(self._space)]
            mine = [each for each in ready if each.number not in self._elsewhere]
            if mine:
                return mine[0]
            if len(ready) < len(going_on):
                self._await(going_on)
            elif len(self._trials()) < self.tuning.trials:
                return self._new()
            elif not going_on:
                return None
            self._elsewhere.clear()  # time has passed: who made them may be lost

    def _await(self, going_on: "list[FrozenTrial]") -> None:
        """Give others the time to draw settings; give up trials of those who never will."""
        for trial in going_on:
            waited = datetime.now() - (trial.datetime_start or datetime.min)
            if len(trial.params) < len(self._space) and waited > LOST:
                self._give_up(trial.number)
        time.sleep(WAIT)

    def _new(self) -> "FrozenTrial | None":
        """Several may ask for the last trial at once; who comes too late finishes another."""
        number = self._optuna.propose(self._study, self._space)
        for trial in self._trials():
            if trial.number == number:
                return trial
        if number is not None:
            self._give_up(number)
        return self._next()

    def _give_up(self, number: int) -> None:
        self._optuna.tell(self._study, number, state=self._optuna.GIVEN_UP)

    def _outcome(self, trial: "FrozenTrial") -> Trial:
        settings, measured = _settings(trial), self._measured(trial)
        if measured is None:
            return Trial(settings, 0.0, 0.0, feasible=False)
        auroc, capacity = measured
        return Trial(settings, round(auroc, 6), capacity, capacity <= self._ceiling())

    def _measured(self, trial: "FrozenTrial") -> tuple[float, float] | None:
        """Mean AUROC and projected capacity; none unless all runs are stored."""
        places, wanted = RunPaths(self.tuning.out), self._configurations(_settings(trial))
        runs = [found.run for each in wanted if (found := find(places, each)) is not None]
        if len(runs) < len(wanted):
            return None
        auroc = float(np.mean([run.summary.auroc for run in runs]))
        return auroc, round(float(np.mean([self._projected(run) for run in runs])), 3)

    def _configurations(self, settings: Mapping[str, Any]) -> list[Configuration]:
        return [self._configuration(settings, seed) for seed in self.tuning.seeds]

    def _configuration(self, settings: Mapping[str, Any], seed: int) -> Configuration:
        """The recipe's configuration, scored on validation rows of the first tasks."""
        entry = Entry(self.method, changes={**self._entry.changes, **settings})
        plain = self._recipe.configuration(entry, seed)
        options = {**plain.options, **self._recipe.tuning}
        return msgspec.structs.replace(
            plain,
            options=msgspec.json.decode(msgspec.json.encode(options)),
            tasks=min(self.tuning.tasks, plain.tasks),
            rows="valid",
        )

    @property
    def _limited(self) -> bool:
        return self.method in GROWING and "max_new_units" not in self._entry.changes

    def _ceiling(self) -> float:
        """The capacity that a trial may reach, so that none wins by its size alone."""
        if not self._limited:
            return math.inf
        if self.method == "DEN (paper)":
            return _papers_capacity(self.tuning.data, self.tuning.size)
        defaults = self._measured(self._trials()[0])
        return CEILING if defaults is None else max(CEILING, defaults[1])

    def _projected(self, run: Run) -> float:
        """Capacity after the whole stream, if each later task adds as much as these did."""
        results, tasks = run.results, self._recipe.data.tasks
        if results is None or len(results.tasks) < 2:
            return run.summary.capacity
        base = results.capacity[-1].parameters / run.summary.capacity
        first, last = (results.capacity[i].parameters / base for i in (0, -1))
        return first + (last - first) * (tasks - 1) / (len(results.tasks) - 1)


def _settings(trial: "FrozenTrial") -> dict[str, float]:
    """Rounded to four digits, which are enough and easier to read."""
    return {name: float(f"{value:.4g}") for name, value in trial.params.items()}
