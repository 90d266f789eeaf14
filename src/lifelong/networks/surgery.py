"""The only functions that change a shape: append, keep and duplicate units; gather and scatter.

All of them work on the axes of named tensors and know nothing of layers.
"""

from collections.abc import Mapping
from dataclasses import replace
from typing import TypeAlias

import torch
from torch import Tensor

from lifelong.networks.growing import Initialise, Network, prefix
from lifelong.networks.sequential import HEAD, NEW_TO_OLD, Axes, Axis, Tensors

Units: TypeAlias = Mapping[str, Tensor]  # for each group, indices of some of its units


def append_units(
    network: Network, counts: Mapping[str, int], number: int, make: Initialise
) -> Network:
    """A network with that many units more in each group, stamped with the task's number.

    The entries that touch a newcomer come from `make`; all others are what they were, and since
    units are appended, no earlier task's view has any of the new ones.
    """
    born = {
        group: torch.cat([stamps, torch.full((counts.get(group, 0),), number)])
        for group, stamps in network.born.items()
    }
    grown = {
        name: _enlarge(network.tensors[name], axes, born, make)
        for name, axes in network.architecture.axes.items()  # the order of random draws
    }
    return replace(network, tensors=grown, born=born)


def _enlarge(tensor: Tensor, axes: Axes, born: Mapping[str, Tensor], make: Initialise) -> Tensor:
    size = [
        len(born[axis.group]) * axis.span if axis is not None and axis.group in born else old
        for axis, old in zip(axes, tensor.shape, strict=True)
    ]
    if size == list(tensor.shape):
        return tensor
    grown = make(axes, tuple(size))
    grown[tuple(slice(old) for old in tensor.shape)] = tensor
    return grown


def keep_units(network: Network, kept: Units) -> Network:
    """A network with only these units, in this order; a group that is not named keeps all."""
    born = {
        group: stamps[kept[group].cpu()] if group in kept else stamps
        for group, stamps in network.born.items()
    }
    return replace(network, tensors=_index(network, kept), born=born)


def duplicate_units(network: Network, chosen: Units, number: int) -> Network:
    """A network with a second copy of these units appended, stamped with the task's number.

    A copy receives what its original receives and sends what it sends.
    """
    order = {
        group: torch.cat([torch.arange(network.width(group), device=units.device), units])
        for group, units in chosen.items()
    }
    born = {
        group: torch.cat([stamps, torch.full((len(chosen.get(group, ())),), number)])
        for group, stamps in network.born.items()
    }
    return replace(network, tensors=_index(network, order), born=born)


def gather(network: Network, selected: Units) -> Network:
    """The subnetwork of these units, as small dense tensors: it costs what its size costs.

    Inputs are selected like units; who feeds the subnetwork takes the same columns of the data.
    """
    return keep_units(network, selected)


def scatter(network: Network, part: Network, selected: Units) -> Network:
    """The network with the entries of a gathered part put back in their places."""
    tensors = {
        name: _put(tensor, part.tensors[name], network.architecture.axes[name], selected)
        for name, tensor in network.tensors.items()
    }
    return replace(network, tensors=tensors)


def newcomers(network: Network, number: int) -> dict[str, Tensor]:
    """The entries that touch a unit born with this task, in dense blocks: they cost their size.

    Under a tensor's name what newcomers receive (the head all that it has), under its name and
    `NEW_TO_OLD` what older units receive from newcomers. A block without entries is left out.
    """
    blocks = {
        f"{name}{mark}": tensor[place].contiguous()
        for name, tensor in network.tensors.items()
        for mark, place in _blocks(network, name, number).items()
    }
    return {name: block for name, block in blocks.items() if block.numel()}


def with_newcomers(network: Network, number: int, blocks: Tensors) -> Network:
    """The network with these blocks in their places."""
    tensors = {name: tensor.clone() for name, tensor in network.tensors.items()}
    for name, tensor in tensors.items():
        for mark, place in _blocks(network, name, number).items():
            if f"{name}{mark}" in blocks:
                tensor[place] = blocks[f"{name}{mark}"]
    return replace(network, tensors=tensors)


def without_newcomers(network: Network, number: int) -> dict[str, Tensor]:
    """The weights between the units that are older than this task."""
    older = {group: stamps[stamps < number] for group, stamps in network.born.items()}
    return {
        name: prefix(tensor, network.architecture.axes[name], older).contiguous()
        for name, tensor in network.tensors.items()
        if name not in HEAD
    }


def _blocks(network: Network, name: str, number: int) -> dict[str, tuple[slice, ...]]:
    """Where the two blocks of a tensor are. Units are appended, so newcomers come last."""
    older = {
        axis.receives: int((network.born[axis.group] < number).sum()) * axis.span
        for axis in network.architecture.axes[name]
        if axis is not None and axis.group in network.born
    }
    rows = older.get(True, 0)  # nobody receives in a head: all of it is new
    blocks: dict[str, tuple[slice, ...]] = {"": (slice(rows, None),)}
    if False in older:
        blocks[NEW_TO_OLD] = (slice(rows), slice(older[False], None))
    return blocks


def positions(units: Tensor, axis: Axis) -> Tensor:
    """Where these units lie on an axis, which gives each of them `span` neighbouring places."""
    if axis.span == 1:
        return units
    return (units[:, None] * axis.span + torch.arange(axis.span, device=units.device)).flatten()


def _index(network: Network, order: Units) -> dict[str, Tensor]:
    return {
        name: _take(tensor, network.architecture.axes[name], order)
        for name, tensor in network.tensors.items()
    }


def _take(tensor: Tensor, axes: Axes, order: Units) -> Tensor:
    for dim, axis in enumerate(axes):
        if axis is not None and axis.group in order:
            tensor = tensor.index_select(dim, positions(order[axis.group], axis).to(tensor.device))
    return tensor


def _put(tensor: Tensor, part: Tensor, axes: Axes, selected: Units) -> Tensor:
    places = [
        positions(selected[axis.group], axis).to(tensor.device)
        if axis is not None and axis.group in selected
        else torch.arange(size, device=tensor.device)
        for axis, size in zip(axes, tensor.shape, strict=True)
    ]
    whole = tensor.clone()
    whole[torch.meshgrid(*places, indexing="ij")] = part
    return whole
