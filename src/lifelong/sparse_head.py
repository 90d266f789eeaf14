"""Equation 3: a sparse linear head on features that are computed once.

Minimises `mean loss(features @ W.T + b) + mu * |W|_1` with b free. The problem is convex and is
solved, in double precision, until the optimality condition holds to a stated tolerance:

    |gradient_j + mu * sign(w_j)| <= tolerance * mu_max   where w_j is not zero,
    |gradient_j| <= mu + tolerance * mu_max               where it is,

and the same for b without mu. `mu_max` is the smallest mu whose head is all zero; mu is given as a
share of it, so that it means the same on every data set. Binary outputs are problems of their own,
each with its own mu_max; classes under a softmax are one problem.

Features are centred: with a free intercept the weights do not change, and solvers get faster. The
condition is met, and `gap` measured, on centred features.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import final

import torch
import torch.nn.functional as F
from torch import Tensor

from lifelong.tasks import Kind

TOLERANCE = 1e-3  # of mu_max
NOTHING = 1e-12  # a mu_max of this size is rounding: no feature tells anything of the labels


@final
@dataclass(frozen=True, eq=False)
class SparseHead:
    """A solved head: one row of weights and one bias an output.

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
    x = features.double()
    mean = x.mean(dim=0)
    x = x - mean
    strength = min(strength, 1.0)  # beyond mu_max the head is zero and stays so
    if kind is Kind.BINARY:
        parts = [_fit_binary(x, y, strength) for y in labels.double().T]
        weight = torch.stack([part.weight for part in parts])
        bias = torch.stack([part.bias for part in parts])
        mu_max = torch.stack([part.mu_max for part in parts])
        gap = max(part.gap for part in parts)
    else:
        fit = _fit_classes(x, F.one_hot(labels, outputs).double(), strength)
        weight, bias, mu_max, gap = fit.weight, fit.bias, fit.mu_max, fit.gap
    bias = bias - weight @ mean
    return SparseHead(weight.to(features.dtype), bias.to(features.dtype), mu_max, gap)


def _violation(weight: Tensor, gradient: Tensor, mu: Tensor | float) -> float:
    """Largest distance of the negative gradient from the subdifferential of mu * |w|_1."""
    at_zero = F.relu(gradient.abs() - mu)
    elsewhere = (gradient + mu * weight.sign()).abs()
    return float(torch.where(weight == 0, at_zero, elsewhere).max())


def _fit_binary(x: Tensor, y: Tensor, strength: float) -> SparseHead:
    """Proximal Newton: a handful of weighted least-squares problems, each of the head's own size.

    The intercept is the last coordinate, with a threshold of zero.
    """
    rows = len(x)
    odds = y.mean().clamp(1 / (2 * rows), 1 - 1 / (2 * rows))
    mu_max = (x.T @ (y.mean() - y)).abs().max() / rows
    columns = torch.cat([x, x.new_ones(rows, 1)], dim=1)
    thresholds = torch.full_like(columns[0], float(strength * mu_max))
    thresholds[-1] = 0
    v = torch.zeros_like(columns[0])
    v[-1] = (odds / (1 - odds)).log()
    if strength == 1 or mu_max <= NOTHING:
        return SparseHead(v[:-1], v[-1], mu_max, 0.0)

    def objective(v: Tensor) -> Tensor:
        loss = F.binary_cross_entropy_with_logits(columns @ v, y)
        return loss + (thresholds * v.abs()).sum()

    scale = float(mu_max)
    for _ in range(50):
        p = torch.sigmoid(columns @ v)
        gradient = columns.T @ (p - y) / rows
        gap = _violation(v, gradient, thresholds) / scale
        if gap <= TOLERANCE:
            break
        curvature = (columns.T * (p * (1 - p))) @ columns / rows
        goal = _newton_goal(v, gradient, curvature, thresholds, TOLERANCE * scale / 10)
        v = _backtrack(objective, v, goal)
    return SparseHead(v[:-1], v[-1], mu_max, gap)


