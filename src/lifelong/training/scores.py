"""Masks over weights, found by training a score for each of them."""

from typing import Any, final

import numpy as np
import torch
from torch import Tensor

from lifelong.networks.layout import Architecture, Tensors, logits
from lifelong.tasks.examples import to_device
from lifelong.tasks.task import Task
from lifelong.training.loop import TaskObjective
from lifelong.training.losses import loss_of

SCORE = "score/"
_REFRESH = 20  # steps between two thresholds: to find one costs as much as a step


@final
class TopScores:
    """Scores of weights, whose largest share by size is a task's mask; a hook of its training.

    The mask passes the gradient of a weight on to its score, times the weight (straight-through).
    The threshold in training is that of a few steps ago; the mask that is kept, and that is
    validated, has the exact one.
    """

    def __init__(self, scores: Tensors, share: float) -> None:
        """Scores by the name of their weight, and the share of each tensor's entries to keep."""
        self._share = share
        self._thresholds = {name: threshold(score, share) for name, score in scores.items()}
        self._taken = torch.zeros(())

    def state(self) -> dict[str, Tensor]:
        return {**self._thresholds, "taken": self._taken}

    def before_step(self, tensors: Tensors) -> None:
        del tensors

    def after_step(self, tensors: Tensors) -> None:
        self._taken += 1
        if int(self._taken) % _REFRESH == 0:
            for name, limit in self._thresholds.items():
                limit.copy_(threshold(tensors[SCORE + name], self._share))

    def masked(self, tensors: Tensors) -> dict[str, Tensor]:
        """The tensors with masked weights, as the forward pass in training reads them."""
        found = {name: t for name, t in tensors.items() if not name.startswith(SCORE)}
        for name, limit in self._thresholds.items():
            found[name] = straight_through(
                tensors[name], tensors[SCORE + name], limit, by_size=True
            )
        return found

    def masks(self, tensors: Tensors) -> dict[str, Tensor]:
        """The exact masks."""
        scores = {name: tensors[SCORE + name] for name in self._thresholds}
        return {n: score.abs() >= threshold(score, self._share) for n, score in scores.items()}

    def kept(self, tensors: Tensors) -> dict[str, Tensor]:
        """The tensors with exactly masked weights."""
        found = {name: t for name, t in tensors.items() if not name.startswith(SCORE)}
        return {**found, **{n: found[n] * mask for n, mask in self.masks(tensors).items()}}

    def objective(
        self, architecture: Architecture, task: Task, device: torch.device
    ) -> TaskObjective:
        """The objective of a task over tensors and scores."""
        train, valid = (to_device(rows, device) for rows in (task.train, task.valid))
        return TaskObjective(
            lambda tensors, x: logits(architecture, self.masked(tensors), x),
            loss_of(task),
            train,
            valid,
            validated=lambda tensors, x: logits(architecture, self.kept(tensors), x),
            training=lambda tensors, x, generator: logits(
                architecture, self.masked(tensors), x, generator
            ),
        )


def threshold(score: Tensor, share: float) -> Tensor:
    """The size that this share of the scores has at least: one of them, or more."""
    sizes = score.detach().abs().flatten()
    place = len(sizes) - max(1, round(share * len(sizes)))
    if sizes.is_cuda:
        return sizes.kthvalue(place + 1).values
    return sizes.new_tensor(np.partition(sizes.numpy(), place)[place])  # a sixth of the time


def straight_through(weight: Tensor, score: Tensor, limit: Tensor, *, by_size: bool) -> Tensor:
    """The weight where its score, or the size of its score, is at least the limit; zero elsewhere.

    The gradient of the score is that of a weight that were the product of both.
    """
    found: Tensor = _StraightThrough.apply(weight, score, limit, by_size)  # type: ignore[no-untyped-call]
    return found


class _StraightThrough(torch.autograd.Function):
    """In place wherever a tensor is its own: to write to new memory takes twice the time."""

    @staticmethod
    def forward(ctx: Any, weight: Tensor, score: Tensor, limit: Tensor, by_size: bool) -> Tensor:
        # The mask has the numbers of the weights: bits would be converted.
        mask = (score.abs() if by_size else score.clone()).ge_(limit)
        ctx.save_for_backward(weight, score)
        ctx.by_size = by_size
        if not ctx.needs_input_grad[0]:
            return mask.mul_(weight)
        ctx.mask = mask
        return weight * mask

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, Tensor, None, None]:
        (gradient,) = gradients
        weight, score = ctx.saved_tensors
        of_weight = None
        if ctx.needs_input_grad[0]:
            of_weight = ctx.mask.mul_(gradient)
            del ctx.mask  # which it is no more
        if not ctx.by_size:
            return of_weight, gradient * weight, None, None
        return of_weight, score.sign().mul_(gradient).mul_(weight), None, None
