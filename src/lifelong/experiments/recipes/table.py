"""All recipes by name, and names that stand for several."""

from collections.abc import Sequence
from typing import get_args

from lifelong.experiments.recipes.family import (
    family_animals50,
    family_cifar100,
    family_permuted,
    family_split,
    family_variation,
)
from lifelong.experiments.recipes.modules import (
    frozen_cifar100,
    resnet_cifar100,
    transformer_lines,
)
from lifelong.experiments.recipes.paper import (
    ablation_variation,
    figure3_animals50,
    figure3_awa,
    figure3_cifar100,
    figure3_variation,
    figure4,
    figure5,
    methods_variation,
    permuted,
    rehearsal,
)
from lifelong.experiments.recipes.plan import Recipe, RecipeError, Size, SizedRecipe
from lifelong.experiments.recipes.published import (
    published_permuted,
    published_split,
    published_split_fisher,
    published_subnetworks,
    published_superclasses,
)
from lifelong.plugins import Registry

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
        SizedRecipe("published-split-fisher", published_split_fisher),
        SizedRecipe("published-split", published_split),
        SizedRecipe("published-subnetworks", published_subnetworks),
        SizedRecipe("published-superclasses", published_superclasses),
        SizedRecipe("family-variation", family_variation),
        SizedRecipe("family-cifar100", family_cifar100),
        SizedRecipe("family-animals50", family_animals50),
        SizedRecipe("family-permuted", family_permuted),
        SizedRecipe("family-split", family_split),
        SizedRecipe("modules-cifar100", resnet_cifar100),
        SizedRecipe("modules-lines", transformer_lines),
        SizedRecipe("modules-frozen", frozen_cifar100),
        SizedRecipe("rehearsal", rehearsal),
    ),
)
register_recipe = RECIPES.add
# Names that stand for several recipes.
GROUPS = {
    "family": (
        *("family-variation", "family-cifar100", "family-animals50"),
        *("family-permuted", "family-split"),
    ),
    "modules": ("modules-cifar100", "modules-lines", "modules-frozen"),
}


def recipes(name: str, size: str = "small", methods: Sequence[str] = ()) -> tuple[Recipe, ...]:
    """The recipes that a name stands for: those of a group, or the one of this name."""
    return tuple(recipe(each, size, methods) for each in GROUPS.get(name.lower(), (name,)))


def recipe(name: str, size: str = "small", methods: Sequence[str] = ()) -> Recipe:
    """The recipe of this name (case-insensitive), with these methods added if necessary."""
    if size not in get_args(Size):
        raise RecipeError(f"size must be 'small' or 'paper', not {size!r}")
    return RECIPES.named(name)("paper" if size == "paper" else "small").including(methods)
