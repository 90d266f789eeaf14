"""A classifier of tables that keeps learning."""

import math
from collections.abc import Mapping, Sequence
from numbers import Real
from pathlib import Path
from typing import Any, ClassVar, Literal, Self

import numpy as np
from numpy.typing import NDArray
from sklearn.base import ClassifierMixin
from sklearn.metrics import accuracy_score
from sklearn.utils.class_weight import compute_sample_weight
from sklearn.utils.multiclass import check_classification_targets

from lifelong.estimator.base import Answers, LifelongEstimator
from lifelong.estimator.saved import Front, TaskFacts
from lifelong.networks.layout import Architecture
from lifelong.tables.frames import Column, TableError
from lifelong.tables.preparation import MOST_CATEGORIES, RAMPS, labels_as_values
from lifelong.tasks.kinds import Kind
from lifelong.training.budget import Budget, SettingError


class LifelongClassifier(ClassifierMixin, LifelongEstimator):  # type: ignore[misc]
    """Learns tables of labelled rows, one task after another, and forgets none.

    `fit` learns one task and forgets what was there; each `partial_fit` learns one more task.

    Args:
        method: name of a method, as `lifelong list` has them.
        network: widths of the hidden layers, or an architecture.
        settings: changes to the method's settings, by name.
        budget: of each training; the method's own by default.
        class_weight: "balanced", or a weight for each class.
        validation_share: of the rows, drawn by class, if none are given to validate on.
        categorical: columns of numbers that are categories.
        max_categories: of a column; rarer ones share a place.
        ramps: inputs that a column of numbers makes beside itself, so that steps and waves are easy
            to learn; none if there are more than 100 such columns, or with an architecture.
        unnamed: what rows without a task's name get: the task that is found, or the last one.
        random_state: seed of the training and of the validation rows; None is 0.
        device: to train and predict on.
        progress: whether to show a progress bar.

    Attributes:
        classes_: all classes, of all tasks.
        task_classes_: the classes of each task, by name.
        learner_: what has learned, with its network and records.
    """

    front: ClassVar[Front] = "classifier"

    def __init__(
        self,
        method: str = "DEN",
        *,
        network: Sequence[int] | Architecture = (64, 32),
        settings: Mapping[str, Any] | None = None,
        budget: Budget | None = None,
        class_weight: Literal["balanced"] | Mapping[Any, float] | None = None,
        validation_share: float = 0.2,
        categorical: Sequence[str] = (),
        max_categories: int = MOST_CATEGORIES,
        ramps: int = RAMPS,
        unnamed: Literal["find", "last"] = "find",
        random_state: int | None = 0,
        device: str = "cpu",
        progress: bool = False,
    ) -> None:
        super().__init__(
            method,
            network=network,
            settings=settings,
            budget=budget,
            validation_share=validation_share,
            categorical=categorical,
            max_categories=max_categories,
            ramps=ramps,
            unnamed=unnamed,
            random_state=random_state,
            device=device,
            progress=progress,
        )
        self.class_weight = class_weight

    def fit(
        self,
        X: Any,
        y: Any,
        sample_weight: Any = None,
        *,
        task: str | None = None,
        validation: tuple[Any, Any] | None = None,
        checkpoint: str | Path | None = None,
    ) -> Self:
        """Learn one task; whatever was learned before is dropped.

        Args:
            X: a frame of pandas, polars or Arrow, or an array, with rows first.
            y: one label per row: text, numbers or booleans.
            sample_weight: a weight per row.
            task: its name; "task 1" by default.
            validation: a pair (X, y) of rows to validate on, instead of drawing them.
            checkpoint: a directory from which a killed learning resumes.
        """
        return self._fit(
            X, y, sample_weight, task=task, validation=validation, checkpoint=checkpoint
        )

    def partial_fit(
        self,
        X: Any,
        y: Any,
        classes: Any = None,
        sample_weight: Any = None,
        *,
        task: str | None = None,
        validation: tuple[Any, Any] | None = None,
        checkpoint: str | Path | None = None,
    ) -> Self:
        """Learn one more task; arguments as in `fit`.

        Args:
            classes: all classes of the task, if some may not be among these rows.
        """
        return self._learn(
            X,
            y,
            sample_weight,
            task=task,
            validation=validation,
            checkpoint=checkpoint,
            classes=classes,
        )

    def predict(self, X: Any, *, task: str | None = None) -> Answers:
        """The class of each row, as it was in the labels of its task."""
        now = self._as_now()
        return self._joined(
            [
                (rows, now.task_classes_[name][_places(now._outputs(name, inputs))])
                for name, inputs, rows in now._by_task(X, task)
            ]
        )

    def predict_proba(self, X: Any, *, task: str | None = None) -> Answers:
        """The probability of each class: of those of the task named, else of all (`classes_`)."""
        now = self._as_now()
        parts = now._by_task(X, task)
        if task is not None:
            return _probabilities(now._outputs(task, parts[0][1]))
        everything = np.zeros((sum(len(rows) for *_, rows in parts), len(now.classes_)))
        places = {value: place for place, value in enumerate(now.classes_.tolist())}
        for name, inputs, rows in parts:
            columns = np.array([places[value] for value in now.task_classes_[name].tolist()])
            everything[np.ix_(rows, columns)] = _probabilities(now._outputs(name, inputs))
        return everything

    def predict_log_proba(self, X: Any, *, task: str | None = None) -> Answers:
        """Logarithms of `predict_proba`."""
        with np.errstate(divide="ignore"):
            return np.log(self.predict_proba(X, task=task))

    def decision_function(self, X: Any, *, task: str | None = None) -> Answers:
        """Outputs of the network: one per row of two classes, else one per class."""
        now = self._as_now()
        parts = now._by_task(X, task)
        if len({tuple(now.task_classes_[name]) for name, *_ in parts}) > 1:
            raise TableError(
                "decision_function: the rows belong to tasks of different classes; name one of "
                f"them by task=..., of {', '.join(map(repr, now.tasks))}"
            )
        found = self._joined([(rows, now._outputs(name, x)) for name, x, rows in parts])
        return found[:, 0] if found.shape[1] == 1 else found

    def score(self, X: Any, y: Any, sample_weight: Any = None, *, task: str | None = None) -> float:
        """Share of rows whose class is predicted."""
        return float(
            accuracy_score(np.asarray(y), self.predict(X, task=task), sample_weight=sample_weight)
        )

    def _tell_classes(self) -> None:
        known: dict[str, TaskFacts] = self.tasks_
        self.task_classes_ = {name: _array(facts) for name, facts in known.items()}
        every = [value for facts in known.values() for value in facts.classes or ()]
        self.classes_ = _sorted(list(dict.fromkeys(every)))

    def _joined(self, parts: list[tuple[NDArray[np.int64], Answers]]) -> Answers:
        """Answers in the order of the rows."""
        if len(parts) == 1:
            return parts[0][1]
        order = np.concatenate([rows for rows, _ in parts])
        kinds = {answers.dtype.kind for _, answers in parts}
        mixed = len(kinds) > 1 and bool(kinds & set("OU"))
        told = np.concatenate([a.astype(object) if mixed else a for _, a in parts])
        return np.asarray(told[np.argsort(order)])

    def _facts(self, labels: Column, classes: Any) -> TaskFacts:
        check_classification_targets(labels)
        found = np.unique(labels)
        if classes is not None:
            given = np.asarray(classes)
            if (given.dtype.kind in "OUS") != (found.dtype.kind in "OUS"):
                raise TableError(
                    f"classes are {given.tolist()}, but the labels are like {found[0]!r}; give "
                    "both as text or both as numbers"
                )
            found = np.union1d(found, given.astype(object) if found.dtype == object else given)
        if len(found) < 2:
            raise TableError(
                f"a task needs rows of two classes or more to tell apart, but there is one class: "
                f"{found[0]!r}"
            )
        return TaskFacts(tuple(labels_as_values(found)))

    def _check_parameters(self) -> None:
        super()._check_parameters()
        given = self.class_weight
        if given is None or (isinstance(given, str) and given == "balanced"):
            return
        numbers = given.values() if isinstance(given, Mapping) else ["none"]
        if not all(isinstance(n, Real) and 0 <= n < math.inf for n in numbers):
            raise SettingError(
                "class_weight must be None, 'balanced', or a number of 0 or more for each class, "
                f"such as {{'yes': 2.0}}, not {given!r}"
            )

    def _weights(self, labels: Column, given: Any, where: str) -> NDArray[np.float64] | None:
        weights = super()._weights(labels, given, where)
        if self.class_weight is None:
            return weights
        by_class = self.class_weight
        if by_class != "balanced":
            unknown = [value for value in by_class if value not in set(labels.tolist())]
            if unknown and len(unknown) == len(by_class):
                raise TableError(
                    f"{where}: class_weight names {unknown[0]!r}, but the classes are "
                    f"{', '.join(map(repr, np.unique(labels).tolist()))}"
                )
            by_class = {key: value for key, value in by_class.items() if key not in unknown}
        own = compute_sample_weight(by_class, labels)
        own = np.asarray(own if weights is None else own * weights, np.float64)
        if not own.any():
            raise TableError(f"{where}: class_weight leaves no row any weight: {by_class}")
        return own

    def _strata(self, labels: Column) -> Answers:
        return labels

    def _kind(self, facts: TaskFacts) -> Kind:
        if facts.classes is None:
            raise ValueError("a task of a classifier has classes")
        return Kind.BINARY if len(facts.classes) == 2 else Kind.CLASSES

    def _coded(self, labels: Column, facts: TaskFacts) -> Answers:
        return np.searchsorted(_array(facts), labels)


def _array(facts: TaskFacts) -> NDArray[Any]:
    return _sorted(list(facts.classes or ()))


def _sorted(values: list[Any]) -> NDArray[Any]:
    """Sorted, numbers before text; text as objects, so that a longer one can join."""
    order = sorted(values, key=lambda value: (isinstance(value, str), value))
    return np.array(order, dtype=object if any(isinstance(v, str) for v in order) else None)


def _places(outputs: Answers) -> NDArray[np.int64]:
    if outputs.shape[1] == 1:
        return (outputs[:, 0] >= 0).astype(np.int64)
    return np.asarray(outputs.argmax(axis=1))


def _probabilities(outputs: Answers) -> Answers:
    if outputs.shape[1] == 1:
        outputs = np.concatenate([np.zeros_like(outputs), outputs], axis=1)
    raised = np.exp(outputs - outputs.max(axis=1, keepdims=True))
    return np.asarray(raised / raised.sum(axis=1, keepdims=True))
