"""Algorithm 4: network split and duplication."""

from collections.abc import Mapping
from dataclasses import replace

import torch
from torch import Tensor

from lifelong.learners.den.prune import prune_useless
from lifelong.learners.den.task_training import TaskTraining, movement
from lifelong.networks.growing import GrowingNetwork, Network
from lifelong.networks.sequential import HEAD, Axes
from lifelong.networks.surgery import Units, duplicate_units, newcomers, positions


def split(known: GrowingNetwork, network: Network, training: TaskTraining) -> Network:
    """Copy the units that drifted, give the originals their weights back, and train the copies.

    The last training (Equation 6) moves only what is new with this task.

    Departs from the paper: that training is taught by the network from before the split as well as
    by the labels (see `distillation`). It has far fewer weights to move than that network had, and
    what it is told on every row tells it how to use them.
    """
    drift = drifts(known, network, relative=training.settings.drift == "relative")
    over = _over_sigma(drift, training)
    chosen = _within_limit(over, drift, network, training)
    for group, amounts in drift.items():
        training.note(group, drift=tuple(amounts.tolist()), split=len(chosen[group]))
    everyone = {group: torch.arange(len(amounts)) for group, amounts in drift.items()}
    returning = everyone if training.settings.below_sigma == "restore" else over
    # Only the newcomers of the centers are kept: all of them are as large as the network.
    centers = newcomers(_centers(known, network, chosen, training.number), training.number)
    penalties = movement(training.settings, centers)
    parted = _part(known, network, chosen, returning, training.number)
    # By the same name, here and in Algorithm 3: the network of before is let go at once.
    parted, _ = training.train_newcomers("split", parted, penalties, teacher=network)
    return prune_useless(parted, training) if training.settings.prune else parted


def drifts(known: GrowingNetwork, network: Network, *, relative: bool) -> dict[str, Tensor]:
    """For each old unit the norm of the change of what it receives from old units, bias included.

    Relative: as a share of the norm that it had, or of the tiniest number should that be zero.
    """
    # In double precision: the square of a small change must not vanish, or it would go unnoticed.
    moved = {group: _zeros(stamps) for group, stamps in known.born.items()}
    norm = {group: _zeros(stamps) for group, stamps in known.born.items()}
    for name, old in known.shared.items():
        group = _receiver(known.architecture.axes[name])
        new = _old_part(network.tensors[name], old)
        for rows in torch.arange(len(old)).split(64):  # all at once would take much memory
            before = old[rows].double().reshape(len(rows), -1)
            after = new[rows].double().reshape(len(rows), -1)
            moved[group][rows] += (after - before).square().sum(dim=1).cpu()
            norm[group][rows] += before.square().sum(dim=1).cpu()
    if not relative:
        return {group: squares.sqrt() for group, squares in moved.items()}
    tiny = torch.finfo(torch.float64).tiny
    return {group: (moved[group] / norm[group].clamp_min(tiny)).sqrt() for group in moved}


def _zeros(stamps: Tensor) -> Tensor:
    return torch.zeros(len(stamps), dtype=torch.float64)


def _over_sigma(drift: Mapping[str, Tensor], training: TaskTraining) -> Units:
    over = {group: amounts > training.settings.sigma for group, amounts in drift.items()}
    return {group: mask.nonzero().flatten() for group, mask in over.items()}


def _within_limit(
    over: Units, drift: Mapping[str, Tensor], network: Network, training: TaskTraining
) -> Units:
    """Of these units as many as may still join their group, those that drifted most."""
    limits = training.settings.limits(network.architecture.widths)
    chosen = {}
    for group, units in over.items():
        room = max(0, limits[group] - (network.width(group) - len(drift[group])))
        order = drift[group][units].argsort(descending=True, stable=True)[:room]
        chosen[group] = units[order].sort().values.to(training.device)
    return chosen


def _part(
    known: GrowingNetwork, network: Network, chosen: Units, returning: Units, number: int
) -> Network:
    """The network after the split: with copies that take the drifted weights, while the units in
    `returning` get their old weights back.
    """
    restored = _restore(known, duplicate_units(network, chosen, number), returning)
    return _reroute(known, restored, chosen)


def _centers(known: GrowingNetwork, network: Network, chosen: Units, number: int) -> Network:
    """What the last training is anchored at, laid out like the network after the split.

    A copy is anchored at the weights that its original had; newcomers are anchored at zero.
    """
    everyone = {group: torch.arange(len(born)) for group, born in known.born.items()}
    nothing = {name: torch.zeros_like(tensor) for name, tensor in network.tensors.items()}
    before = _restore(known, replace(network, tensors=nothing), everyone)
    return _reroute(known, duplicate_units(before, chosen, number), chosen)


def _restore(known: GrowingNetwork, network: Network, units: Units) -> Network:
    """Let these old units receive from old units exactly what they did before this task."""
    tensors = dict(network.tensors)
    for name, old in known.shared.items():
        rows = units[_receiver(known.architecture.axes[name])].to(old.device)
        tensors[name] = tensors[name].clone()
        _old_part(tensors[name], old)[rows] = old[rows]
    return replace(network, tensors=tensors)


def _reroute(known: GrowingNetwork, network: Network, chosen: Units) -> Network:
    """Let the new units and the head hear the copies in place of the originals, which they heard
    until now, and the old units the originals only.
    """
    tensors = dict(network.tensors)
    for name, axes in network.architecture.axes.items():
        sender = next((axis for axis in axes if axis is not None and not axis.receives), None)
        if sender is None or len(chosen.get(sender.group, ())) == 0:
            continue
        old_rows = 0 if name in HEAD else len(known.shared[name])
        width, copies = network.width(sender.group), len(chosen[sender.group])
        tensor = tensors[name].clone()
        tensor[old_rows:, positions(chosen[sender.group], sender)] = 0
        tensor[:old_rows, (width - copies) * sender.span :] = 0
        tensors[name] = tensor
    return replace(network, tensors=tensors)


def _receiver(axes: Axes) -> str:
    return next(axis.group for axis in axes if axis is not None and axis.receives)


def _old_part(tensor: Tensor, old: Tensor) -> Tensor:
    """The entries between units that were there before: a view."""
    return tensor[tuple(slice(size) for size in old.shape)]
