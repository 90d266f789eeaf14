"""Algorithm 3: dynamic network expansion."""

from lifelong.den.drop import drop_useless
from lifelong.den.lesson import Lesson, growth
from lifelong.network import Network
from lifelong.surgery import append_units, newcomers


def dynamic_expansion(network: Network, loss: float, lesson: Lesson) -> tuple[Network, float]:
    """Offer k units to each layer, train them alone (Equation 5), and drop the useless ones.

    An expansion that does not lower the validation loss by the share `worth` is undone, unless
    nothing is to be dropped (DEN-Constant).
    """
    counts = lesson.settings.offered(network.skeleton.widths)
    for group, count in counts.items():
        lesson.note(group, added=count)
    grown = append_units(network, counts, lesson.number, lesson.fresh())
    penalties = growth(lesson.settings, newcomers(grown, lesson.number))
    grown, grown_loss = lesson.train_newcomers("expand", grown, penalties)
    if not lesson.settings.drop:
        return grown, grown_loss
    # The group penalty leaves biases alone; a unit whose weights it zeroed goes with its bias.
    grown = drop_useless(grown, lesson, constants=True)
    grown_loss = lesson.loss(grown)
    if grown_loss <= loss * (1 - lesson.settings.worth):
        return grown, grown_loss
    for group in counts:
        lesson.note_dropped(group, grown.width(group) - network.width(group))
    return network, loss
