"""The unfinished network of a task: each algorithm takes a draft and returns the next one."""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any, final

import msgspec

from lifelong.networks.growing import Network
from lifelong.records import GroupRecord, StageRecord, StartRecord, TaskRecord


@final
@dataclass(frozen=True, eq=False)
class Draft:
    """A network, its validation loss, and the record so far.

    Attributes:
        parent: number of the task that it started from; None for the last one.
        head_l1: the strength of Equation 3 that its head was solved with, None for a fresh head.
        starts: what else was tried to start from.
    """

    network: Network
    loss: float
    stages: tuple[StageRecord, ...] = ()
    groups: Mapping[str, GroupRecord] = field(default_factory=dict)
    parent: int | None = None
    head_l1: float | None = None
    starts: tuple[StartRecord, ...] = ()

    def trained(self, network: Network, stage: StageRecord) -> "Draft":
        """The draft after one more training."""
        return replace(self, network=network, loss=stage.loss, stages=(*self.stages, stage))

    def noting(self, event: str, amounts: Mapping[str, Any]) -> "Draft":
        """The draft with these amounts recorded per group."""
        changed = {
            group: msgspec.structs.replace(self._group(group), **{event: amount})
            for group, amount in amounts.items()
        }
        return replace(self, groups={**self.groups, **changed})

    def shrunk_to(self, network: Network) -> "Draft":
        """The draft with a smaller network; the dropped units are recorded."""
        dropped = {
            group: self._group(group).dropped + self.network.width(group) - network.width(group)
            for group in network.born
        }
        return replace(self.noting("dropped", dropped), network=network)

    def record(self, task: str, number: int) -> TaskRecord:
        counted = self.noting("units", {g: len(born) for g, born in self.network.born.items()})
        groups = {group: counted.groups[group] for group in self.network.born}
        return TaskRecord(task, number, groups, self.stages, starts=self.starts)

    def _group(self, group: str) -> GroupRecord:
        return self.groups.get(group, GroupRecord(0))
