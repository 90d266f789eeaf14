"""Algorithm 1: incremental learning of a dynamically expandable network."""

from dataclasses import replace
from math import ceil

from lifelong.learners.den.by_need import SHARES, constant_loss, first_stage, growth_by_need
from lifelong.learners.den.draft import Draft
from lifelong.learners.den.expand import dynamic_expansion
from lifelong.learners.den.prune import prune_useless
from lifelong.learners.den.retrain import selective_retraining
from lifelong.learners.den.split import split
from lifelong.learners.den.split_weights import split_weights
from lifelong.learners.den.task_training import TaskTraining
from lifelong.networks.growing import ROOT, GrowingNetwork, Network, first_network
from lifelong.networks.initial import root_tensors
from lifelong.networks.patches import to_half
from lifelong.records import StageRecord
from lifelong.training.penalties import sparse_weights


def incremental_learning(known: GrowingNetwork, training: TaskTraining) -> Draft:
    """The network after one more task; `known` is not changed."""
    settings = training.settings
    if not known.tasks:
        return first_task(known, training)
    if settings.split == "auto":
        return growth_by_need(known, training)
    draft = selective_retraining(known, training)
    if settings.expand and known.born and draft.loss > settings.tau:
        draft = dynamic_expansion(draft, training)
    if settings.split == "units":
        return split(known, draft, training)
    if settings.split == "weights":
        return split_weights(known, draft, training)
    return draft


def first_task(known: GrowingNetwork, training: TaskTraining) -> Draft:
    """Train the first network with l1 (Equation 2), and drop its useless units."""
    settings, layout = training.settings, known.architecture.layout
    # A pretrained module is taken whole.
    share = 1.0 if known.architecture.start else settings.initial_width
    # A layer that is narrower than there are outputs cannot tell them apart.
    least = training.task.outputs
    widths = {group: max(ceil(w * share), min(w, least)) for group, w in layout.groups.items()}
    start = first_network(known.architecture, widths, training.task.outputs, training.fresh())
    if known.root is not None:
        return _first_patch(known, start, training)
    draft = _trained_with_l1(start, training)
    return prune_useless(draft, training.number) if settings.prune else draft


def _trained_with_l1(start: Network, training: TaskTraining, share: float = 1.0) -> Draft:
    """Equation 2 with this share of mu."""
    penalties = sparse_weights(start.architecture.layout.tensors, share * training.settings.mu)
    network, stage = training.train(first_stage(share), start, penalties)
    return Draft(network, stage.loss, (stage,))


def _with_chosen_l1(start: Network, training: TaskTraining) -> Draft:
    """Equation 2 with mu, and with a quarter of it for as long as the validation loss falls by the
    share `min_improvement` of a constant guess's (0: not tried), and by more than chance. Later
    tasks have the strength that is chosen here.
    """
    generator = training.generator
    least = training.settings.min_improvement * constant_loss(training)
    begin = generator.get_state()
    best, end = _trained_with_l1(start, training), generator.get_state()
    others: list[StageRecord] = []
    for share in SHARES[1:] if least else ():
        generator.set_state(begin)  # the same batches for all strengths
        weaker = _trained_with_l1(start, training, share)
        if weaker.loss > best.loss - least or not _surely_lower(weaker, best, training):
            others.extend(weaker.stages)
            break
        others.extend(best.stages)
        best, end = weaker, generator.get_state()
    generator.set_state(end)
    # Last, because it is the training that the network comes from.
    return replace(best, stages=(*others, *best.stages))


def _surely_lower(one: Draft, other: Draft, training: TaskTraining) -> bool:
    """Whether the validation loss is lower by two standard errors of the difference."""
    gains = training.loss_by_part(other.network) - training.loss_by_part(one.network)
    return bool(gains.mean() > 2 * gains.std() / len(gains) ** 0.5)


def _first_patch(known: GrowingNetwork, start: Network, training: TaskTraining) -> Draft:
    """The first network as a patch of the untrained one. No unit is pruned: a later task may use
    what this one did not.
    """
    assert known.root is not None
    layout = known.architecture.layout
    shared = [name for name, spec in layout.tensors.items() if spec.owner == "shared"]
    root = root_tensors(known.architecture, shared, start.widths, known.root)
    moved = {name: tensor.to(training.device) for name, tensor in root.items()}
    draft = _with_chosen_l1(start.with_tensors({**start.tensors, **moved}), training)
    tensors = draft.network.tensors
    rounded = {name: to_half(tensors[name]) for name in shared}
    network = draft.network.with_tensors({**tensors, **rounded})
    return replace(draft, network=network, loss=training.loss(network), parent=ROOT)
