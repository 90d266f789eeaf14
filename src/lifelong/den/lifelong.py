"""Algorithm 1: incremental learning of a dynamically expandable network."""

from math import ceil

from lifelong.den.drop import drop_useless
from lifelong.den.expand import dynamic_expansion
from lifelong.den.lesson import Lesson
from lifelong.den.retrain import selective_retraining
from lifelong.den.split import split
from lifelong.network import GrowingNetwork, Network, first_network
from lifelong.penalties import sparsity


def incremental_learning(known: GrowingNetwork, lesson: Lesson) -> Network:
    """The network for one more task. What was known before is not touched."""
    settings = lesson.settings
    if not known.tasks:
        return first_task(known, lesson)
    network, _, loss = selective_retraining(known, lesson)
    if settings.expand and loss > settings.tau:
        network, loss = dynamic_expansion(network, loss, lesson)
    if settings.split:
        network = split(known, network, lesson)
    return network


def first_task(known: GrowingNetwork, lesson: Lesson) -> Network:
    """Train the first network with l1 (Equation 2), and drop the units it has no use for."""
    widths = {g: ceil(w * lesson.settings.start) for g, w in known.skeleton.widths.items()}
    network = first_network(known.skeleton, widths, lesson.task.outputs, lesson.fresh())
    penalties = {
        name: sparsity(tensor, lesson.settings.mu)
        for name, tensor in network.tensors.items()
        if tensor.ndim > 1
    }
    network, _ = lesson.train("first", network, penalties)
    return drop_useless(network, lesson) if lesson.settings.drop else network
