"""The commands of the experiments. Parsing and printing only."""

import tyro

from lifelong.experiments.commands.catalogue import data_command, list_command
from lifelong.experiments.commands.common import Refusal
from lifelong.experiments.commands.making import run_command, tune_command
from lifelong.experiments.commands.showing import figure_command, reproduce_command, table_command

__all__ = ["Refusal", "register"]


def register(app: tyro.extras.SubcommandApp) -> None:
    """Add these commands to the command line."""
    app.command(name="run")(run_command)
    app.command(name="list")(list_command)
    app.command(name="table")(table_command)
    app.command(name="figure")(figure_command)
    app.command(name="tune")(tune_command)
    app.command(name="data")(data_command)
    app.command(name="reproduce")(reproduce_command)
