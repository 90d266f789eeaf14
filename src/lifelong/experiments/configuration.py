"""Everything that a run depends on, as plain data without torch, and its key."""

import hashlib
import re
from collections.abc import Mapping
from typing import Any, Literal, final

import msgspec

_KEY = 16  # hexadecimal digits: among a million runs two share a key with probability < 10^-7


@final
class NetworkPlan(msgspec.Struct, frozen=True):
    """A base network without its inputs: fully connected layers, optionally after convolutions.

    `pool` lists the convolutions that are followed by pooling; all of them if it is empty. `module`
    names a module of these widths instead, as in `lifelong.experiments.modules`. With `bias=False`
    hidden layers have no biases.
    """

    widths: tuple[int, ...]
    filters: tuple[int, ...] = ()
    kernel: int = 5
    pool: tuple[bool, ...] = ()
    # Not stored if they are not set, so that the keys of runs without them stay what they were.
    module: str | msgspec.UnsetType = msgspec.UNSET
    bias: bool | msgspec.UnsetType = msgspec.UNSET

    @property
    def biased(self) -> bool:
        """Whether hidden layers have biases."""
        return self.bias is not False

    def __str__(self) -> str:
        widths = "-".join(map(str, (*self.filters, *self.widths)))
        sized = widths if self.module is msgspec.UNSET else f"{self.module} of {widths}"
        return sized if self.biased else f"{sized} without biases"


@final
class Configuration(msgspec.Struct, frozen=True, kw_only=True):
    """One method on one stream with one seed.

    Attributes:
        data: name of the data set, as `lifelong.tasks.datasets.load` knows it.
        options: of that data set.
        tasks: how many of its tasks, counted from the first.
        network: the base network.
        scale: factor of its widths for this run; capacity is still relative to the base network.
        method: as in `lifelong.learners.registry`.
        settings: all of them, defaults included: with a changed default it is another run.
        seed: of the data and of the training.
        rows: which rows are scored: "test", or "valid" for tuning.
    """

    data: str
    options: dict[str, Any]
    tasks: int
    network: NetworkPlan
    scale: float
    method: str
    settings: dict[str, Any]
    seed: int
    rows: Literal["test", "valid"] = "test"

    @property
    def key(self) -> str:
        """A checksum: equal for equal configurations, on every machine."""
        text = msgspec.json.encode(self, order="sorted")
        return hashlib.sha256(text).hexdigest()[:_KEY]

    @property
    def place(self) -> str:
        """Path below a directory of runs, without a suffix."""
        return f"{slug(self.data)}/{slug(self.method)}-seed-{self.seed}-{self.key}"

    def __str__(self) -> str:
        sized = "" if self.scale == 1 else f", width × {self.scale:g}"
        return f"{self.data} {self.method}{sized}, {self.tasks} tasks, seed {self.seed}"


def slug(name: str) -> str:
    """A name that is valid on every file system."""
    return re.sub(r"[^a-z0-9]+", "-", name.lower()).strip("-")


def differences(left: Configuration, right: Configuration) -> str:
    """A description of the differences between two configurations."""
    ours, theirs = (_flat(msgspec.to_builtins(each)) for each in (left, right))
    names = [name for name in {**ours, **theirs} if ours.get(name) != theirs.get(name)]
    return ", ".join(f"{name} is {ours.get(name)} and not {theirs.get(name)}" for name in names)


def _flat(values: Mapping[str, Any], before: str = "") -> dict[str, Any]:
    flat: dict[str, Any] = {}
    for name, value in values.items():
        flat |= (
            _flat(value, f"{before}{name}.") if isinstance(value, dict) else {before + name: value}
        )
    return flat
