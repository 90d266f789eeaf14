"""GPM: gradient projection memory (Saha, Garg and Roy, 2021).

After a task, the directions in which the inputs of each layer vary are kept, by a singular value
decomposition. While a later task is learned, weights move only across them: what the layer computes
for inputs along these directions stays.

Departs from the paper: not the gradient is projected but the step, which is the same for SGD and
holds for Adam too; and biases take part, as weights of an input that is always 1.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import ClassVar, final

import torch
from torch import Tensor

from lifelong.learners.baselines.sequential import MethodMemory, SequentialLearner, TaskOutcome
from lifelong.learners.baselines.settings import SequentialSettings
from lifelong.networks.growing import OWN, Network
from lifelong.networks.layout import Architecture, NetworkError, Tensors
from lifelong.networks.sequential import Sequential
from lifelong.tasks.examples import Examples, whole_of
from lifelong.training.budget import require

_SMALLEST = 1e-7  # share of the energy below which a direction is rounding
_CHUNK = 64  # rows at once: a convolution's inputs are unfolded


@final
@dataclass(frozen=True)
class GPMSettings(SequentialSettings):
    """Symbols of GPM.

    Attributes:
        threshold: epsilon, the share of the inputs' energy that the kept directions hold.
        increase: of the threshold with each task.
        samples: rows of a task from which the directions are found.
    """

    threshold: float = 0.95
    increase: float = 0.003
    samples: int = 300

    def __post_init__(self) -> None:
        super().__post_init__()
        require("threshold", self.threshold, "above 0 and up to 1", lambda v: 0 < v <= 1)
        require("increase", self.increase, "0 or more", lambda v: v >= 0)
        whole = "a whole number above 0"
        require("samples", self.samples, whole, lambda v: isinstance(v, int) and v > 0)


@final
class GPM(SequentialLearner[GPMSettings]):
    """Keeps no data, but the directions in which it varies."""

    method: ClassVar[str] = "GPM"
    settings_type = GPMSettings

    def _require_fit(self, architecture: Architecture) -> None:
        if not isinstance(architecture, Sequential):
            raise NetworkError(
                "GPM keeps the directions of each layer's inputs, which only mlp, convnet and "
                "alexnet tell it, and does not know what normalisation does to them: give it one "
                "of these, or take another method"
            )

    @property
    def _sequential(self) -> Sequential:
        architecture = self.network.architecture
        assert isinstance(architecture, Sequential)  # as `_require_fit` has seen to
        return architecture

    def _hook(self, start: Tensors) -> "Projection | None":
        return Projection(self._bases(start)) if self.network.tasks else None

    def _require_usable(self) -> None:
        super()._require_usable()
        if not self.network.tasks:
            return
        network = self.network.as_of(1)
        for layer, inputs in self._layers(network.tensors):
            basis = self.network.memory.get(_basis(layer))
            if basis is None or basis.ndim != 2 or len(basis) != inputs:
                came = "nothing" if basis is None else tuple(basis.shape)
                raise NetworkError(f"it has {came} as directions of {layer}, not {inputs} rows")

    def _layers(self, tensors: Tensors) -> Iterator[tuple[str, int]]:
        """The layers that tasks share, each with its number of inputs, the one for the bias too."""
        for name, tensor in tensors.items():
            if name.endswith(".weight") and name not in self._own():
                yield name.removesuffix(".weight"), 1 + tensor[0].numel()

    def _bases(self, tensors: Tensors) -> dict[str, Tensor]:
        return {layer: self.network.memory[_basis(layer)] for layer, _ in self._layers(tensors)}

    def _keep(self, outcome: TaskOutcome) -> MethodMemory:
        before = outcome.before
        share = min(1.0, self.settings.threshold + self.settings.increase * len(before.tasks))
        energies = self._energies(outcome.network, outcome.train, outcome.generator)
        memory = {
            _basis(layer): extended(
                before.memory.get(_basis(layer), energy.new_zeros(len(energy), 0)), energy, share
            )
            for layer, energy in energies.items()
        }
        return MethodMemory(outcome.shared, memory)

    def _energies(
        self, network: Network, rows: Examples, generator: torch.Generator
    ) -> dict[str, Tensor]:
        """Per shared layer, the sum of the outer products of its inputs, with a 1 appended."""
        layers = dict(self._layers(network.tensors))
        sums = {n: torch.zeros(size, size, device=self.device) for n, size in layers.items()}
        left = self.settings.samples
        # So few that each of several processes takes all of them.
        for x, _ in whole_of(rows).batches(min(_CHUNK, left), generator):
            inputs, _ = self._sequential.traced(network.tensors, x[:left])
            for layer, total in sums.items():
                seen = inputs[layer][0]
                seen = seen if seen.ndim == 2 else seen.transpose(1, 2).flatten(0, 1)
                with_one = torch.cat([seen, seen.new_ones(len(seen), 1)], dim=1)
                total += with_one.T @ with_one
            left -= len(x)
            if left <= 0:
                break
        return sums


@final
class Projection:
    """Takes from each step what lies along kept directions: a hook of the training."""

    def __init__(self, bases: Tensors) -> None:
        self._bases = {layer: _Directions(basis) for layer, basis in bases.items()}
        self._before: dict[str, tuple[Tensor, Tensor]] = {}

    def state(self) -> dict[str, Tensor]:
        return {}

    def before_step(self, tensors: Tensors) -> None:
        for layer in self._bases:
            weight, bias = _weight_and_bias(tensors, layer)
            self._before[layer] = weight.clone(), bias.clone()

    def after_step(self, tensors: Tensors) -> None:
        for layer, directions in self._bases.items():
            directions.project(self._before[layer], _weight_and_bias(tensors, layer))


@final
class _Directions:
    """Directions that steps must not have, or the rest if these are fewer: less to multiply."""

    def __init__(self, basis: Tensor) -> None:
        inputs, kept = basis.shape
        self._rest = 2 * kept > inputs
        found = torch.linalg.qr(basis, mode="complete").Q[:, kept:] if self._rest else basis
        self._weights, self._biases = found[:-1].contiguous(), found[-1].contiguous()

    def project(self, before: tuple[Tensor, Tensor], now: tuple[Tensor, Tensor]) -> None:
        """Change the weight and the bias of now, so that the step from before has them no more."""
        steps = [new - old for old, new in zip(before, now, strict=True)]
        along = torch.outer(steps[1], self._biases).addmm_(steps[0], self._weights)
        if self._rest:
            for old, new in zip(before, now, strict=True):
                new.copy_(old)
        sign = 1 if self._rest else -1
        now[0].addmm_(along, self._weights.T, alpha=sign)
        now[1].addmv_(along, self._biases, alpha=sign)


def extended(basis: Tensor, energy: Tensor, share: float) -> Tensor:
    """The orthonormal directions with as few more as hold this share of the energy with them."""
    across = torch.eye(len(energy), device=energy.device) - basis @ basis.T
    values, vectors = torch.linalg.eigh(across @ energy @ across)
    values, vectors = values.flip(0).clamp_min(0), vectors.flip(1)
    total = energy.trace()
    held = (total - values.sum()).clamp_min(0) + torch.cat([values.new_zeros(1), values.cumsum(0)])
    needed = (held[:-1] < share * total) & (values > _SMALLEST * total)
    more = min(int(needed.sum()), len(energy) - basis.shape[1])
    found: Tensor = torch.linalg.qr(torch.cat([basis, vectors[:, :more]], dim=1)).Q
    return found.contiguous()


def _weight_and_bias(tensors: Tensors, layer: str) -> tuple[Tensor, Tensor]:
    """Weight of a layer as a matrix with a row for each unit, and bias: the tensors themselves."""
    weight, bias = tensors[f"{layer}.weight"].detach(), tensors[f"{layer}.bias"].detach()
    return weight.view(len(weight), -1), bias


def _basis(layer: str) -> str:
    return f"{OWN}{layer}"
