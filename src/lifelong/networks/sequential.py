"""Sequential networks: fully connected and convolutional.

Layers compute with tensors of any width, so growth needs no code here.
"""

import math
import operator
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import cached_property
from itertools import pairwise
from typing import TypeAlias, final

import msgspec
import torch
import torch.nn.functional as F
from torch import Tensor

from lifelong.networks.layout import (
    HEAD,
    INPUTS,
    NEW_TO_OLD,
    OUTPUTS,
    Axis,
    Layout,
    NetworkError,
    Tensors,
    TensorSpec,
    apply_head,
    fixed_axis,
    units_axis,
)


@final
class Linear(msgspec.Struct, frozen=True, tag="linear", omit_defaults=True):
    """A fully connected layer; its units form the group of the same name."""

    name: str
    units: int
    bias: bool = True


@final
class Convolution(msgspec.Struct, frozen=True, tag="convolution", omit_defaults=True):
    """A square convolution with stride 1; its filters form the group of the same name."""

    name: str
    units: int
    kernel: int
    padding: int
    bias: bool = True


@final
class MaxPool(msgspec.Struct, frozen=True, tag="max_pool"):
    """Max pooling over squares of this size."""

    size: int


@final
class Flatten(msgspec.Struct, frozen=True, tag="flatten"):
    """Flatten channel by channel, so that the positions of a channel stay together."""


@final
class Relu(msgspec.Struct, frozen=True, tag="relu"):
    """ReLU."""


Layer: TypeAlias = Linear | Convolution | MaxPool | Flatten | Relu


