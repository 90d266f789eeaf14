"""Training newcomers while older units are frozen, at the cost of the newcomers only.

Activations that do not depend on newcomers are computed once per row and cached, if they take no
more memory than the inputs or `KEEP`, whichever is more; otherwise again for each batch.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from typing import TypeAlias, final

import torch
from torch import Tensor

from lifelong.networks.growing import Network
from lifelong.networks.layout import FrozenCache, Normalising, Tensors, apply_head, logits
from lifelong.networks.surgery import older_units, with_newcomers, without_newcomers
from lifelong.tasks.examples import Examples, TensorExamples, in_batches
from lifelong.tasks.task import Task
from lifelong.training.loop import TaskObjective
from lifelong.training.losses import loss_of
from lifelong.training.optimizer import Batches

FrozenActivations: TypeAlias = tuple[Tensor, ...]
Freeze: TypeAlias = Callable[[Tensor], FrozenActivations]
CHUNK = 4096  # rows at once
KEEP = 2**28  # bytes


def newcomers_objective(
    network: Network, number: int, task: Task, train: Examples, valid: Examples
) -> TaskObjective:
    """The objective of a task as a function of the blocks of `surgery.newcomers`."""
    architecture, loss = network.architecture, loss_of(task)
    if not isinstance(architecture, FrozenCache):
        forward_merged = _merged(network, number)
        return TaskObjective(forward_merged, loss, train, valid, training=forward_merged)
    old = without_newcomers(network, number)

    def forward(new: Tensors, read: tuple[Tensor, FrozenActivations]) -> Tensor:
        return apply_head(architecture.features_with_new(old, new, *read), new)

    freeze = partial(architecture.frozen_activations, old)
    return TaskObjective(forward, loss, _with_frozen(train, freeze), _with_frozen(valid, freeze))


def _merged(network: Network, number: int) -> Callable[..., Tensor]:
    """Outputs by blocks that are written into the network in each step.

    Older units are normalised by their running statistics in training too: they are as they will be
    in predictions, and do not depend on who else is in the batch.
    """
    architecture, held = network.architecture, older_statistics(network, number)
    normalising = architecture if held and isinstance(architecture, Normalising) else None

    def forward(new: Tensors, x: Tensor, generator: torch.Generator | None = None) -> Tensor:
        tensors = with_newcomers(network, number, new).tensors
        # Not copies of the statistics: they are updated in place.
        tensors = {**tensors, **{name: new[name] for name in architecture.layout.buffers}}
        if generator is None or normalising is None:
            return logits(architecture, tensors, x, generator)
        return apply_head(normalising.features_holding(held, tensors, x, generator), tensors)

    return forward


def older_statistics(network: Network, number: int) -> Tensors:
    """By the name of a statistic of units, which of them belong to older units."""
    older, layout = older_units(network, number), network.architecture.layout
    marks = {}
    for name in layout.buffers:
        axis = layout.tensors[name].axes[0]
        marks[name] = torch.zeros(axis.size(network.widths), dtype=torch.bool)
        marks[name][axis.places(older, network.widths)] = True
    return {name: mark.to(network.device) for name, mark in marks.items()}


def _with_frozen(rows: Examples, freeze: Freeze) -> Batches:
    """The same rows; each batch holds inputs and frozen activations."""
    cached = _cache(rows, freeze) if isinstance(rows, TensorExamples) else None
    return _Computed(rows, freeze) if cached is None else cached


def _cache(rows: TensorExamples, freeze: Freeze) -> "_Cached | None":
    with torch.no_grad():
        like = freeze(rows.x[:1])
        count = len(rows.x)
        if count * sum(one.nbytes for one in like) > max(rows.x.nbytes, KEEP):
            return None
        cached = tuple(one.new_empty(count, *one.shape[1:]) for one in like)
        for start in range(0, count, CHUNK):
            for whole, part in zip(cached, freeze(rows.x[start : start + CHUNK]), strict=True):
                whole[start : start + CHUNK] = part
    return _Cached(rows, cached)


@final
@dataclass(frozen=True, eq=False)
class _Cached:
    rows: TensorExamples
    frozen_activations: FrozenActivations

    def __len__(self) -> int:
        return len(self.rows)

    def batches(
        self, size: int, generator: torch.Generator | None = None
    ) -> Iterator[tuple[tuple[Tensor, FrozenActivations], Tensor]]:
        columns = (self.rows.x, self.rows.y, *self.frozen_activations)
        for x, y, *frozen_activations in in_batches(columns, size, generator, self.rows.shard):
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
            # The yield is outside: inside, the caller would run without gradients too.
            with torch.no_grad():
                frozen_activations = self.freeze(x)
            yield (x, frozen_activations), y
