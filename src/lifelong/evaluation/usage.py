"""The units of a run: their births, what happened to them, which tasks use them."""

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
