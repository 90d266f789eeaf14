"""Algorithm 3: dynamic network expansion."""

from lifelong.learners.den.prune import prune_useless
from lifelong.learners.den.task_training import TaskTraining, growth
from lifelong.networks.growing import Network
from lifelong.networks.surgery import append_units, newcomers


def dynamic_expansion(
    network: Network, loss: float, training: TaskTraining
) -> tuple[Network, float]:
    """Offer k units to each layer, train them alone (Equation 5), and drop the useless ones.

    An expansion that does not lower the validation loss by the share `worth` is undone, unless
    nothing is to be dropped (DEN-Constant).
    """
    counts = training.settings.offered(network.architecture.widths)
    for group, count in counts.items():
        training.note(group, added=count)
    grown = append_units(network, counts, training.number, training.fresh())
    penalties = growth(training.settings, newcomers(grown, training.number))
    grown, grown_loss = training.train_newcomers("expand", grown, penalties)
    if not training.settings.prune:
        return grown, grown_loss
    # The group penalty leaves biases alone; a unit whose weights it zeroed goes with its bias.
    grown = prune_useless(grown, training, constants=True)
    grown_loss = training.loss(grown)
    if grown_loss <= loss * (1 - training.settings.min_improvement):
        return grown, grown_loss
    for group in counts:
        training.note_pruned(group, grown.width(group) - network.width(group))
    return network, loss
