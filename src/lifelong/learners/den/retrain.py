"""Algorithm 2: selective retraining."""

import torch
from torch import Tensor

from lifelong.learners.den.draft import Draft
from lifelong.learners.den.task_training import TaskTraining, movement
from lifelong.networks.growing import GrowingNetwork, Network
from lifelong.networks.layout import INPUTS, OUTPUTS, Architecture, Tensors, Units
from lifelong.networks.surgery import gather, scatter
from lifelong.tasks.task import Examples
from lifelong.training.loop import TrainingError
from lifelong.training.sparse_head import fit_sparse_head


def selective_retraining(known: GrowingNetwork, training: TaskTraining) -> Draft:
    """Fit a sparse head (Equation 3) and retrain only the units that it reads (Equation 4)."""
    network = with_sparse_head(known, training)
    selected = select(network)
    counts = {group: len(selected[group]) for group in network.born}
    if any(len(units) == 0 for units in selected.values()):  # no path from inputs to head
        return Draft(network, training.loss(network)).noting("selected", counts)
    part = gather(network, selected)
    penalties = movement(training.settings, network.architecture.layout, part.tensors)
    part, stage = training.train("retrain", part, penalties, selected[INPUTS])
    whole = scatter(network, part, selected)
    return Draft(whole, stage.loss, (stage,)).noting("selected", counts)


def with_sparse_head(known: GrowingNetwork, training: TaskTraining) -> Network:
    """The network with the solution of Equation 3 as its head.

    Departs from the paper: its strength is doubled for as long as the validation loss falls; the
    sparser head is kept if the loss fell by the share `min_improvement` (0: not tried). On few rows
    a head that is not sparse enough overfits, and training that starts from it does not recover.
    """
    train, _ = training.rows()
    features, labels = _features(known.architecture, known.shared, train)
    if not bool(torch.isfinite(features).all()):
        raise TrainingError(
            f"{training.task.name}: head: its inputs overflow the features of the network; "
            "scale them to about 1"
        )
    task, settings = training.task, training.settings
    strength, min_improvement = settings.head_l1, settings.min_improvement

    def headed(strength: float) -> tuple[Network, float]:
        head = fit_sparse_head(features, labels, task.kind, task.outputs, strength)
        network = known.with_head(head.weight, head.bias)
        return network, training.loss(network)

    as_given, loss = sparsest, lowest = headed(strength)
    while min_improvement and strength < 1:  # from 1 on the head is zero
        strength *= 2
        sparser, sparser_loss = headed(strength)
        if sparser_loss >= lowest:
            break
        sparsest, lowest = sparser, sparser_loss
    return sparsest if lowest <= loss * (1 - min_improvement) else as_given


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
