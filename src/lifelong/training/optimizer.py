"""What a training is made of: passes over its rows, the steps of Adam, the best weights so far.

Each can tell all that its next move depends on, so that a training can go on from a page.
"""

import math
from collections.abc import Iterator
from typing import Any, Protocol, final

import torch
from torch import Tensor

from lifelong.networks.layout import Tensors


class Batches(Protocol):
    """Rows, in batches of (what a forward pass takes, labels). `Examples` of a task are such."""

    def __len__(self) -> int: ...

    def batches(
        self, size: int, generator: torch.Generator | None = None
    ) -> Iterator[tuple[Any, Tensor]]: ...


@final
class Passes:
    """Batches without end: pass after pass over the rows, each in an order of its own."""

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

    def skip(self, count: int) -> None:
        """Be after so many batches of a pass that begins here."""
        for _ in range(count):
            next(self)

    def _begin(self) -> None:
        self.began = self._generator.get_state()
        self.consumed = 0
        self._current = self._rows.batches(self._size, self._generator)


@final
class Adam:
    """Adam (Kingma and Ba, 2015) by PyTorch's fused kernel.

    Called directly: `torch.optim.Adam` counts the steps of every tensor by itself and looks up its
    options each time, which for a small network takes as long as all of its arithmetic. Only where
    it goes on from what another one ended with, which may know some of the tensors, need they be
    counted apart.
    """

    def __init__(self, moving: Tensors, going_on: Tensors | None = None) -> None:
        def zeros() -> dict[str, Tensor]:
            return {name: torch.zeros_like(tensor.detach()) for name, tensor in moving.items()}

        self._means, self._squares = zeros(), zeros()
        counts = [torch.zeros((), device=tensor.device) for tensor in moving.values()]
        self._counts = counts[:1] if going_on is None else counts
        taken = counts[:1] * len(counts) if going_on is None else counts
        self._taken = dict(zip(moving, taken, strict=True))
        parts = (moving.values(), self._means.values(), self._squares.values())
        self._each = list(zip(*parts, taken, strict=True))
        for name, tensor in self.state().items():
            if going_on is not None and name in going_on:
                tensor.copy_(going_on[name])

    def state(self) -> dict[str, Tensor]:
        """All that the next step depends on, each name with that of its tensor behind a slash."""
        means, squares = under("mean", self._means), under("square", self._squares)
        return {**means, **squares, **under("taken", self._taken)}

    def step(self, rate: float) -> None:
        """Move each tensor that has a gradient."""
        moved = [
            (each[0], each[0].grad, *each[1:]) for each in self._each if each[0].grad is not None
        ]
        tensors, gradients, means, squares, taken = zip(*moved, strict=True)
        for count in self._counts:
            count += 1
        torch._fused_adam_(
            tensors,
            gradients,
            means,
            squares,
            [],
            taken,
            lr=rate,
            beta1=0.9,
            beta2=0.999,
            weight_decay=0.0,
            eps=1e-8,
            amsgrad=False,
            maximize=False,
        )


def gradient_of(tensor: Tensor) -> Tensor:
    """Of a tensor that moves; zero if no loss depends on it."""
    if tensor.grad is None:
        tensor.grad = torch.zeros_like(tensor)
    return tensor.grad


@final
class Best:
    """The best state so far. Only what moves is copied."""

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
    """With this in front of every name."""
    return {f"{prefix}/{name}": tensor for name, tensor in tensors.items()}
