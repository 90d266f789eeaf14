"""A mask of the untrained network as what a task stores: a bit per weight.

Not in the paper of DEN; after SupSup (Wortsman et al., 2020). All weights of a tensor have the same
size and the sign that chance gave them; a task keeps half of them, and trains its biases and its
head. On few rows such a mask learns less by heart than a patch, whose weights can take any value.
"""

import msgspec
import torch
from torch import Tensor

from lifelong.learners.den.draft import Draft
from lifelong.learners.den.task_training import TaskTraining
from lifelong.networks.growing import ROOT, GrowingNetwork, Network
from lifelong.networks.initial import all_of_one_size
from lifelong.networks.layout import HEAD, Architecture
from lifelong.networks.patches import to_half
from lifelong.training.losses import loss_of

MASK = "mask"  # stage
SHARE = 0.5  # of the weights of each tensor that a mask keeps: where a bit says most
_STEPS = 50  # of the search for a scale and a shift


def masked_weights(architecture: Architecture) -> tuple[str, ...]:
    """Names of the weights that a mask is over; none in a pretrained module, whose values count."""
    if architecture.start:
        return ()
    specs = architecture.layout.tensors.items()
    return tuple(n for n, spec in specs if spec.kind == "weight" and spec.owner == "shared")


def untrained(known: GrowingNetwork, training: TaskTraining) -> Network:
    """The untrained network with a fresh head for the task."""
    layout, make = known.architecture.layout, training.fresh()
    units = {group: len(born) for group, born in known.born.items()}
    widths = layout.widths(units, training.task.outputs)
    weight, bias = (make(layout.tensors[n], layout.tensors[n].shape(widths)) for n in HEAD)
    return known.with_head(weight, bias, ROOT)


def mask_of_root(known: GrowingNetwork, training: TaskTraining) -> Draft:
    """The untrained network with the mask that was best for the task.

    The generator is left as it came, so that a mask that is only tried changes nothing else.
    """
    generator, specs = training.generator, known.architecture.layout.tensors
    begin = generator.get_state()
    start, names = untrained(known, training), masked_weights(known.architecture)
    sized = {n: to_half(all_of_one_size(specs[n], start.tensors[n])) for n in names}
    start = start.with_tensors({**start.tensors, **sized})
    network, stage = training.train_mask(MASK, start, names, SHARE)
    generator.set_state(begin)
    shared = {n: to_half(t) for n, t in network.tensors.items() if specs[n].owner == "shared"}
    network = recalibrated(network.with_tensors({**network.tensors, **shared}), training)
    stage = msgspec.structs.replace(stage, loss=training.loss(network))
    return Draft(network, stage.loss, (stage,), parent=ROOT)


def recalibrated(network: Network, training: TaskTraining) -> Network:
    """The network with its head scaled and shifted as the validation rows ask for.

    Weights of one size leave the scale of the outputs to a few biases and the head, which training
    seldom gets right before the order of the rows is. The penalty, a row's worth, bounds the scale
    where the rows are told apart without an error.
    """
    _, valid = training.rows()
    batches = [(network.logits(x), y) for x, y in valid.batches(4096)]
    logits, y = (training.context.ranks.gathered(torch.cat(p)) for p in zip(*batches, strict=True))
    asked = torch.zeros(2, device=logits.device, requires_grad=True)
    search = torch.optim.LBFGS([asked], max_iter=_STEPS, line_search_fn="strong_wolfe")
    loss = loss_of(training.task)

    def closure() -> Tensor:
        search.zero_grad()
        found = loss(asked[0].exp() * logits + asked[1], y) + (asked**2).sum() / (2 * len(y))
        found.backward()
        return found

    search.step(closure)
    weight, bias = (network.tensors[name] for name in HEAD)
    scale, shift = asked[0].detach().exp(), asked[1].detach()
    head = dict(zip(HEAD, (scale * weight, scale * bias + shift), strict=True))
    better = network.with_tensors({**network.tensors, **head})
    return better if training.loss(better) < training.loss(network) else network
