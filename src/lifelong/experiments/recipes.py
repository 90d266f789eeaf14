"""Recipes: one function per figure and table, which returns the complete configuration.

Every recipe has two sizes: "paper" has the paper's network and data; "small" finishes on two cores
in minutes and says what it leaves out. Recipes share runs. `register_recipe` and entry points of
the group `lifelong.recipes` add recipes.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from types import MappingProxyType
from typing import Any, Literal, TypeAlias, final, get_args

import msgspec

from lifelong.experiments.choices import tuned_settings
from lifelong.experiments.configuration import Configuration, NetworkPlan
from lifelong.learners.registry import METHODS
from lifelong.learners.registry import method as method_named
from lifelong.plugins import Registry, did_you_mean
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
    """

    method: str
    part: str = TASKS
    scale: float = 1.0
    changes: Mapping[str, Any] = field(default_factory=dict)
    tasks: int | None = None
    name: str = ""

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

    @property
    def methods(self) -> tuple[str, ...]:
        return tuple(dict.fromkeys(entry.method for entry in self.entries))

    @property
    def parts(self) -> tuple[str, ...]:
        return tuple(dict.fromkeys(entry.part for entry in self.entries))

    def configuration(self, entry: Entry, seed: int) -> Configuration:
        """The complete configuration of one run."""
        row = method_named(entry.method)
        changes = {**tuned_settings(self.data.name, row.tuned_as), **entry.changes}
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


FIGURE_3 = (
    "DNN-STL",
    "DNN-MTL",
    "DNN",
    "DNN-L2",
    "DNN-EWC",
    "DNN-Progressive",
    "DEN",
    "DEN-Finetune",
    "DEN-W",
    "DEN-auto",
    "DEN (paper)",
)
_IN_TURN = ("DNN", "DNN-L2", "DNN-EWC")
_AS_IT_IS: Mapping[str, Any] = MappingProxyType({})
_PAPER_MLP = NetworkPlan((312, 128))
_SMALL_MLP = NetworkPlan((64, 32))
_SMALL_BUDGET = Budget(steps=1500)
_SMALL_ROWS = (200, 50, 500)


def figure3_variation(size: Size) -> Recipe:
    """Figure 3 (a): MNIST-Variation."""
    return _on_variation(
        size,
        name="figure3-variation",
        title="Figure 3 (a): MNIST-Variation, average AUROC over tasks and over capacity",
        entries=_figure3(10, progressive=0.15),
    )


def figure3_cifar100(size: Size) -> Recipe:
    """Figure 3 (b): CIFAR-100."""
    paper = size == "paper"
    pool = (True, True, False, False, True)  # the paper does not say where: see `alexnet`
    alexnet = NetworkPlan((384, 192), (64, 128, 256, 256, 128), 5, pool)
    small = NetworkPlan((64,), (16, 32, 32), 3)
    return Recipe(
        name="figure3-cifar100",
        title="Figure 3 (b): CIFAR-100, average AUROC over tasks and over capacity",
        size=size,
        reduced=""
        if paper
        else "a network of 16-32-32 filters of 3 × 3 and 64 units instead of the modified AlexNet; "
        "batches of 64 rows; the data is the paper's",
        data=DataPlan("cifar-100", 10),
        network=alexnet if paper else small,
        budget=Budget() if paper else Budget(batch_size=64),
        entries=_figure3(10, progressive=0.31, den={"initial_width": 1.0, "max_new_units": 0.15}),
    )


def figure3_awa(size: Size) -> Recipe:
    """Figure 3 (c): Animals with Attributes."""
    return _on_animals(size, "awa", DataPlan("awa", 50), "AWA")


def figure3_animals50(size: Size) -> Recipe:
    """Figure 3 (c) on other data of its kind: 50 animals, 500 features."""
    data = DataPlan("features:animals50/features.npz", 50)
    return _on_animals(size, "animals50", data, "50 animals in the place of AWA")


def figure4(size: Size) -> Recipe:
    """Figure 4: selective retraining, and the table of expansions."""
    return _on_variation(
        size,
        name="figure4",
        title="Figure 4: selective retraining (a, b) and expansion (c) on MNIST-Variation",
        entries=_entries(
            "DNN-L2",
            "DNN-L1",
            "L2-Selective",
            "DEN-Constant-13",
            "DEN-Constant-20",
            "DEN-Dynamic",
        ),
    )


def figure5(size: Size) -> Recipe:
    """Figure 5: scores of tasks 1, 4 and 7 as later tasks are learned."""
    return _on_variation(
        size,
        name="figure5",
        title="Figure 5: drift of tasks 1, 4 and 7 over the training stages, MNIST-Variation",
        entries=(
            *_entries("DNN-L2", "DNN-EWC"),
            Entry("DNN-Progressive", changes={"width": 0.15}),
            *_entries("DEN-No-Stamp", "DEN"),
        ),
    )


