"""The command line with a recipe that runs in a blink, for torchrun to start."""

import sys
from pathlib import Path

sys.path[:0] = [str(Path(__file__).parent.parent / room) for room in ("", "experiments")]

from tiny import tiny_recipe  # noqa: E402

from lifelong.cli import command  # noqa: E402
from lifelong.experiments.recipes import SizedRecipe, register_recipe  # noqa: E402

if __name__ == "__main__":
    register_recipe(SizedRecipe("tiny", lambda _size: tiny_recipe("DEN", "DEN-Finetune")))
    command()
