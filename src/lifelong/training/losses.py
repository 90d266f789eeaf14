"""Losses of tasks: those of their kinds, with weights of classes, or the user's own."""

from collections.abc import Callable, Mapping
from functools import partial
from typing import TypeAlias

import torch.nn.functional as F
from torch import Tensor

from lifelong.tasks.kinds import Kind
from lifelong.tasks.task import Task

Loss: TypeAlias = Callable[[Tensor, Tensor], Tensor]


def loss_of(about: Kind | Task) -> Loss:
    """The mean over rows and outputs: of the cross-entropy (over rows only under a softmax), or of
    the squared or absolute error of a regression; a task may weight its classes, or have its own.
    """
    if not isinstance(about, Task):
        return _LOSSES[about]
    if about.class_weights is not None:
        return partial(_WEIGHTED[about.kind], about.class_weights)
    return about.loss or _LOSSES[about.kind]


def _weighted_classes(weights: Tensor, outputs: Tensor, y: Tensor) -> Tensor:
    weights = weights.to(outputs.device)
    # Not the mean of `cross_entropy`, which divides by the weights that a batch happens to have.
    return F.cross_entropy(outputs, y, weight=weights, reduction="none").mean()


def _weighted_positives(weights: Tensor, outputs: Tensor, y: Tensor) -> Tensor:
    return F.binary_cross_entropy_with_logits(outputs, y, pos_weight=weights.to(outputs.device))


_WEIGHTED: Mapping[Kind, Callable[[Tensor, Tensor, Tensor], Tensor]] = {
    Kind.BINARY: _weighted_positives,
    Kind.CLASSES: _weighted_classes,
}


_LOSSES: Mapping[Kind, Loss] = {
    Kind.BINARY: F.binary_cross_entropy_with_logits,
    Kind.CLASSES: F.cross_entropy,
    Kind.REGRESSION: F.mse_loss,
    Kind.MEDIAN_REGRESSION: F.l1_loss,
}
