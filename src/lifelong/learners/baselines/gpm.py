"""GPM: gradient projection memory (Saha, Garg and Roy, 2021).

After a task, the directions in which the inputs of each layer vary are kept, by a singular value
decomposition. While a later task is learned, weights move only across them: what the layer computes
for inputs along these directions stays.

Departs from the paper: not the gradient is projected but the step, which is the same for SGD and
holds for Adam too; and biases, if any, take part, as weights of an input that is always 1.

A network must tell what its weights are multiplied with (`KnownInputs`), as `mlp`, `convnet`,
`alexnet` and those made by `grow` do. Whatever else tasks share stays as the first task left it,
since its effect on earlier tasks is not known: scales and shifts of normalisations, embeddings,
convolutions in groups. Running statistics are each task's own, so what earlier tasks compute behind
a batch normalisation stays too.
"""

from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import ClassVar, TypeAlias, final

import torch
from torch import Tensor

from lifelong.learners.baselines.sequential import MethodMemory, SequentialLearner, TaskOutcome
from lifelong.learners.baselines.settings import SequentialSettings
from lifelong.networks.growing import OWN, Network
from lifelong.networks.layout import Architecture, KnownInputs, NetworkError, Tensors, trainable
from lifelong.tasks.examples import Examples, whole_of
from lifelong.training.budget import require

_SMALLEST = 1e-7  # share of the energy below which a direction is rounding
_CHUNK = 64  # rows at once: a convolution's inputs are unfolded
_Layer: TypeAlias = tuple[str, ...]  # names of a weight, and of its bias if it has one


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
        if not isinstance(architecture, KnownInputs):
            raise NetworkError(
                "GPM keeps the directions of each layer's inputs, which this network does not tell "
                f"({type(architecture).__name__}): mlp, convnet, alexnet and networks made by "
                "`lifelong.grow` do, those made by `lifelong.adapt` do not. Use grow instead of "
                "adapt, or another method"
            )

    @property
    def _architecture(self) -> KnownInputs:
        architecture = self.network.architecture
        assert isinstance(architecture, KnownInputs)  # as `_require_fit` has seen to
        return architecture

    def _held(self) -> Collection[str]:
        if not self.network.tasks:
            return ()
        projected = {name for layer in self._layers() for name in layer}
        moved = trainable(self._architecture.layout.tensors)
        return [name for name in moved if name not in {*projected, *self._own()}]

    def _hook(self, start: Tensors) -> "Projection | None":
        del start
        if not self.network.tasks:
            return None
        memory = self.network.memory
        return Projection({layer: memory[_basis(layer)] for layer in self._layers()})

    def _require_usable(self) -> None:
        super()._require_usable()
        if not self.network.tasks:
            return
        tensors = self.network.as_of(1).tensors
        for layer in self._layers():
            basis, inputs = self.network.memory.get(_basis(layer)), _inputs(tensors, layer)
            if basis is None or basis.ndim != 2 or len(basis) != inputs:
                came = "nothing" if basis is None else tuple(basis.shape)
                name = _basis(layer).removeprefix(OWN)
                raise NetworkError(f"it has {came} as directions of {name}, not {inputs} rows")

    def _layers(self) -> Iterator[_Layer]:
        """The layers that tasks share and whose inputs are known."""
        for weight, bias in self._architecture.readers.items():
            if weight not in self._own():
                yield (weight,) if bias is None else (weight, bias)

    def _keep(self, outcome: TaskOutcome) -> MethodMemory:
        before = outcome.before
        share = min(1.0, self.settings.threshold + self.settings.increase * len(before.tasks))
        energies = self._energies(outcome.network, outcome.train, outcome.generator)
        memory = {
            name: extended(before.memory.get(name, energy.new_zeros(len(energy), 0)), energy, share)
            for name, energy in energies.items()
        }
        return MethodMemory(outcome.shared, memory)

    def _energies(
        self, network: Network, rows: Examples, generator: torch.Generator
    ) -> dict[str, Tensor]:
        """Per shared layer, the sum of the outer products of its inputs, with a 1 for a bias."""
        layers = {layer[0]: layer for layer in self._layers()}
        sizes = {weight: _inputs(network.tensors, layer) for weight, layer in layers.items()}
        sums = {w: torch.zeros(size, size, device=self.device) for w, size in sizes.items()}

        def see(weight: str, seen: Tensor) -> None:
            if weight not in sums:
                return
            if len(layers[weight]) > 1:
                seen = torch.cat([seen, seen.new_ones(len(seen), 1)], dim=1)
            sums[weight] += seen.T @ seen

        left = self.settings.samples
        # So few that each of several processes takes all of them.
        for x, _ in whole_of(rows).batches(min(_CHUNK, left), generator):
            self._architecture.show_inputs(network.tensors, x[:left], see)
            left -= len(x)
            if left <= 0:
                break
        return {_basis(layers[weight]): total for weight, total in sums.items()}


