"""Algorithm 2: selective retraining."""

import time

import torch
from torch import Tensor

from lifelong.learners.den.draft import Draft
from lifelong.learners.den.task_training import TaskTraining, movement
from lifelong.networks.growing import GrowingNetwork, Network
from lifelong.networks.layout import INPUTS, OUTPUTS, Architecture, Tensors, Units
from lifelong.networks.surgery import gather, scatter
from lifelong.records import StageRecord
from lifelong.tasks.task import Examples
from lifelong.training.loop import TrainingError
from lifelong.training.sparse_head import SparseHead, fit_sparse_head


def selective_retraining(known: GrowingNetwork, training: TaskTraining) -> Draft:
    """Fit a sparse head (Equation 3) and retrain only the units that it reads (Equation 4)."""
    return retrain_selected(with_sparse_head(known, training), training)


def retrain_selected(draft: Draft, training: TaskTraining, head_l1: float | None = None) -> Draft:
    """Retrain the units that the head reads (Equation 4), with this l1 on the head if not mu."""
    network = draft.network
    selected = select(network)
    noted = draft.noting("selected", {group: len(selected[group]) for group in network.born})
    if any(len(units) == 0 for units in selected.values()):  # no path from inputs to head
        return noted
    part = gather(network, selected)
    penalties = movement(training.settings, network.architecture.layout, part.tensors, head_l1)
    part, stage = training.train("retrain", part, penalties, selected[INPUTS])
    return noted.trained(scatter(network, part, selected), stage)


def with_sparse_head(known: GrowingNetwork, training: TaskTraining) -> Draft:
    """The network with the solution of Equation 3 as its head.

    Departs from the paper: its strength is doubled for as long as the validation loss falls; the
    sparser head is kept if the loss fell by the share `min_improvement` (0: not tried). On few rows
    a head that is not sparse enough overfits, and training that starts from it does not recover.
    """
    began = time.perf_counter()
    train, _ = training.rows()
    features, labels = _features(known.architecture, known.current, train)
    if not bool(torch.isfinite(features).all()):
        raise TrainingError(
            f"{training.task.name}: head: its inputs overflow the features of the network; "
            "scale them to about 1"
        )
    task, settings = training.task, training.settings
    strength, min_improvement = settings.head_l1, settings.min_improvement
    heads: list[SparseHead] = []

    def headed(strength: float) -> Draft:
        warm = heads[-1] if heads else None
        heads.append(fit_sparse_head(features, labels, task.kind, task.outputs, strength, warm))
        network = known.with_head(heads[-1].weight, heads[-1].bias)
        return Draft(network, training.loss(network), head_l1=strength)

    as_given = sparsest = headed(strength)
    while min_improvement and strength < 1:  # from 1 on the head is zero
        strength *= 2
        sparser = headed(strength)
        if sparser.loss >= sparsest.loss:
            break
        sparsest = sparser
    better = sparsest.loss <= as_given.loss * (1 - min_improvement)
    chosen = sparsest if better else as_given
    steps = sum(head.steps for head in heads)
    seconds = time.perf_counter() - began
    return chosen.trained(chosen.network, StageRecord("head", chosen.loss, steps, seconds))


def _features(
    architecture: Architecture, tensors: Tensors, rows: Examples
) -> tuple[Tensor, Tensor]:
    """Features and labels of all rows; the features are computed once, as they are frozen."""
    with torch.no_grad():
        batches = [(architecture.features(tensors, x), y) for x, y in rows.batches(4096)]
    features, labels = zip(*batches, strict=True)
    return torch.cat(features), torch.cat(labels)


def select(network: Network) -> Units:
    """Per group, including inputs, the units that have a path to the head.

    A unit is selected if a selected unit or an output reads it with a non-zero weight. The sweep is
    repeated until nothing changes, so the order of layers does not matter.
    """
    links = _links(network)
    reached = {group: torch.zeros(n, dtype=torch.bool) for group, n in network.widths.items()}
    reached[OUTPUTS][:] = True
    growing = True
    while growing:
        before = sum(int(mask.sum()) for mask in reached.values())
        for receiver, sender, connected in links:
            reached[sender] |= connected[reached[receiver]].any(dim=0)
        growing = sum(int(mask.sum()) for mask in reached.values()) > before
    return {g: mask.nonzero().flatten() for g, mask in reached.items() if g != OUTPUTS}


def _links(network: Network) -> list[tuple[str, str, Tensor]]:
    """Per weight tensor: receiving group, sending group, and matrix of connections."""
    links = []
    for name, spec in network.architecture.layout.tensors.items():
        if spec.out is None or spec.into is None:
            continue
        linked = network.tensors[name] != 0
        for receiver, rows in spec.axes[spec.out].fold(linked, spec.out, network.widths):
            read = rows.movedim(spec.out, 0).flatten(-2).any(dim=-1)
            into = spec.into if spec.into > spec.out else spec.into + 1
            for sender, part in spec.axes[spec.into].fold(read, into, network.widths):
                connected = part.movedim(into, 1).flatten(2).any(dim=2).cpu()
                links.append((receiver, sender, connected))
    return links[::-1]  # from the head down, so that a sequential network needs two sweeps
