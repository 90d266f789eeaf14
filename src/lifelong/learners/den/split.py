"""Algorithm 4: network split and duplication."""

from collections.abc import Mapping
from dataclasses import replace

import torch
from torch import Tensor

from lifelong.learners.den.draft import Draft
from lifelong.learners.den.prune import prune_useless
from lifelong.learners.den.task_training import TaskTraining, movement
from lifelong.networks.growing import GrowingNetwork, Network
from lifelong.networks.layout import Architecture, Normalising, Tensors, Units, put, take
from lifelong.networks.surgery import (
    duplicate_units,
    newcomers,
    newer_units,
    older_units,
    only,
)


def split(known: GrowingNetwork, draft: Draft, training: TaskTraining) -> Draft:
    """Copy the units that drifted, restore the originals' weights, and train the copies.

    The last training (Equation 6) changes only what is new with this task.

    Departs from the paper: that training is distilled from the network before the split as well as
    from the labels (see `distillation`). It has far fewer trainable weights than that network had,
    and soft labels help it to use them.
    """
    settings, number, network = training.settings, training.number, draft.network
    ranks, relative = training.context.ranks, settings.drift == "relative"
    found = drifts(known, network, relative=relative)
    drift = {group: ranks.from_first(amounts) for group, amounts in found.items()}
    over = {
        group: (amounts > settings.sigma).nonzero().flatten() for group, amounts in drift.items()
    }
    chosen = _within_limit(over, drift, network, training)
    noted = draft.noting("drift", {g: tuple(amounts.tolist()) for g, amounts in drift.items()})
    noted = noted.noting("split", {group: len(units) for group, units in chosen.items()})
    everyone = {group: torch.arange(len(amounts)) for group, amounts in drift.items()}
    returning = everyone if settings.below_sigma == "restore" else over
    # Only the newcomers' centers are kept, to save memory: all are as large as the network.
    centers = newcomers(_centers(known, network, chosen, number), number)
    penalties = movement(settings, network.architecture.layout, centers)
    separated = _separate(known, network, chosen, returning, number)
    # The same name as before, so that the memory of the untrained network is freed at once.
    separated, stage = training.train_newcomers("split", separated, penalties, teacher=network)
    trained = noted.trained(separated, stage)
    return prune_useless(trained, number) if settings.prune else trained


def drifts(known: GrowingNetwork, network: Network, *, relative: bool) -> dict[str, Tensor]:
    """Per old unit, the norm of the change of its bias and its weights from old units.

    Relative: divided by the norm before, or by the smallest positive number if that was zero.
    Weights before a normalisation count as it makes them: see `_folded`.
    """
    # In double precision, so that the square of a small change does not underflow.
    moved = {group: _zeros(len(stamps)) for group, stamps in known.born.items()}
    norm = {group: _zeros(len(stamps)) for group, stamps in known.born.items()}
    old_units = _everyone(known)
    folded = _folded(known.architecture, network.tensors)
    for name, old in _folded(known.architecture, known.current).items():
        spec = known.architecture.layout.tensors[name]
        if spec.out is None:
            continue
        region = spec.region(network.widths, out=old_units, into=old_units)
        changes, squares = _squares(old, take(folded[name], region), spec.out)
        widths = {group: len(stamps) for group, stamps in known.born.items()}
        for total, rows in ((moved, changes), (norm, squares)):
            for group, part in spec.axes[spec.out].fold(rows, 0, widths):
                total[group] += part.sum(dim=(1, 2))
    if not relative:
        return {group: squares.sqrt() for group, squares in moved.items()}
    tiny = torch.finfo(torch.float64).tiny
    return {group: (moved[group] / norm[group].clamp_min(tiny)).sqrt() for group in moved}


def _folded(architecture: Architecture, tensors: Tensors) -> Tensors:
    """The tensors with scales folded into the weights before them: what a normalisation leaves of
    the weights of a unit is their direction, times its scale.
    """
    if not isinstance(architecture, Normalising):
        return tensors
    scales = set(architecture.scales.values())
    folded = {name: tensor for name, tensor in tensors.items() if name not in scales}
    for name, scale in architecture.scales.items():
        rows = tensors[name].flatten(1)
        length = torch.linalg.vector_norm(rows, dim=1, keepdim=True)
        tiny = torch.finfo(rows.dtype).tiny
        directions = rows / length.clamp_min(tiny) * tensors[scale][:, None]
        folded[name] = directions.reshape(tensors[name].shape)
    return folded


