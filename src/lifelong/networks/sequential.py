"""How a network computes: its layers, and over what each axis of their tensors runs.

A hidden *unit* (a neuron, or the filter of a convolution) belongs to a *group*: the outputs of one
layer. Each axis of each tensor runs over the units of a group, as receiver or as sender, or over
something that does not grow. Layers do not know that they grow: `surgery` changes tensors by their
axes alone, the same for a linear layer as for a convolution.
"""

import math
from collections.abc import Iterator, Mapping, Sequence
from functools import cached_property
from typing import Protocol, TypeAlias, final

import msgspec
import torch
import torch.nn.functional as F
from torch import Tensor

INPUTS = "inputs"  # the group of input features or channels: it is selected from, and never grows
HEAD = ("head.weight", "head.bias")
NEW_TO_OLD = " across"  # after a weight's name: what older units receive from newcomers

Tensors: TypeAlias = Mapping[str, Tensor]


class NetworkError(ValueError):
    """A network that cannot be built; the message says what came and what is allowed."""


@final
class Axis(msgspec.Struct, frozen=True):
    """Which units an axis of a tensor runs over.

    A receiver's entries are what the unit computes with; a sender's are what others take from it.
    After a flatten one unit spans several neighbouring positions.
    """

    group: str
    receives: bool = False
    span: int = 1


Axes: TypeAlias = tuple[Axis | None, ...]


@final
class Linear(msgspec.Struct, frozen=True, tag="linear"):
    """A fully connected layer; its units form the group of the same name."""

    name: str
    units: int


@final
class Convolution(msgspec.Struct, frozen=True, tag="convolution"):
    """A square convolution with stride 1; its filters form the group of the same name."""

    name: str
    units: int
    kernel: int
    padding: int


@final
class MaxPool(msgspec.Struct, frozen=True, tag="max_pool"):
    """The largest value of each square of this size."""

    size: int


@final
class Flatten(msgspec.Struct, frozen=True, tag="flatten"):
    """Maps to rows, channel by channel, so that a channel's positions stay together."""


@final
class Relu(msgspec.Struct, frozen=True, tag="relu"):
    """What is above zero."""


Layer: TypeAlias = Linear | Convolution | MaxPool | Flatten | Relu


class Architecture(Protocol):
    """How to compute from named tensors of whatever width, and what their axes mean.

    The door for arbitrary modules: surgery, selection and training ask for nothing but this.
    """

    @property
    def inputs(self) -> tuple[int, ...]: ...

    @property
    def widths(self) -> Mapping[str, int]:
        """Units of each hidden group before any growth, in the order of computation."""
        ...

    @property
    def axes(self) -> Mapping[str, Axes]:
        """Of every tensor, the head's two among them."""
        ...

    def shape(self, name: str, widths: Mapping[str, int], outputs: int) -> tuple[int, ...]:
        """Of a tensor in a network of these widths."""
        ...

    def features(self, tensors: Tensors, x: Tensor) -> Tensor: ...

    def frozen_activations(self, old: Tensors, x: Tensor) -> tuple[Tensor, ...]:
        """What the units of these tensors compute that newcomers beside them cannot change."""
        ...

    def features_with_new(
        self, old: Tensors, new: Tensors, x: Tensor, frozen_activations: Sequence[Tensor]
    ) -> Tensor:
        """The features of a network of older units and newcomers.

        Args:
            old: the weights between older units.
            new: of each weight and bias what newcomers receive, and under its name and `NEW_TO_OLD`
                what older units receive from newcomers. Without newcomers there is no entry.
            x: inputs.
            settled: what `frozen_activations` makes of `old` and these inputs.
        """
        ...

    def multiply_adds(self, tensors: Tensors) -> int: ...


