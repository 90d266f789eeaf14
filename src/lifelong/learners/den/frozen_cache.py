"""Newcomers beside older units, which are frozen while they train: at the cost of the newcomers.

Gradients are those of the newcomers' own entries. What newcomers cannot change is computed once for
each row and kept, if that takes no more memory than the inputs or than `KEEP`, whichever is more;
otherwise again for each batch.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from typing import TypeAlias, final

import torch
from torch import Tensor

from lifelong.networks.growing import Network
from lifelong.networks.layout import FrozenCache, Tensors, apply_head
from lifelong.networks.surgery import with_newcomers, without_newcomers
from lifelong.tasks.task import Examples, Kind, TensorExamples, in_batches
from lifelong.training.loop import TaskObjective, loss_of
from lifelong.training.optimizer import Batches

FrozenActivations: TypeAlias = tuple[Tensor, ...]
Freeze: TypeAlias = Callable[[Tensor], FrozenActivations]
CHUNK = 4096  # rows at once
KEEP = 2**28  # bytes


def newcomers_objective(
    network: Network, number: int, kind: Kind, train: Examples, valid: Examples
) -> TaskObjective:
    """What a task asks of the blocks that `surgery.newcomers` makes of a network."""
    architecture, loss = network.architecture, loss_of(kind)
    if not isinstance(architecture, FrozenCache):

        def merged(new: Tensors, x: Tensor) -> Tensor:
            return with_newcomers(network, number, new).logits(x)

        return TaskObjective(merged, loss, train, valid)
    old = without_newcomers(network, number)

    def forward(new: Tensors, read: tuple[Tensor, FrozenActivations]) -> Tensor:
        return apply_head(architecture.features_with_new(old, new, *read), new)

    freeze = partial(architecture.frozen_activations, old)
    return TaskObjective(forward, loss, _with_frozen(train, freeze), _with_frozen(valid, freeze))


def _with_frozen(rows: Examples, freeze: Freeze) -> Batches:
    """The same rows; their batches have inputs and what older units make of them."""
    kept = _keep(rows, freeze) if isinstance(rows, TensorExamples) else None
    return _Computed(rows, freeze) if kept is None else kept


def _keep(rows: TensorExamples, freeze: Freeze) -> "_Kept | None":
    with torch.no_grad():
        like = freeze(rows.x[:1])
        if len(rows) * sum(one.nbytes for one in like) > max(rows.x.nbytes, KEEP):
            return None
        kept = tuple(one.new_empty(len(rows), *one.shape[1:]) for one in like)
        for start in range(0, len(rows), CHUNK):
            for whole, part in zip(kept, freeze(rows.x[start : start + CHUNK]), strict=True):
                whole[start : start + CHUNK] = part
    return _Kept(rows, kept)


@final
@dataclass(frozen=True, eq=False)
class _Kept:
    rows: TensorExamples
    frozen_activations: FrozenActivations

    def __len__(self) -> int:
        return len(self.rows)

    def batches(
        self, size: int, generator: torch.Generator | None = None
    ) -> Iterator[tuple[tuple[Tensor, FrozenActivations], Tensor]]:
        columns = (self.rows.x, self.rows.y, *self.frozen_activations)
        for x, y, *frozen_activations in in_batches(columns, size, generator):
            yield (x, tuple(frozen_activations)), y


@final
@dataclass(frozen=True, eq=False)
class _Computed:
    rows: Examples
    freeze: Freeze

    def __len__(self) -> int:
        return len(self.rows)

    def batches(
        self, size: int, generator: torch.Generator | None = None
    ) -> Iterator[tuple[tuple[Tensor, FrozenActivations], Tensor]]:
        for x, y in self.rows.batches(size, generator):
            # Not yielded from within: who takes the batch would compute without gradients too.
            with torch.no_grad():
                frozen_activations = self.freeze(x)
            yield (x, frozen_activations), y
