"""A regressor of tables that keeps learning."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar, Literal, Self

import numpy as np
from sklearn.base import RegressorMixin
from sklearn.metrics import r2_score

from lifelong.estimator.base import Answers, LifelongEstimator
from lifelong.estimator.rows import by_size
from lifelong.estimator.saved import Front, TaskFacts
from lifelong.networks.layout import Architecture
from lifelong.tables.frames import Column, TableError
from lifelong.tables.preparation import MOST_CATEGORIES, RAMPS
from lifelong.tasks.kinds import Kind
from lifelong.training.budget import Budget, require_one_of

_KINDS = {"squared_error": Kind.REGRESSION, "absolute_error": Kind.MEDIAN_REGRESSION}


class LifelongRegressor(RegressorMixin, LifelongEstimator):  # type: ignore[misc]
    """Learns to predict numbers from tables, one task after another, and forgets none.

    Parameters as of `LifelongClassifier`; `loss` is "squared_error" (predicts the mean) or
    "absolute_error" (the median). Labels are scaled, by the mean and standard deviation of each
    task's own.
    """

    front: ClassVar[Front] = "regressor"

    def __init__(
        self,
        method: str = "DEN",
        *,
        loss: Literal["squared_error", "absolute_error"] = "squared_error",
        network: Sequence[int] | Architecture = (64, 32),
        settings: Mapping[str, Any] | None = None,
        budget: Budget | None = None,
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
        self.loss = loss

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
        """Learn one task, as `LifelongClassifier.fit`; y has one number per row."""
        return self._fit(
            X, y, sample_weight, task=task, validation=validation, checkpoint=checkpoint
        )

    def partial_fit(
        self,
        X: Any,
        y: Any,
        sample_weight: Any = None,
        *,
        task: str | None = None,
        validation: tuple[Any, Any] | None = None,
        checkpoint: str | Path | None = None,
    ) -> Self:
        """Learn one more task."""
        return self._learn(
            X, y, sample_weight, task=task, validation=validation, checkpoint=checkpoint
        )

    def predict(self, X: Any, *, task: str | None = None) -> Answers:
        """A number for each row, in the unit of the labels."""
        now = self._as_now()
        parts = now._by_task(X, task)
        told = np.empty(sum(len(rows) for *_, rows in parts))
        for name, inputs, rows in parts:
            facts = now.tasks_[name]
            told[rows] = facts.center + facts.spread * now._outputs(name, inputs)[:, 0]
        return told

    def score(self, X: Any, y: Any, sample_weight: Any = None, *, task: str | None = None) -> float:
        """R2: the share of the variance of y that is explained."""
        return float(
            r2_score(np.asarray(y), self.predict(X, task=task), sample_weight=sample_weight)
        )

    def _check_parameters(self) -> None:
        super()._check_parameters()
        require_one_of("loss", self.loss, tuple(_KINDS))

    def _facts(self, labels: Column, classes: Any) -> TaskFacts:
        del classes  # of classifiers only
        if labels.dtype == object:
            odd = next(value for value in labels if isinstance(value, str))
            raise TableError(
                f"y of a regressor must be numbers, but {odd!r} is among them; "
                "LifelongClassifier learns text"
            )
        numbers = labels.astype(np.float64)
        with np.errstate(over="ignore", invalid="ignore"):
            spread = float(numbers.std())
        if not np.isfinite(spread):
            largest = float(np.abs(numbers).max())
            raise TableError(f"y: numbers up to {largest:.3g} are too large to be scaled")
        return TaskFacts(center=float(numbers.mean()), spread=spread if spread > 0 else 1.0)

    def _strata(self, labels: Column) -> Answers:
        return by_size(labels)

    def _kind(self, facts: TaskFacts) -> Kind:
        if facts.classes is not None:
            raise ValueError("a task of a regressor has no classes")
        return _KINDS[self.loss]

    def _coded(self, labels: Column, facts: TaskFacts) -> Answers:
        return (labels.astype(np.float64) - facts.center) / facts.spread
