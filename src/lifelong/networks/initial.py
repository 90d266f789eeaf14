"""With what values a network, and what is added to it, begins."""

import math
from collections.abc import Callable, Collection
from typing import TypeAlias

import numpy as np
import torch
from torch import Tensor

from lifelong.networks.layout import Architecture, TensorSpec, Widths, put
from lifelong.networks.patches import of_one_size, old_region

Initialise: TypeAlias = Callable[[TensorSpec, tuple[int, ...]], Tensor]


def uniform(generator: torch.Generator, device: torch.device | str = "cpu") -> Initialise:
    """Weights uniform within ±1/sqrt(fan-in), biases zero, scales one, others as declared.

    Drawn on the CPU, so that a seed gives the same weights on every device.
    """

    def make(spec: TensorSpec, size: tuple[int, ...]) -> Tensor:
        if spec.kind != "weight":
            return torch.full(size, resting_value(spec), dtype=torch.float32, device=device)
        drawn = torch.rand(size, dtype=torch.float32, generator=generator)
        return _scaled(spec, drawn).to(device)

    return make


def resting_value(spec: TensorSpec) -> float:
    """Of a new entry of a tensor that is no weight."""
    if spec.initial is not None:
        return spec.initial
    return 1.0 if spec.kind == "scale" else 0.0


def _scaled(spec: TensorSpec, drawn: Tensor) -> Tensor:
    """Numbers from 0 to 1 as initial weights within ±1/sqrt(fan-in), or as what is no weight."""
    if spec.kind != "weight":
        return torch.full_like(drawn, resting_value(spec))
    bound = 1 / math.sqrt(math.prod(n for dim, n in enumerate(drawn.shape) if dim != spec.out))
    return (drawn * 2 - 1) * bound


def all_of_one_size(spec: TensorSpec, weight: Tensor) -> Tensor:
    """The signs of a weight times the deviation that keeps the variance through a ReLU (He et al.,
    2015); its zeros stay.
    """
    inputs = math.prod(size for dim, size in enumerate(weight.shape) if dim != spec.out)
    return of_one_size(weight, weight != 0, (2 / inputs) ** 0.5)


def enlarged(
    tensor: Tensor, spec: TensorSpec, before: Widths, after: Widths, make: Initialise
) -> Tensor:
    """The tensor at larger widths: entries between existing units are kept, others are made."""
    if before == after or tuple(tensor.shape) == spec.shape(after):
        return tensor
    grown = make(spec, spec.shape(after)).to(tensor.device)
    units = {group: torch.arange(width) for group, width in before.items()}
    put(grown, spec.region(after, out=units, into=units), tensor)
    return grown


def root_tensors(
    architecture: Architecture, names: Collection[str], widths: Widths, seed: int
) -> dict[str, Tensor]:
    """The untrained network of these widths: the same bits on every machine and in every release.

    The bits of a Philox generator are part of its definition; what libraries make of them is not.
    A pretrained module is its own root.
    """
    tensors = architecture.layout.tensors
    return {
        name: architecture.start[name].clone()
        if name in architecture.start and widths == {**widths, **architecture.layout.groups}
        else _scaled(tensors[name], _random(seed, place, tensors[name].shape(widths)))
        for place, name in enumerate(tensors)
        if name in names
    }


def root_alone(
    architecture: Architecture, names: Collection[str], widths: Widths, now: Widths, seed: int
) -> dict[str, Tensor]:
    """The untrained network of `widths` within one that has grown to `now`: zeros elsewhere."""
    specs, found = architecture.layout.tensors, {}
    for name, values in root_tensors(architecture, names, widths, seed).items():
        found[name] = torch.zeros(specs[name].shape(now))
        put(found[name], old_region(specs[name], widths, now), values)
    return found


def _random(seed: int, place: int, shape: tuple[int, ...]) -> Tensor:
    """Uniform between 0 and 1, from the upper 24 of each 64 bits."""
    raw = np.random.Philox(key=[seed, place]).random_raw(math.prod(shape))
    drawn = (raw >> np.uint64(40)).astype(np.float32) * np.float32(2.0**-24)
    return torch.from_numpy(drawn).reshape(shape)
