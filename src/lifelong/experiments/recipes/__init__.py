"""Recipes: one function per figure and table, which returns the complete configuration.

Every recipe has two sizes: "paper" has the paper's network and data; "small" finishes on two cores
in minutes and says what it leaves out. Recipes share runs. `register_recipe` and entry points of
the group `lifelong.recipes` add recipes.
"""

from lifelong.experiments.recipes.family import FAMILY
from lifelong.experiments.recipes.paper import rehearsal
from lifelong.experiments.recipes.plan import (
    CAPACITY,
    SEEDS,
    TASKS,
    DataPlan,
    Entry,
    Recipe,
    RecipeError,
    Size,
    SizedRecipe,
)
from lifelong.experiments.recipes.table import GROUPS, RECIPES, recipe, recipes, register_recipe

__all__ = [
    "CAPACITY",
    "FAMILY",
    "GROUPS",
    "RECIPES",
    "SEEDS",
    "TASKS",
    "DataPlan",
    "Entry",
    "Recipe",
    "RecipeError",
    "Size",
    "SizedRecipe",
    "recipe",
    "recipes",
    "register_recipe",
    "rehearsal",
]