@final
class Sequential(msgspec.Struct, frozen=True, dict=True):
    """A sequence of layers whose last output is the features that a head reads.

    Layers are applied as functions of the tensors: faster than `nn.Sequential` for the prediction
    of a single row, and equally fast in training.
    """

    inputs: tuple[int, ...]
    layers: tuple[Layer, ...]

    @cached_property
    def layout(self) -> Layout:
        tensors: dict[str, TensorSpec] = {}
        last = INPUTS
        for layer, read, _ in self._senders():
            out, last = units_axis(layer.name, "out"), layer.name
            kernel = [fixed_axis(layer.kernel)] * 2 if isinstance(layer, Convolution) else []
            tensors[f"{last}.weight"] = TensorSpec((out, read, *kernel), "weight")
            if layer.bias:
                tensors[f"{last}.bias"] = TensorSpec((out,), "bias")
        outputs = units_axis(OUTPUTS, "out")
        weight, bias = HEAD
        tensors[weight] = TensorSpec((outputs, units_axis(last, "in")), "weight", "task")
        tensors[bias] = TensorSpec((outputs,), "bias", "task")
        groups = {layer.name: layer.units for layer in _with_weights(self.layers)}
        return Layout(self.inputs, groups, tensors)

    @property
    def start(self) -> Tensors:
        return {}

    def features(
        self, tensors: Tensors, x: Tensor, generator: torch.Generator | None = None
    ) -> Tensor:
        """The same in training and in evaluation mode."""
        del generator
        for layer in self._computed:
            x = layer_output(layer, tensors, x)
        return x

    def frozen_activations(self, old: Tensors, x: Tensor) -> tuple[Tensor, ...]:
        """Outputs of the first layer, and the pre-activations that they cause in the second one."""
        below = self._second
        for layer in self._computed[:below]:
            x = layer_output(layer, old, x)
        return x, *(layer_output(layer, old, x) for layer in self._computed[below : below + 1])

    def features_with_new(
        self, old: Tensors, new: Tensors, x: Tensor, frozen: Sequence[Tensor]
    ) -> Tensor:
        below = self._second
        older, sums = frozen[0], frozen[1:]
        newer: Tensor | None = x
        for layer in self._computed[:below]:
            newer = _newcomers_output(layer, new, newer)
        for layer in self._computed[below:]:
            if not isinstance(layer, Linear | Convolution):
                older, newer = layer_output(layer, {}, older), _newcomers_output(layer, new, newer)
                continue
            read = _side_by_side(older, newer)
            older, sums = sums[0] if sums else layer_output(layer, old, older), ()
            if newer is not None:
                older = older + _new_to_old(layer, new, newer)
            newer = _newcomers_output(layer, new, read)
        return _side_by_side(older, newer)

    def traced(
        self, tensors: Tensors, x: Tensor
    ) -> tuple[dict[str, tuple[Tensor, str, str | None]], dict[str, Tensor]]:
        """By layer with weights: its input with the names of its weight and of its bias, if any,
        and its output; the head comes last.

        The inputs of a convolution are unfolded, one column per position. Outputs require
        gradients, whether or not the tensors do.
        """
        inputs: dict[str, tuple[Tensor, str, str | None]] = {}
        outputs: dict[str, Tensor] = {}
        for layer in self._computed:
            before, x = x, layer_output(layer, tensors, x)
            if isinstance(layer, Linear | Convolution):
                seen = before.detach()
                if isinstance(layer, Convolution):
                    seen = F.unfold(seen, layer.kernel, padding=layer.padding)
                bias = f"{layer.name}.bias" if layer.bias else None
                inputs[layer.name] = seen, f"{layer.name}.weight", bias
                outputs[layer.name] = x = x if x.requires_grad else x.requires_grad_()
        inputs["head"] = x.detach(), *HEAD
        found = apply_head(x, tensors)
        outputs["head"] = found if found.requires_grad else found.requires_grad_()
        return inputs, outputs

    @cached_property
    def readers(self) -> dict[str, str | None]:
        """Every weight, with the bias of its layer, if any."""
        hidden: dict[str, str | None] = {
            f"{layer.name}.weight": f"{layer.name}.bias" if layer.bias else None
            for layer in _with_weights(self.layers)
        }
        return {**hidden, HEAD[0]: HEAD[1]}

    def show_inputs(self, tensors: Tensors, x: Tensor, see: Callable[[str, Tensor], None]) -> None:
        """As `traced` tells them, with one row per position."""
        inputs, _ = self.traced(tensors, x)
        for seen, weight, _ in inputs.values():
            see(weight, seen if seen.ndim == 2 else seen.transpose(1, 2).flatten(0, 1))

    @cached_property
    def _computed(self) -> tuple[Layer, ...]:
        """The layers in the order of computing: a ReLU after the pooling that follows it. The
        numbers and gradients are the same, and the ReLU has a quarter of the work.
        """
        layers = list(self.layers)
        for place, pair in enumerate(pairwise(self.layers)):
            match pair:
                case Relu(), MaxPool():
                    layers[place : place + 2] = reversed(pair)
        return tuple(layers)

    @cached_property
    def _second(self) -> int:
        """Position of the second layer with weights; the end if there is none."""
        places = [
            n for n, layer in enumerate(self._computed) if isinstance(layer, Linear | Convolution)
        ]
        return places[1] if len(places) > 1 else len(self._computed)

    def multiply_adds(self, tensors: Tensors) -> int:
        """Per row: each weight of a layer is used once per position of its output."""
        weights = ((f"{layer.name}.weight", area) for layer, _, area in self._senders())
        return tensors["head.weight"].numel() + sum(
            tensors[name].numel() * positions for name, positions in weights
        )

    def _senders(self) -> Iterator[tuple[Linear | Convolution, Axis, int]]:
        """Each layer with weights, the axis that it reads, and the positions of its output."""
        sender, area = units_axis(INPUTS, "in"), self.inputs[1:]
        for layer in self.layers:
            match layer:
                case Convolution(name, kernel=kernel, padding=padding):
                    area = tuple(side + 2 * padding - kernel + 1 for side in area)
                    yield layer, sender, math.prod(area)
                    sender = units_axis(name, "in")
                case MaxPool(size):
                    area = tuple(side // size for side in area)
                case Flatten():
                    sender, area = units_axis(sender.groups[0], "in", math.prod(area)), ()
                case Linear(name):
                    yield layer, sender, 1
                    sender = units_axis(name, "in")
                case Relu():
                    pass
            if any(side < 1 for side in area):
                raise NetworkError(f"inputs of shape {self.inputs} leave nothing after {layer}")


def layer_output(layer: Layer, tensors: Tensors, x: Tensor) -> Tensor:
    """Output of one layer; `tensors` include its weight, and its bias if it has one."""
    match layer:
        case Linear(name):
            return F.linear(x, tensors[f"{name}.weight"], tensors.get(f"{name}.bias"))
        case Convolution(name, padding=padding):
            weight, bias = tensors[f"{name}.weight"], tensors.get(f"{name}.bias")
            return F.conv2d(_channels_last(x), weight, bias, padding=padding)
        case Relu():
            return F.relu(x)
        case MaxPool(size):
            return F.max_pool2d(_channels_last(x), size)
        case Flatten():
            return x.flatten(1)


def _channels_last(x: Tensor) -> Tensor:
    """The images in the order in which a processor pools and convolves them twice as fast."""
    return x.contiguous(memory_format=torch.channels_last)


def _newcomers_output(layer: Layer, new: Tensors, x: Tensor | None) -> Tensor | None:
    """Output of a layer's newcomers; None if there are none."""
    if x is None or (isinstance(layer, Linear | Convolution) and f"{layer.name}.weight" not in new):
        return None
    return layer_output(layer, new, x)


def _new_to_old(layer: Linear | Convolution, new: Tensors, newer: Tensor) -> Tensor:
    """What a layer's older units receive from newcomers of the layer below."""
    weight = f"{layer.name}.weight"
    return layer_output(layer, {weight: new[weight + NEW_TO_OLD]}, newer)


def _side_by_side(older: Tensor, newer: Tensor | None) -> Tensor:
    """All units in order; after a flatten too, since the positions of a unit stay together."""
    return older if newer is None else torch.cat([older, newer], dim=1)


def _with_weights(layers: Sequence[Layer]) -> list[Linear | Convolution]:
    return [layer for layer in layers if isinstance(layer, Linear | Convolution)]


def mlp(inputs: int, widths: Sequence[int], *, bias: bool = True) -> Sequential:
    """Fully connected layers with ReLU, of any depth; `mlp(784, [312, 128])` is the paper's.

    Without `bias` the hidden layers have none; a task's head always has one.
    """
    _check_sizes(inputs=[inputs], widths=widths)
    return Sequential((int(inputs),), tuple(_hidden(_ints(widths), _flag(bias))))


def convnet(
    inputs: tuple[int, int, int],
    filters: Sequence[int],
    widths: Sequence[int],
    *,
    kernel: int = 5,
    pool: Sequence[bool] | None = None,
    bias: bool = True,
) -> Sequential:
    """Size-preserving convolutions with ReLU, then fully connected layers.

    `pool` says which convolutions are followed by 2 x 2 max pooling; by default all are. Without
    `bias` no layer but a task's head has one.
    """
    _check_sizes(inputs=inputs, filters=filters, widths=widths, kernel=[kernel])
    shape, filters, widths, kernel = _ints(inputs), _ints(filters), _ints(widths), int(kernel)
    biased = _flag(bias)
    pooled = [True] * len(filters) if pool is None else list(pool)
    if len(inputs) != 3 or len(pooled) != len(filters) or kernel % 2 == 0:
        raise NetworkError(
            "a convnet takes inputs (channels, height, width), one `pool` for each of `filters` "
            f"and an odd kernel, not inputs={inputs}, pool={pool}, kernel={kernel}"
        )
    layers: list[Layer] = []
    for number, (units, pools) in enumerate(zip(filters, pooled, strict=True), 1):
        layers += [Convolution(f"conv{number}", units, kernel, kernel // 2, biased), Relu()]
        layers += [MaxPool(2)] if pools else []
    sequential = Sequential(shape, (*layers, Flatten(), *_hidden(widths, biased)))
    _ = sequential.layout  # refuses an image that the poolings shrink to nothing
    return sequential


def alexnet(inputs: tuple[int, int, int] = (3, 32, 32)) -> Sequential:
    """The paper's modified AlexNet. The paper does not say where to pool: here after 1, 2 and 5."""
    pool = (True, True, False, False, True)
    return convnet(inputs, (64, 128, 256, 256, 128), (384, 192), kernel=5, pool=pool)


def _hidden(widths: Sequence[int], bias: bool) -> list[Layer]:
    named = [Linear(f"hidden{number}", units, bias) for number, units in enumerate(widths, 1)]
    return [layer for linear in named for layer in (linear, Relu())]


def _check_sizes(**sizes: Sequence[int]) -> None:
    for what, numbers in sizes.items():
        if not isinstance(numbers, Iterable) or isinstance(numbers, str):
            raise NetworkError(
                f"{what} must be a list of whole numbers above 0, such as [64], not {numbers!r}"
            )
        if not list(numbers) or not all(map(_is_size, numbers)):
            raise NetworkError(f"{what} must be one or more whole numbers above 0, not {numbers}")


def _is_size(number: object) -> bool:
    try:
        return not isinstance(number, bool) and operator.index(number) > 0  # type: ignore[arg-type]
    except TypeError:
        return False


def _flag(bias: bool) -> bool:
    if not isinstance(bias, bool):
        raise NetworkError(f"bias must be True or False, not {bias!r}")
    return bias


def _ints(numbers: Iterable[int]) -> tuple[int, ...]:
    """As Python's own: a file could not hold those of NumPy."""
    return tuple(map(int, numbers))
