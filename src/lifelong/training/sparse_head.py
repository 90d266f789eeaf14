"""Equation 3: a sparse linear head on fixed features.

Minimises `mean loss(features @ W.T + b) + mu * |W|_1` with b free. The problem is convex and is
solved, in double precision, until the optimality condition holds to a stated tolerance:

    |gradient_j + mu * sign(w_j)| <= tolerance * mu_max   where w_j is not zero,
    |gradient_j| <= mu + tolerance * mu_max               where it is,

and the same for b without mu. `mu_max` is the smallest mu whose head is all zero; mu is given as a
share of it, so that it means the same on every data set. Each binary output is a separate problem
with its own mu_max, and so is each output of a regression; classes under a softmax are one problem.
A regression is the lasso: squared error, whichever error the task itself is trained with, since a
head that only selects units need not resist outliers.

Features are centred: with a free intercept this leaves the weights unchanged and speeds up the
solvers. The condition holds, and `gap` is measured, on centred features.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import final

import torch
import torch.nn.functional as F
from torch import Tensor

from lifelong.tasks.task import Kind

TOLERANCE = 1e-3  # of mu_max
NOTHING = 1e-12  # a mu_max this small is rounding error: no feature correlates with the labels


@final
@dataclass(frozen=True, eq=False)
class SparseHead:
    """A solved head: one row of weights and one bias per output.

    `gap` is the largest violation of the optimality condition, as a share of mu_max.
    """

    weight: Tensor
    bias: Tensor
    mu_max: Tensor
    gap: float


def fit_sparse_head(
    features: Tensor, labels: Tensor, kind: Kind, outputs: int, strength: float
) -> SparseHead:
    """Solve Equation 3 with mu = strength * mu_max."""
    columns, mean = _centred(features)
    strength = min(strength, 1.0)  # from mu_max on the head is zero
    if kind is not Kind.CLASSES:
        fit_output = _lasso(columns) if kind.is_regression else partial(_fit_binary, columns)
        parts = [fit_output(y, strength) for y in labels.double().T]
        weight = torch.stack([part.weight for part in parts])
        bias = torch.stack([part.bias for part in parts])
        mu_max = torch.stack([part.mu_max for part in parts])
        gap = max(part.gap for part in parts)
    else:
        fit = _fit_classes(columns, F.one_hot(labels, outputs).double().T.contiguous(), strength)
        weight, bias, mu_max, gap = fit.weight, fit.bias, fit.mu_max, fit.gap
    bias = bias - weight @ mean
    # Contiguous, as after saving and loading: the memory layout may affect rounding.
    weight = weight.to(features.dtype).contiguous()
    return SparseHead(weight, bias.to(features.dtype), mu_max, gap)


def _centred(features: Tensor) -> tuple[Tensor, Tensor]:
    """The centred features in double precision, one per row, with a last row of ones for the
    intercept; and their means. Examples come last because the softmax is several times faster so.
    """
    rows, units = features.shape
    columns = torch.ones(units + 1, rows, dtype=torch.float64, device=features.device)
    columns[:-1] = features.T
    mean = columns[:-1].mean(dim=1)
    columns[:-1] -= mean[:, None]
    return columns, mean


def _violation(weight: Tensor, gradient: Tensor, mu: Tensor | float) -> float:
    """Largest distance of the negative gradient from the subdifferential of mu * |w|_1."""
    at_zero = F.relu(gradient.abs() - mu)
    elsewhere = (gradient + mu * weight.sign()).abs()
    return float(torch.where(weight == 0, at_zero, elsewhere).max())


def _fit_binary(columns: Tensor, y: Tensor, strength: float) -> SparseHead:
    """Proximal Newton: a few weighted least-squares problems of the head's size.

    The intercept is the last coordinate, with a threshold of zero.
    """
    rows = len(y)
    odds = y.mean().clamp(1 / (2 * rows), 1 - 1 / (2 * rows))
    mu_max = (columns[:-1] @ (y.mean() - y)).abs().max() / rows
    thresholds = _thresholds(columns, float(strength * mu_max))
    v = torch.zeros_like(thresholds)
    v[-1] = (odds / (1 - odds)).log()
    if strength == 1 or mu_max <= NOTHING:
        return SparseHead(v[:-1], v[-1], mu_max, 0.0)

    def objective(v: Tensor) -> Tensor:
        loss = F.binary_cross_entropy_with_logits(v @ columns, y)
        return loss + (thresholds * v.abs()).sum()

    scale = float(mu_max)
    for _ in range(50):
        p = torch.sigmoid(v @ columns)
        gradient = columns @ (p - y) / rows
        gap = _violation(v, gradient, thresholds) / scale
        if gap <= TOLERANCE:
            break
        model = _Curvature((columns * (p * (1 - p))) @ columns.T / rows)
        goal = model.lowest(v, gradient, thresholds, TOLERANCE * scale / 10)
        v = _backtrack(objective, v, goal)
    return SparseHead(v[:-1], v[-1], mu_max, gap)


def _lasso(columns: Tensor) -> Callable[[Tensor, float], SparseHead]:
    """Fits outputs by squared error: one quadratic problem each, with the same curvature."""
    rows = columns.shape[1]
    model = _Curvature(2 * columns @ columns.T / rows)

    def slope(v: Tensor, y: Tensor) -> Tensor:
        return 2 * (columns @ (v @ columns - y)) / rows

    def fit(y: Tensor, strength: float) -> SparseHead:
        v = torch.zeros_like(columns[:, 0])
        v[-1] = y.mean()
        mu_max = slope(v, y)[:-1].abs().max()
        thresholds, scale = _thresholds(columns, float(strength * mu_max)), float(mu_max)
        if strength == 1 or scale <= NOTHING * float(y.abs().max()):
            return SparseHead(v[:-1], v[-1], mu_max, 0.0)
        v = model.lowest(v, slope(v, y), thresholds, TOLERANCE * scale / 10)
        return SparseHead(v[:-1], v[-1], mu_max, _violation(v, slope(v, y), thresholds) / scale)

    return fit


def _thresholds(columns: Tensor, mu: float) -> Tensor:
    """One per coordinate; zero for the intercept."""
    thresholds = torch.full_like(columns[:, 0], mu)
    thresholds[-1] = 0
    return thresholds


def _backtrack(objective: Callable[[Tensor], Tensor], v: Tensor, goal: Tensor) -> Tensor:
    """Halve the step towards the goal until the objective decreases."""
    before, share = objective(v), 1.0
    while share > 1e-6:
        candidate = v + share * (goal - v)
        if objective(candidate) < before:
            return candidate
        share /= 2
    return v


def _fit_classes(columns: Tensor, hits: Tensor, strength: float) -> SparseHead:
    """Accelerated proximal steps in the metric of half the features' Gram matrix, which bounds the
    curvature of a softmax: correlated features do not slow it down, and a step needs one pass over
    the rows.
    """
    rows = hits.shape[1]
    share = hits.mean(dim=1)
    mu_max = (columns[:-1] @ (share[:, None] - hits).T).abs().max() / rows
    thresholds = _thresholds(columns, float(strength * mu_max))[:, None]
    v = columns.new_zeros(len(columns), len(hits))
    v[-1] = share.clamp_min(1 / (2 * rows)).log()
    if strength == 1 or mu_max <= NOTHING:
        return SparseHead(v[:-1].T, v[-1], mu_max, 0.0)
    scale, model = float(mu_max), _Curvature(columns @ columns.T / (2 * rows))

    def slope(u: Tensor) -> Tensor:
        return columns @ (torch.softmax(u.T @ columns, dim=0) - hits).T / rows

    def gap(u: Tensor) -> float:
        return _violation(u, slope(u), thresholds) / scale

    def advance(u: Tensor) -> Tensor:
        return model.lowest(u, slope(u), thresholds, TOLERANCE * scale / 10)

    v = _accelerated(advance, v, model.product, lambda u: gap(u) <= TOLERANCE, 5, 5000)
    return SparseHead(v[:-1].T, v[-1], mu_max, gap(v))


@final
class _Curvature:
    """A quadratic model of a loss, with the same curvature for each fitted column."""

    def __init__(self, curvature: Tensor) -> None:
        # The ridge is for features of dead units, which have no curvature.
        ridge = 1e-10 * curvature.diagonal().mean()
        self._curvature = curvature.clone()
        self._curvature.diagonal().add_(ridge)
        # Rescaled by its own curvature, each coordinate converges at a similar rate.
        self._unit = self._curvature.diagonal().rsqrt()
        self._scaled = self._curvature * self._unit[:, None] * self._unit
        self._step = 1 / float(torch.linalg.eigvalsh(self._scaled)[-1])

    def product(self, left: Tensor, right: Tensor) -> float:
        """Inner product in the metric of this curvature."""
        return float((left * (self._curvature @ right)).sum())

    def lowest(self, v: Tensor, gradient: Tensor, thresholds: Tensor, tolerance: float) -> Tensor:
        """Minimiser of the model at v, where the loss has this gradient, plus the l1 penalty."""
        unit = self._unit.reshape(-1, *[1] * (v.ndim - 1))
        linear = (gradient - self._curvature @ v) * unit
        shrink = self._step * thresholds * unit

        def slope(u: Tensor) -> Tensor:
            return self._scaled @ u + linear

        def advance(u: Tensor) -> Tensor:
            moved = u - self._step * slope(u)
            return moved.sign() * F.relu(moved.abs() - shrink)

        def done(u: Tensor) -> bool:
            return _violation(u, slope(u) / unit, thresholds) <= tolerance

        return unit * _accelerated(advance, v / unit, _plain_product, done, 10, 5000)


def _plain_product(left: Tensor, right: Tensor) -> float:
    return float((left * right).sum())


def _accelerated(
    advance: Callable[[Tensor], Tensor],
    start: Tensor,
    product: Callable[[Tensor, Tensor], float],
    done: Callable[[Tensor], bool],
    every: int,
    limit: int,
) -> Tensor:
    """FISTA with momentum restart whenever it points uphill; `done` is checked `every` n steps."""
    at, ahead, momentum = start, start, 1.0
    for iteration in range(1, limit + 1):
        new = advance(ahead)
        if product(ahead - new, new - at) > 0:
            ahead, momentum = at, 1.0
            continue
        following = (1 + math.sqrt(1 + 4 * momentum**2)) / 2
        ahead = new + (momentum - 1) / following * (new - at)
        at, momentum = new, following
        if iteration % every == 0 and done(at):
            break
    return at
