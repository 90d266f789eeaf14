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
import torch.nn.functional as F
from torch import Tensor

from lifelong.network import Network
from lifelong.skeleton import HEAD, Tensors
from lifelong.solve import Rehearsal, loss_of
from lifelong.stepping import Batches
from lifelong.surgery import without_newcomers
from lifelong.tasks import Kind, Rows, TensorRows, in_batches

Settled: TypeAlias = tuple[Tensor, ...]
Settle: TypeAlias = Callable[[Tensor], Settled]
CHUNK = 4096  # rows at once
KEEP = 2**28  # bytes


def ask_newcomers(network: Network, number: int, kind: Kind, train: Rows, valid: Rows) -> Rehearsal:
    """What a task asks of the blocks that `surgery.newcomers` makes of a network."""
    skeleton, old = network.skeleton, without_newcomers(network, number)

    def forward(new: Tensors, read: tuple[Tensor, Settled]) -> Tensor:
        features = skeleton.features_beside(old, new, *read)
        return F.linear(features, *(new[name] for name in HEAD))

    settle = partial(skeleton.settled, old)
    return Rehearsal(forward, loss_of(kind), _beside(train, settle), _beside(valid, settle))


def _beside(rows: Rows, settle: Settle) -> Batches:
    """The same rows; their batches have inputs and what older units make of them."""
    kept = _keep(rows, settle) if isinstance(rows, TensorRows) else None
    return _Computed(rows, settle) if kept is None else kept


def _keep(rows: TensorRows, settle: Settle) -> "_Kept | None":
    with torch.no_grad():
        like = settle(rows.x[:1])
        if len(rows) * sum(one.nbytes for one in like) > max(rows.x.nbytes, KEEP):
            return None
        kept = tuple(one.new_empty(len(rows), *one.shape[1:]) for one in like)
        for start in range(0, len(rows), CHUNK):
            for whole, part in zip(kept, settle(rows.x[start : start + CHUNK]), strict=True):
                whole[start : start + CHUNK] = part
    return _Kept(rows, kept)


@final
@dataclass(frozen=True, eq=False)
class _Kept:
    rows: TensorRows
    settled: Settled

    def __len__(self) -> int:
        return len(self.rows)

    def batches(
        self, size: int, generator: torch.Generator | None = None
    ) -> Iterator[tuple[tuple[Tensor, Settled], Tensor]]:
        columns = (self.rows.x, self.rows.y, *self.settled)
        for x, y, *settled in in_batches(columns, size, generator):
            yield (x, tuple(settled)), y


@final
@dataclass(frozen=True, eq=False)
class _Computed:
    rows: Rows
    settle: Settle

    def __len__(self) -> int:
        return len(self.rows)

    def batches(
        self, size: int, generator: torch.Generator | None = None
    ) -> Iterator[tuple[tuple[Tensor, Settled], Tensor]]:
        for x, y in self.rows.batches(size, generator):
            # Not yielded from within: who takes the batch would compute without gradients too.
            with torch.no_grad():
                settled = self.settle(x)
            yield (x, settled), y
