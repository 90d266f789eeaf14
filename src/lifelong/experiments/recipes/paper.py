"""The figures and tables of the paper, what the methods do beside them, and a rehearsal."""

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

from lifelong.experiments.configuration import NetworkPlan
from lifelong.experiments.recipes.plan import CAPACITY, SEEDS, DataPlan, Entry, Recipe, Size
from lifelong.learners.registry import METHODS
from lifelong.training.budget import Budget

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
AS_IT_IS: Mapping[str, Any] = MappingProxyType({})
PAPER_MLP = NetworkPlan((312, 128))
SMALL_MLP = NetworkPlan((64, 32))
SMALL_BUDGET = Budget(steps=1500)
_SMALL_ROWS = (200, 50, 500)


def figure3_variation(size: Size) -> Recipe:
    """Figure 3 (a): MNIST-Variation."""
    return on_variation(
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
    return on_variation(
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
    return on_variation(
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
        network=PAPER_MLP if paper else SMALL_MLP,
        budget=Budget() if paper else SMALL_BUDGET,
        entries=_at_base(progressive=0.15),
    )


def methods_variation(size: Size) -> Recipe:
    """Every registered method on the same data; the paper has only some of them."""
    rest = [name for name in METHODS if name not in FIGURE_3]
    return on_variation(
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
    return on_variation(
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


def on_variation(size: Size, *, name: str, title: str, entries: tuple[Entry, ...]) -> Recipe:
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
        network=PAPER_MLP if paper else SMALL_MLP,
        budget=Budget() if paper else SMALL_BUDGET,
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
        network=PAPER_MLP if paper else SMALL_MLP,
        budget=Budget() if paper else SMALL_BUDGET,
        entries=_figure3(50, progressive=0.1, den={"initial_width": 1.0, "max_new_units": 0.07})
        if paper
        else _figure3(10, progressive=0.15, den={"initial_width": 1.0, "max_new_units": 0.12}),
    )


def _entries(*methods: str) -> tuple[Entry, ...]:
    return tuple(Entry(method) for method in methods)


def _at_base(progressive: float, den: Mapping[str, Any] = AS_IT_IS) -> tuple[Entry, ...]:
    """The methods of Figure 3 on the base network; Progressive about as large as DEN becomes."""
    changes = {"DNN-Progressive": {"width": progressive}, "DEN": den, "DEN-Finetune": den}
    return tuple(Entry(name, changes=changes.get(name, AS_IT_IS)) for name in FIGURE_3)


def _figure3(
    tasks: int, progressive: float, den: Mapping[str, Any] = AS_IT_IS
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
