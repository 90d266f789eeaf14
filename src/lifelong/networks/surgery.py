"""The only functions that change a shape: append, keep and duplicate units; gather and scatter.

All of them read what the tensors are declared to be and know nothing of layers.
"""

from collections.abc import Mapping
from dataclasses import replace

import torch
from torch import Tensor

from lifelong.networks.growing import Initialise, Network, enlarged
from lifelong.networks.layout import (
    NEW_TO_OLD,
    Layout,
    Region,
    Tensors,
    TensorSpec,
    Units,
    put,
    take,
)


def append_units(
    network: Network, counts: Mapping[str, int], number: int, make: Initialise
) -> Network:
    """A network with that many units more in each group, stamped with the task's number.

    The entries that touch a newcomer come from `make`; all others are what they were, and since
    units are appended, no earlier task's view has any of the new ones.
    """
    born = _stamped(network, counts, number)
    widths = {**network.widths, **{group: len(stamps) for group, stamps in born.items()}}
    grown = {
        name: enlarged(network.tensors[name], spec, network.widths, widths, make)
        for name, spec in network.architecture.layout.tensors.items()
    }
    return replace(network, tensors=grown, born=born)


def _stamped(network: Network, counts: Mapping[str, int], number: int) -> dict[str, Tensor]:
    return {
        group: torch.cat([stamps, torch.full((counts.get(group, 0),), number)])
        for group, stamps in network.born.items()
    }


def gather(network: Network, kept: Units) -> Network:
    """The network of these units, in this order, as small dense tensors: it costs what its size
    costs. A group that is not named keeps all.

    Inputs are selected like units; who feeds the subnetwork takes the same columns of the data.
    """
    born = {
        group: stamps[kept[group].cpu()] if group in kept else stamps
        for group, stamps in network.born.items()
    }
    return replace(network, tensors=_between(network, kept), born=born)


def scatter(network: Network, part: Network, selected: Units) -> Network:
    """The network with the entries of a gathered part put back in their places."""
    specs = network.architecture.layout.tensors
    tensors = {name: tensor.clone() for name, tensor in network.tensors.items()}
    for name, tensor in tensors.items():
        region = specs[name].region(network.widths, out=selected, into=selected)
        put(tensor, region, part.tensors[name])
    return replace(network, tensors=tensors)


def duplicate_units(network: Network, chosen: Units, number: int) -> Network:
    """A network with a second copy of these units appended, stamped with the task's number.

    A copy receives what its original receives and sends what it sends.
    """
    order = {
        group: torch.cat([torch.arange(network.width(group)), units.cpu()])
        for group, units in chosen.items()
    }
    born = _stamped(network, {group: len(units) for group, units in chosen.items()}, number)
    return replace(network, tensors=_between(network, order), born=born)


def _between(network: Network, units: Units) -> dict[str, Tensor]:
    specs = network.architecture.layout.tensors
    return {
        name: _own(take(tensor, specs[name].region(network.widths, out=units, into=units)), tensor)
        for name, tensor in network.tensors.items()
    }


def _own(part: Tensor, whole: Tensor) -> Tensor:
    """In memory of its own: where in memory a tensor starts may change how a product rounds."""
    shares = part.untyped_storage().data_ptr() == whole.untyped_storage().data_ptr()
    return part.clone() if shares and part is not whole else part


def older_units(network: Network, number: int) -> Units:
    """Those that were there before this task."""
    return {group: (born < number).nonzero().flatten() for group, born in network.born.items()}


def newer_units(network: Network, number: int) -> Units:
    """Those that were born with this task."""
    return {group: (born >= number).nonzero().flatten() for group, born in network.born.items()}


def newcomers(network: Network, number: int) -> dict[str, Tensor]:
    """The entries that touch a unit born with this task, in dense blocks: they cost their size.

    Under a tensor's name what newcomers receive (of a task's own tensors, everything), under its
    name and `NEW_TO_OLD` what older units receive from newcomers. A block without entries is left
    out.
    """
    blocks = {
        block: take(network.tensors[name], region).contiguous()
        for block, (name, region) in _blocks(network, number).items()
    }
    return {block: entries for block, entries in blocks.items() if entries.numel()}


def with_newcomers(network: Network, number: int, blocks: Tensors) -> Network:
    """The network with these blocks in their places."""
    tensors = {name: tensor.clone() for name, tensor in network.tensors.items()}
    for block, (name, region) in _blocks(network, number).items():
        if block in blocks:
            put(tensors[name], region, blocks[block])
    return replace(network, tensors=tensors)


def without_newcomers(network: Network, number: int) -> dict[str, Tensor]:
    """The entries between the units that are older than this task."""
    older, layout = older_units(network, number), network.architecture.layout
    return {
        name: take(
            tensor, layout.tensors[name].region(network.widths, out=older, into=older)
        ).contiguous()
        for name, tensor in network.tensors.items()
        if layout.tensors[name].owner == "shared"
    }


def spec_of(layout: Layout, block: str) -> TensorSpec:
    """What the tensor is that a block was taken from."""
    return layout.tensors[block.removesuffix(NEW_TO_OLD)]


def _blocks(network: Network, number: int) -> dict[str, tuple[str, Region]]:
    """Of each block the tensor and the place."""
    older, newer = older_units(network, number), newer_units(network, number)
    blocks: dict[str, tuple[str, Region]] = {}
    for name, spec in network.architecture.layout.tensors.items():
        if spec.owner == "task":
            blocks[name] = name, spec.region(network.widths)
            continue
        blocks[name] = name, spec.region(network.widths, out=newer)
        if spec.reads(network.born):
            blocks[name + NEW_TO_OLD] = (
                name,
                spec.region(network.widths, out=older, into=newer),
            )
    return blocks
