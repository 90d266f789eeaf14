"""The result matrix of a run: score of each task after each task, capacity and seconds.

R[i, j] is the score of task j after learning task i, everywhere in this project: rows are points
in time, columns are tasks. Entries above the diagonal are NaN: a learner that adds an output per
task cannot predict for a task before it has learned it.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol, final

import msgspec
import numpy as np
from numpy.typing import ArrayLike, NDArray

from lifelong.extras import require_extra
from lifelong.records import Capacity

MEANING = "R[i, j] is the score of task j after learning task i"
Matrix = NDArray[np.float64]


class ResultError(ValueError):
    """Invalid contents of a result matrix, or an unknown task or metric."""


class Frame(Protocol):
    """The part of a pandas or polars frame that reading needs."""

    @property
    def columns(self) -> Any: ...

    def __getitem__(self, column: str) -> Any: ...


@final
@dataclass(frozen=True, eq=False)
class ResultMatrix:
    """Scores of every task after every task, with capacity and seconds.

    R[i, j] is the score of task j after learning task i, and T the number of tasks learned.

    Attributes:
        tasks: names in the order in which they were learned.
        scores: R for each metric, such as "auroc" and "accuracy".
        capacity: of all that is stored after learning task i: bytes, values, multiply-adds.
        as_of: capacity of the network as of task i: the cost of predictions for this task.
        seconds: of learning task i, without evaluation.
        source: description of the data.
    """

    tasks: tuple[str, ...]
    scores: Mapping[str, Matrix]
    capacity: tuple[Capacity, ...]
    as_of: tuple[Capacity, ...]
    seconds: NDArray[np.float64]
    source: str = ""

    def __post_init__(self) -> None:
        count = len(self.tasks)
        if count == 0 or len(set(self.tasks)) != count:
            raise ResultError(f"tasks must be one or more names, none twice, not {self.tasks!r}")
        if not self.scores:
            raise ResultError("scores must hold the matrix of at least one measure, but are empty")
        for measure, matrix in self.scores.items():
            _check_matrix(measure, matrix, count)
        for field in ("capacity", "as_of", "seconds"):
            if len(getattr(self, field)) != count:
                raise ResultError(
                    f"{field} must have one entry for each of the {count} tasks, "
                    f"not {len(getattr(self, field))}"
                )

    @classmethod
    def of(
        cls,
        tasks: Sequence[str],
        scores: Mapping[str, ArrayLike],
        *,
        capacity: Sequence[Capacity] | None = None,
        as_of: Sequence[Capacity] | None = None,
        seconds: ArrayLike | None = None,
        source: str = "",
    ) -> "ResultMatrix":
        """Make one from any arrays; omitted capacities and seconds are 0."""
        nothing = (Capacity(0, 0, 0),) * len(tasks)
        return cls(
            tuple(tasks),
            {measure: np.array(matrix, np.float64) for measure, matrix in scores.items()},
            nothing if capacity is None else tuple(capacity),
            nothing if as_of is None else tuple(as_of),
            np.zeros(len(tasks)) if seconds is None else np.array(seconds, np.float64),
            source,
        )

    def matrix(self, measure: str | None = None) -> Matrix:
        """R: row i, column j is the score of task j after learning task i.

        Without a measure that of AUROC, or the first one if there is none, as for regressions.
        """
        if measure is None:
            measure = "auroc" if "auroc" in self.scores else next(iter(self.scores))
        if measure not in self.scores:
            measures = ", ".join(repr(name) for name in self.scores)
            raise ResultError(f"no measure {measure!r} in these results; there are {measures}")
        return self.scores[measure]

    def averages(self, measure: str | None = None) -> NDArray[np.float64]:
        """After each task i, the mean over the tasks learned: A_i = 1/(i+1) · Σ_{j≤i} R[i, j]."""
        r = self.matrix(measure)
        return np.array([r[i, : i + 1].mean() for i in range(len(r))])

    def average(self, measure: str | None = None) -> float:
        """The mean over all tasks after the last: A_{T-1} = 1/T · Σ_j R[T-1, j]."""
        return float(self.averages(measure)[-1])

    def curve(self, task: str, measure: str | None = None) -> NDArray[np.float64]:
        """Scores of task j since it was learned: R[j, j], R[j+1, j], …, R[T-1, j]."""
        if task not in self.tasks:
            names = ", ".join(repr(name) for name in self.tasks)
            raise ResultError(f"no task {task!r} in these results; there are {names}")
        j = self.tasks.index(task)
        return self.matrix(measure)[j:, j]

    def forgetting(self, measure: str | None = None) -> float:
        """Loss against the best earlier score, the mean over all tasks but the last.

        F = 1/(T-1) · Σ_{j<T-1} ( max_{j≤i<T-1} R[i, j] - R[T-1, j] ). Small is good; it is
        negative if tasks score best at the end. NaN for a single task.
        """
        r = self.matrix(measure)
        return _mean([r[j:-1, j].max() - r[-1, j] for j in range(len(r) - 1)])

    def backward_transfer(self, measure: str | None = None) -> float:
        """Effect of later tasks on earlier ones: BWT = 1/(T-1) · Σ_{j<T-1} ( R[T-1, j] - R[j, j] ).

        Negative if later learning made earlier tasks worse. NaN for a single task.
        """
        r = self.matrix(measure)
        return _mean([r[-1, j] - r[j, j] for j in range(len(r) - 1)])

    def forward_transfer(self, alone: ArrayLike, measure: str | None = None) -> float:
        """Effect of earlier tasks on later ones: FWT = 1/(T-1) · Σ_{0<j} ( R[j, j] - S_j ).

        S_j, given in `alone`, is the score of a network trained on task j only. (The other
        common formula compares R[j-1, j] with an untrained network; it needs predictions for a task
        before its output exists.) Positive if earlier tasks helped. NaN for a single task.
        """
        r = self.matrix(measure)
        reference = np.array(alone, np.float64)
        if reference.shape != (len(r),):
            raise ResultError(
                f"alone must be {len(r)} scores, one for each task in the order learned, not an "
                f"array of shape {reference.shape}"
            )
        return _mean([r[j, j] - reference[j] for j in range(1, len(r))])

    def to_json(self) -> str:
        """The results as JSON; a score that was not measured is null."""
        document = _Document(
            meaning=MEANING,
            tasks=list(self.tasks),
            scores={name: _without_nan(matrix) for name, matrix in self.scores.items()},
            capacity=list(self.capacity),
            as_of=list(self.as_of),
            seconds=self.seconds.tolist(),
            source=self.source,
        )
        return msgspec.json.format(msgspec.json.encode(document)).decode()

    @classmethod
    def from_json(cls, text: str | bytes) -> "ResultMatrix":
        """Read what `to_json` wrote."""
        try:
            document = msgspec.json.decode(text, type=_Document)
        except msgspec.MsgspecError as error:
            raise ResultError(f"not the JSON of a result matrix: {error}") from error
        scores = {name: _with_nan(name, rows) for name, rows in document.scores.items()}
        return cls.of(
            document.tasks,
            scores,
            capacity=document.capacity,
            as_of=document.as_of,
            seconds=document.seconds,
            source=document.source,
        )

    def to_columns(self) -> dict[str, list[Any]]:
        """A long table as columns by name, with one row per pair of task i and task j <= i.

        `pandas.DataFrame(columns)` or `polars.DataFrame(columns)` makes a frame of it. `after` is
        task i, `task` is task j; sizes and seconds are those of task i.
        """
        pairs = [(i, j) for i in range(len(self.tasks)) for j in range(i + 1)]
        columns: dict[str, list[Any]] = {
            "after": [self.tasks[i] for i, _ in pairs],
            "task": [self.tasks[j] for _, j in pairs],
        }
        for measure, matrix in self.scores.items():
            columns[measure] = [float(matrix[pair]) for pair in pairs]
        for field in Capacity.__dataclass_fields__:
            columns[field] = [getattr(self.capacity[i], field) for i, _ in pairs]
            columns[_AS_OF + field] = [getattr(self.as_of[i], field) for i, _ in pairs]
        columns["seconds"] = [float(self.seconds[i]) for i, _ in pairs]
        columns["source"] = [self.source] * len(pairs)
        return columns

    def to_frame(self) -> Any:
        """`to_columns` as a pandas frame; needs pandas."""
        require_extra("pandas", extra="frames")
        import pandas

        frame = pandas.DataFrame(self.to_columns())
        frame.attrs["meaning"] = MEANING
        return frame

    @classmethod
    def from_frame(cls, frame: Frame) -> "ResultMatrix":
        """Read what `to_frame` made, or a polars frame of `to_columns`, with rows in any order."""
        columns = {str(name): frame[name].to_list() for name in frame.columns}
        missing = [name for name in _FIXED if name not in columns]
        if missing:
            raise ResultError(
                f"a frame of results needs the columns {', '.join(_FIXED)} and one for each "
                f"measure, but {', '.join(missing)} are not there"
            )
        return _from_columns(columns)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, ResultMatrix) and self.to_json() == other.to_json()

    __hash__ = None  # type: ignore[assignment]  # arrays are mutable

    def __str__(self) -> str:
        return "\n\n".join([f"{MEANING}.", *(self._table(measure) for measure in self.scores)])

    def _table(self, measure: str) -> str:
        count = len(self.tasks)
        lines = [(measure, [f"j={j}" for j in range(count)], "")]
        for i, name in enumerate(self.tasks):
            known = [f"{score:.4f}" for score in self.scores[measure][i, : i + 1]]
            lines.append((f"i={i}", known + [""] * (count - i - 1), name))
        width = max(len(measure), len(f"i={count}"))
        return "\n".join(
            "  ".join([first.ljust(width), *(cell.rjust(6) for cell in cells), last]).rstrip()
            for first, cells, last in lines
        )


_AS_OF = "as_of_"
_SIZES = tuple(Capacity.__dataclass_fields__)
_FIXED = ("after", "task", *_SIZES, *(_AS_OF + size for size in _SIZES), "seconds", "source")


class _Document(msgspec.Struct):
    """The JSON form of a result matrix."""

    meaning: str
    tasks: list[str]
    scores: dict[str, list[list[float | None]]]
    capacity: list[Capacity]
    as_of: list[Capacity]
    seconds: list[float]
    source: str


def _check_matrix(measure: str, matrix: Matrix, count: int) -> None:
    if matrix.shape != (count, count):
        raise ResultError(
            f"{measure}: {count} tasks need a matrix of {count} × {count}, not {matrix.shape}; "
            f"{MEANING}"
        )
    if not np.isfinite(matrix[np.tril_indices(count)]).all():
        raise ResultError(
            f"{measure}: every score on and below the diagonal must be a finite number; {MEANING}"
        )


def _mean(values: Sequence[float]) -> float:
    return float(np.mean(values)) if values else float("nan")


def _without_nan(matrix: Matrix) -> list[list[float | None]]:
    return [[None if np.isnan(score) else float(score) for score in row] for row in matrix]


def _with_nan(measure: str, rows: list[list[float | None]]) -> Matrix:
    if len({len(row) for row in rows}) > 1:
        raise ResultError(f"{measure}: the rows of the matrix differ in length; {MEANING}")
    return np.array([[np.nan if s is None else s for s in row] for row in rows], np.float64)


def _from_columns(columns: Mapping[str, list[Any]]) -> ResultMatrix:
    # After task i there are i + 1 scores, which gives the order of the tasks.
    times = {name: columns["after"].count(name) for name in columns["after"]}
    tasks = sorted(times, key=lambda name: times[name])
    if [times[name] for name in tasks] != list(range(1, len(tasks) + 1)):
        raise ResultError(
            "a frame of results needs, for each task, one row for it and one for each task before "
            f"it; the rows a task in `after` are {times}"
        )
    place = {name: i for i, name in enumerate(tasks)}
    own = [columns["after"].index(name) for name in tasks]
    measures = [name for name in columns if name not in _FIXED]
    return ResultMatrix.of(
        tasks,
        {measure: _pivot(columns, measure, place) for measure in measures},
        capacity=[_capacity(columns, "", row) for row in own],
        as_of=[_capacity(columns, _AS_OF, row) for row in own],
        seconds=[columns["seconds"][row] for row in own],
        source=columns["source"][0],
    )


def _pivot(columns: Mapping[str, list[Any]], measure: str, place: Mapping[str, int]) -> Matrix:
    matrix = np.full((len(place), len(place)), np.nan)
    rows = zip(columns["after"], columns["task"], columns[measure], strict=True)
    for after, task, score in rows:
        matrix[place[after], place[task]] = score
    return matrix


def _capacity(columns: Mapping[str, list[Any]], prefix: str, row: int) -> Capacity:
    return Capacity(*(int(columns[prefix + size][row]) for size in _SIZES))