@final
class Sequential(msgspec.Struct, frozen=True, dict=True):
    """Layers one after the other, ending in rows of features that a head reads.

    The functions are called directly on the tensors. That answers a single row faster than an
    `nn.Sequential`, and costs the same in training.
    """

    inputs: tuple[int, ...]
    layers: tuple[Layer, ...]

    @cached_property
    def widths(self) -> dict[str, int]:
        return {layer.name: layer.units for layer in _with_weights(self.layers)}

    @cached_property
    def axes(self) -> dict[str, Axes]:
        axes: dict[str, Axes] = {}
        for layer, sender, _ in self._senders():
            receiver = Axis(layer.name, receives=True)
            kernel = (None, None) if isinstance(layer, Convolution) else ()
            axes[f"{layer.name}.weight"] = (receiver, sender, *kernel)
            axes[f"{layer.name}.bias"] = (receiver,)
        axes["head.weight"] = (None, Axis(_with_weights(self.layers)[-1].name))
        axes["head.bias"] = (None,)
        return axes

    def shape(self, name: str, widths: Mapping[str, int], outputs: int) -> tuple[int, ...]:
        units = {INPUTS: self.inputs[0], **widths}
        sized = [units[a.group] * a.span for a in self.axes[name] if a is not None]
        layer = next((x for x in _with_weights(self.layers) if name == f"{x.name}.weight"), None)
        kernel = [layer.kernel] * 2 if isinstance(layer, Convolution) else []
        return (*([outputs] if name in HEAD else []), *sized, *kernel)

    def features(self, tensors: Tensors, x: Tensor) -> Tensor:
        for layer in self.layers:
            x = layer_output(layer, tensors, x)
        return x

    def frozen_activations(self, old: Tensors, x: Tensor) -> tuple[Tensor, ...]:
        """The units of the first layer read inputs alone. What they send to the second layer's is
        settled too, until newcomers send more.
        """
        below = self._second
        for layer in self.layers[:below]:
            x = layer_output(layer, old, x)
        return x, *(layer_output(layer, old, x) for layer in self.layers[below : below + 1])

    def features_with_new(
        self, old: Tensors, new: Tensors, x: Tensor, frozen_activations: Sequence[Tensor]
    ) -> Tensor:
        below = self._second
        older, sums = frozen_activations[0], frozen_activations[1:]
        newer: Tensor | None = x
        for layer in self.layers[:below]:
            newer = _newcomers_output(layer, new, newer)
        for layer in self.layers[below:]:
            if not isinstance(layer, Linear | Convolution):
                older, newer = layer_output(layer, {}, older), _newcomers_output(layer, new, newer)
                continue
            read = _side_by_side(older, newer)
            older, sums = sums[0] if sums else layer_output(layer, old, older), ()
            if newer is not None:
                older = older + _sent_across(layer, new, newer)
            newer = _newcomers_output(layer, new, read)
        return _side_by_side(older, newer)

    @cached_property
    def _second(self) -> int:
        """Where the second layer with weights is; the end if there is none."""
        places = [
            n for n, layer in enumerate(self.layers) if isinstance(layer, Linear | Convolution)
        ]
        return places[1] if len(places) > 1 else len(self.layers)

    def multiply_adds(self, tensors: Tensors) -> int:
        """Of one row: each weight of a layer is used once for every position of its output."""
        weights = ((f"{layer.name}.weight", area) for layer, _, area in self._senders())
        return tensors["head.weight"].numel() + sum(
            tensors[name].numel() * positions for name, positions in weights
        )

    def _senders(self) -> Iterator[tuple[Linear | Convolution, Axis, int]]:
        """Each layer with weights, the axis that it reads, and the positions of its output."""
        sender, area = Axis(INPUTS), self.inputs[1:]
        for layer in self.layers:
            match layer:
                case Convolution(name, kernel=kernel, padding=padding):
                    area = tuple(side + 2 * padding - kernel + 1 for side in area)
                    yield layer, sender, math.prod(area)
                    sender = Axis(name)
                case MaxPool(size):
                    area = tuple(side // size for side in area)
                case Flatten():
                    sender, area = Axis(sender.group, span=math.prod(area)), ()
                case Linear(name):
                    yield layer, sender, 1
                    sender = Axis(name)
                case Relu():
                    pass
            if any(side < 1 for side in area):
                raise NetworkError(f"inputs of shape {self.inputs} leave nothing after {layer}")


def layer_output(layer: Layer, tensors: Tensors, x: Tensor) -> Tensor:
    """What one layer makes of its inputs, with its own among these tensors."""
    match layer:
        case Linear(name):
            return F.linear(x, tensors[f"{name}.weight"], tensors.get(f"{name}.bias"))
        case Convolution(name, padding=padding):
            weight, bias = tensors[f"{name}.weight"], tensors.get(f"{name}.bias")
            return F.conv2d(x, weight, bias, padding=padding)
        case Relu():
            return F.relu(x)
        case MaxPool(size):
            return F.max_pool2d(x, size)
        case Flatten():
            return x.flatten(1)


def _newcomers_output(layer: Layer, new: Tensors, x: Tensor | None) -> Tensor | None:
    """What a layer's newcomers make of its inputs; None where there are none."""
    if x is None or (isinstance(layer, Linear | Convolution) and f"{layer.name}.weight" not in new):
        return None
    return layer_output(layer, new, x)


def _sent_across(layer: Linear | Convolution, new: Tensors, newer: Tensor) -> Tensor:
    """What newcomers of the layer below add to what a layer's older units receive."""
    weight = f"{layer.name}.weight"
    return layer_output(layer, {weight: new[weight + NEW_TO_OLD]}, newer)


def _side_by_side(older: Tensor, newer: Tensor | None) -> Tensor:
    """All units in order; after a flatten too, since a unit's positions stay together."""
    return older if newer is None else torch.cat([older, newer], dim=1)


def _with_weights(layers: Sequence[Layer]) -> list[Linear | Convolution]:
    return [layer for layer in layers if isinstance(layer, Linear | Convolution)]


def mlp(inputs: int, widths: Sequence[int]) -> Sequential:
    """Fully connected layers with ReLU, of any depth; `mlp(784, [312, 128])` is the paper's."""
    _check_sizes(inputs=[inputs], widths=widths)
    return Sequential((int(inputs),), tuple(_hidden(widths)))


def convnet(
    inputs: tuple[int, int, int],
    filters: Sequence[int],
    widths: Sequence[int],
    *,
    kernel: int = 5,
    pool: Sequence[bool] | None = None,
) -> Sequential:
    """Convolutions that keep the size of the image, each with ReLU and, where `pool` says so, a
    2 x 2 pooling (everywhere unless given); then a flatten and fully connected layers.
    """
    _check_sizes(inputs=inputs, filters=filters, widths=widths, kernel=[kernel])
    pooled = [True] * len(filters) if pool is None else list(pool)
    if len(inputs) != 3 or len(pooled) != len(filters) or kernel % 2 == 0:
        raise NetworkError(
            "a convnet takes inputs (channels, height, width), one `pool` for each of `filters` "
            f"and an odd kernel, not inputs={inputs}, pool={pool}, kernel={kernel}"
        )
    layers: list[Layer] = []
    for number, (units, pools) in enumerate(zip(filters, pooled, strict=True), 1):
        layers += [Convolution(f"conv{number}", units, kernel, kernel // 2), Relu()]
        layers += [MaxPool(2)] if pools else []
    sequential = Sequential(tuple(inputs), (*layers, Flatten(), *_hidden(widths)))
    _ = sequential.axes  # refuses an image that the poolings shrink to nothing
    return sequential


def alexnet(inputs: tuple[int, int, int] = (3, 32, 32)) -> Sequential:
    """The paper's modified AlexNet. It does not say where to pool; we do after 1, 2 and 5."""
    pool = (True, True, False, False, True)
    return convnet(inputs, (64, 128, 256, 256, 128), (384, 192), kernel=5, pool=pool)


def _hidden(widths: Sequence[int]) -> list[Layer]:
    named = [Linear(f"hidden{number}", units) for number, units in enumerate(widths, 1)]
    return [layer for linear in named for layer in (linear, Relu())]


def _check_sizes(**sizes: Sequence[int]) -> None:
    for what, numbers in sizes.items():
        if not numbers or any(not isinstance(n, int) or n < 1 for n in numbers):
            raise NetworkError(f"{what} must be one or more whole numbers above 0, not {numbers}")


def logits(architecture: Architecture, tensors: Tensors, x: Tensor) -> Tensor:
    """The outputs of a task before the sigmoid or the softmax."""
    return F.linear(architecture.features(tensors, x), tensors["head.weight"], tensors["head.bias"])


def base_parameters(architecture: Architecture, outputs: list[int]) -> int:
    """Of the skeleton's own widths with these heads."""
    widths = architecture.widths
    return sum(
        math.prod(architecture.shape(name, widths, count))
        for name in architecture.axes
        for count in (outputs if name.startswith("head.") else [1])
    )