def _squares(old: Tensor, new: Tensor, dim: int) -> tuple[Tensor, Tensor]:
    """Per index on `dim`, the sums of squares of the changes and of the old values."""
    old, new = old.movedim(dim, 0), new.movedim(dim, 0)
    changes, squares = _zeros(len(old)), _zeros(len(old))
    for rows in torch.arange(len(old)).split(64):  # in chunks, to save memory
        before = old[rows].double().reshape(len(rows), -1)
        after = new[rows].double().reshape(len(rows), -1)
        changes[rows] = (after - before).square().sum(dim=1).cpu()
        squares[rows] = before.square().sum(dim=1).cpu()
    return changes, squares


def _zeros(count: int) -> Tensor:
    return torch.zeros(count, dtype=torch.float64)


def _everyone(known: GrowingNetwork) -> Units:
    return {group: torch.arange(len(stamps)) for group, stamps in known.born.items()}


def _within_limit(
    over: Units, drift: Mapping[str, Tensor], network: Network, training: TaskTraining
) -> Units:
    """The units that drifted most, as many as may still join their group."""
    limits = training.settings.limits(network.architecture.layout.groups)
    chosen = {}
    for group, units in over.items():
        room = max(0, limits[group] - (network.width(group) - len(drift[group])))
        order = drift[group][units].argsort(descending=True, stable=True)[:room]
        chosen[group] = units[order].sort().values
    return chosen


def _separate(
    known: GrowingNetwork, network: Network, chosen: Units, returning: Units, number: int
) -> Network:
    """The network after the split: copies of the `chosen` units keep the drifted weights, the units
    in `returning` get their old weights back.
    """
    restored = _restore(known, duplicate_units(network, chosen, number), returning)
    return _reroute(restored, chosen, number)


def _centers(known: GrowingNetwork, network: Network, chosen: Units, number: int) -> Network:
    """The anchor of the last training, with the shapes of the network after the split.

    A copy is anchored at the old weights of its original, newcomers at zero.
    """
    zeros = {name: torch.zeros_like(tensor) for name, tensor in network.tensors.items()}
    before = _restore(known, replace(network, tensors=zeros), _everyone(known))
    return _reroute(duplicate_units(before, chosen, number), chosen, number)


def _restore(known: GrowingNetwork, network: Network, units: Units) -> Network:
    """Restore the weights of these old units from old units, bit-exactly."""
    tensors, old_units = dict(network.tensors), _everyone(known)
    widths = {group: len(stamps) for group, stamps in known.born.items()}
    for name, old in known.current.items():
        spec = known.architecture.layout.tensors[name]
        tensors[name] = tensors[name].clone()
        put(
            tensors[name],
            spec.region(network.widths, out=units, into=old_units),
            take(old, spec.region(widths, out=units)),
        )
    return replace(network, tensors=tensors)


def _reroute(network: Network, chosen: Units, number: int) -> Network:
    """Connect the new units and the head to the copies instead of the originals, and the old units
    to the originals only.
    """
    copied = {group: units for group, units in chosen.items() if len(units)}
    last = {
        group: torch.arange(network.width(group) - len(units), network.width(group))
        for group, units in copied.items()
    }
    nobody = {group: torch.arange(0) for group in network.born}
    originals, copies = only({**nobody, **copied}), only({**nobody, **last})
    older, newer = older_units(network, number), newer_units(network, number)
    tensors = dict(network.tensors)
    for name, spec in network.architecture.layout.tensors.items():
        if not spec.reads(copied):
            continue
        tensors[name] = tensors[name].clone()
        if spec.owner == "task":
            put(tensors[name], spec.region(network.widths, into=originals), 0)
            continue
        if spec.out is not None:
            put(tensors[name], spec.region(network.widths, out=newer, into=originals), 0)
        put(tensors[name], spec.region(network.widths, out=older, into=copies), 0)
    return replace(network, tensors=tensors)
