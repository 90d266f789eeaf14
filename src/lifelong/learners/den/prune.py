"""Removal of a task's useless units (the end of Algorithm 3)."""

from collections.abc import Mapping

import torch
from torch import Tensor

from lifelong.learners.den.draft import Draft
from lifelong.networks.growing import Network
from lifelong.networks.initial import resting_value
from lifelong.networks.layout import Layout, TensorSpec
from lifelong.networks.surgery import gather


def prune_useless(draft: Draft, number: int, *, constants: bool = False) -> Draft:
    """Drop the units born with this task that are always zero or that nothing reads.

    This changes no output, unless `constants` are dropped too: units without incoming weights that
    a positive bias keeps active.
    """
    network = draft.network
    useful = _useful(network, number, constants)
    while any(not bool(mask.all()) for mask in useful.values()):
        network = gather(network, {g: mask.nonzero().flatten() for g, mask in useful.items()})
        # Repeat: a unit may have been read only by units that are gone.
        useful = _useful(network, number, constants)
    return draft.shrunk_to(network)


def _useful(network: Network, number: int, constants: bool) -> dict[str, Tensor]:
    """Per group, the units that are older than this task, or both active and read."""
    layout = network.architecture.layout
    read = _touched(network, {n: s for n, s in layout.tensors.items() if s.into is not None}, "in")
    fed = _touched(network, _of_kind(layout, "weight"), "out")
    scaled = _touched(network, _of_kind(layout, "scale"), "out")
    sends = {g: fed[g] & scaled[g] if g in scaled else fed[g] for g in fed}
    useful = {}
    for group, born in network.born.items():
        nothing = torch.zeros(len(born), dtype=torch.bool)
        active = sends.get(group, nothing)
        if not constants:
            active = active | _sends_a_constant(network, group)
        useful[group] = _one_at_least((born < number) | (active & read.get(group, nothing)))
    return useful


def _of_kind(layout: Layout, kind: str) -> dict[str, TensorSpec]:
    return {n: s for n, s in layout.tensors.items() if s.kind == kind and s.owner == "shared"}


def _sends_a_constant(network: Network, group: str) -> Tensor:
    """Units of a group that send something though they have no weights: because of a bias, of a
    mean that statistics subtract, or because all units of this group do.
    """
    layout = network.architecture.layout
    level = layout.silent.get(group, "negative")
    if level == "never":
        return torch.ones(network.width(group), dtype=torch.bool)
    above = _touched(network, _of_kind(layout, "bias"), "out", positive=level == "negative")
    means = {name: layout.tensors[name] for name in layout.buffers}
    means = {name: spec for name, spec in means.items() if resting_value(spec) == 0}
    centred = _touched(network, means, "out")
    nothing = torch.zeros(network.width(group), dtype=torch.bool)
    return above.get(group, nothing) | centred.get(group, nothing)


def _touched(
    network: Network, specs: Mapping[str, TensorSpec], role: str, *, positive: bool = False
) -> dict[str, Tensor]:
    """Per group on an axis of this role, the units with an entry that is not zero, or positive."""
    found: dict[str, Tensor] = {}
    for name, spec in specs.items():
        dim = spec.out if role == "out" else spec.into
        if dim is None:
            continue
        tensor = network.tensors[name]
        linked = (tensor > 0 if positive else tensor != 0).cpu()
        for group, part in spec.axes[dim].fold(linked, dim, network.widths):
            units = part.movedim(dim, 0).flatten(1).any(dim=1)
            found[group] = found[group] | units if group in found else units
    return found


def _one_at_least(mask: Tensor) -> Tensor:
    """Keep one unit per group even if the first task uses none, for later tasks to grow from."""
    if not mask.any():
        mask[0] = True
    return mask
