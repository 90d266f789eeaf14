"""What the commands share: argument types, error handling, printing.

Modules that import torch are imported where they are needed, so that `--help` is fast.
"""

import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Literal, TypeAlias

import msgspec
from rich.table import Table
from tyro.conf import Positional, arg

Size: TypeAlias = Literal["small", "paper"]
RecipeName: TypeAlias = Annotated[str, Positional, arg(metavar="RECIPE")]
Seeds: TypeAlias = Annotated[tuple[str, ...], arg(metavar="0-4")]
Methods: TypeAlias = Annotated[tuple[str, ...], arg(metavar="METHOD")]
Splits: TypeAlias = Annotated[tuple[str, ...], arg(metavar="PART")]
Out: TypeAlias = Annotated[Path, arg(metavar="DIR")]
RESULTS = Path("results")


class Refusal(Exception):
    """An error that the user can fix: a message, and the exit code."""

    def __init__(self, message: str, code: int) -> None:
        super().__init__(message)
        self.code = code


@contextmanager
def plainly() -> Iterator[None]:
    """Turn errors that the user can fix into a message and an exit code."""
    from lifelong.experiments.engines import EngineError
    from lifelong.experiments.recipes import RecipeError
    from lifelong.experiments.stored import StoredError
    from lifelong.experiments.tuning import TuningError
    from lifelong.learners.registry import MethodError
    from lifelong.tasks.datasets import DataError
    from lifelong.training.budget import SettingError

    try:
        yield
    except (RecipeError, MethodError, TuningError, EngineError) as error:
        raise Refusal(str(error), 2) from error
    except (DataError, StoredError, SettingError) as error:
        raise Refusal(str(error), 1) from error


def seed_numbers(given: Sequence[str]) -> tuple[int, ...]:
    """Parse numbers and ranges: `0-4` is 0 1 2 3 4."""
    seeds: list[int] = []
    for text in (part for each in given for part in each.split(",")):
        first, _, last = text.partition("-")
        if not (first.isdecimal() and (last.isdecimal() or not _)):
            raise Refusal(f"--seeds takes whole numbers and ranges, such as 0-4, not {text!r}", 2)
        seeds += range(int(first), int(last or first) + 1)
    return tuple(dict.fromkeys(seeds))


def two_columns(title: str, rows: dict[str, str]) -> Table:
    shown = Table(title=title, title_justify="left", show_header=False, box=None)
    shown.add_column(no_wrap=True)
    shown.add_column()
    for name, about in rows.items():
        shown.add_row(name, about)
    return shown


def print_json(value: object) -> None:
    sys.stdout.write(msgspec.json.format(msgspec.json.encode(value), indent=1).decode() + "\n")