@final
class Projection:
    """Takes from each step what lies along kept directions: a hook of the training.

    The directions are by the names of a weight and, if it has one, its bias.
    """

    def __init__(self, bases: Mapping[_Layer, Tensor]) -> None:
        self._bases = {layer: _Directions(basis) for layer, basis in bases.items()}

    def state(self) -> dict[str, Tensor]:
        return {}

    def before_step(self, tensors: Tensors) -> None:
        for layer, directions in self._bases.items():
            directions.hold(_matrices(tensors, layer))

    def after_step(self, tensors: Tensors) -> None:
        for layer, directions in self._bases.items():
            directions.project(_matrices(tensors, layer))


@final
class _Directions:
    """Directions that steps must not have, or the rest if these are fewer: less to multiply."""

    def __init__(self, basis: Tensor) -> None:
        inputs, kept = basis.shape
        self._rest = 2 * kept > inputs
        self._found = torch.linalg.qr(basis, mode="complete").Q[:, kept:] if self._rest else basis
        self._parts: list[Tensor] = []  # of the weight, and of the bias if there is one
        self._before: list[Tensor] = []

    def hold(self, now: list[Tensor]) -> None:
        """Remember the weight, and the bias, from which a step is taken."""
        if not self._before:
            sizes = [tensor.shape[1] for tensor in now]
            self._parts = [part.contiguous() for part in self._found.split(sizes)]
            self._before = [torch.empty_like(tensor) for tensor in now]
        for old, new in zip(self._before, now, strict=True):
            old.copy_(new)

    def project(self, now: list[Tensor]) -> None:
        """Change the weight and the bias, so that the step to them has the directions no more."""
        each = list(zip(self._before, now, self._parts, strict=True))
        if self._rest:
            along = _product((new.sub_(old), part) for old, new, part in each)
            for old, new, part in each:
                torch.addmm(old, along, part.T, out=new)
            return
        along = _product((old.sub_(new), part) for old, new, part in each)
        for _, new, part in each:
            new.addmm_(along, part.T)


def _product(pairs: Iterable[tuple[Tensor, Tensor]]) -> Tensor:
    """The sum of the products; the one of the bias first, which is the least."""
    (step, part), *others = reversed(list(pairs))
    along = step @ part
    for step, part in others:
        along.addmm_(step, part)
    return along


def extended(basis: Tensor, energy: Tensor, share: float) -> Tensor:
    """The orthonormal directions with as few more as hold this share of the energy with them."""
    across = torch.eye(len(energy), device=energy.device) - basis @ basis.T
    values, vectors = _eigen(across @ energy @ across)
    values, vectors = values.flip(0).clamp_min(0), vectors.flip(1)
    total = energy.trace()
    held = (total - values.sum()).clamp_min(0) + torch.cat([values.new_zeros(1), values.cumsum(0)])
    needed = (held[:-1] < share * total) & (values > _SMALLEST * total)
    more = min(int(needed.sum()), len(energy) - basis.shape[1])
    found: Tensor = torch.linalg.qr(torch.cat([basis, vectors[:, :more]], dim=1)).Q
    return found.contiguous()


def _eigen(matrix: Tensor) -> tuple[Tensor, Tensor]:
    """Eigenvalues and eigenvectors; in double precision where single does not converge, as for the
    thousands of inputs of a layer after convolutions, most of whose eigenvalues are zero.
    """
    try:
        values, vectors = torch.linalg.eigh(matrix)
    except torch.linalg.LinAlgError:  # type: ignore[attr-defined]
        values, vectors = torch.linalg.eigh(matrix.double())
    return values.to(matrix), vectors.to(matrix)


def _matrices(tensors: Tensors, layer: _Layer) -> list[Tensor]:
    """Weight of a layer, and bias if it has one, as matrices with a row for each unit: views."""
    return [tensors[name].detach().view(len(tensors[name]), -1) for name in layer]


def _inputs(tensors: Tensors, layer: _Layer) -> int:
    """Numbers that each unit of a layer is multiplied with, one for its bias too."""
    return sum(tensors[name].shape[1:].numel() for name in layer)


def _basis(layer: _Layer) -> str:
    """Name of the directions in the memory."""
    return f"{OWN}{layer[0].removesuffix('.weight')}"
