"""The network of one task as a plain `nn.Module`."""

from collections import OrderedDict
from collections.abc import Sequence
from typing import final

from torch import Tensor, nn

from lifelong.learners.base import AnyLearner
from lifelong.learners.predicting import Predictor
from lifelong.networks.growing import LearnedTask, Network
from lifelong.networks.layout import HEAD, Tensors
from lifelong.networks.sequential import (
    Convolution,
    Flatten,
    Layer,
    Linear,
    MaxPool,
    Relu,
    Sequential,
)
from lifelong.tasks.kinds import Kind


def task_module(learner: AnyLearner, task: str, *, answers: bool = False) -> nn.Module:
    """The network that serves a task, with tensors of its own: an `nn.Sequential` where it is a
    chain of layers.

    It returns logits (numbers of a regression), for training on; with `answers` what
    `predict_proba` returns. Parameters are named as they are here, such as "hidden1.weight".
    """
    known, network = learner.predictor(task)
    module = _module(network)
    link = _link(known)
    if answers and link is not None:
        module = nn.Sequential(OrderedDict([("network", module), ("answers", link)]))
    return module.eval()


def _module(network: Predictor) -> nn.Module:
    if isinstance(network, Network) and isinstance(network.architecture, Sequential):
        return _chain(network.architecture.layers, network.tensors)
    return _Copied(network)


def _link(known: LearnedTask) -> nn.Module | None:
    if known.kind.is_regression:
        return None
    return nn.Sigmoid() if known.kind is Kind.BINARY else nn.Softmax(dim=1)


def _chain(layers: Sequence[Layer], tensors: Tensors) -> nn.Sequential:
    modules: OrderedDict[str, nn.Module] = OrderedDict()
    for number, layer in enumerate(layers, 1):
        kind = f"{type(layer).__name__.lower()}{number}"
        name = layer.name if isinstance(layer, Linear | Convolution) else kind
        modules[name] = _layer(layer, tensors)
    weight = tensors[HEAD[0]]
    modules[HEAD[0].rpartition(".")[0]] = nn.Linear(weight.shape[1], weight.shape[0])
    module = nn.Sequential(modules)
    module.load_state_dict({name: tensors[name] for name in module.state_dict()})
    return module


def _layer(layer: Layer, tensors: Tensors) -> nn.Module:
    match layer:
        case Linear(name):
            units, inputs = tensors[f"{name}.weight"].shape
            return nn.Linear(inputs, units, layer.bias)
        case Convolution(name, kernel=kernel, padding=padding):
            units, channels = tensors[f"{name}.weight"].shape[:2]
            return nn.Conv2d(channels, units, kernel, padding=padding, bias=layer.bias)
        case MaxPool(size):
            return nn.MaxPool2d(size)
        case Flatten():
            return nn.Flatten()
        case Relu():
            return nn.ReLU()


@final
class _Copied(nn.Module):
    """Whatever network: its function, with its tensors as parameters of their own."""

    def __init__(self, network: Predictor) -> None:
        super().__init__()
        self._network = network
        for name, tensor in network.tensors.items():
            *parts, last = name.split(".")
            place: nn.Module = self
            for part in parts:
                if part not in dict(place.named_children()):
                    place.add_module(part, nn.Module())
                place = place.get_submodule(part)
            place.register_parameter(last, nn.Parameter(tensor.detach().clone()))

    def forward(self, x: Tensor) -> Tensor:
        """Logits, or the numbers of a regression."""
        return self._network.with_tensors(dict(self.named_parameters())).logits(x)
