"""Algorithm 2: selective retraining."""

from typing import NamedTuple

import torch
from torch import Tensor

from lifelong.learners.den.task_training import TaskTraining, movement
from lifelong.networks.growing import GrowingNetwork, Network
from lifelong.networks.sequential import HEAD, INPUTS, Architecture, Tensors
from lifelong.networks.surgery import Units, gather, scatter
from lifelong.tasks.task import Examples
from lifelong.training.loop import TrainingError
from lifelong.training.sparse_head import fit_sparse_head


class Retrained(NamedTuple):
    """The network after Equation 4, the units that were selected, and the validation loss."""

    network: Network
    selected: Units
    loss: float


def selective_retraining(known: GrowingNetwork, training: TaskTraining) -> Retrained:
    """Fit a sparse head (Equation 3), find what it rests on, and retrain only that (Equation 4)."""
    network = with_sparse_head(known, training)
    selected = select(network)
    for group in network.born:
        training.note(group, selected=len(selected[group]))
    if any(len(units) == 0 for units in selected.values()):
        return Retrained(network, selected, training.loss(network))  # the old features are no use
    part = gather(network, selected)
    penalties = movement(training.settings, part.tensors)
    part, loss = training.train("retrain", part, penalties, selected[INPUTS])
    return Retrained(scatter(network, part, selected), selected, loss)


def with_sparse_head(known: GrowingNetwork, training: TaskTraining) -> Network:
    """The network with the solution of Equation 3 as its head.

    Departs from the paper: its strength is doubled for as long as the validation loss falls, if it
    falls by the share `worth` (0: never). On few rows a head that is not sparse enough fits them by
    heart, and no training that starts from it forgets them again.
    """
    train, _ = training.rows()
    features, labels = _features(known.architecture, known.shared, train)
    if not bool(torch.isfinite(features).all()):
        raise TrainingError(
            f"{training.task.name}: head: its inputs overflow the features of the network; "
            "scale them to about 1"
        )
    task, strength, worth = (
        training.task,
        training.settings.head_l1,
        training.settings.min_improvement,
    )

    def headed(strength: float) -> tuple[Network, float]:
        head = fit_sparse_head(features, labels, task.kind, task.outputs, strength)
        network = known.with_head(head.weight, head.bias)
        return network, training.loss(network)

    as_given, loss = sparsest, lowest = headed(strength)
    while worth and strength < 1:  # from there on the head is zero
        strength *= 2
        sparser, sparser_loss = headed(strength)
        if sparser_loss >= lowest:
            break
        sparsest, lowest = sparser, sparser_loss
    return sparsest if lowest <= loss * (1 - worth) else as_given


def _features(
    architecture: Architecture, tensors: Tensors, rows: Examples
) -> tuple[Tensor, Tensor]:
    """The topmost hidden units on all rows: computed once, because their weights are frozen."""
    with torch.no_grad():
        batches = [(architecture.features(tensors, x), y) for x, y in rows.batches(4096)]
    features, labels = zip(*batches, strict=True)
    return torch.cat(features), torch.cat(labels)


def select(network: Network) -> Units:
    """For each group, inputs included, the units that have a path to the head.

    A unit is selected if a selected receiver, or the head, has a non-zero connection to it. The
    sweep is repeated until nothing changes, so that the order of the layers does not matter.
    """
    links = _links(network)
    reached = {sender: torch.zeros(n, dtype=torch.bool) for sender, n in _sizes(network).items()}
    growing = True
    while growing:
        before = sum(int(mask.sum()) for mask in reached.values())
        for receiver, sender, connected in links:
            from_selected = connected if receiver is None else connected[reached[receiver]]
            reached[sender] |= from_selected.any(dim=0)
        growing = sum(int(mask.sum()) for mask in reached.values()) > before
    device = network.tensors[HEAD[0]].device
    return {group: mask.nonzero().flatten().to(device) for group, mask in reached.items()}


def _links(network: Network) -> list[tuple[str | None, str, Tensor]]:
    """Of each weight: receivers (None for the head), senders, and who is connected to whom."""
    links = []
    for name, axes in network.architecture.axes.items():
        senders = [axis for axis in axes if axis is not None and not axis.receives]
        if not senders:
            continue
        sender = senders[0]
        receiver = next((axis.group for axis in axes if axis is not None and axis.receives), None)
        weight = network.tensors[name]
        units = weight.shape[1] // sender.span
        connected = (weight != 0).reshape(weight.shape[0], units, -1).any(dim=2).cpu()
        links.append((receiver, sender.group, connected))
    return links[::-1]  # from the head down, so that a chain needs one sweep and one to see it


def _sizes(network: Network) -> dict[str, int]:
    senders = (axis.group for axes in network.architecture.axes.values() for axis in axes if axis)
    return {group: network.width(group) for group in dict.fromkeys(senders)}
