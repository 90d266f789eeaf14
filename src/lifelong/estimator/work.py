"""Own data in files: learn a table as the next task, predict for one, score one."""

import math
import shutil
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, final

import msgspec
import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from lifelong.estimator.base import LifelongEstimator
from lifelong.estimator.classifier import LifelongClassifier
from lifelong.estimator.parameters import seed_of
from lifelong.estimator.regressor import LifelongRegressor
from lifelong.evaluation.measure import is_model
from lifelong.learners.registry import load_model
from lifelong.persistence.manifest import ModelFileError
from lifelong.records import TaskRecord
from lifelong.tables.files import ColumnType, Writer, batches, sample, taken_out
from lifelong.tables.frames import TableError, read_labels
from lifelong.tables.preparation import Known, Number

FRONTS: dict[str, type[LifelongEstimator]] = {
    "classifier": LifelongClassifier,
    "regressor": LifelongRegressor,
}
MOST_ROWS = 1_000_000
_BINS, _FAR = 1 << 16, 30.0  # of the outputs, for AUROC


def load(path: str | Path) -> LifelongEstimator:
    """The classifier or regressor that was saved in a directory."""
    attached = load_model(Path(path)).attached
    front = "" if attached is None else str(attached.facts.get("front", ""))
    if front not in FRONTS:
        raise ModelFileError(
            f"{path}: a model without columns; `lifelong learn` makes models of tables"
        )
    return FRONTS[front].load(path)


@final
class Learned(msgspec.Struct, frozen=True):
    """What `learn_file` did: rows of the file and those learned from, and the task's record."""

    model: str
    task: str
    rows: int
    learned_from: int
    record: TaskRecord
    parameters: int


def learn_file(
    model: Path,
    file: Path,
    *,
    target: str,
    task: str | None,
    regression: bool,
    parameters: Mapping[str, Any],
    weight: str | None = None,
    leave_out: Sequence[str] = (),
    most_rows: int = MOST_ROWS,
) -> Learned:
    """Learn a file as one more task of a model, or as the first of a new one, and save the model.

    A killed call resumes when it is made again.
    """
    if is_model(model):
        estimator = load(model)
        given = {name: value for name, value in parameters.items() if name != "progress"}
        if given:
            raise TableError(
                f"{model}: is there already, so that {', '.join(given)} cannot be chosen; name "
                "another directory for a new model"
            )
        estimator.set_params(**parameters)
        estimator.learner_.progress = estimator.progress
    else:
        estimator = FRONTS["regressor" if regression else "classifier"](**parameters)
    if regression != isinstance(estimator, LifelongRegressor):
        front = "a regression" if isinstance(estimator, LifelongRegressor) else "classes"
        raise TableError(f"{model}: learns {front}; use it so, or name another directory")
    table, count = sample(
        file, most_rows, seed_of(estimator.random_state), _types(estimator, target)
    )
    apart = [target, *([] if weight is None else [weight])]
    x = taken_out(table, [*apart, *leave_out], str(file))
    checkpoint = model.with_name(f"{model.name}.learning")
    estimator.partial_fit(
        x,
        _labels(table, target, file),
        sample_weight=None if weight is None else np.asarray(table[weight]),
        task=file.stem if task is None else task,
        checkpoint=checkpoint,
    )
    estimator.save(model)
    shutil.rmtree(checkpoint, ignore_errors=True)
    learner = estimator.learner_
    return Learned(
        str(model),
        estimator.tasks[-1],
        count,
        table.num_rows,
        learner.records[-1],
        learner.capacity().parameters,
    )


def _labels(table: Any, target: str, where: Path) -> Any:
    column = table[target]
    if column.null_count:
        raise TableError(
            f"{where}: column {target!r} is missing in {column.null_count} rows; leave them out"
        )
    return read_labels(np.array(column.to_pylist(), dtype=object), f"{where}, column {target!r}")


@final
class Predicted(msgspec.Struct, frozen=True):
    """What `predict_file` did: rows answered, columns that the model does not use, rows by task."""

    out: str
    rows: int
    unused: tuple[str, ...]
    tasks: dict[str, int]


