"""Recipes on networks that are modules of a user: with batch normalisation, attention, and a frozen
trunk. Not in the paper.
"""

from lifelong.experiments.configuration import NetworkPlan
from lifelong.experiments.recipes.plan import CAPACITY, DataPlan, Entry, Recipe, Size
from lifelong.training.budget import Budget

_BATCHES = Budget(batch_size=64)
_GROWING = {"initial_width": 1.0, "max_new_units": 0.15}  # as for CIFAR-100 in Figure 3


def resnet_cifar100(size: Size) -> Recipe:
    """A residual network with batch normalisation on ten tasks of ten classes."""
    paper = size == "paper"
    return Recipe(
        name="modules-cifar100",
        title="CIFAR-100, a residual network with batch normalisation",
        size=size,
        reduced="" if paper else "a network of 8-16-32 channels, 2 tasks, at most 80 steps",
        data=DataPlan("cifar-100", 10 if paper else 2),
        network=NetworkPlan((32, 64, 128) if paper else (8, 16, 32), module="resnet"),
        budget=_BATCHES if paper else Budget(steps=80, batch_size=64),
        tuned=False,
        entries=(
            Entry("DEN-auto"),
            Entry("DNN-STL"),
            Entry("DNN-Progressive", changes={"width": 0.5}),
            Entry("DNN-MTL"),
            Entry("DNN-EWC"),
            Entry("DEN", changes=_GROWING),
            Entry("DNN-Progressive", CAPACITY, changes={"width": 1.0}),
            # With more bytes, of the same order as DEN's here.
            Entry("DEN-auto", CAPACITY, changes={"price": 0.03}),
        ),
    )


def transformer_lines(size: Size) -> Recipe:
    """A small transformer on lines of source, one package after another."""
    paper = size == "paper"
    return Recipe(
        name="modules-lines",
        title="Lines of the standard library, a small transformer",
        size=size,
        reduced="" if paper else "3 tasks, 60 lines of each package, at most 80 steps",
        data=DataPlan("source-lines", 10)
        if paper
        else DataPlan("source-lines", 3, {"per_class": (60, 20, 40)}),
        network=NetworkPlan((32, 64), module="transformer"),
        budget=_BATCHES if paper else Budget(steps=80, batch_size=64),
        tuned=False,
        entries=(
            Entry("DEN-auto"),
            Entry("DNN-STL"),
            Entry("DNN-Progressive", changes={"width": 0.5}),
            Entry("DNN-MTL"),
            Entry("DNN-EWC"),
            Entry("DEN", changes=_GROWING),
        ),
    )


def frozen_cifar100(size: Size) -> Recipe:
    """Layers behind a frozen trunk: it learned half of the classes, they learn the others."""
    paper = size == "paper"
    return Recipe(
        name="modules-frozen",
        title="CIFAR-100, second half of the classes behind a trunk of the first half",
        size=size,
        reduced="" if paper else "2 tasks, at most 80 steps",
        data=DataPlan("cifar-100", 5 if paper else 2, {"half": "second", "valid": 2500}),
        network=NetworkPlan((64, 32), module="behind-trunk"),
        budget=_BATCHES if paper else Budget(steps=80, batch_size=64),
        tuned=False,
        entries=(
            Entry("DEN-auto"),
            Entry("DNN-STL"),
            Entry("DEN", changes=_GROWING),
            Entry("DNN-MTL"),
            Entry("DNN-EWC"),
            Entry("DNN-Progressive", changes={"width": 0.31}),
        ),
    )
