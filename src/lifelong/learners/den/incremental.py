"""Algorithm 1: incremental learning of a dynamically expandable network."""

from math import ceil

from lifelong.learners.den.draft import Draft
from lifelong.learners.den.expand import dynamic_expansion
from lifelong.learners.den.prune import prune_useless
from lifelong.learners.den.retrain import selective_retraining
from lifelong.learners.den.split import split
from lifelong.learners.den.task_training import TaskTraining
from lifelong.networks.growing import GrowingNetwork, first_network
from lifelong.training.penalties import sparse_weights


def incremental_learning(known: GrowingNetwork, training: TaskTraining) -> Draft:
    """The network after one more task; `known` is not changed."""
    settings = training.settings
    if not known.tasks:
        return first_task(known, training)
    draft = selective_retraining(known, training)
    if settings.expand and draft.loss > settings.tau:
        draft = dynamic_expansion(draft, training)
    if settings.split:
        draft = split(known, draft, training)
    return draft


def first_task(known: GrowingNetwork, training: TaskTraining) -> Draft:
    """Train the first network with l1 (Equation 2), and drop its useless units."""
    settings, layout = training.settings, known.architecture.layout
    # A pretrained module is taken whole.
    share = 1.0 if known.architecture.start else settings.initial_width
    widths = {group: ceil(w * share) for group, w in layout.groups.items()}
    start = first_network(known.architecture, widths, training.task.outputs, training.fresh())
    network, stage = training.train("first", start, sparse_weights(layout.tensors, settings.mu))
    draft = Draft(network, stage.loss, (stage,))
    return prune_useless(draft, training.number) if settings.prune else draft