def permuted(size: Size) -> Recipe:
    """The appendix: Permuted MNIST."""
    paper = size == "paper"
    return Recipe(
        name="permuted",
        title="Appendix: Permuted MNIST, AUROC and capacity",
        size=size,
        reduced=""
        if paper
        else "a network of 64-32 units instead of 312-128, 5 permutations instead of 10, at most "
        "1,500 steps per training",
        data=DataPlan("permuted-mnist", 10 if paper else 5),
        network=_PAPER_MLP if paper else _SMALL_MLP,
        budget=Budget() if paper else _SMALL_BUDGET,
        entries=_at_base(progressive=0.15),
    )


def methods_variation(size: Size) -> Recipe:
    """Every registered method on the same data; the paper has only some of them."""
    rest = [name for name in METHODS if name not in FIGURE_3]
    return _on_variation(
        size,
        name="methods-variation",
        title="Every method on MNIST-Variation",
        entries=(*_at_base(progressive=0.15), *_entries(*rest)),
    )


def ablation_variation(size: Size) -> Recipe:
    """What each part of DEN adds, and what l1 does for the batch models. Not in the paper.

    Part after part from the whole base network: the sparse head of Equation 3 alone (patches have a
    price that nothing is worth), retraining, expansion, and the split in its kinds.
    """
    frozen = {"head_l1": 1.0, "k": 0.12, "min_improvement": 0.0}  # a head of zeros selects nothing
    whole, unsplit = {"initial_width": 1.0}, {"initial_width": 1.0, "split": False}
    return _on_variation(
        size,
        name="ablation-variation",
        title="The parts of DEN on MNIST-Variation",
        entries=(
            *_entries("DEN", "DEN-W", "DEN-auto", "DEN (paper)", "DNN-STL", "DNN-MTL"),
            Entry("DEN-auto", changes={"price": 1e6, "expand": False}, name="sparse head alone"),
            Entry("DEN", changes={**unsplit, "expand": False}, name="head and retraining"),
            Entry("DEN", changes=unsplit, name="head, retraining, expansion"),
            Entry("DEN", changes=whole, name="DEN from full width"),
            Entry("DEN", changes={"distillation": 0.0}, name="DEN without distillation"),
            Entry("DEN", changes={"expand": False}, name="DEN without expansion"),
            Entry("DEN", changes=frozen, name="DEN, newcomers only"),
            Entry("DEN-W", changes={"distillation": 0.0}, name="DEN-W without distillation"),
            Entry("DEN-W", changes={"expand": False}, name="DEN-W without expansion"),
            Entry("DEN-W", changes={"initial_width": 0.2}, name="DEN-W from a fifth"),
            Entry("DNN-STL", changes={"mu": 0.0}, name="DNN-STL without l1"),
            Entry("DNN-MTL", changes={"mu": 0.0}, name="DNN-MTL without l1"),
        ),
    )


def published_permuted(size: Size) -> Recipe:
    """Published accuracies in their original set-up, to check the baselines.

    Van de Ven and Tolias, "Three scenarios for continual learning", 2019, domain-incremental.
    Strengths, and for EWC Adam moments that carry over between tasks, are from their released code.
    """
    paper = size == "paper"

    def entry(method: str, what: str, published: float, **changes: Any) -> Entry:
        given = {"mu": 0.0, "heads": "one", **changes}
        return Entry(method, changes=given, name=f"{what} (published: {published:.4f})")

    return Recipe(
        name="published-permuted",
        title="Permuted MNIST with one head: accuracy beside published figures",
        size=size,
        reduced=""
        if paper
        else "a network of 100-100 units instead of 1000-1000, 3 permutations instead of 10, 500 "
        "steps per task instead of 5,000",
        data=DataPlan("permuted-mnist", 10 if paper else 3, {"standardise": "range", "padding": 2}),
        network=NetworkPlan((1000, 1000) if paper else (100, 100)),
        budget=Budget(steps=5000, learning_rate=1e-4, check_every=5000)
        if paper
        else Budget(steps=500, check_every=500),
        entries=(
            entry("DNN", "DNN", 0.7851),
            entry("DNN-EWC", "DNN-EWC", 0.9431, strength=100.0, adam="carried"),
            entry("DNN-EWC", "DNN-EWC, Adam anew", 0.9431, strength=100.0),
            entry("DNN-EWC", "DNN-EWC, sampled", 0.9431, strength=100.0, labels="sampled"),
            entry("SI", "SI", 0.9533, strength=10.0),
        ),
    )


def rehearsal(size: Size) -> Recipe:
    """Figure 3 on scikit-learn's digits: no downloads, short runs. Not in the paper."""
    paper = size == "paper"
    return Recipe(
        name="rehearsal",
        title="Figure 3 on scikit-learn's digits: to try the tool, not in the paper",
        size=size,
        reduced="" if paper else "four tasks instead of ten, at most 120 steps per training",
        data=DataPlan("digits", 10 if paper else 4),
        network=NetworkPlan((64, 32) if paper else (16, 8)),
        budget=Budget(steps=600, learning_rate=2e-3, check_every=20, patience=4)
        if paper
        else Budget(steps=120, learning_rate=5e-3, check_every=20, patience=2),
        entries=_figure3(10 if paper else 4, progressive=0.25),
        seeds=SEEDS if paper else (0, 1),
    )


