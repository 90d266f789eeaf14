"""How well a task is known, in numbers: every metric there is, in one table, without torch.

AUROC is the paper's measure. A binary task scores the mean over its outputs (subtasks), a task of
classes the mean over its classes, each against the rest. Accuracy is the share of right answers: of
binary outputs at a threshold of one half, of classes by the largest probability.

`register_metric` adds a metric, and so does an entry point of the group `lifelong.metrics`; each is
then computed in every run, stored with it, and shown by tables and reports.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypeAlias, final

import numpy as np
from numpy.typing import NDArray

from lifelong.plugins import Registry

# The kind of the task ("binary" or "classes"), its labels, and a row of probabilities for each.
Score: TypeAlias = Callable[[str, NDArray[Any], NDArray[Any]], float]


class MetricError(ValueError):
    """A name that is no metric's; the message suggests the nearest."""


@final
@dataclass(frozen=True)
class Metric:
    """One row of the table.

    Attributes:
        name: in stored runs.
        label: in tables and figures.
        score: of a task, from its kind, the labels and the probabilities; a finite number.
        higher_is_better: if not, tables mark it with an arrow.
    """

    name: str
    label: str
    score: Score
    higher_is_better: bool = True

    @property
    def heading(self) -> str:
        return self.label if self.higher_is_better else f"{self.label} ↓"


def auroc(kind: str, labels: NDArray[Any], probabilities: NDArray[Any]) -> float:
    """Mean area under the ROC curve: over the outputs, or over the classes against the rest."""
    from sklearn.metrics import roc_auc_score  # here and not above: who shows results need not wait

    hits = labels if kind == "binary" else labels[:, None] == np.arange(probabilities.shape[1])
    columns = zip(hits.T, probabilities.T, strict=True)
    return float(np.mean([roc_auc_score(truth, score) for truth, score in columns]))


def accuracy(kind: str, labels: NDArray[Any], probabilities: NDArray[Any]) -> float:
    """Share of right answers."""
    if kind == "binary":
        return float(((probabilities >= 0.5) == (labels == 1)).mean())
    return float((probabilities.argmax(axis=1) == labels).mean())


METRICS = Registry(
    "metric",
    Metric,
    MetricError,
    (Metric("auroc", "AUROC", auroc), Metric("accuracy", "accuracy", accuracy)),
)
register_metric = METRICS.add


def heading(name: str) -> str:
    """Of a metric in a table; its name where a stored run has one that is not known here."""
    return METRICS[name].heading if name in METRICS else name
