"""Algorithm 3: dynamic network expansion."""

from dataclasses import replace

from lifelong.learners.den.draft import Draft
from lifelong.learners.den.prune import prune_useless
from lifelong.learners.den.task_training import TaskTraining, growth
from lifelong.networks.surgery import append_units, newcomers


def dynamic_expansion(draft: Draft, training: TaskTraining) -> Draft:
    """Add k units per layer, train only them (Equation 5), and drop the useless ones.

    An expansion that does not lower the validation loss by the share `min_improvement` is undone,
    unless `prune` is off (DEN-Constant).
    """
    settings, layout = training.settings, draft.network.architecture.layout
    counts = settings.offered(layout.groups)
    network = append_units(draft.network, counts, training.number, training.fresh())
    penalties = growth(settings, layout, newcomers(network, training.number))
    network, stage = training.train_newcomers("expand", network, penalties)
    grown = draft.noting("added", counts).trained(network, stage)
    if not settings.prune:
        return grown
    # The group penalty does not apply to biases: drop units that only a bias keeps active.
    pruned = prune_useless(grown, training.number, constants=True)
    loss = training.loss(pruned.network)
    if loss <= draft.loss * (1 - settings.min_improvement):
        return replace(pruned, loss=loss)
    return replace(pruned.shrunk_to(draft.network), loss=draft.loss)
