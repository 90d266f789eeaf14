"""A recipe: data, network, methods and their settings, budget and seeds of an experiment."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Literal, TypeAlias, final

import msgspec

from lifelong.experiments.choices import tuned_settings
from lifelong.experiments.configuration import Configuration, NetworkPlan
from lifelong.learners.registry import method as method_named
from lifelong.plugins import did_you_mean
from lifelong.reproduction.measured import Published
from lifelong.training.budget import Budget

Size: TypeAlias = Literal["small", "paper"]
SEEDS = (0, 1, 2, 3, 4)
TASKS, CAPACITY = "tasks", "capacity"


class RecipeError(ValueError):
    """An unknown recipe, or an unknown method or part of a recipe."""


@final
@dataclass(frozen=True)
class DataPlan:
    """A data set, the number of its tasks, and its options."""

    name: str
    tasks: int
    options: Mapping[str, Any] = field(default_factory=dict)


@final
@dataclass(frozen=True)
class Entry:
    """One method as a recipe runs it.

    Attributes:
        part: of the figure: "tasks" for scores over tasks, "capacity" for scores over size.
        scale: factor of the base network's widths.
        changes: to the method's settings, on top of those that were tuned.
        tasks: number of tasks, from the first; that of the recipe if None.
        name: label to use instead of a list of the changes.
        published: figure that the run is compared with.
    """

    method: str
    part: str = TASKS
    scale: float = 1.0
    changes: Mapping[str, Any] = field(default_factory=dict)
    tasks: int | None = None
    name: str = ""
    published: Published | None = None

    @property
    def label(self) -> str:
        """The method, and what this entry changes about it."""
        if self.name:
            return self.name
        sized = [f"width × {self.scale:g}"] if self.scale != 1 else []
        changed = [f"{name} = {value}" for name, value in self.changes.items()]
        short = [f"{self.tasks} tasks"] if self.tasks is not None else []
        return ", ".join([self.method, *sized, *changed, *short])


@final
@dataclass(frozen=True)
class Recipe:
    """An experiment.

    Attributes:
        name: on the command line.
        title: what it shows.
        size: "small" or "paper".
        reduced: what the small size leaves out; empty for the paper's.
        seeds: the default seeds.
        tuning: options of the data set for tuning, which needs no test rows.
        tuned: whether methods have the settings that were chosen on this data.
    """

    name: str
    title: str
    size: Size
    reduced: str
    data: DataPlan
    network: NetworkPlan
    budget: Budget
    entries: tuple[Entry, ...]
    seeds: tuple[int, ...] = SEEDS
    tuning: Mapping[str, Any] = field(default_factory=dict)
    tuned: bool = True

    @property
    def methods(self) -> tuple[str, ...]:
        return tuple(dict.fromkeys(entry.method for entry in self.entries))

    @property
    def parts(self) -> tuple[str, ...]:
        return tuple(dict.fromkeys(entry.part for entry in self.entries))

    def configuration(self, entry: Entry, seed: int) -> Configuration:
        """The complete configuration of one run."""
        row = method_named(entry.method)
        chosen = tuned_settings(self.data.name, row.tuned_as) if self.tuned else {}
        changes = {**chosen, **entry.changes}
        settings = row.settings_with(budget=self.budget, changes=changes)
        return Configuration(
            data=self.data.name,
            options=_plain(dict(self.data.options)),
            tasks=self.data.tasks if entry.tasks is None else entry.tasks,
            network=self.network,
            scale=entry.scale,
            method=row.name,
            settings=_plain(settings),
            seed=seed,
        )

    def label(self, entry: Entry, seed: int) -> str:
        """A short description of a run."""
        return f"{self.data.name} {entry.label}, seed {seed}"

    def command(self, method: str, seed: int, part: str = TASKS) -> str:
        """The command that makes the runs of a method with this seed."""
        parted = f" --parts {part}" if len(self.parts) > 1 else ""
        return (
            f"lifelong run {self.name} --size {self.size} --seeds {seed} --methods {method}{parted}"
        )

    def including(self, methods: Sequence[str]) -> "Recipe":
        """The recipe with these methods added, unchanged, if it does not have them."""
        names = dict.fromkeys(method_named(name).name for name in methods)
        new = [Entry(name) for name in names if name not in self.methods]
        return replace(self, entries=(*self.entries, *new)) if new else self

    def chosen(self, methods: Sequence[str] = (), parts: Sequence[str] = ()) -> tuple[Entry, ...]:
        """The entries of these methods and parts; all if none are named."""
        names = [method_named(name).name for name in methods]
        _refuse_unknown("method", names, self.methods, self.name)
        _refuse_unknown("part", parts, self.parts, self.name)
        return tuple(
            entry
            for entry in self.entries
            if (not names or entry.method in names) and (not parts or entry.part in parts)
        )


@final
@dataclass(frozen=True)
class SizedRecipe:
    """One row of the table of recipes: a name, and the function that makes it at either size."""

    name: str
    make: Callable[[Size], Recipe]

    def __call__(self, size: Size) -> Recipe:
        return self.make(size)


def _plain(value: Any) -> dict[str, Any]:
    """The value after a round trip through JSON, so that it compares equal to a stored one."""
    return msgspec.json.decode(msgspec.json.encode(value), type=dict[str, Any])


def _refuse_unknown(
    what: str, given: Sequence[str], known: Sequence[str], recipe_name: str
) -> None:
    for name in given:
        if name not in known:
            hint = did_you_mean(name, known)
            raise RecipeError(
                f"recipe {recipe_name} has no {what} {name!r}; {hint}it has {', '.join(known)}"
            )
