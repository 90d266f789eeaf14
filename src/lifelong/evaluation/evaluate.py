"""Learn a stream task by task, and score every learned task with every metric after each."""

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from typing import Any, Protocol, TypeAlias, final, runtime_checkable

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from lifelong.evaluation.metrics import METRICS, metrics_for
from lifelong.evaluation.results import ResultMatrix
from lifelong.extras import require_extra
from lifelong.learners.base import Learner
from lifelong.persistence.files import digest_of
from lifelong.records import Answers, Capacity
from lifelong.tasks.examples import Examples
from lifelong.tasks.kinds import Kind, TaskError
from lifelong.tasks.streams import Stream
from lifelong.tasks.task import Task

require_extra("sklearn", extra="evaluation")  # fail now, not after hours of learning

BATCH = 2048  # rows predicted at once
PROBE = 64  # rows by whose answers a network is known again
BINS = 20  # of probabilities
MOST_CLASSES = 20  # whose confusion is kept
_Scored: TypeAlias = tuple[dict[str, float], Answers | None]


class ContinualLearner(Protocol):
    """Any learner that learns task after task and predicts for each learned task."""

    def learn(self, task: Task) -> Any: ...

    def predict_proba(self, x: Tensor, *, task: str) -> Tensor: ...

    def capacity(self, as_of: str | None = None) -> Capacity: ...


@runtime_checkable
class Predicts(Protocol):
    """What a learner of regressions has too."""

    def predict(self, x: Tensor, *, task: str) -> Tensor:
        """One number per row, or one per row and output."""
        ...


@final
@dataclass(frozen=True)
class Step:
    """One learned task: the learner's record of it, the results so far, and each task's answers.

    Regressions and tasks of many classes have no answers to show; they are then left out.
    """

    task: str
    record: Any
    results: ResultMatrix
    answers: tuple[Answers, ...] = ()


def evaluate(learner: ContinualLearner, stream: Stream) -> ResultMatrix:
    """Learn each task of a stream; after each, score all tasks learned so far on test rows."""
    return [step.results for step in steps(learner, stream)][-1]


def steps(
    learner: ContinualLearner,
    stream: Stream,
    learn: Callable[[Task], Any] | None = None,
    done: ResultMatrix | None = None,
) -> Iterator[Step]:
    """`evaluate` one task at a time, so that the caller can act in between.

    Test rows of earlier tasks are kept, training and validation rows are not. `learn` replaces
    the learner's own; `done` has the results of the tasks that the learner has learned already.
    """
    so_far = _SoFar(stream.source)
    known = () if done is None else done.tasks
    if done is not None:
        so_far.recall(done, stream.names)
    for task in stream:
        name = task.name
        so_far.expect(task)
        if name in known:
            del task  # otherwise two tasks would be in memory
            continue
        record, seconds = timed(partial(learn or learner.learn, task))
        del task
        yield Step(name, record, so_far.score(learner, name, seconds), so_far.answers)


def timed(learn: Callable[[], Any]) -> tuple[Any, float]:
    """The record that `learn` returns, and its seconds.

    A resumed `learn` took longer than it did in this process; its record has the total.
    """
    start = time.perf_counter()
    record = learn()
    return record, max(time.perf_counter() - start, getattr(record, "seconds", 0.0))


def score(
    learner: ContinualLearner, name: str, rows: Examples, *, kind: Kind, outputs: int
) -> dict[str, float]:
    """Every metric of one task on the given rows."""
    return scored(learner, name, rows, kind=kind, outputs=outputs)[0]


def scored(
    learner: ContinualLearner, name: str, rows: Examples, *, kind: Kind, outputs: int
) -> _Scored:
    """Every metric of one task on the given rows, and how they were answered."""
    labels, predicted = _predicted(learner, name, rows, kind)
    _check_predictions(name, (len(labels), outputs), predicted, kind)
    scores = {m.name: m.score(kind, labels, predicted) for m in metrics_for(kind).values()}
    return scores, answered(kind, labels, predicted)