def _newton_goal(
    v: Tensor, gradient: Tensor, curvature: Tensor, thresholds: Tensor, tolerance: float
) -> Tensor:
    """Minimiser of the quadratic model at v plus the l1 penalty."""
    ridge = 1e-10 * curvature.diagonal().mean()  # a dead unit's feature has no curvature at all
    curvature = curvature + ridge * torch.eye(len(v), dtype=v.dtype, device=v.device)
    # In units of its own curvature each coordinate moves at the same pace.
    unit = curvature.diagonal().rsqrt()
    scaled = curvature * unit[:, None] * unit
    linear = (gradient - curvature @ v) * unit
    step = 1 / float(torch.linalg.matrix_norm(scaled, 2))

    def slope(u: Tensor) -> Tensor:
        return scaled @ u + linear

    def done(u: Tensor, g: Tensor) -> bool:
        return _violation(u, g / unit, thresholds) <= tolerance

    return unit * _fista(slope, v / unit, step, thresholds * unit, done, 5000)


def _backtrack(objective: Callable[[Tensor], Tensor], v: Tensor, goal: Tensor) -> Tensor:
    """The farthest point towards the goal, halving, at which the objective is lower."""
    before, share = objective(v), 1.0
    while share > 1e-6:
        candidate = v + share * (goal - v)
        if objective(candidate) < before:
            return candidate
        share /= 2
    return v


def _fit_classes(x: Tensor, hits: Tensor, strength: float) -> SparseHead:
    """Accelerated proximal gradient; the curvature of a softmax is at most one half."""
    rows = len(x)
    share = hits.mean(dim=0)
    mu_max = (x.T @ (share - hits)).abs().max() / rows
    # Features of unit spread, and thresholds that undo it, leave the problem as it is.
    spread = x.std(dim=0, correction=0)
    spread = torch.where(spread > 1e-12 * spread.max().clamp_min(1e-300), spread, 1.0)
    columns = torch.cat([x / spread, x.new_ones(rows, 1)], dim=1)
    thresholds = torch.full((len(spread) + 1, 1), float(strength * mu_max)).to(x)
    thresholds[:-1] /= spread[:, None]
    thresholds[-1] = 0
    step = 2 * rows / float(torch.linalg.matrix_norm(columns, 2)) ** 2
    v = torch.zeros(columns.shape[1], hits.shape[1], dtype=x.dtype, device=x.device)
    v[-1] = share.clamp_min(1 / (2 * rows)).log()
    if strength == 1 or mu_max <= NOTHING:
        return SparseHead(v[:-1].T, v[-1], mu_max, 0.0)
    units = torch.cat([spread, spread.new_ones(1)])[:, None]
    scale = float(mu_max)

    def slope(u: Tensor) -> Tensor:
        return columns.T @ (torch.softmax(columns @ u, dim=1) - hits) / rows

    def gap(u: Tensor, g: Tensor) -> float:
        return _violation(u, g * units, thresholds * units) / scale

    v = _fista(slope, v, step, thresholds, lambda u, g: gap(u, g) <= TOLERANCE, 20_000)
    return SparseHead((v[:-1] / spread[:, None]).T, v[-1], mu_max, gap(v, slope(v)))


def _fista(
    slope: Callable[[Tensor], Tensor],
    start: Tensor,
    step: float,
    thresholds: Tensor,
    done: Callable[[Tensor, Tensor], bool],
    limit: int,
) -> Tensor:
    """Proximal gradient with momentum, which starts anew whenever it points uphill."""
    at, ahead, momentum = start, start, 1.0
    for iteration in range(limit):
        moved = ahead - step * slope(ahead)
        new = moved.sign() * F.relu(moved.abs() - step * thresholds)
        if float(((ahead - new) * (new - at)).sum()) > 0:
            ahead, momentum = at, 1.0
            continue
        following = (1 + math.sqrt(1 + 4 * momentum**2)) / 2
        ahead = new + (momentum - 1) / following * (new - at)
        at, momentum = new, following
        if iteration % 10 == 9 and done(at, slope(at)):
            break
    return at
