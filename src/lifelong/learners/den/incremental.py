"""Algorithm 1: incremental learning of a dynamically expandable network."""

from math import ceil

from lifelong.learners.den.expand import dynamic_expansion
from lifelong.learners.den.prune import prune_useless
from lifelong.learners.den.retrain import selective_retraining
from lifelong.learners.den.split import split
from lifelong.learners.den.task_training import TaskTraining
from lifelong.networks.growing import GrowingNetwork, Network, first_network
from lifelong.training.penalties import sparsity


def incremental_learning(known: GrowingNetwork, training: TaskTraining) -> Network:
    """The network for one more task. What was known before is not touched."""
    settings = training.settings
    if not known.tasks:
        return first_task(known, training)
    network, _, loss = selective_retraining(known, training)
    if settings.expand and loss > settings.tau:
        network, loss = dynamic_expansion(network, loss, training)
    if settings.split:
        network = split(known, network, training)
    return network


def first_task(known: GrowingNetwork, training: TaskTraining) -> Network:
    """Train the first network with l1 (Equation 2), and drop the units it has no use for."""
    widths = {
        g: ceil(w * training.settings.initial_width) for g, w in known.architecture.widths.items()
    }
    network = first_network(known.architecture, widths, training.task.outputs, training.fresh())
    penalties = {
        name: sparsity(tensor, training.settings.mu)
        for name, tensor in network.tensors.items()
        if tensor.ndim > 1
    }
    network, _ = training.train("first", network, penalties)
    return prune_useless(network, training) if training.settings.prune else network
