"""Penalties and their proximal maps.

The proximal map of a penalty p with step s sends w to the minimiser over v of
`p(v) + |v - w|^2 / (2 s)`. Each map here is exact, and its zeros are exact zeros.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Protocol, final

import torch
import torch.nn.functional as F
from torch import Tensor

from lifelong.networks.layout import TensorSpec


class Penalty(Protocol):
    """A convex function of one tensor."""

    def value(self, w: Tensor) -> Tensor: ...

    def prox(self, w: Tensor, step: float) -> Tensor: ...


@final
@dataclass(frozen=True)
class L1Norm:
    """`mu * sum |w|` (Equations 2, 3 and 5)."""

    mu: float

    def value(self, w: Tensor) -> Tensor:
        return self.mu * w.abs().sum()

    def prox(self, w: Tensor, step: float) -> Tensor:
        return F.softshrink(w, step * self.mu)


@final
@dataclass(frozen=True, eq=False)
class WeightedL1:
    """`sum mu * |w|` with a strength for each entry, or for each unit if it is so shaped."""

    mu: Tensor

    def value(self, w: Tensor) -> Tensor:
        return (self.mu * w.abs()).sum()

    def prox(self, w: Tensor, step: float) -> Tensor:
        # What is left of w after its part within ±limit is taken away.
        limit = step * self.mu
        within = torch.minimum(w, limit)
        torch.maximum(within, -limit, out=within)  # `clamp` takes several times as long
        return torch.sub(w, within, out=within)


@final
@dataclass(frozen=True)
class SquaredL2:
    """`mu * sum w^2`, the element-wise l2 regulariser of Equation 4."""

    mu: float

    def value(self, w: Tensor) -> Tensor:
        return self.mu * w.square().sum()

    def prox(self, w: Tensor, step: float) -> Tensor:
        return w / (1 + 2 * step * self.mu)


@final
@dataclass(frozen=True)
class KernelGroup:
    """`mu * sum |W[out, in]|_2`: the (2,1)-norm over the kernels of a convolution (Equation 2)."""

    mu: float

    def value(self, w: Tensor) -> Tensor:
        return self.mu * _norms(w, keep=2).sum()

    def prox(self, w: Tensor, step: float) -> Tensor:
        return _shrink_groups(w, step * self.mu, keep=2)


@final
@dataclass(frozen=True)
class SparseGroup:
    """`mu * sum |w| + gamma * sum |W[unit]|_2`; a group is a unit's incoming weights (Eq. 5).

    The map of the sum is the map of the l1 part followed by that of the group part.

    Attributes:
        dim: along which the units lie.
        repeat, span: of a unit's places there, as in a `Segment`.
    """

    mu: float
    gamma: float
    dim: int = 0
    repeat: int = 1
    span: int = 1

    def value(self, w: Tensor) -> Tensor:
        norms = _norms(self._by_unit(w), keep=1)
        return self.mu * w.abs().sum() + self.gamma * norms.sum()

    def prox(self, w: Tensor, step: float) -> Tensor:
        sparse = F.softshrink(w, step * self.mu)
        if not self.gamma:
            return sparse
        shrunk: Tensor = _shrink_groups(self._by_unit(sparse), step * self.gamma, keep=1)
        if (self.repeat, self.span) != (1, 1):
            shrunk = shrunk.movedim(0, 1).flatten(0, 2)
        return torch.movedim(shrunk, 0, self.dim)

    def _by_unit(self, w: Tensor) -> Tensor:
        """The tensor with the units first."""
        w = w.movedim(self.dim, 0)
        if (self.repeat, self.span) == (1, 1):
            return w
        units = w.unflatten(0, (self.repeat, -1, self.span))
        return torch.movedim(units, 1, 0)


@final
@dataclass(frozen=True, eq=False)
class Quadratic:
    """`sum weight * (w - center)^2 / 2`, such as a Fisher information around old weights."""

    weight: Tensor
    center: Tensor

    def value(self, w: Tensor) -> Tensor:
        return (self.weight * (w - self.center).square()).sum() / 2

    def prox(self, w: Tensor, step: float) -> Tensor:
        pull = step * self.weight
        return (w + pull * self.center) / (1 + pull)

    def __add__(self, other: "Quadratic") -> "Quadratic":
        """Up to a constant, the sum of two pulls is one pull towards their weighted mean."""
        weight = self.weight + other.weight
        share = torch.where(weight > 0, self.weight / weight, 0.0)
        return Quadratic(weight, other.center + share * (self.center - other.center))


@final
@dataclass(frozen=True, eq=False)
class Around:
    """A penalty on the distance from a center instead of from zero.

    Under an l1 or group penalty an entry that need not move stays exactly at its center.
    """

    center: Tensor
    penalty: Penalty

    def value(self, w: Tensor) -> Tensor:
        return self.penalty.value(w - self.center)

    def prox(self, w: Tensor, step: float) -> Tensor:
        # In place: the difference is a new tensor, and allocation dominates the cost.
        return self.penalty.prox(w - self.center, step).add_(self.center)


@final
@dataclass(frozen=True)
class Sum:
    """The sum of a penalty and an l2 penalty; the map stays exact because l2 only rescales."""

    penalty: Penalty
    l2: SquaredL2

    def value(self, w: Tensor) -> Tensor:
        return self.penalty.value(w) + self.l2.value(w)

    def prox(self, w: Tensor, step: float) -> Tensor:
        scale = 1 + 2 * step * self.l2.mu
        return self.penalty.prox(w / scale, step / scale)


def sparsity(spec: TensorSpec, mu: float) -> Penalty:
    """The penalty of Equation 2: l1, or for a convolution the (2,1)-norm over its kernels."""
    kernels = spec.kernel and spec.kernel[0] == 2
    return KernelGroup(mu) if kernels else L1Norm(mu)


def sparse_weights(specs: Mapping[str, TensorSpec], mu: float) -> dict[str, Penalty]:
    """The penalty of Equation 2 on each of these tensors that is a weight, or the scale of units:
    where a layer is normalised, the size of its weights does not matter.
    """
    return {name: sparsity(spec, mu) for name, spec in specs.items() if makes_sparse(spec)}


def makes_sparse(spec: TensorSpec) -> bool:
    """Whether zeros in the tensor are connections or units that are not there."""
    return spec.kind == "weight" or (spec.kind == "scale" and spec.out is not None)


def unit_groups(spec: TensorSpec, mu: float, gamma: float) -> SparseGroup:
    """The sparse-group penalty whose groups are the units that compute with this tensor; if they
    never change, those that it reads.
    """
    dim = spec.out if spec.out is not None else spec.into
    if dim is None:
        return SparseGroup(mu, 0.0)
    segments = spec.axes[dim].segments
    if len(segments) > 1:  # places of different units differ in number: one group per place
        return SparseGroup(mu, gamma, dim)
    return SparseGroup(mu, gamma, dim, segments[0].repeat, segments[0].span)


def _norms(w: Tensor, keep: int) -> Tensor:
    """Norm of each group; a group is all entries behind the first `keep` axes."""
    norms: Tensor = torch.linalg.vector_norm(w.reshape(*w.shape[:keep], -1), dim=keep)
    return norms


def _shrink_groups(w: Tensor, threshold: float, keep: int) -> Tensor:
    norms = _norms(w, keep).clamp_min(torch.finfo(w.dtype).tiny)
    scale = F.relu(1 - threshold / norms)
    return w * scale.reshape(*scale.shape, *[1] * (w.ndim - keep))
