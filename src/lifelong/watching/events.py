"""What a learner tells those who watch it.

A watcher is a function of one event; `learner.watch(watcher)` adds it. Events come in this order:
`TaskBegan`, for each training `StageBegan`, `Validated` at every look at the validation rows and
`StageEnded`, and at the end `TaskEnded` or `TaskFailed`. A training that a checkpoint has finished
already is not told again.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TypeAlias, final

from lifelong.records import StageRecord


@final
@dataclass(frozen=True)
class TaskBegan:
    """A learner begins to learn.

    Attributes:
        task: its name, or "all tasks" where several are trained together.
        number: how many tasks there will be, with this one.
    """

    method: str
    task: str
    number: int


@final
@dataclass(frozen=True)
class StageBegan:
    """A training begins, of at most so many steps."""

    stage: str
    most_steps: int


@final
@dataclass(frozen=True)
class Validated:
    """A look at the validation rows; the first is before step 1.

    Attributes:
        loss: now.
        best: the lowest so far, whose weights the training returns.
    """

    stage: str
    step: int
    most_steps: int
    loss: float
    best: float
    learning_rate: float


@final
@dataclass(frozen=True)
class StageEnded:
    """A training has ended; the record's name is short, `stage` is as in the other events."""

    stage: str
    record: StageRecord


@final
@dataclass(frozen=True)
class TaskEnded:
    """The task is learned, and the learner is about to take over the result.

    Attributes:
        units: per group, in the whole network.
        parameters: of the whole network, all heads included.
    """

    method: str
    task: str
    number: int
    units: Mapping[str, int]
    parameters: int


@final
@dataclass(frozen=True)
class TaskFailed:
    """The task was not learned, and the learner is as it was before."""

    method: str
    task: str
    error: str


Event: TypeAlias = TaskBegan | StageBegan | Validated | StageEnded | TaskEnded | TaskFailed
# An exception that a watcher raises ends the learning, which then changes nothing.
Watcher: TypeAlias = Callable[[Event], None]


@final
class Scalars:
    """Events as numbers over one axis of steps, which runs on from training to training."""

    def __init__(self) -> None:
        self._before = 0  # steps of the trainings that have ended

    def __call__(self, event: Event) -> tuple[int, dict[str, float]]:
        """The step, and what there is to log at it; often nothing."""
        match event:
            case Validated(step=step, loss=loss, best=best, learning_rate=rate):
                named = {"validation loss": loss, "best validation loss": best}
                return self._before + step, {**named, "learning rate": rate}
            case StageEnded(record=record):
                self._before += record.steps
                return self._before, {"seconds of a training": record.seconds}
            case TaskEnded(number=number, units=units, parameters=parameters):
                grown = {f"units/{group}": float(count) for group, count in units.items()}
                return self._before, {"tasks": number, "parameters": parameters, **grown}
            case _:
                return self._before, {}
