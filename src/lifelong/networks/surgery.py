"""The only functions that change shapes: append and duplicate units, gather and scatter.

They read the declarations of the tensors, and work for any layers.
"""

from collections.abc import Mapping
from dataclasses import replace

import torch
from torch import Tensor

from lifelong.networks.growing import Network
from lifelong.networks.initial import Initialise, enlarged
from lifelong.networks.layout import (
    FIXED,
    INPUTS,
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
    """The network with `counts` more units per group, stamped with the task's number.

    Entries that touch a newcomer come from `make`; all others are unchanged, so views as of
    earlier tasks are too.
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
    """The subnetwork of these units, in this order, as dense tensors. A group that is not named
    keeps all its units.

    Inputs are selected like units; the caller must select the same columns of the data.
    """
    born = {
        group: stamps[kept[group].cpu()] if group in kept else stamps
        for group, stamps in network.born.items()
    }
    return replace(network, tensors=_between(network, kept), born=born)


def scatter(network: Network, part: Network, selected: Units) -> Network:
    """The network with the entries of a gathered part written back."""
    specs = network.architecture.layout.tensors
    tensors = {name: tensor.clone() for name, tensor in network.tensors.items()}
    for name, tensor in tensors.items():
        region = specs[name].region(network.widths, out=selected, into=selected)
        put(tensor, region, part.tensors[name])
    return replace(network, tensors=tensors)


def duplicate_units(network: Network, chosen: Units, number: int) -> Network:
    """The network with copies of these units appended, stamped with the task's number.

    A copy has the incoming and outgoing weights of its original.
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
    """Clone views, because the memory alignment of a tensor may affect rounding."""
    shares = part.untyped_storage().data_ptr() == whole.untyped_storage().data_ptr()
    return part.clone() if shares and part is not whole else part


def older_units(network: Network, number: int) -> Units:
    """Units born before this task."""
    return {group: (born < number).nonzero().flatten() for group, born in network.born.items()}


def newer_units(network: Network, number: int) -> Units:
    """Units born with this task; places that belong to no unit, and inputs, are older."""
    newer = {group: (born >= number).nonzero().flatten() for group, born in network.born.items()}
    return only(newer)


def only(units: Units) -> Units:
    """These units, and on the same axis neither inputs nor places that belong to no unit."""
    nothing = torch.arange(0)
    return {FIXED: nothing, INPUTS: nothing, **units}


def newcomers(network: Network, number: int) -> dict[str, Tensor]:
    """The entries that touch a unit born with this task, as dense blocks.

    A tensor's name stands for what newcomers receive (for a task's own tensors, everything); its
    name with `NEW_TO_OLD` for what older units receive from newcomers. Empty blocks are left out.
    """
    blocks = {
        block: take(network.tensors[name], region).contiguous()
        for block, (name, region) in _blocks(network, number).items()
    }
    return {block: entries for block, entries in blocks.items() if entries.numel()}


def with_newcomers(network: Network, number: int, blocks: Tensors) -> Network:
    """The network with these blocks written back."""
    placed = {b: at for b, at in _blocks(network, number).items() if b in blocks}
    written = {name for name, _ in placed.values()}
    tensors = {n: t.clone() if n in written else t for n, t in network.tensors.items()}
    for block, (name, region) in placed.items():
        put(tensors[name], region, blocks[block])
    return replace(network, tensors=tensors)


def without_newcomers(network: Network, number: int) -> dict[str, Tensor]:
    """The entries between units born before this task."""
    older, layout = older_units(network, number), network.architecture.layout
    return {
        name: take(
            tensor, layout.tensors[name].region(network.widths, out=older, into=older)
        ).contiguous()
        for name, tensor in network.tensors.items()
        if layout.tensors[name].owner == "shared"
    }


def spec_of(layout: Layout, block: str) -> TensorSpec:
    """Declaration of the tensor that a block was taken from."""
    return layout.tensors[block.removesuffix(NEW_TO_OLD)]


def _blocks(network: Network, number: int) -> dict[str, tuple[str, Region]]:
    """Tensor and region per block."""
    older, newer = older_units(network, number), newer_units(network, number)
    blocks: dict[str, tuple[str, Region]] = {}
    for name, spec in network.architecture.layout.tensors.items():
        if spec.owner == "task":
            blocks[name] = name, spec.region(network.widths)
            continue
        if spec.out is not None:
            blocks[name] = name, spec.region(network.widths, out=newer)
        if spec.reads(network.born):
            blocks[name + NEW_TO_OLD] = (
                name,
                spec.region(network.widths, out=older, into=newer),
            )
    return blocks
