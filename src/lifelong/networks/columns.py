"""Progressive networks: one column per task, whose layers also read all earlier columns."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import final

import torch
from torch import Tensor

from lifelong.networks.layout import HEAD, Architecture, Axis, Layout, Tensors, apply_head
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

    def logits(self, x: Tensor) -> Tensor:
        """Computes all columns layer by layer; below the first weights they share one state."""
        states = [x]
        for layer in _sequential(self.architecture).layers:
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
    layout: Layout, born: Mapping[str, Tensor], number: int, name: str, outputs: int
) -> tuple[int, ...]:
    """Of a tensor of column `number`: it reads all columns so far, and computes its own units."""

    def units(axis: Axis) -> dict[str, int]:
        """Only of the groups on this axis: a network may have many."""
        stamps = {group: born[group] for group in axis.groups if group in born}
        before = number if axis.role == "out" else 1
        return {g: int((at >= before).logical_and(at <= number).sum()) for g, at in stamps.items()}

    axes = layout.tensors[name].axes
    return tuple(axis.size(layout.widths(units(axis), outputs)) for axis in axes)


def _sequential(architecture: Architecture) -> Sequential:
    if not isinstance(architecture, Sequential):
        raise TypeError(f"columns are made of mlp or convnet, not of {architecture!r}")
    return architecture
