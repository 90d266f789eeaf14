"""Settings that were chosen on validation data: one JSON file per data set, in `chosen/`.

`lifelong tune` writes them and the recipes use them; a method without an entry has its defaults.
"""

from functools import cache
from pathlib import Path
from typing import Any, final

import msgspec

from lifelong.experiments.configuration import slug

DIRECTORY = Path(__file__).parent / "chosen"


@final
class Trial(msgspec.Struct, frozen=True):
    """Settings that were tried, the mean validation AUROC over the seeds, and the capacity.

    Capacity is extrapolated from the tasks tried to the whole stream.
    """

    settings: dict[str, Any]
    auroc: float
    capacity: float
    feasible: bool = True


@final
class Choice(msgspec.Struct, frozen=True):
    """The settings chosen for a method: the best of its trials; the first had the defaults."""

    settings: dict[str, Any]
    trials: tuple[Trial, ...]
    seeds: tuple[int, ...]
    tasks: int
    network: str
    command: str


@final
class Tuned(msgspec.Struct, frozen=True):
    """All choices for one data set."""

    data: str
    methods: dict[str, Choice] = {}


def tuned_settings(data: str, method: str, directory: Path = DIRECTORY) -> dict[str, Any]:
    """The settings chosen for this method on this data; empty if none were."""
    choice = tuned(data, directory).methods.get(method)
    return dict(choice.settings) if choice is not None else {}


@cache
def tuned(data: str, directory: Path = DIRECTORY) -> Tuned:
    """All choices for a data set."""
    try:
        return msgspec.json.decode(file_for(data, directory).read_bytes(), type=Tuned)
    except FileNotFoundError:
        return Tuned(data)


def write_choices(data: str, chosen: dict[str, Choice], directory: Path = DIRECTORY) -> Path:
    """Add choices to the file of a data set; return its path."""
    tuned.cache_clear()  # another process may have added its own since
    before = tuned(data, directory)
    together = Tuned(data, dict(sorted({**before.methods, **chosen}.items())))
    file = file_for(data, directory)
    directory.mkdir(parents=True, exist_ok=True)
    aside = file.with_suffix(".incoming")
    aside.write_bytes(msgspec.json.format(msgspec.json.encode(together), indent=1) + b"\n")
    aside.replace(file)
    tuned.cache_clear()
    return file


def file_for(data: str, directory: Path = DIRECTORY) -> Path:
    return directory / f"{slug(data)}.json"