def predict_file(model: Path, file: Path, out: Path, *, task: str | None) -> Predicted:
    """Write the rows of a file with their answers, in bounded memory.

    Columns are added: prediction, the probability of each class, and, where tasks are found, task
    and how sure that is.
    """
    estimator = load(model)
    counted: dict[str, int] = {}
    unused: tuple[str, ...] = ()
    rows = 0
    with Writer(out) as writer:
        for table, x in _known_columns(estimator, file):
            unused = tuple(n for n in table.column_names if n not in estimator.preparation_.names)
            answers = _answers(estimator, x, task, counted)
            learned = set(estimator.preparation_.names)
            answers = {_beside(name, learned): column for name, column in answers.items()}
            taken = [name for name in answers if name in table.column_names]
            table = table.drop_columns(taken)  # answers of an earlier prediction
            for name, column in answers.items():
                table = table.append_column(name, pa.array(column))
            writer.write(table)
            rows += table.num_rows
    if rows == 0:
        raise TableError(f"{file}: has no rows")
    return Predicted(str(out), rows, unused, counted)


def _beside(name: str, learned: Collection[str]) -> str:
    """The name of an answer's column; a column that the model learned from keeps its own."""
    return name if name not in learned else _beside(f"{name} (answer)", learned)


def _known_columns(
    estimator: LifelongEstimator, file: Path, target: str | None = None
) -> Iterator[tuple[Any, Any]]:
    """Each batch of a file, and of it the columns that the model knows."""
    names = estimator.preparation_.names
    for table in batches(file, _types(estimator, target)):
        yield table, table.select([n for n in table.column_names if n in names])


def _types(estimator: LifelongEstimator, target: str | None) -> dict[str, ColumnType]:
    """How the columns of a file are read that a model knows, and its labels.

    Categories that are all numbers are as the file has them: read as text or as numbers, they are
    the same.
    """
    if not estimator.tasks:
        return {}
    types: dict[str, ColumnType] = {}
    for column in estimator.preparation_.columns:
        if isinstance(column, Number):
            types[column.name] = "number"
        elif any(isinstance(value, str) for value in column.values):
            types[column.name] = "text"
    classes = (value for facts in estimator.tasks_.values() for value in facts.classes or ())
    if target is not None and any(isinstance(value, str) for value in classes):
        types[target] = "text"
    return types


def _answers(
    estimator: LifelongEstimator, x: Any, task: str | None, counted: dict[str, int]
) -> dict[str, Any]:
    answers: dict[str, Any] = {}
    if task is None and len(estimator.tasks) > 1 and estimator.unnamed == "find":
        names, sure = estimator.find_task(x)
        answers = {"task": names.tolist(), "sure": np.round(sure, 4)}
        for name, count in zip(*np.unique(names.astype(str), return_counts=True), strict=True):
            counted[name] = counted.get(name, 0) + int(count)
    else:
        name = estimator.tasks[-1] if task is None else task
        counted[name] = counted.get(name, 0) + x.num_rows
    told = estimator.predict(x, task=task)
    answers["prediction"] = told.tolist()
    if isinstance(estimator, LifelongClassifier):
        classes = estimator.classes_ if task is None else estimator.task_classes_[task]
        shares = estimator.predict_proba(x, task=task)
        answers |= {f"p({c})": shares[:, place] for place, c in enumerate(classes.tolist())}
    return answers


@final
class Scored(msgspec.Struct, frozen=True):
    """Scores of a file: accuracy, AUROC and the confusion of classes, or R2 and RMSE."""

    rows: int
    scores: dict[str, float | None]
    classes: tuple[Any, ...] = ()
    confusion: tuple[tuple[int, ...], ...] = ()


