"""A mask of the untrained network as what a task stores: a bit per weight.

Not in the paper of DEN; after SupSup (Wortsman et al., 2020). All weights of a tensor have the same
size and the sign that chance gave them; a task keeps half of them, and trains its biases and its
head. On few rows such a mask learns less by heart than a patch, whose weights can take any value.
As the scale of the outputs is left to biases and head, the head is calibrated.
"""

import msgspec

from lifelong.learners.den.draft import Draft
from lifelong.learners.den.task_training import TaskTraining
from lifelong.networks.growing import ROOT, GrowingNetwork, Network
from lifelong.networks.initial import all_of_one_size
from lifelong.networks.layout import HEAD, Architecture
from lifelong.networks.patches import to_half

MASK = "mask"  # stage
SHARE = 0.5  # of the weights of each tensor that a mask keeps: where a bit says most


def masked_weights(architecture: Architecture) -> tuple[str, ...]:
    """Names of the weights that a mask is over; none in a pretrained module, whose values count."""
    if architecture.start:
        return ()
    specs = architecture.layout.tensors.items()
    return tuple(n for n, spec in specs if spec.kind == "weight" and spec.owner == "shared")


def untrained(known: GrowingNetwork, training: TaskTraining) -> Network:
    """The untrained network with the last task's statistics and a fresh head."""
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
    network = training.calibrated(network.with_tensors({**network.tensors, **shared}))
    stage = msgspec.structs.replace(stage, loss=training.loss(network))
    return Draft(network, stage.loss, (stage,), parent=ROOT)
