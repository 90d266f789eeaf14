"""Methods whose tasks each use some of the weights of one network: masks, stored as bits."""

from abc import abstractmethod
from collections.abc import Iterator
from typing import Any, TypeVar, final

import numpy as np
import torch
from torch import Tensor

from lifelong.learners.baselines.views import ViewLearner
from lifelong.networks.growing import BITS, GrowingNetwork
from lifelong.networks.layout import Architecture, Tensors, logits
from lifelong.networks.masks import bytes_for, pack_bits, unpack_bits
from lifelong.networks.sharing import Sharing
from lifelong.records import BYTES
from lifelong.tasks.examples import to_device
from lifelong.tasks.task import Task
from lifelong.training.loop import TaskObjective
from lifelong.training.losses import loss_of

S = TypeVar("S")
SCORE = "score/"
_REFRESH = 20  # steps between two thresholds: to find one costs as much as a step


class SubnetworkLearner(ViewLearner[S]):
    """Base class: predicts for a task with the shared weights that its mask keeps."""

    @abstractmethod
    def _masks(self, network: GrowingNetwork, number: int) -> Tensors:
        """Per shared weight, the entries that task `number` uses."""

    @final
    def _weights(self, network: GrowingNetwork, number: int) -> Tensors:
        masks = self._masks(network, number)
        return {name: torch.where(masks[name], t, 0.0) for name, t in network.shared.items()}

    @final
    def _stored_bytes(self) -> int:
        """Without the weights that no task uses: the masks say which these are, and predictions do
        not need them.
        """
        unused = sum(int((~used).sum()) for used in self._used_so_far().values())
        return super()._stored_bytes() - BYTES * unused

    @final
    def sharing_of_weights(self) -> Sharing:
        """Which entries of each shared tensor each task uses."""
        network = self.network
        by_task = [self._masks(network, number) for number in range(1, len(self.tasks) + 1)]
        used = {name: torch.stack([m[name].flatten() for m in by_task]) for name in network.shared}
        return Sharing(self.tasks, used)

    @final
    def _used_so_far(self) -> dict[str, Tensor]:
        """Per shared weight, the entries that any task uses."""
        used = {n: torch.zeros_like(t, dtype=torch.bool) for n, t in self.network.shared.items()}
        for number in range(1, len(self.tasks) + 1):
            for name, mask in self._masks(self.network, number).items():
                used[name] |= mask
        return used


def pack_masks(number: int, masks: Tensors) -> dict[str, Tensor]:
    """The masks of a task as they are kept in a network's memory."""
    return {_bits(number, name): pack_bits(mask) for name, mask in masks.items()}


def unpack_masks(network: GrowingNetwork, number: int) -> dict[str, Tensor]:
    """The masks of a task from a network's memory."""
    return {
        name: unpack_bits(network.memory[_bits(number, name)], tuple(tensor.shape))
        for name, tensor in network.shared.items()
    }


def packed_shapes(network: GrowingNetwork, first: int = 1) -> Iterator[tuple[str, tuple[int, ...]]]:
    """Names and shapes of the packed masks of all tasks from the first that has any."""
    for number in range(first, len(network.tasks) + 1):
        for name, tensor in network.shared.items():
            yield _bits(number, name), (bytes_for(tensor.numel()),)


def _bits(number: int, name: str) -> str:
    return f"{BITS}{number}/{name}"


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
