"""What a run leaves behind: plain data, to and from JSON, without torch."""

from typing import Any, final

import msgspec

from lifelong.records import TaskRecord
from lifelong.results import ResultMatrix


class RunError(ValueError):
    """A text that is not the JSON of a run."""


@final
class Summary(msgspec.Struct, frozen=True):
    """A method in a line.

    Attributes:
        auroc, accuracy: at the end, the mean over all tasks.
        forgetting: of AUROC (see `ResultMatrix.forgetting`); None where nothing can be forgotten,
            after a single task or where all were learned at once.
        capacity: parameters over those of DNN-MTL.
        parameters, nonzero: of all that is kept.
        seconds: of learning, without the evaluation.
    """

    auroc: float
    accuracy: float
    forgetting: float | None
    capacity: float
    parameters: int
    nonzero: int
    seconds: float


@final
class MethodRun(msgspec.Struct, frozen=True):
    """One method on the stream of a run.

    Attributes:
        about: what the method is, in words.
        scores: of each task at the end, for each measure.
        born: for each group of units that tasks share, the number of the task that each unit
            appeared with; empty for a method that does not grow.
        matrix: the JSON of its `results`; null where all tasks were learned at once.
    """

    method: str
    about: str
    settings: dict[str, Any]
    summary: Summary
    scores: dict[str, list[float]]
    records: tuple[TaskRecord, ...]
    born: dict[str, tuple[int, ...]]
    matrix: msgspec.Raw

    @property
    def results(self) -> ResultMatrix | None:
        """R[i, j] is the score of task j after learning task i."""
        text = bytes(self.matrix)
        return None if text == b"null" else ResultMatrix.from_json(text)


@final
class Run(msgspec.Struct, frozen=True):
    """Several methods on one stream: all that tables and figures are made from."""

    command: str
    source: str
    tasks: tuple[str, ...]
    inputs: int
    widths: dict[str, int]
    seed: int
    versions: dict[str, str]
    methods: tuple[MethodRun, ...]

    def method(self, name: str) -> MethodRun:
        """The method of this name."""
        return next(run for run in self.methods if run.method == name)

    def to_json(self) -> bytes:
        return msgspec.json.format(msgspec.json.encode(self)) + b"\n"

    @classmethod
    def from_json(cls, text: str | bytes) -> "Run":
        """What `to_json` wrote."""
        try:
            return msgspec.json.decode(text, type=cls)
        except msgspec.MsgspecError as error:
            raise RunError(f"not the JSON of a run: {error}") from error
