"""Algorithm 3: dynamic network expansion."""

import torch

from lifelong.den.lesson import Lesson, growth
from lifelong.network import HEAD, Network
from lifelong.surgery import append_units, keep_units, newcomers


def dynamic_expansion(network: Network, loss: float, lesson: Lesson) -> tuple[Network, float]:
    """Offer k units to each layer, train them alone (Equation 5), and drop the useless ones.

    An expansion that does not lower the validation loss by the share `worth` is undone.
    """
    counts = lesson.settings.offered(network.skeleton.widths)
    for group, count in counts.items():
        lesson.note(group, added=count)
    offered = append_units(network, counts, lesson.number, lesson.fresh())
    marks = newcomers(offered, lesson.number)
    centers = {
        name: torch.where(marks[name], 0.0, tensor) if name not in HEAD else tensor
        for name, tensor in offered.tensors.items()
    }
    penalties = growth(lesson.settings, centers)
    grown, _ = lesson.train("expand", offered, marks, penalties)
    if lesson.settings.drop:
        grown = drop_useless(grown, lesson)
    grown_loss = lesson.loss(grown)
    if grown_loss <= loss * (1 - lesson.settings.worth):
        return grown, grown_loss
    for group in counts:
        lesson.note_dropped(group, grown.width(group) - network.width(group))
    return network, loss


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