@final
@dataclass(frozen=True)
class SizedRecipe:
    """One row of the table of recipes: a name, and the function that makes it at either size."""

    name: str
    make: Callable[[Size], Recipe]

    def __call__(self, size: Size) -> Recipe:
        return self.make(size)


RECIPES = Registry(
    "recipe",
    SizedRecipe,
    RecipeError,
    (
        SizedRecipe("figure3-variation", figure3_variation),
        SizedRecipe("figure3-cifar100", figure3_cifar100),
        SizedRecipe("figure3-awa", figure3_awa),
        SizedRecipe("figure3-animals50", figure3_animals50),
        SizedRecipe("figure4", figure4),
        SizedRecipe("figure5", figure5),
        SizedRecipe("permuted", permuted),
        SizedRecipe("methods-variation", methods_variation),
        SizedRecipe("ablation-variation", ablation_variation),
        SizedRecipe("published-permuted", published_permuted),
        SizedRecipe("rehearsal", rehearsal),
    ),
)
register_recipe = RECIPES.add


def recipe(name: str, size: str = "small", methods: Sequence[str] = ()) -> Recipe:
    """The recipe of this name (case-insensitive), with these methods added if necessary."""
    if size not in get_args(Size):
        raise RecipeError(f"size must be 'small' or 'paper', not {size!r}")
    return RECIPES.named(name)("paper" if size == "paper" else "small").including(methods)


def _on_variation(size: Size, *, name: str, title: str, entries: tuple[Entry, ...]) -> Recipe:
    paper = size == "paper"
    return Recipe(
        name=name,
        title=title,
        size=size,
        reduced=""
        if paper
        else "a network of 64-32 units instead of 312-128, 200 / 50 / 500 images per class "
        "instead of 1,000 / 200 / 5,000, at most 1,500 steps per training",
        data=DataPlan("mnist-variation", 10, {} if paper else {"per_class": _SMALL_ROWS}),
        network=_PAPER_MLP if paper else _SMALL_MLP,
        budget=Budget() if paper else _SMALL_BUDGET,
        entries=entries,
        tuning={"per_class": (1000, 200, 200)} if paper else {},
    )


def _on_animals(size: Size, name: str, data: DataPlan, what: str) -> Recipe:
    paper = size == "paper"
    return Recipe(
        name=f"figure3-{name}",
        title=f"Figure 3 (c): {what}, average AUROC over tasks and over capacity",
        size=size,
        reduced=""
        if paper
        else "a network of 64-32 units instead of 312-128, 10 tasks instead of 50, at most 1,500 "
        "steps per training",
        data=data if paper else DataPlan(data.name, 10, data.options),
        network=_PAPER_MLP if paper else _SMALL_MLP,
        budget=Budget() if paper else _SMALL_BUDGET,
        entries=_figure3(50, progressive=0.1, den={"initial_width": 1.0, "max_new_units": 0.07})
        if paper
        else _figure3(10, progressive=0.15, den={"initial_width": 1.0, "max_new_units": 0.12}),
    )


def _entries(*methods: str) -> tuple[Entry, ...]:
    return tuple(Entry(method) for method in methods)


def _at_base(progressive: float, den: Mapping[str, Any] = _AS_IT_IS) -> tuple[Entry, ...]:
    """The methods of Figure 3 on the base network; Progressive about as large as DEN becomes."""
    changes = {"DNN-Progressive": {"width": progressive}, "DEN": den, "DEN-Finetune": den}
    return tuple(Entry(name, changes=changes.get(name, _AS_IT_IS)) for name in FIGURE_3)


def _figure3(
    tasks: int, progressive: float, den: Mapping[str, Any] = _AS_IT_IS
) -> tuple[Entry, ...]:
    """Top row: all methods, and DNN-MTL after each fifth of the tasks, since it learns all at once.

    Bottom row: the same methods smaller and larger.
    """
    fifths = sorted({max(1, tasks * part // 5) for part in range(1, 5)})
    together = tuple(Entry("DNN-MTL", tasks=count) for count in fifths)
    scaled = [
        Entry(name, CAPACITY, scale)
        for name in ("DNN-STL", "DNN-MTL", *_IN_TURN)
        for scale in (0.25, 0.5, 2.0)
    ]
    columns = [
        Entry("DNN-Progressive", CAPACITY, changes={"width": round(progressive * factor, 3)})
        for factor in (0.5, 2.0, 4.0)
    ]
    grown = [
        Entry(name, CAPACITY, changes={**den, "max_new_units": limit})
        for limit in (0.03, 0.06, 0.25)
        for name in ("DEN", "DEN-Finetune")
    ]
    priced = [Entry("DEN-auto", CAPACITY, changes={"price": price}) for price in (0.05, 1.0, 3.0)]
    kept = [Entry("DEN-W", CAPACITY, changes={"keep": keep}) for keep in (0.01, 0.1)]
    return (*_at_base(progressive, den), *together, *scaled, *columns, *grown, *priced, *kept)


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
