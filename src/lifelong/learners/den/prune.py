"""Removal of a task's useless units (the end of Algorithm 3)."""

import torch
from torch import Tensor

from lifelong.learners.den.draft import Draft
from lifelong.networks.growing import Network
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
    active = {group: torch.zeros(len(b), dtype=torch.bool) for group, b in network.born.items()}
    read = {group: mask.clone() for group, mask in active.items()}
    for name, spec in network.architecture.layout.tensors.items():
        if spec.kind == "bias" and constants:
            continue
        tensor = network.tensors[name]
        linked = (tensor > 0 if spec.kind == "bias" else tensor != 0).cpu()
        for found, dim in ((active, spec.out), (read, spec.into)):
            if dim is None:
                continue
            for group, part in spec.axes[dim].fold(linked, dim, network.widths):
                if group in found:
                    found[group] |= part.movedim(dim, 0).flatten(1).any(dim=1)
    return {
        group: _one_at_least((born < number) | (active[group] & read[group]))
        for group, born in network.born.items()
    }


def _one_at_least(mask: Tensor) -> Tensor:
    """Keep one unit per group even if the first task uses none, for later tasks to grow from."""
    if not mask.any():
        mask[0] = True
    return mask
