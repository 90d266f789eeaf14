"""Answers of a network: rows are checked, computed in bounded memory, and told as asked for."""

import math
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager, nullcontext
from typing import Protocol, TypeAlias

import torch
from torch import Tensor

from lifelong.networks.layout import Tensors
from lifelong.tasks.kinds import Array, Kind, TaskError, aligned, plain_tensor

CHUNK = 4096  # rows predicted at once, to bound memory
Link: TypeAlias = Callable[[Tensor], Tensor]  # makes answers of a network's outputs


class Predictor(Protocol):
    """A network that predicts for one task."""

    @property
    def inputs(self) -> tuple[int, ...]: ...

    @property
    def tensors(self) -> Tensors: ...

    def logits(self, x: Tensor) -> Tensor: ...

    def multiply_adds(self) -> int: ...

    def with_tensors(self, tensors: Tensors) -> "Predictor":
        """The same function of other tensors, under the same names."""
        ...


def answers(x: Array, network: Predictor, link: Link, device: torch.device) -> Tensor:
    """What the network says of these rows, after they were checked."""
    return computed(_checked(x, network.inputs), network, link, device)


def computed(inputs: Tensor, network: Predictor, link: Link, device: torch.device) -> Tensor:
    """What the network says of rows that are finite and of its shape."""
    parts = inputs.split(CHUNK) if len(inputs) > CHUNK else (inputs,)
    with torch.no_grad(), in_float32(device):
        chunks = [link(network.logits(part.to(device))) for part in parts]
    found = chunks[0] if len(chunks) == 1 else torch.cat(chunks)
    if not _all_finite(found):
        raise TaskError(
            "inputs overflow the network, so that it has no answer; scale them like those that "
            "it learned from"
        )
    return found


def in_float32(device: torch.device) -> AbstractContextManager[object]:
    """Who calls may have turned autocast on: it would round to half precision on the way."""
    if not torch.is_autocast_enabled(device.type):
        return nullcontext()  # prediction of a row must not pay for what is rare
    return torch.autocast(device.type, enabled=False)


def _checked(x: Array, wanted: tuple[int, ...]) -> Tensor:
    inputs = aligned(plain_tensor("inputs", x).to(torch.float32).contiguous())
    if tuple(inputs.shape[1:]) != wanted or inputs.ndim == 0:
        one = tuple(inputs.shape) == wanted
        raise TaskError(
            f"inputs must have rows first and then shape {wanted}, not {tuple(inputs.shape)}"
            + ("; give one row as x[None], and take the one answer" if one else "")
        )
    if not _all_finite(inputs):
        raise TaskError("inputs must be finite in float32; some are NaN, infinite or too large")
    return inputs


def _all_finite(numbers: Tensor) -> bool:
    """A finite sum proves finite terms and is four times as fast as checking each; it may overflow
    although all terms are finite, and only then each is checked.
    """
    return math.isfinite(numbers.detach().sum()) or bool(torch.isfinite(numbers).all())


def unchanged(logits: Tensor) -> Tensor:
    return logits


def _softmax(logits: Tensor) -> Tensor:
    return torch.softmax(logits, dim=1)


LINKS: Mapping[Kind, Link] = {
    Kind.BINARY: torch.sigmoid,
    Kind.CLASSES: _softmax,
    Kind.REGRESSION: unchanged,
    Kind.MEDIAN_REGRESSION: unchanged,
}
