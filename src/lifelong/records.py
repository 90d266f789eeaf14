"""Records of learned tasks: plain data, to and from JSON, without torch."""

import math
from dataclasses import dataclass
from typing import Annotated, Literal, TypeAlias, final

import msgspec

BYTES = 4  # of a parameter in float32
# As it is read from files: what shows a count may turn it into a float, and multiply it.
Count: TypeAlias = Annotated[int, msgspec.Meta(ge=0, le=1 << 53)]


@final
@dataclass(frozen=True)
class Capacity:
    """Size of a network.

    Attributes:
        parameters: stored numbers.
        nonzero: of these, those that are not zero.
        multiply_adds: per prediction.
        bytes: of everything that predictions need: the numbers, and the places of those that
            overwrite others. If not given, four per parameter.
    """

    parameters: int
    nonzero: int
    multiply_adds: int
    bytes: int = -1

    def __post_init__(self) -> None:
        if self.bytes < 0:
            object.__setattr__(self, "bytes", BYTES * self.parameters)


@final
class Answers(msgspec.Struct, frozen=True):
    """How the test rows of a task were answered, in numbers that do not grow with the rows.

    Attributes:
        kind: "probability" of a binary task, in bins of equal width from 0 to 1, or "class".
        counts: by true label, how many rows got each answer: for a binary task no and yes, over
            all its outputs.
    """

    kind: Literal["probability", "class"]
    counts: tuple[tuple[Count, ...], ...]


@final
class StageRecord(msgspec.Struct, frozen=True):
    """One training: name, final validation loss, steps and seconds."""

    name: str
    loss: float
    steps: Count
    seconds: float


@final
class StartRecord(msgspec.Struct, frozen=True):
    """A network that a task could have started from instead of the last one, tried beside it.

    Attributes:
        name: of the training from there.
        loss: its validation loss, calibrated.
        from_last: that of the training from the last network, calibrated.
    """

    name: str
    loss: float
    from_last: float


@final
class GroupRecord(msgspec.Struct, frozen=True):
    """Changes to the units of one group (the outputs of a layer).

    Attributes:
        units: number after the task.
        selected: old units that the task's sparse head depends on (Algorithm 2).
        added: newcomers, including those dropped later (Algorithm 3).
        dropped: useless newcomers and copies.
        split: old units that were duplicated (Algorithm 4 by units).
        drift: per old unit before the split, in the measure of sigma.
    """

    units: Count
    selected: Count = 0
    added: Count = 0
    dropped: Count = 0
    split: Count = 0
    drift: tuple[float, ...] = ()


@final
class TaskRecord(msgspec.Struct, frozen=True):
    """One learned task: its number from 1, its units by group, its trainings in order.

    Attributes:
        changed: by name of a shared tensor, the entries that the task overwrites (Algorithm 4 by
            weights).
        parent: number of the task that it started from, 0 for the untrained network; None for the
            task before it.
        starts: what else it tried to start from.
    """

    task: str
    number: Count
    groups: dict[str, GroupRecord]
    stages: tuple[StageRecord, ...]
    changed: dict[str, Count] = {}
    parent: Count | None = None
    starts: tuple[StartRecord, ...] = ()

    @property
    def loss(self) -> float:
        """Validation loss of the last training; NaN if the task needed none but its sparse head."""
        return self.stages[-1].loss if self.stages else math.nan

    @property
    def steps(self) -> int:
        return sum(stage.steps for stage in self.stages)

    @property
    def seconds(self) -> float:
        """Time of the trainings, without surgery and bookkeeping."""
        return sum(stage.seconds for stage in self.stages)
