"""What the commands share: argument types, error handling, printing.

Modules that import torch are imported where they are needed, so that `--help` is fast.
"""

import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Literal, TypeAlias

from rich.table import Table
from tyro.conf import Positional, arg

from lifelong.printing import printable, printable_json

Size: TypeAlias = Literal["small", "paper"]
RecipeName: TypeAlias = Annotated[str, Positional, arg(metavar="RECIPE")]
Seeds: TypeAlias = Annotated[tuple[str, ...], arg(metavar="0-4")]
Methods: TypeAlias = Annotated[tuple[str, ...], arg(metavar="METHOD")]
Splits: TypeAlias = Annotated[tuple[str, ...], arg(metavar="PART")]
Out: TypeAlias = Annotated[Path, arg(metavar="DIR")]
RESULTS = Path("results")
MOST_SEEDS = 10_000


class Refusal(Exception):
    """An error that the user can fix: a message, and the exit code."""

    def __init__(self, message: str, code: int) -> None:
        super().__init__(message)
        self.code = code


@contextmanager
def plainly(data_option: str = "") -> Iterator[None]:
    """Turn errors that the user can fix into a message and an exit code.

    `data_option` is the command's own option for the data directory; most have none.
    """
    from lifelong.experiments.engines import EngineError
    from lifelong.experiments.recipes import RecipeError
    from lifelong.experiments.stored import StoredError
    from lifelong.experiments.tuning import TuningError
    from lifelong.learners.registry import MethodError
    from lifelong.tasks.datasets.files import OR_ARGUMENT, DataError
    from lifelong.training.budget import SettingError

    try:
        yield
    except (RecipeError, MethodError, TuningError, EngineError) as error:
        raise Refusal(str(error), 2) from error
    except DataError as error:
        offered = f" or with {data_option}" if data_option else ""
        raise Refusal(str(error).replace(OR_ARGUMENT, offered), 1) from error
    except (StoredError, SettingError) as error:
        raise Refusal(str(error), 1) from error


def seed_numbers(given: Sequence[str]) -> tuple[int, ...]:
    """Parse numbers and ranges: `0-4` is 0 1 2 3 4."""
    seeds: list[int] = []
    for text in (part for each in given for part in each.split(",")):
        first, _, last = text.partition("-")
        if not (first.isdecimal() and (last.isdecimal() or not _)):
            raise Refusal(f"--seeds takes whole numbers and ranges, such as 0-4, not {text!r}", 2)
        if max(len(first), len(last)) > len(str(2**64)):
            raise Refusal(f"--seeds are less than 2**64, but {text!r} goes beyond", 2)
        named = range(int(first), int(last or first) + 1)
        if len(seeds) + len(named) > MOST_SEEDS:
            raise Refusal(f"--seeds takes {MOST_SEEDS:,} seeds at the most, fewer than {text!r}", 2)
        seeds += named
    return tuple(dict.fromkeys(seeds))


def two_columns(title: str, rows: dict[str, str]) -> Table:
    shown = Table(title=title, title_justify="left", show_header=False, box=None)
    shown.add_column(no_wrap=True)
    shown.add_column()
    for name, about in rows.items():
        shown.add_row(name, about)
    return shown


def print_json(value: object) -> None:
    sys.stdout.write(printable_json(value))


def say(line: object) -> None:
    """A line to who asked."""
    print(printable(line))


def warn(line: object) -> None:
    """A line beside the output, which may go to a file."""
    print(f"lifelong: {printable(line)}", file=sys.stderr)
