"""Removing the units of a task that turned out useless (the end of Algorithm 3)."""

import torch
from torch import Tensor

from lifelong.learners.den.draft import Draft
from lifelong.networks.growing import Network
from lifelong.networks.surgery import gather


def prune_useless(draft: Draft, number: int, *, constants: bool = False) -> Draft:
    """Without the units born with this task that are always zero or that nothing hears.

    No output changes by it, unless `constants` go too: units that receive nothing and are kept on
    by a positive bias.
    """
    network = draft.network
    useful = _useful(network, number, constants)
    while any(not bool(mask.all()) for mask in useful.values()):
        network = gather(network, {g: mask.nonzero().flatten() for g, mask in useful.items()})
        # Once more: a unit may have served only one that is gone.
        useful = _useful(network, number, constants)
    return draft.shrunk_to(network)


def _useful(network: Network, number: int, constants: bool) -> dict[str, Tensor]:
    """Of each group the units that are older than this task, or both alive and heard."""
    alive = {group: torch.zeros(len(b), dtype=torch.bool) for group, b in network.born.items()}
    heard = {group: mask.clone() for group, mask in alive.items()}
    for name, spec in network.architecture.layout.tensors.items():
        if spec.kind == "bias" and constants:
            continue
        tensor = network.tensors[name]
        linked = (tensor > 0 if spec.kind == "bias" else tensor != 0).cpu()
        for found, dim in ((alive, spec.out), (heard, spec.into)):
            if dim is None:
                continue
            for group, part in spec.axes[dim].fold(linked, dim, network.widths):
                if group in found:
                    found[group] |= part.movedim(dim, 0).flatten(1).any(dim=1)
    return {
        group: _one_at_least((born < number) | (alive[group] & heard[group]))
        for group, born in network.born.items()
    }


def _one_at_least(mask: Tensor) -> Tensor:
    """A group keeps a unit even if a first task has no use for any, for later ones to grow from."""
    if not mask.any():
        mask[0] = True
    return mask
