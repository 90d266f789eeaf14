"""What happened while a task was learned. Plain data, to and from JSON, without torch."""

from dataclasses import dataclass
from typing import final

import msgspec


@final
@dataclass(frozen=True)
class Capacity:
    """Size of a network: numbers in it, those that are not zero, multiply-adds of a prediction."""

    parameters: int
    nonzero: int
    multiply_adds: int


@final
class StageRecord(msgspec.Struct, frozen=True):
    """One training: its name, the validation loss at its end, and what it took."""

    name: str
    loss: float
    steps: int
    seconds: float


@final
class GroupRecord(msgspec.Struct, frozen=True):
    """What happened to the units of one group (the outputs of a layer).

    Attributes:
        units: there are now.
        selected: of the old units, by the task's sparse head (Algorithm 2).
        added: newcomers that were offered (Algorithm 3).
        dropped: newcomers and copies that turned out useless.
        split: old units that were duplicated (Algorithm 4).
        drift: of each old unit before the split, in the measure that sigma is given in.
    """

    units: int
    selected: int = 0
    added: int = 0
    dropped: int = 0
    split: int = 0
    drift: tuple[float, ...] = ()


@final
class TaskRecord(msgspec.Struct, frozen=True):
    """One task learned: its number from 1, its units by group, its trainings in order."""

    task: str
    number: int
    groups: dict[str, GroupRecord]
    stages: tuple[StageRecord, ...]

    @property
    def loss(self) -> float:
        """Validation loss at the end."""
        return self.stages[-1].loss

    @property
    def steps(self) -> int:
        return sum(stage.steps for stage in self.stages)

    @property
    def seconds(self) -> float:
        """In trainings; surgery and bookkeeping come on top."""
        return sum(stage.seconds for stage in self.stages)