def score_file(model: Path, file: Path, *, target: str, task: str | None) -> Scored:
    """Score a model on a file, in bounded memory.

    AUROC is of outputs in bins of a thousandth of a logit, the mean over the classes against the
    rest; it is exact up to ties within a bin.
    """
    estimator = load(model)
    sums: _ClassSums | _NumberSums
    if isinstance(estimator, LifelongClassifier):
        if task is not None:
            estimator._number(task)  # refuses one that is not known
        classes = estimator.classes_ if task is None else estimator.task_classes_[task]
        sums = _ClassSums(classes)
    else:
        sums = _NumberSums()
    for table, x in _known_columns(estimator, file, target):
        if target not in table.column_names:
            raise TableError(
                f"{file}: no column {target!r}; its columns are {', '.join(table.column_names)}"
            )
        sums.add(estimator, x, _labels(table, target, file), task)
    if sums.rows == 0:
        raise TableError(f"{file}: has no rows")
    return sums.scored()


@final
@dataclass
class _ClassSums:
    classes: NDArray[Any]
    rows: int = 0
    confusion: NDArray[np.int64] = field(default_factory=lambda: np.zeros(0, np.int64))
    bins: NDArray[np.int64] = field(default_factory=lambda: np.zeros(0, np.int64))

    def __post_init__(self) -> None:
        count = len(self.classes)
        self.confusion = np.zeros((count, count), np.int64)
        self.bins = np.zeros((count, 2, _BINS), np.int64)

    def add(self, estimator: Any, x: Any, y: NDArray[Any], task: str | None) -> None:
        shares = estimator.predict_proba(x, task=task)
        classes = self.classes.tolist()
        known = Known({value: place for place, value in enumerate(classes)})
        truth = np.array([known.get(value, -1) for value in y.tolist()], np.int64)
        if (truth < 0).any():
            raise TableError(
                f"the label {y[truth < 0][0]!r} is not a class of the task; its classes are "
                f"{', '.join(map(repr, classes))}"
            )
        np.add.at(self.confusion, (truth, shares.argmax(axis=1)), 1)
        with np.errstate(divide="ignore"):
            logits = np.clip(np.log(shares) - np.log1p(-np.minimum(shares, 1)), -_FAR, _FAR)
        places = np.minimum(((logits + _FAR) / (2 * _FAR) * _BINS).astype(np.int64), _BINS - 1)
        for place in range(len(self.classes)):
            hit = (truth == place).astype(np.int64)
            np.add.at(self.bins[place], (hit, places[:, place]), 1)
        self.rows += len(y)

    def scored(self) -> Scored:
        areas = [area for misses, hits in self.bins if (area := _area(misses, hits)) is not None]
        scores = {
            "auroc": float(np.mean(areas)) if areas else None,
            "accuracy": float(np.trace(self.confusion) / self.rows),
        }
        confusion = tuple(tuple(row) for row in self.confusion.tolist())
        return Scored(self.rows, scores, tuple(self.classes.tolist()), confusion)


def _area(misses: NDArray[np.int64], hits: NDArray[np.int64]) -> float | None:
    """Under the ROC curve, from counts in bins; None if there is nothing to compare."""
    if not misses.any() or not hits.any():
        return None
    below = np.cumsum(misses) - misses / 2
    return float((hits * below).sum() / (float(hits.sum()) * float(misses.sum())))


@final
@dataclass
class _NumberSums:
    rows: int = 0
    total: float = 0.0
    squares: float = 0.0
    error: float = 0.0
    pivot: float = math.nan

    def add(self, estimator: Any, x: Any, y: NDArray[Any], task: str | None) -> None:
        if y.dtype == object:
            raise TableError("the target of a regression must be numbers, but there is text")
        truth = y.astype(np.float64)
        # Sums are around a value near the mean, since a large mean would swamp them.
        self.pivot = float(truth.mean()) if math.isnan(self.pivot) else self.pivot
        self.rows += len(truth)
        self.total += float((truth - self.pivot).sum())
        self.squares += float(np.square(truth - self.pivot).sum())
        self.error += float(np.square(truth - estimator.predict(x, task=task)).sum())

    def scored(self) -> Scored:
        spread = self.squares - self.total**2 / self.rows
        r2 = 1 - self.error / spread if spread > 0 else None
        return Scored(self.rows, {"r2": r2, "rmse": math.sqrt(self.error / self.rows)})
