"""Requests read from JSON, and answered by a learner or by an estimator of tables."""

from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol, TypeAlias, final

import msgspec
import numpy as np

from lifelong.deployment.facts import labels_from
from lifelong.extras import require_extra
from lifelong.learners.base import AnyLearner, Learner
from lifelong.learners.registry import load_model
from lifelong.persistence.files import NOT_DECODED
from lifelong.persistence.manifest import ModelFileError

if TYPE_CHECKING:
    import torch

    from lifelong.estimator.base import LifelongEstimator
    from lifelong.tables.frames import Table

Cell: TypeAlias = float | str | bool | None


class RefusedError(Exception):
    """A request that cannot be answered: a status of HTTP, and what to tell."""

    def __init__(self, status: int, message: str) -> None:
        super().__init__(message)
        self.status = status


@final
@dataclass(frozen=True)
class Asked:
    """The rows of a request, how many, and the task that is to answer: None if it is not named."""

    task: str | None
    rows: Any
    count: int


class Answering(Protocol):
    """What answers requests."""

    @property
    def tasks(self) -> tuple[str, ...]: ...

    def about(self) -> dict[str, Any]:
        """What it knows and takes."""
        ...

    def read(self, body: bytes) -> Asked:
        """A request; one that cannot be answered is a `RefusedError`."""
        ...

    def answer(self, asked: Asked) -> dict[str, Any]: ...


def load_model_or_estimator(
    path: str | Path, *, device: "str | torch.device" = "cpu"
) -> "AnyLearner | LifelongEstimator":
    """What was saved in a directory: a learner, or an estimator with its columns (on the CPU)."""
    learner = load_model(path, device=device)
    if learner.attached is None:
        return learner
    require_extra("sklearn", "narwhals", "pyarrow", extra="tables")
    from lifelong.estimator import LifelongClassifier, LifelongRegressor

    fronts: dict[Any, type[LifelongEstimator]] = {
        front.front: front for front in (LifelongClassifier, LifelongRegressor)
    }
    named = learner.attached.facts.get("front")
    if not isinstance(named, str) or named not in fronts:
        raise ModelFileError(f"{path}: is of a {named!r}, which this release does not know")
    return fronts[named].load(path)


def load_answering(path: str | Path) -> Answering:
    """What answers for the model in a directory."""
    found = load_model_or_estimator(path)
    return _OfLearner(found) if isinstance(found, Learner) else _OfTables(found)


@final
class _OfLearner:
    """Rows of numbers, and each request names its task unless there is only one."""

    def __init__(self, learner: AnyLearner) -> None:
        self._learner = learner
        self._inputs = learner.network.architecture.layout.inputs

    @property
    def tasks(self) -> tuple[str, ...]:
        return self._learner.tasks

    def about(self) -> dict[str, Any]:
        return {"method": self._learner.method, "tasks": self.tasks, "inputs": self._inputs}

    def read(self, body: bytes) -> Asked:
        given = _decoded(_numbers_decoder(len(self._inputs)), body)
        task = _known(given.task, self.tasks)
        if task is None:
            raise RefusedError(400, f"no task was named; there are {_listed(self.tasks)}")
        try:
            with np.errstate(over="ignore"):  # the learner refuses what is infinite in float32
                return Asked(task, np.array(given.rows, dtype=np.float32), len(given.rows))
        except ValueError as error:
            raise RefusedError(400, "all rows must have the same number of values") from error

    def answer(self, asked: Asked) -> dict[str, Any]:
        learner, task, rows = self._learner, asked.task or "", asked.rows
        known, _ = learner.predictor(task)
        if known.kind.is_regression:
            return {"task": task, "predictions": learner.predict(rows, task=task).tolist()}
        probabilities = learner.predict_proba(rows, task=task).tolist()
        labels = labels_from(known, probabilities)
        return {"task": task, "labels": labels, "probabilities": probabilities}


