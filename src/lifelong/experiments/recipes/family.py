"""What a user could pick instead of DEN, every method tuned alike on the same data."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from lifelong.experiments.recipes.paper import (
    AS_IT_IS,
    PAPER_MLP,
    SMALL_BUDGET,
    SMALL_MLP,
    figure3_animals50,
    figure3_cifar100,
    on_variation,
    permuted,
)
from lifelong.experiments.recipes.plan import DataPlan, Entry, Recipe, Size
from lifelong.training.budget import Budget

FAMILY = (
    *("DEN-auto", "DEN", "DNN-STL", "DNN-MTL", "DNN", "DNN-L2", "DNN-EWC", "SI", "IMM-mode"),
    *("DNN-Progressive", "LPF", "LwF", "ER", "GPM", "PackNet", "Piggyback", "SupSup", "WSN"),
    *("HAT", "LoRA", "APD"),
)


def family_variation(size: Size) -> Recipe:
    """What a user could pick instead of DEN, on MNIST-Variation."""
    return on_variation(
        size,
        name="family-variation",
        title="The family on MNIST-Variation, task-incremental",
        entries=_family(progressive=0.15),
    )


def family_cifar100(size: Size) -> Recipe:
    """The family on CIFAR-100."""
    den = {"initial_width": 1.0, "max_new_units": 0.15}
    return replace(
        figure3_cifar100(size),
        name="family-cifar100",
        title="The family on CIFAR-100, task-incremental",
        entries=_family(progressive=0.31, den=den),
    )


def family_animals50(size: Size) -> Recipe:
    """The family on the 50 animals."""
    growth = 0.07 if size == "paper" else 0.12
    return replace(
        figure3_animals50(size),
        name="family-animals50",
        title="The family on 50 animals, task-incremental",
        entries=_family(
            progressive=0.1 if size == "paper" else 0.15,
            den={"initial_width": 1.0, "max_new_units": growth},
        ),
    )


def family_permuted(size: Size) -> Recipe:
    """The family on Permuted MNIST, with a head per task."""
    return replace(
        permuted(size),
        name="family-permuted",
        title="The family on Permuted MNIST, a head per task",
        entries=_family(progressive=0.15),
    )


def family_split(size: Size) -> Recipe:
    """The family on Split MNIST, task-incremental."""
    paper = size == "paper"
    return Recipe(
        name="family-split",
        title="The family on Split MNIST, task-incremental",
        size=size,
        reduced=""
        if paper
        else "a network of 64-32 units instead of 312-128, at most 1,500 steps per training",
        data=DataPlan("split-mnist", 5, {"standardise": "whole"}),
        network=PAPER_MLP if paper else SMALL_MLP,
        budget=Budget() if paper else SMALL_BUDGET,
        entries=_family(progressive=0.15),
    )


def _family(progressive: float, den: Mapping[str, Any] = AS_IT_IS) -> tuple[Entry, ...]:
    changes = {"DNN-Progressive": {"width": progressive}, "DEN": den}
    return tuple(Entry(name, changes=changes.get(name, AS_IT_IS)) for name in FAMILY)