def answered(kind: Kind, labels: NDArray[Any], predicted: NDArray[Any]) -> Answers | None:
    """Probabilities or classes by true label; None for regressions and for too many classes."""
    classes = predicted.shape[1]
    if kind.is_regression or (kind is Kind.CLASSES and classes > MOST_CLASSES):
        return None
    if kind is Kind.BINARY:
        place = np.minimum((predicted * BINS).astype(np.int64), BINS - 1)
        return Answers("probability", _table(labels == 1, place, (2, BINS)))
    return Answers("class", _table(labels, predicted.argmax(axis=1), (classes, classes)))


def _table(
    truth: NDArray[Any], answer: NDArray[np.int64], shape: tuple[int, int]
) -> tuple[tuple[int, ...], ...]:
    cells = truth.astype(np.int64).ravel() * shape[1] + answer.ravel()
    counts = np.bincount(cells, minlength=shape[0] * shape[1]).reshape(shape)
    return tuple(map(tuple, counts.tolist()))


@final
@dataclass(frozen=True, eq=False)
class _ScoredTask:
    """What scoring a learned task needs."""

    name: str
    test: Examples
    kind: Kind
    outputs: int


@final
class _SoFar:
    """The results so far, and the test rows of the tasks learned."""

    def __init__(self, source: str) -> None:
        self._source = source
        self._known: list[_ScoredTask] = []
        self._rows: list[list[dict[str, float]]] = []
        self._metrics: tuple[str, ...] | None = None
        self._last: dict[str, tuple[str, _Scored]] = {}  # by task, with what it was served by
        self.answers: tuple[Answers, ...] = ()
        self._capacity: list[Capacity] = []
        self._as_of: list[Capacity] = []
        self._seconds: list[float] = []

    def recall(self, done: ResultMatrix, names: tuple[str, ...]) -> None:
        """Continue from earlier results."""
        count = len(done.tasks)
        if done.tasks != names[:count]:
            raise TaskError(
                f"results of the tasks {done.tasks!r} do not begin this stream, whose tasks are "
                f"{names!r}"
            )
        # A metric that was registered since has no scores for the earlier points in time.
        self._metrics = tuple(name for name in METRICS if name in done.scores)
        self._rows = [
            [{name: float(r[i, j]) for name, r in done.scores.items()} for j in range(i + 1)]
            for i in range(count)
        ]
        self._capacity, self._as_of = list(done.capacity), list(done.as_of)
        self._seconds = done.seconds.tolist()

    def expect(self, task: Task) -> None:
        """Keep the test rows; refuse, before hours of learning, a task that cannot be scored."""
        if any(known.name == task.name for known in self._known):
            raise TaskError(f"two tasks of the stream are named {task.name!r}; names must differ")
        if task.test is None:
            raise TaskError(
                f"task {task.name!r} has no test rows to score it on; make it with test=(x, y)"
            )
        known = _ScoredTask(task.name, task.test, task.kind, task.outputs)
        if self._known and known.kind.is_regression != self._known[0].kind.is_regression:
            raise TaskError(
                f"task {known.name!r} is {known.kind}, but {self._known[0].name!r} is "
                f"{self._known[0].kind}: they have no metric in common; evaluate two streams"
            )
        _require_all_labels(known)
        self._known.append(known)
        self._metrics = self._metrics or tuple(metrics_for(known.kind))

    def score(self, learner: ContinualLearner, name: str, seconds: float) -> ResultMatrix:
        each = [self._scored(learner, known) for known in self._known]
        self._rows.append([scores for scores, _ in each])
        found = [answers for _, answers in each if answers is not None]
        self.answers = tuple(found) if len(found) == len(each) else ()
        self._capacity.append(learner.capacity())
        self._as_of.append(learner.capacity(as_of=name))
        self._seconds.append(seconds)
        return ResultMatrix.of(
            [known.name for known in self._known],
            {measure: self._matrix(measure) for measure in self._metrics or ()},
            capacity=self._capacity,
            as_of=self._as_of,
            seconds=self._seconds,
            source=self._source,
        )

    def _scored(self, learner: ContinualLearner, known: _ScoredTask) -> _Scored:
        """Of a network that is the same to the bit as when it was last scored, the scores of then:
        where nothing is forgotten, most of the time of scoring would go into such tasks.
        """
        last, served = self._last.get(known.name), _served_by(learner, known)
        if served and last is not None and last[0] == served:
            return last[1]
        found = scored(learner, known.name, known.test, kind=known.kind, outputs=known.outputs)
        self._last[known.name] = served, found
        return found

    def _matrix(self, measure: str) -> NDArray[np.float64]:
        matrix = np.full((len(self._rows), len(self._rows)), np.nan)
        for i, known in enumerate(self._rows):
            matrix[i, : i + 1] = [scores[measure] for scores in known]
        return matrix


