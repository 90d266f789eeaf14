"""Removing the units of a task that turned out useless (the end of Algorithm 3)."""

import torch

from lifelong.learners.den.task_training import TaskTraining
from lifelong.networks.growing import Network
from lifelong.networks.sequential import HEAD
from lifelong.networks.surgery import keep_units


def prune_useless(network: Network, training: TaskTraining, *, constants: bool = False) -> Network:
    """Without the units born with this task that are always zero or that nothing hears.

    No output changes by it, unless `constants` go too: units that receive nothing and are kept on
    by a positive bias.
    """
    before = network
    useful = _useful(network, training.number, constants)
    while any(not bool(mask.all()) for mask in useful.values()):
        device = network.tensors[HEAD[0]].device
        kept = {group: mask.nonzero().flatten().to(device) for group, mask in useful.items()}
        network = keep_units(network, kept)
        # Once more: a unit may have served only one that is gone.
        useful = _useful(network, training.number, constants)
    for group in network.born:
        training.note_pruned(group, before.width(group) - network.width(group))
    return network


def _useful(network: Network, number: int, constants: bool) -> dict[str, torch.Tensor]:
    """Of each group the units that are older than this task, or both alive and heard."""
    alive = {group: torch.zeros(len(b), dtype=torch.bool) for group, b in network.born.items()}
    heard = {group: mask.clone() for group, mask in alive.items()}
    for name, axes in network.architecture.axes.items():
        tensor = network.tensors[name]
        is_bias = len(axes) == 1
        if is_bias and constants:
            continue
        linked = (tensor > 0 if is_bias else tensor != 0).cpu()
        for dim, axis in enumerate(axes):
            if axis is not None and axis.group in network.born:
                units = linked.movedim(dim, 0).reshape(network.width(axis.group), -1).any(dim=1)
                (alive if axis.receives else heard)[axis.group] |= units
    return {
        group: _one_at_least((born < number) | (alive[group] & heard[group]))
        for group, born in network.born.items()
    }


def _one_at_least(mask: torch.Tensor) -> torch.Tensor:
    """A group keeps a unit even if a first task has no use for any, for later ones to grow from."""
    if not mask.any():
        mask[0] = True
    return mask
