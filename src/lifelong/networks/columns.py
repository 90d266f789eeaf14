"""Progressive networks: one column per task, whose layers also read all earlier columns."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import final

import torch
from torch import Tensor

from lifelong.networks.layout import HEAD, Architecture, Axis, Tensors, apply_head
from lifelong.networks.sequential import Convolution, Linear, Sequential, layer_output


@final
@dataclass(frozen=True, eq=False)
class Columns:
    """The columns up to that of a task, whose head is read."""

    architecture: Architecture
    columns: tuple[Tensors, ...]

    @property
    def inputs(self) -> tuple[int, ...]:
        return self.architecture.layout.inputs

    @property
    def tensors(self) -> Tensors:
        return {
            f"{number}.{name}": tensor
            for number, column in enumerate(self.columns, 1)
            for name, tensor in column.items()
            if number == len(self.columns) or name not in HEAD
        }

    def with_tensors(self, tensors: Tensors) -> "Columns":
        """The same columns with other tensors, under the names of `tensors`."""
        columns: list[dict[str, Tensor]] = [{} for _ in self.columns]
        for name, tensor in tensors.items():
            number, _, own = name.partition(".")
            columns[int(number) - 1][own] = tensor
        return Columns(self.architecture, tuple(columns))

    def logits(self, x: Tensor, generator: torch.Generator | None = None) -> Tensor:
        """With a generator, the last column in training mode."""
        if isinstance(self.architecture, Sequential):
            return self._layer_by_layer(self.architecture, x)
        *earlier, last = self.columns
        features = [self.architecture.features(column, x) for column in earlier]
        features.append(self.architecture.features(last, x, generator))
        return apply_head(torch.cat(features, dim=1), last)

    def _layer_by_layer(self, architecture: Sequential, x: Tensor) -> Tensor:
        """Below the first weights all columns share one state."""
        states = [x]
        for layer in architecture.layers:
            if not isinstance(layer, Linear | Convolution):
                states = [layer_output(layer, {}, state) for state in states]
                continue
            below = [torch.cat(states[: number + 1], dim=1) for number in range(len(self.columns))]
            states = [
                layer_output(layer, column, read)
                for column, read in zip(self.columns, below, strict=True)
            ]
        return apply_head(torch.cat(states, dim=1), self.columns[-1])

    def multiply_adds(self) -> int:
        """Per row; the heads of earlier columns are not computed."""
        heads = sum(column[HEAD[0]].numel() for column in self.columns[:-1])
        return sum(self.architecture.multiply_adds(column) for column in self.columns) - heads


def column_shape(
    architecture: Architecture, born: Mapping[str, Tensor], number: int, name: str, outputs: int
) -> tuple[int, ...]:
    """Of a tensor of column `number`: it reads all columns so far, and computes its own units.

    Where columns meet at the head only, everything else reads its own column.
    """
    layout = architecture.layout
    lateral = isinstance(architecture, Sequential) or name in HEAD

    def units(axis: Axis) -> dict[str, int]:
        """Only of the groups on this axis: a network may have many."""
        stamps = {group: born[group] for group in axis.groups if group in born}
        before = 1 if axis.role == "in" and lateral else number
        return {g: int((at >= before).logical_and(at <= number).sum()) for g, at in stamps.items()}

    axes = layout.tensors[name].axes
    sizes = tuple(axis.size(layout.widths(units(axis), outputs)) for axis in axes)
    if isinstance(architecture, Sequential) or name != HEAD[0]:
        return sizes
    fixed = sum(
        s.size({}) for s in axes[1].segments if s.group is None
    )  # in each column's features
    return sizes[0], sizes[1] + (number - 1) * fixed