def _served_by(learner: ContinualLearner, known: _ScoredTask) -> str:
    """A checksum of the network that serves a task, and of its answers to a few test rows; empty if
    the learner is none of ours, which may predict in any way.
    """
    if not isinstance(learner, Learner):
        return ""
    _, network = learner.predictor(known.name)
    x, _ = next(iter(known.test.batches(PROBE)))
    return digest_of({**network.tensors, "": _answers(learner, known.name, x, known.kind)})


def _predicted(
    learner: ContinualLearner, name: str, rows: Examples, kind: Kind
) -> tuple[NDArray[Any], NDArray[Any]]:
    labels, predicted = [], []
    for x, y in rows.batches(BATCH):
        labels.append(y.cpu())
        predicted.append(_answers(learner, name, x, kind))
    return torch.cat(labels).numpy(), torch.cat(predicted).numpy()


def _answers(learner: ContinualLearner, name: str, x: Tensor, kind: Kind) -> Tensor:
    if not kind.is_regression:
        return learner.predict_proba(x, task=name).detach().cpu()
    if not isinstance(learner, Predicts):
        raise TaskError(
            f"task {name!r} is a regression, but {type(learner).__name__} has no method "
            "predict to give its numbers"
        )
    return learner.predict(x, task=name).reshape(len(x), -1).detach().cpu()


def _check_predictions(
    name: str, shape: tuple[int, int], predicted: NDArray[Any], kind: Kind
) -> None:
    by, what = ("predict", "number") if kind.is_regression else ("predict_proba", "probability")
    if predicted.shape != shape:
        raise TaskError(
            f"task {name!r}: {by} must give one {what} for each row and output, "
            f"that is shape {shape}, not shape {predicted.shape}"
        )
    if not np.isfinite(predicted).all():
        raise TaskError(
            f"task {name!r}: {by} gave numbers that are not finite; learning has probably "
            "diverged: try a smaller learning rate"
        )


def _require_all_labels(known: _ScoredTask) -> None:
    labels = torch.cat([y for _, y in known.test.batches(BATCH)])
    if known.kind.is_regression:
        _require_spread(known.name, labels)
        return
    binary = known.kind is Kind.BINARY
    hits = labels if binary else torch.nn.functional.one_hot(labels, known.outputs)
    for column, share in enumerate(hits.float().mean(dim=0).tolist()):
        if share in (0.0, 1.0):
            what = "output" if binary else "class"
            raise TaskError(
                f"task {known.name!r}, test: {what} {column} holds for {'every' if share else 'no'}"
                " row, so that its AUROC is not defined; give test rows of it and of others"
            )


def _require_spread(name: str, labels: Tensor) -> None:
    for column, values in enumerate(labels.T):
        if bool((values == values[0]).all()):
            raise TaskError(
                f"task {name!r}, test: every label of output {column} is {float(values[0])}, so "
                "that its R2 is not defined; give test rows whose labels differ"
            )
