"""The table of metrics, without torch.

AUROC is the paper's metric. A binary task scores the mean over its outputs (subtasks), a task of
classes the mean over its classes, each against the rest. Accuracy is the share of correct
predictions: a threshold of one half for binary outputs, the largest probability for classes. A
regression has two metrics of its own: R2, the mean over its outputs of the share of the variance
that is explained, and RMSE, the root of the mean squared error.

`register_metric` and entry points of the group `lifelong.metrics` add metrics; each is then
computed in every run, stored with it, and shown by tables and reports.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypeAlias, final

import numpy as np
from numpy.typing import NDArray

from lifelong.plugins import Registry

CLASSIFICATION = ("binary", "classes")
REGRESSION = ("regression", "median regression")

# Arguments: the kind of the task, its labels, and per row its probabilities, or the numbers that a
# regression predicts.
Score: TypeAlias = Callable[[str, NDArray[Any], NDArray[Any]], float]


class MetricError(ValueError):
    """An unknown metric; the message suggests the nearest name."""


@final
@dataclass(frozen=True)
class Metric:
    """One row of the table.

    Attributes:
        name: in stored runs.
        label: in tables and figures.
        score: computes a finite number from the task's kind, labels and probabilities.
        higher_is_better: if not, tables mark it with an arrow.
        kinds: the kinds of tasks that it scores.
    """

    name: str
    label: str
    score: Score
    higher_is_better: bool = True
    kinds: tuple[str, ...] = CLASSIFICATION

    @property
    def heading(self) -> str:
        return self.label if self.higher_is_better else f"{self.label} ↓"


def auroc(kind: str, labels: NDArray[Any], probabilities: NDArray[Any]) -> float:
    """Mean area under the ROC curve: over the outputs, or over the classes against the rest."""
    from sklearn.metrics import (
        roc_auc_score,
    )  # slow to import

    hits = labels if kind == "binary" else labels[:, None] == np.arange(probabilities.shape[1])
    columns = zip(hits.T, probabilities.T, strict=True)
    return float(np.mean([roc_auc_score(truth, score) for truth, score in columns]))


def accuracy(kind: str, labels: NDArray[Any], probabilities: NDArray[Any]) -> float:
    """Share of correct predictions."""
    if kind == "binary":
        return float(((probabilities >= 0.5) == (labels == 1)).mean())
    return float((probabilities.argmax(axis=1) == labels).mean())


def r2(_kind: str, labels: NDArray[Any], predicted: NDArray[Any]) -> float:
    """Mean over the outputs of 1 - squared error / variance."""
    truth = labels.astype(np.float64)
    error = np.square(truth - predicted).sum(axis=0)
    return float(np.mean(1 - error / np.square(truth - truth.mean(axis=0)).sum(axis=0)))


def rmse(_kind: str, labels: NDArray[Any], predicted: NDArray[Any]) -> float:
    """Root of the mean squared error over rows and outputs."""
    return float(np.sqrt(np.square(labels.astype(np.float64) - predicted).mean()))


METRICS = Registry(
    "metric",
    Metric,
    MetricError,
    (
        Metric("auroc", "AUROC", auroc),
        Metric("accuracy", "accuracy", accuracy),
        Metric("r2", "R2", r2, kinds=REGRESSION),
        Metric("rmse", "RMSE", rmse, higher_is_better=False, kinds=REGRESSION),
    ),
)
register_metric = METRICS.add


def metrics_for(kind: str) -> dict[str, Metric]:
    """The metrics that score tasks of this kind, by name."""
    return {name: metric for name, metric in METRICS.items() if kind in metric.kinds}


def heading(name: str) -> str:
    """Heading of a metric in a table; the name itself if the metric is not registered."""
    return METRICS[name].heading if name in METRICS else name
