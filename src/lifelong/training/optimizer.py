"""What a training is made of: passes over its rows, the steps of Adam, the best weights so far.

Each can tell all that its next move depends on, so that a training can go on from a page.
"""

import math
from collections.abc import Iterator
from typing import Any, Protocol, final

import torch
from torch import Tensor
from torch.optim.adam import adam

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

    The functional form: `torch.optim.Adam` looks up its options and the state of every tensor each
    time, which for a small network takes as long as all of its arithmetic.
    """

    def __init__(self, moving: Tensors, going_on: Tensors | None = None) -> None:
        def zeros() -> dict[str, Tensor]:
            return {name: torch.zeros_like(tensor.detach()) for name, tensor in moving.items()}

        self._means, self._squares = zeros(), zeros()
        self._taken = {name: torch.zeros((), device=t.device) for name, t in moving.items()}
        parts = (moving, self._means, self._squares, self._taken)
        self._each = list(zip(*(part.values() for part in parts), strict=True))
        for name, tensor in self.state().items():
            if going_on is not None and name in going_on:
                tensor.copy_(going_on[name])

    def state(self) -> dict[str, Tensor]:
        """All that the next step depends on, each name with that of its tensor behind a slash."""
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
        """Every step counts for every tensor, whichever of them it moves."""
        for tensor, _, _, taken in self._each:
            if tensor.grad is None:
                taken += 1


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
