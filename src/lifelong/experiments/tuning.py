"""Tune settings on validation rows, on seeds that are never reported, alike for every method.

Each method gets the same number of trials on the first tasks of its stream. The first trial has the
defaults, Optuna proposes the others. A trial is a stored run, so that a killed tuning resumes.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import ModuleType
from typing import Any, final

import msgspec
import numpy as np
from rich.console import Console

from lifelong.evaluation.runs import Run
from lifelong.experiments.choices import Choice, Trial
from lifelong.experiments.configuration import Configuration
from lifelong.experiments.engines import LOCAL, Engine
from lifelong.experiments.perform import Job
from lifelong.experiments.recipes import RECIPES, Entry, Recipe, Size
from lifelong.experiments.runner import run
from lifelong.experiments.stored import find
from lifelong.extras import require_extra
from lifelong.learners.registry import METHODS, Range
from lifelong.learners.registry import method as method_named
from lifelong.plugins import did_you_mean

REPORTED = 100  # seeds below this are for reporting
# Times the base network's bytes, unless the defaults need more or the recipe sets the growth.
CEILING = 1.4
GROWING = ("DEN", "DEN-Dynamic")  # their growth depends on what is tuned


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
    """

    data: str
    size: Size
    trials: int = 12
    seeds: tuple[int, ...] = (100, 101)
    tasks: int = 4
    out: Path = Path("results/tuning")

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
    workers: int,
    console: Console,
    command: Callable[[str], str],
    engine: Engine = LOCAL,
) -> dict[str, Choice]:
    """The best settings of each method among its trials; methods are tuned in parallel."""
    studies = [_Study(name, tuning) for name in tunable(methods, tuning.data)]
    for number in range(tuning.trials):
        console.print(f"trial {number + 1} of {tuning.trials}", highlight=False)
        jobs = [job for study in studies for job in study.ask()]
        counts = run(jobs, workers=workers, console=console, engine=engine)
        if counts.skipped:
            raise TuningError("another process is making some of these trials; wait for it")
        for study in studies:
            study.tell()
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


def _places(data: str, size: Size) -> dict[str, tuple[Recipe, Entry]]:
    """The first entry of each method in a recipe on this data."""
    recipes = [named(size) for named in RECIPES.values()]
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


@final
@dataclass
class _Asked:
    """An unfinished trial."""

    proposal: Any
    settings: dict[str, Any]
    configurations: tuple[Configuration, ...]


@final
@dataclass
class _Study:
    """The trials of one method."""

    method: str
    tuning: Tuning
    _told: list[Trial] = field(default_factory=list)

    def __post_init__(self) -> None:
        optuna = _optuna()
        row = method_named(self.method)
        places = _places(self.tuning.data, self.tuning.size)
        anywhere = next(iter(places.values()))
        self._recipe, self._entry = places.get(self.method, (anywhere[0], Entry(self.method)))
        self._space = row.space
        self._pruned = optuna.trial.TrialState.PRUNED
        self._study = optuna.create_study(
            direction="maximize", sampler=optuna.samplers.TPESampler(seed=0)
        )
        defaults = row.settings_with(changes=self._entry.changes)
        self._study.enqueue_trial({name: getattr(defaults, name) for name in self._space})
        self._asked: _Asked | None = None

    def ask(self) -> list[Job]:
        """The runs of the next trial."""
        proposal = self._study.ask()
        settings = {name: _drawn(proposal, name, self._space) for name in self._space}
        configurations = tuple(self._configuration(settings, seed) for seed in self.tuning.seeds)
        self._asked = _Asked(proposal, settings, configurations)
        words = ", ".join(f"{name} {value:g}" for name, value in settings.items())
        return [
            Job(each, self.tuning.out, label=f"{self.method}, {words}, seed {each.seed}")
            for each in configurations
        ]

    def tell(self) -> None:
        """Record the outcome; a trial that failed or grew too large is not a candidate."""
        assert self._asked is not None
        asked, places = self._asked, Job(self._asked.configurations[0], self.tuning.out).places
        found = [find(places, each) for each in asked.configurations]
        runs = [each.run for each in found if each is not None]
        if len(runs) < len(found):
            self._study.tell(asked.proposal, state=self._pruned)
            self._told.append(Trial(asked.settings, 0.0, 0.0, feasible=False))
            return
        auroc = float(np.mean([run.summary.auroc for run in runs]))
        capacity = round(float(np.mean([self._projected(run) for run in runs])), 3)
        feasible = capacity <= self._ceiling(capacity)
        trial = Trial(asked.settings, round(auroc, 6), capacity, feasible)
        self._told.append(trial)
        if feasible:
            self._study.tell(asked.proposal, auroc)
        else:
            self._study.tell(asked.proposal, state=self._pruned)

    def choice(self, command: str) -> Choice:
        candidates = [trial for trial in self._told if trial.feasible]
        if not candidates:
            raise TuningError(f"every trial of {self.method} failed; see {self.tuning.out}/failed")
        best = max(candidates, key=lambda trial: trial.auroc)
        return Choice(
            settings=best.settings,
            trials=tuple(self._told),
            seeds=self.tuning.seeds,
            tasks=self.tuning.tasks,
            network=str(self._recipe.network),
            command=command,
        )

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

    def _ceiling(self, capacity: float) -> float:
        """The capacity that a trial may reach, so that none wins by its size alone."""
        if self.method not in GROWING or "max_new_units" in self._entry.changes:
            return math.inf
        defaults = self._told[0].capacity if self._told else capacity
        return max(CEILING, defaults)

    def _projected(self, run: Run) -> float:
        """Capacity after the whole stream, if each later task adds as much as these did."""
        results, tasks = run.results, self._recipe.data.tasks
        if results is None or len(results.tasks) < 2:
            return run.summary.capacity
        base = results.capacity[-1].parameters / run.summary.capacity
        first, last = (results.capacity[i].parameters / base for i in (0, -1))
        return first + (last - first) * (tasks - 1) / (len(results.tasks) - 1)


def _drawn(proposal: Any, name: str, space: Mapping[str, Range]) -> float:
    """Round to four digits, which are enough and easier to read."""
    between = space[name]
    drawn = proposal.suggest_float(name, between.low, between.high, log=True)
    return float(f"{drawn:.4g}")


def _optuna() -> ModuleType:
    require_extra("optuna", extra="tune")
    import optuna

    optuna.logging.set_verbosity(optuna.logging.WARNING)
    return optuna
