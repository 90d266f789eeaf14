"""What the commands share: argument types, error handling, printing.

Modules that import torch are imported where they are needed, so that `--help` is fast.
"""

import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal, TypeAlias, final

from rich.table import Table
from tyro.conf import OmitArgPrefixes, Positional, arg

from lifelong.printing import printable, printable_json

Size: TypeAlias = Literal["small", "paper"]
RecipeName: TypeAlias = Annotated[str, Positional, arg(metavar="RECIPE")]
Seeds: TypeAlias = Annotated[tuple[str, ...], arg(metavar="0-4")]
Methods: TypeAlias = Annotated[tuple[str, ...], arg(metavar="METHOD")]
Splits: TypeAlias = Annotated[tuple[str, ...], arg(metavar="PART")]
Out: TypeAlias = Annotated[str, arg(metavar="DIR")]
RESULTS = "results"
MOST_SEEDS = 10_000

_UNITS = {"K": 2**10, "M": 2**20, "G": 2**30, "T": 2**40}

if TYPE_CHECKING:
    from lifelong.experiments.engines import Engine, Resources


class Refusal(Exception):
    """An error that the user can fix: a message, and the exit code."""

    def __init__(self, message: str, code: int) -> None:
        super().__init__(message)
        self.code = code


@final
@dataclass(frozen=True)
class Where:
    """Where runs are made.

    Attributes:
        engine: Where to make the runs; `lifelong list` names the engines.
        jobs: Number of parallel runs, one thread each; by default the number of cores, or as many
            as the cluster has room for.
        address: Of the cluster: for ray auto or ray://HOST:PORT, by default one that starts here;
            for slurm local, to try it on this machine.
        cpus: Cores per run, on a cluster.
        gpus: GPUs per run, on a cluster.
        memory: Memory per run, on a cluster, such as 4G.
        minutes: Time per run until it is stopped and queued again, with slurm.
        partition: Of the queue, with slurm.
    """

    engine: Annotated[str, arg(metavar="ENGINE")] = "local"
    jobs: Annotated[int | None, arg(metavar="N")] = None
    address: Annotated[str | None, arg(metavar="ADDRESS")] = None
    cpus: Annotated[int, arg(metavar="N")] = 1
    gpus: Annotated[int, arg(metavar="N")] = 0
    memory: Annotated[str | None, arg(metavar="SIZE")] = None
    minutes: Annotated[int, arg(metavar="N")] = 240
    partition: Annotated[str | None, arg(metavar="NAME")] = None

    def made(self) -> "tuple[Engine, Resources]":
        """The engine, and what it may use."""
        from lifelong.experiments.engines import ENGINES, Resources

        for name in ("jobs", "cpus", "minutes"):
            if (given := getattr(self, name)) is not None and given < 1:
                raise Refusal(f"--{name} must be 1 or more, not {given}", 2)
        if self.gpus < 0:
            raise Refusal(f"--gpus must be 0 or more, not {self.gpus}", 2)
        return ENGINES.named(self.engine), Resources(
            self.jobs,
            self.address,
            self.cpus,
            self.gpus,
            _bytes(self.memory),
            self.minutes,
            self.partition,
        )


On: TypeAlias = OmitArgPrefixes[Where]
HERE = Where()


def _bytes(size: str | None) -> int | None:
    if size is None:
        return None
    number, unit = (size[:-1], size[-1]) if size[-1:].upper() in _UNITS else (size, "")
    if not number.isdecimal() or not int(number):
        raise Refusal(f"--memory takes bytes, or such as 500M or 4G, not {size!r}", 2)
    return int(number) * _UNITS.get(unit.upper(), 1)


def at_hand(out: str, refresh: bool = True) -> tuple[Path, str]:
    """The directory of runs; and the address whose runs it is a copy of, if one was given."""
    from lifelong.experiments.addresses import is_address
    from lifelong.experiments.shared import SharedStore

    if not is_address(out):
        return Path(out), ""
    store = SharedStore(out)
    directory = store.mirror()
    if refresh:
        store.refresh(directory)
    return directory, out


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
