"""The parts of a training: passes over the rows, optimisers, and the best weights so far.

Each exposes its full state, so that a training can resume from a checkpoint.
"""

import math
from collections.abc import Iterator
from typing import Any, Protocol, final

import torch
from torch import Tensor
from torch.optim.adam import adam
from torch.optim.sgd import sgd

from lifelong.networks.layout import Tensors
from lifelong.training.budget import Budget


class Batches(Protocol):
    """Rows in batches of (input of the forward pass, labels), such as a task's `Examples`."""

    def __len__(self) -> int: ...

    def batches(
        self, size: int, generator: torch.Generator | None = None
    ) -> Iterator[tuple[Any, Tensor]]: ...


@final
class Passes:
    """Endless batches: pass after pass over the rows, reshuffled for each pass."""

    def __init__(self, rows: Batches, size: int, generator: torch.Generator) -> None:
        self._rows, self._size, self._generator = rows, size, generator
        self._current: Iterator[tuple[Any, Tensor]] = iter(())
        self.began = generator.get_state()
        self.consumed = 0

    def __next__(self) -> tuple[Any, Tensor]:
        batch = next(self._current, None)
        while batch is None:
            self._begin()
            batch = next(self._current, None)
        self.consumed += 1
        return batch

    @property
    def batch_rows(self) -> int:
        """Rows of the last batch, in all processes together."""
        return min(self._size, len(self._rows) - (self.consumed - 1) * self._size)

    def skip(self, count: int) -> None:
        """Advance by `count` batches."""
        for _ in range(count):
            next(self)

    def _begin(self) -> None:
        self.began = self._generator.get_state()
        self.consumed = 0
        self._current = self._rows.batches(self._size, self._generator)


class Optimizer(Protocol):
    """Moves tensors along their gradients."""

    def state(self) -> dict[str, Tensor]:
        """All that the next step depends on, besides the tensors."""
        ...

    def step(self, rate: float) -> None:
        """Move each tensor that has a gradient; a gradient of zeros may move by momentum only."""
        ...


def optimizer_for(budget: Budget, moving: Tensors, initial: Tensors | None = None) -> Optimizer:
    """The optimiser that the budget names; state that `initial` lacks is zero."""
    if budget.optimizer == "sgd":
        return SGD(moving, budget.momentum, initial)
    return Adam(moving, initial)


@final
class Adam:
    """Adam (Kingma and Ba, 2015) by PyTorch's fused kernel.

    The functional form: `torch.optim.Adam` looks up its options and the state of every tensor in
    each step, which for a small network takes as long as the arithmetic.
    """

    def __init__(self, moving: Tensors, initial: Tensors | None = None) -> None:
        def zeros() -> dict[str, Tensor]:
            return {name: torch.zeros_like(tensor.detach()) for name, tensor in moving.items()}

        self._means, self._squares = zeros(), zeros()
        self._taken = {name: torch.zeros((), device=t.device) for name, t in moving.items()}
        parts = (moving, self._means, self._squares, self._taken)
        self._each = list(zip(*(part.values() for part in parts), strict=True))
        _fill(self.state(), initial)

    def state(self) -> dict[str, Tensor]:
        """All that the next step depends on, as "mean/NAME", "square/NAME" and "taken/NAME"."""
        means, squares = under("mean", self._means), under("square", self._squares)
        return {**means, **squares, **under("taken", self._taken)}

    def step(self, rate: float) -> None:
        """Move each tensor that has a gradient."""
        moved = [each for each in self._each if each[0].grad is not None]
        if len(moved) < len(self._each):
            self._count_still_tensors()
        tensors, means, squares, taken = map(list, zip(*moved, strict=True))
        adam(
            tensors,
            [tensor.grad for tensor in tensors],
            means,
            squares,
            [],
            taken,
            fused=True,
            amsgrad=False,
            beta1=0.9,
            beta2=0.999,
            lr=rate,
            weight_decay=0.0,
            eps=1e-8,
            maximize=False,
        )

    def _count_still_tensors(self) -> None:
        """Tensors without a gradient count the step too."""
        for tensor, _, _, taken in self._each:
            if tensor.grad is None:
                taken += 1


@final
class SGD:
    """Stochastic gradient descent with momentum, by PyTorch's fused kernel."""

    def __init__(self, moving: Tensors, momentum: float, initial: Tensors | None = None) -> None:
        self._moving, self._momentum = moving, momentum
        self._sums = (
            {name: torch.zeros_like(tensor.detach()) for name, tensor in moving.items()}
            if momentum
            else {}
        )
        _fill(self.state(), initial)

    def state(self) -> dict[str, Tensor]:
        """The decaying sums of the gradients, as "momentum/NAME"; none without momentum."""
        return under("momentum", self._sums)

    def step(self, rate: float) -> None:
        moved = {name: t for name, t in self._moving.items() if t.grad is not None}
        sums: list[Tensor | None] = [self._sums.get(name) for name in moved]
        sgd(
            list(moved.values()),
            [gradient_of(tensor) for tensor in moved.values()],
            sums,
            fused=True,
            lr=rate,
            momentum=self._momentum,
            weight_decay=0.0,
            dampening=0.0,
            nesterov=False,
            maximize=False,
        )


def _fill(state: Tensors, initial: Tensors | None) -> None:
    for name, tensor in state.items():
        if initial is not None and name in initial:
            tensor.copy_(initial[name])


def gradient_of(tensor: Tensor) -> Tensor:
    """Gradient of a trainable tensor; zero if no loss depends on it."""
    if tensor.grad is None:
        tensor.grad = torch.zeros_like(tensor)
    return tensor.grad


@final
class Best:
    """The best state so far."""

    def __init__(self, state: Tensors) -> None:
        self._state = state
        self.kept = {name: tensor.clone() for name, tensor in state.items()}
        self.loss = math.inf

    def offer(self, loss: float) -> bool:
        if not loss < self.loss:
            return False
        self.loss = loss
        _copy(self._state, self.kept)
        return True

    def put_back(self) -> None:
        _copy(self.kept, self._state)


def _copy(sources: Tensors, targets: Tensors) -> None:
    for name, target in targets.items():
        target.copy_(sources[name])


def under(prefix: str, tensors: Tensors) -> dict[str, Tensor]:
    """The tensors with a prefix and a slash before every name."""
    return {f"{prefix}/{name}": tensor for name, tensor in tensors.items()}
