"""Removing the units of a task that turned out useless (the end of Algorithm 3)."""

import torch

from lifelong.den.lesson import Lesson
from lifelong.network import HEAD, Network
from lifelong.surgery import keep_units


def drop_useless(network: Network, lesson: Lesson) -> Network:
    """Without the units born with this task that receive nothing or send nothing."""
    number = lesson.number
    before = network
    useful = _useful(network, number)
    while any(not bool(mask.all()) for mask in useful.values()):
        device = network.tensors[HEAD[0]].device
        kept = {group: mask.nonzero().flatten().to(device) for group, mask in useful.items()}
        network = keep_units(network, kept)
        useful = _useful(network, number)  # a unit may have served only one that is gone
    for group in network.born:
        lesson.note_dropped(group, before.width(group) - network.width(group))
    return network


def _useful(network: Network, number: int) -> dict[str, torch.Tensor]:
    receives = {group: torch.zeros(len(b), dtype=torch.bool) for group, b in network.born.items()}
    sends = {group: mask.clone() for group, mask in receives.items()}
    for name, axes in network.skeleton.axes.items():
        if len(axes) == 1:
            continue  # a bias connects nothing
        connected = (network.tensors[name] != 0).cpu()
        for dim, axis in enumerate(axes):
            if axis is not None and axis.group in network.born:
                linked = connected.movedim(dim, 0).reshape(network.width(axis.group), -1).any(dim=1)
                (receives if axis.receives else sends)[axis.group] |= linked
    return {
        group: _one_at_least((born < number) | (receives[group] & sends[group]))
        for group, born in network.born.items()
    }


def _one_at_least(mask: torch.Tensor) -> torch.Tensor:
    """A group keeps a unit even if a first task has no use for any, for later ones to grow from."""
    if not mask.any():
        mask[0] = True
    return mask