@final
class _OfTables:
    """Rows of a table, each by the names of its columns or in their order; tasks can be found."""

    def __init__(self, estimator: "LifelongEstimator") -> None:
        self._estimator: Any = estimator
        self._columns: tuple[str, ...] = self._estimator.preparation_.names

    @property
    def tasks(self) -> tuple[str, ...]:
        tasks: tuple[str, ...] = self._estimator.tasks
        return tasks

    def about(self) -> dict[str, Any]:
        estimator = self._estimator
        return {"method": estimator.method, "tasks": self.tasks, "columns": self._columns}

    def read(self, body: bytes) -> Asked:
        given = _decoded(_TABLES, body)
        task = _known(given.task, self.tasks)
        if not given.rows:
            raise RefusedError(400, "there are no rows; send one or more")
        return Asked(task, self._table(given.rows), len(given.rows))

    def answer(self, asked: Asked) -> dict[str, Any]:
        estimator, task, table = self._estimator, asked.task, asked.rows
        told: dict[str, Any] = {"task": task}
        if task is None and estimator.unnamed == "find":
            names, sure = estimator.find_task(table)
            told = {"tasks": names.tolist(), "sure": sure.tolist()}
        elif task is None:
            told = {"task": self.tasks[-1]}
        answers = estimator.predict(table, task=task).tolist()
        if estimator.front == "regressor":
            return {**told, "predictions": answers}
        classes = estimator.classes_ if task is None else estimator.task_classes_[task]
        probabilities = estimator.predict_proba(table, task=task).tolist()
        return {
            **told,
            "labels": answers,
            "classes": classes.tolist(),
            "probabilities": probabilities,
        }

    def _table(self, rows: list[dict[str, Cell] | list[Cell]]) -> "Table":
        from lifelong.tables.frames import Table, of_objects

        names = tuple(rows[0]) if isinstance(rows[0], dict) else self._columns
        try:
            cells = [[row[n] for n in names] if isinstance(row, dict) else row for row in rows]
        except KeyError as error:
            raise RefusedError(
                400, f"a row has no {error}; all must have the same columns"
            ) from None
        mixed = len({type(row) for row in rows}) > 1
        if mixed or {len(row) for row in (*rows, *cells)} != {len(names)}:
            raise RefusedError(
                400, f"all rows must have the same columns, {len(names)} of them: {_listed(names)}"
            )
        columns = {
            name: of_objects([row[at] for row in cells], f"column {name!r}")
            for at, name in enumerate(names)
        }
        table = Table(columns, len(rows), True).of(self._columns, "rows")
        return Table(table.columns, table.rows, self._estimator.preparation_.named)


@final
class _Rows(msgspec.Struct, forbid_unknown_fields=True):
    rows: list[dict[str, Cell] | list[Cell]]
    task: str | None = None


_TABLES = msgspec.json.Decoder(_Rows)


@lru_cache(maxsize=8)
def _numbers_decoder(dims: int) -> "msgspec.json.Decoder[Any]":
    """Of requests for inputs of so many dims: numbers only, and no member that is not known."""
    rows: Any = float
    for _ in range(dims + 1):
        rows = list[rows]
    members: list[Any] = [("rows", rows), ("task", str | None, None)]
    return msgspec.json.Decoder(msgspec.defstruct("Rows", members, forbid_unknown_fields=True))


def _decoded(decoder: "msgspec.json.Decoder[Any]", body: bytes) -> Any:
    try:
        return decoder.decode(body)
    except NOT_DECODED as error:
        raise RefusedError(
            400, f'a request is {{"task": NAME, "rows": [[values], ...]}}: {error}'
        ) from error


def _known(asked: str | None, tasks: tuple[str, ...]) -> str | None:
    """The task that is asked for; the only one, if none is and there are no more."""
    if asked is None:
        return tasks[0] if len(tasks) == 1 else None
    if asked not in tasks:
        there = _listed(tasks)
        raise RefusedError(404, f"no task is named {asked[:100]!r}; there are {there}")
    return asked


def _listed(names: tuple[str, ...], most: int = 20) -> str:
    shown = ", ".join(map(repr, names[:most])) or "none"
    return shown if len(names) <= most else f"{shown}, …"
