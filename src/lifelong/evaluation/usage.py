"""The units and weights of a run: their births, what happened to them, which tasks use them."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import final

import numpy as np
from numpy.typing import NDArray

from lifelong.evaluation.runs import Run

EVENTS = {
    "selected": "old units that the task's sparse head reads",
    "added": "newcomers that were offered",
    "dropped": "newcomers and copies that turned out useless",
    "split": "old units that were duplicated because they drifted",
}


def grows(run: Run) -> bool:
    """Whether the method can add units after the first task."""
    later = any(born[-1] > 1 for born in run.born.values() if born)
    return (later or bool(run.used)) and len(run.records) == len(run.tasks)


def units_by_task(born: Sequence[int], tasks: int) -> list[int]:
    """Number of units that each task introduced, from the `born` of a group."""
    return [list(born).count(number) for number in range(1, tasks + 1)]


@final
@dataclass(frozen=True)
class Layer:
    """The units of a group in the order in which they are drawn, and the offset of the first."""

    name: str
    start: int
    units: tuple[int, ...]


@final
@dataclass(frozen=True, eq=False)
class Use:
    """Which units each task uses: one boolean matrix (task, unit) per group."""

    run: Run

    @cached_property
    def by_group(self) -> dict[str, NDArray[np.bool_]]:
        found = {}
        for group, used in self.run.used.items():
            matrix = np.zeros((len(used), len(self.run.born[group])), np.bool_)
            for row, units in enumerate(used):
                matrix[row, list(units)] = True
            found[group] = matrix
        return found

    @cached_property
    def whole(self) -> NDArray[np.bool_]:
        return np.concatenate(list(self.by_group.values()), axis=1)

    @cached_property
    def born(self) -> NDArray[np.int64]:
        return np.concatenate([np.array(self.run.born[group]) for group in self.by_group])

    @cached_property
    def layers(self) -> list[Layer]:
        """Units in order of birth; among those of the same birth, the most used first."""
        gap = 1 + self.whole.shape[1] // 50
        start, found = 0, []
        for group, used in self.by_group.items():
            born = np.array(self.run.born[group])
            order = np.lexsort((np.arange(len(born)), -used.sum(axis=0), born))
            found.append(Layer(group, start, tuple(order.tolist())))
            start += len(born) + gap
        return found

    @property
    def end(self) -> int:
        return self.layers[-1].start + len(self.layers[-1].units)


def tells(run: Run) -> bool:
    """Whether it is known which units each task uses."""
    return any(len(born) for group, born in run.born.items() if group in run.used)


def shared_by_several(run: Run) -> float:
    """Share of all units that more than one task uses."""
    return float((Use(run).whole.sum(axis=0) > 1).mean())


def used_units(run: Run) -> list[tuple[int, int]]:
    """Per task the number of units that it uses, and how many of them earlier tasks introduced."""
    use = Use(run)
    return [
        (int(used.sum()), int(used[use.born <= number].sum()))
        for number, used in enumerate(use.whole)
    ]


def common(run: Run) -> NDArray[np.float64]:
    """Units that two tasks both use over the units that either uses, for every pair."""
    used = Use(run).whole.astype(np.float64)
    both = used @ used.T
    size = used.sum(axis=1)
    either = size[:, None] + size - both
    return np.where(either > 0, both / np.maximum(either, 1), 1.0)


def selected_shares(run: Run) -> dict[str, NDArray[np.float64]]:
    """Per group and task, the selected units over those there were; NaN for the first task."""
    shares = {}
    for group in run.born:
        units = [record.groups[group].units for record in run.records]
        chosen = [record.groups[group].selected for record in run.records[1:]]
        shares[group] = np.array([np.nan, *np.divide(chosen, np.maximum(units[:-1], 1))])
    return shares


def overwrites(run: Run) -> bool:
    """Whether tasks of this run overwrite single weights of the network that they start from."""
    known = any(record.changed or record.parent is not None for record in run.records)
    return known and len(run.records) == len(run.tasks)


def parents(run: Run) -> list[int]:
    """Number of the task that each task starts from; 0 is the untrained network."""
    told = (record.parent for record in run.records)
    return [place if parent is None else parent for place, parent in enumerate(told)]


def changed_entries(run: Run) -> dict[str, NDArray[np.int64]]:
    """Per shared tensor and task, the entries that the task overwrites."""
    names = dict.fromkeys(
        [*run.entries, *(name for record in run.records for name in record.changed)]
    )
    return {
        name: np.array([record.changed.get(name, 0) for record in run.records]) for name in names
    }


def changed_shares(run: Run) -> dict[str, NDArray[np.float64]]:
    """Per shared tensor and task, the share of its entries that the task overwrites.

    Empty if the run does not tell how many there were.
    """
    return {
        name: entries / np.maximum(run.entries[name], 1)
        for name, entries in changed_entries(run).items()
        if name in run.entries
    }


def changed_by_layer(run: Run) -> dict[str, NDArray[np.float64]]:
    """`changed_shares` of each layer's tensors together."""
    layers: dict[str, list[str]] = {}
    for name in run.entries:
        layers.setdefault(name.rpartition(".")[0] or name, []).append(name)
    entries = changed_entries(run)
    return {
        layer: sum((entries[n] for n in names), np.zeros(len(run.tasks)))
        / np.maximum(np.sum([run.entries[n] for n in names], axis=0), 1)
        for layer, names in layers.items()
    }
