"""What the weights of a traced module are multiplied with.

It is known of a weight that only fully connected layers and convolutions without groups use, and
only as their weight. Of any other tensor it is not: of a scale, of an embedding, of a weight that
is also used in another way, or that is computed from others.
"""

from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from functools import partial
from typing import Any

import torch.nn.functional as F
from torch import Tensor

from lifelong.networks.traced.program import Argument, Call, Named, Program, function_of

_LINEAR = "aten.linear"
_CONVOLUTIONS = ("aten.conv1d", "aten.conv2d", "aten.conv3d")


def readers_in(program: Program, shapes: Mapping[str, tuple[int, ...]]) -> dict[str, str | None]:
    """Of the tensors with these shapes, the weights whose inputs are known, each with the bias that
    is added whenever the weight is used, and nowhere else; None if there is no such bias.
    """
    uses = Counter(
        atom.name for call in program.calls for atom in call.atoms() if isinstance(atom, Named)
    )
    added: dict[str, list[str | None]] = {}
    for _, weight, bias in _layers(program):
        added.setdefault(weight, []).append(bias)
    found: dict[str, str | None] = {}
    for weight, biases in added.items():
        shape = shapes.get(weight, ())
        if len(shape) < 2 or uses[weight] != len(biases):
            continue
        bias = biases[0]
        goes_with = bias is not None and set(biases) == {bias} and uses[bias] == len(biases)
        found[weight] = bias if goes_with and shapes.get(bias or "") == shape[:1] else None
    return found


def shown(
    program: Program, weights: Collection[str], see: Callable[[str, Tensor], None]
) -> dict[int, Callable[..., Any]]:
    """By the number of a call that uses one of these weights: its operation, which first calls
    `see` with the name of the weight and its inputs. Later calls may change these in place.
    """
    return {
        number: partial(_showing, program.calls[number - 1].operation, weight, see)
        for number, weight, _ in _layers(program)
        if weight in weights
    }


def _showing(
    operation: str, name: str, see: Callable[[str, Tensor], None], *given: Any, **named: Any
) -> Any:
    see(name, (_rows if _kind(operation) == _LINEAR else unfolded)(*given, **named))
    return function_of(operation)[0](*given, **named)


def _layers(program: Program) -> Iterator[tuple[int, str, str | None]]:
    """The calls whose inputs are known: number, weight, and bias if it is a tensor of that name."""
    for number, call in enumerate(program.calls, 1):
        if _kind(call.operation) not in (_LINEAR, *_CONVOLUTIONS):
            continue
        weight, bias = _given(call, 1, "weight"), _given(call, 2, "bias")
        # The number of groups is a formula where it follows a width.
        if isinstance(weight, Named) and _given(call, 6, "groups") in (None, 1):
            yield number, weight.name, bias.name if isinstance(bias, Named) else None


def _kind(operation: str) -> str:
    """Without the overload: one of them names its padding."""
    return operation.rpartition(".")[0]


def _given(call: Call, place: int, name: str) -> Argument:
    return call.arguments[place] if len(call.arguments) > place else call.named.get(name)


def _rows(input: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
    """Inputs of a fully connected layer, which may have rows of tokens."""
    del bias
    return input.reshape(-1, weight.shape[1])


def unfolded(
    input: Tensor,
    weight: Tensor,
    bias: Tensor | None = None,
    stride: int | Sequence[int] = 1,
    padding: int | Sequence[int] | str = 0,
    dilation: int | Sequence[int] = 1,
    groups: int = 1,
) -> Tensor:
    """Inputs of a convolution without groups, of any number of dims: a row for each position of its
    output, with a column for each weight of a filter. Takes what the convolution takes.
    """
    del bias, groups
    kernel = weight.shape[2:]
    strides, dilations = _each(stride, kernel), _each(dilation, kernel)
    spans = [1 + step * (size - 1) for step, size in zip(dilations, kernel, strict=True)]
    x = F.pad(input, [side for pair in _around(padding, spans)[::-1] for side in pair])
    for place, (span, stride_here, step) in enumerate(
        zip(spans, strides, dilations, strict=True), 2
    ):
        x = x.unfold(place, span, stride_here)[..., ::step]
    return x.movedim(1, 1 + len(kernel)).reshape(-1, weight[0].numel())


def _around(padding: int | Sequence[int] | str, spans: Sequence[int]) -> list[tuple[int, int]]:
    """Zeros before and after each dim; of an odd number for "same", one more after it."""
    if padding == "same":
        return [((span - 1) // 2, span // 2) for span in spans]
    given = 0 if isinstance(padding, str) else padding  # the other word is "valid"
    return [(size, size) for size in _each(given, spans)]


def _each(given: int | Sequence[int], dims: Sequence[int]) -> list[int]:
    """One number for each dim: one may be given for all."""
    sizes = [given] if isinstance(given, int) else list(given)
    return sizes * len(dims) if len(sizes) == 1 else sizes
