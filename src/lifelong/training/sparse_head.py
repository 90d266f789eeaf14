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
MANY_ROWS = 16  # per feature: from there on a pass over the rows is what costs
NOTHING = 1e-12  # a mu_max this small is rounding error: no feature correlates with the labels


@final
@dataclass(frozen=True, eq=False)
class SparseHead:
    """A solved head: one row of weights and one bias per output.

    `gap` is the largest violation of the optimality condition, as a share of mu_max; `steps` is the
    number of Newton steps that it took.
    """

    weight: Tensor
    bias: Tensor
    mu_max: Tensor
    gap: float
    steps: int = 0


def fit_sparse_head(
    features: Tensor,
    labels: Tensor,
    kind: Kind,
    outputs: int,
    strength: float,
    warm: SparseHead | None = None,
) -> SparseHead:
    """Solve Equation 3 with mu = strength * mu_max.

    `warm` is the solution for another strength, from which classes start.
    """
    columns, mean = _centred(features)
    strength = min(strength, 1.0)  # from mu_max on the head is zero
    if kind is not Kind.CLASSES:
        fit_output = _lasso(columns) if kind.is_regression else partial(_fit_binary, columns)
        parts = [fit_output(y, strength) for y in labels.double().T]
        weight = torch.stack([part.weight for part in parts])
        bias = torch.stack([part.bias for part in parts])
        mu_max = torch.stack([part.mu_max for part in parts])
        gap, steps = max(part.gap for part in parts), sum(part.steps for part in parts)
    else:
        hits = F.one_hot(labels, outputs).double().T.contiguous()
        fit = _fit_classes(columns, hits, strength, None if warm is None else _joined(warm, mean))
        weight, bias, mu_max, gap, steps = fit.weight, fit.bias, fit.mu_max, fit.gap, fit.steps
    bias = bias - weight @ mean
    # Contiguous, as after saving and loading: the memory layout may affect rounding.
    weight = weight.to(features.dtype).contiguous()
    return SparseHead(weight, bias.to(features.dtype), mu_max, gap, steps)


def _joined(head: SparseHead, mean: Tensor) -> Tensor:
    """A head as the matrix of coordinates that is solved for, on centred features."""
    weight = head.weight.double()
    return torch.cat([weight, (head.bias.double() + weight @ mean)[:, None]], dim=1).T.contiguous()


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

    scale, steps = float(mu_max), 0
    for _ in range(50):
        p = torch.sigmoid(v @ columns)
        gradient = columns @ (p - y) / rows
        gap = _violation(v, gradient, thresholds) / scale
        if gap <= TOLERANCE:
            break
        model = _Curvature((columns * (p * (1 - p))) @ columns.T / rows)
        goal = model.lowest(v, gradient, thresholds, TOLERANCE * scale / 10)
        v = _backtrack(objective, v, goal)
        steps += 1
    return SparseHead(v[:-1], v[-1], mu_max, gap, steps)


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


def _fit_classes(
    columns: Tensor, hits: Tensor, strength: float, warm: Tensor | None = None
) -> SparseHead:
    """By the features' Gram matrix if there are many rows per feature, else by Newton steps."""
    rows = hits.shape[1]
    share = hits.mean(dim=1)
    mu_max = (columns[:-1] @ (share[:, None] - hits).T).abs().max() / rows
    thresholds = _thresholds(columns, float(strength * mu_max))[:, None]
    v = columns.new_zeros(len(columns), len(hits))
    v[-1] = share.clamp_min(1 / (2 * rows)).log()
    if strength == 1 or mu_max <= NOTHING:
        return SparseHead(v[:-1].T, v[-1], mu_max, 0.0)
    problem = _Softmax(columns, hits, thresholds)
    solver = _by_gram if rows > MANY_ROWS * len(columns) else _by_newton
    v, steps = solver(problem, v if warm is None else warm, float(mu_max))
    gap = problem.gap(v) / float(mu_max)
    return SparseHead(v[:-1].T, v[-1], mu_max, gap, steps)


def _by_gram(problem: "_Softmax", v: Tensor, scale: float) -> tuple[Tensor, int]:
    """Accelerated proximal steps in the metric of half the features' Gram matrix, which bounds the
    curvature of a softmax: correlated features do not slow it down, and a step needs one pass over
    the rows.
    """
    columns, thresholds = problem.columns, problem.thresholds
    model = _Curvature(columns @ columns.T / (2 * columns.shape[1]))
    steps = 0

    def advance(u: Tensor) -> Tensor:
        nonlocal steps
        steps += 1
        slope = problem.gradient(problem.probabilities(u))
        return model.lowest(u, slope, thresholds, TOLERANCE * scale / 10)

    def done(u: Tensor) -> bool:
        return problem.gap(u) <= TOLERANCE * scale

    return _accelerated(advance, v, model.product, done, 5, 5000), steps


def _by_newton(problem: "_Softmax", v: Tensor, scale: float) -> tuple[Tensor, int]:
    """Newton steps on the coordinates that are not held at zero, within their orthant.

    The curvature is never formed: with many classes and features it is larger than the data. A step
    that would change a sign ends at zero.
    """
    value, steps = problem.value(v), 0
    for _ in range(200):
        probabilities = problem.probabilities(v)
        gradient = problem.gradient(probabilities)
        gap = _violation(v, gradient, problem.thresholds) / scale
        if gap <= TOLERANCE:
            break
        orthant = _orthant(v, gradient, problem.thresholds)
        slope = torch.where(orthant != 0, gradient + problem.thresholds * orthant, 0.0)
        precision = min(0.1, math.sqrt(gap))
        direction = problem.newton_direction(probabilities, slope, orthant != 0, precision)
        v, lower = problem.search(v, direction, orthant, value, float((slope * direction).sum()))
        if not lower < value:
            break
        value, steps = lower, steps + 1
    return v, steps


def _orthant(v: Tensor, gradient: Tensor, thresholds: Tensor) -> Tensor:
    """Signs of the coordinates that may move; 0 for those that stay zero.

    The intercepts, which have no threshold, are free whatever their sign; 1 stands for that.
    """
    leaving = torch.where(gradient.abs() > thresholds, -gradient.sign(), 0.0)
    signs = torch.where(v != 0, v.sign(), leaving)
    signs[-1] = 1
    return signs


@final
@dataclass(frozen=True, eq=False)
class _Softmax:
    """Mean cross-entropy of `v.T @ columns` plus l1, as a function of v (feature, class)."""

    columns: Tensor
    hits: Tensor
    thresholds: Tensor

    def value(self, v: Tensor) -> float:
        logits = v.T @ self.columns
        loss = torch.logsumexp(logits, dim=0) - (logits * self.hits).sum(dim=0)
        return float(loss.mean() + (self.thresholds * v.abs()).sum())

    def probabilities(self, v: Tensor) -> Tensor:
        return torch.softmax(v.T @ self.columns, dim=0)

    def gap(self, v: Tensor) -> float:
        """Largest violation of the optimality condition."""
        return _violation(v, self.gradient(self.probabilities(v)), self.thresholds)

    def gradient(self, probabilities: Tensor) -> Tensor:
        """Of the cross-entropy alone."""
        return self.columns @ (probabilities - self.hits).T / self.hits.shape[1]

    def newton_direction(self, p: Tensor, slope: Tensor, free: Tensor, precision: float) -> Tensor:
        """Solve curvature @ direction = -slope by conjugate gradients on the free coordinates,
        preconditioned by the diagonal of the curvature.
        """
        rows = self.hits.shape[1]
        diagonal = self.columns.square() @ (p * (1 - p)).T / rows
        ridge = 1e-6 * float(diagonal[:-1].mean()) + 1e-12  # for features of dead units
        inverse = torch.where(free, 1 / (diagonal + ridge), 0.0)

        def curved(d: Tensor) -> Tensor:
            weighted = p * (d.T @ self.columns)
            product = self.columns @ (weighted - p * weighted.sum(dim=0)).T / rows
            return torch.where(free, product + ridge * d, 0.0)

        direction, residual = torch.zeros_like(slope), -slope
        scaled = inverse * residual
        ahead, size = scaled.clone(), float((residual * scaled).sum())
        enough = precision**2 * size
        for _ in range(60):
            along = curved(ahead)
            share = size / float((ahead * along).sum())
            direction += share * ahead
            residual -= share * along
            scaled = inverse * residual
            smaller = float((residual * scaled).sum())
            if smaller <= enough:
                break
            ahead, size = scaled + smaller / size * ahead, smaller
        return direction

    def search(
        self, v: Tensor, direction: Tensor, orthant: Tensor, value: float, slope: float
    ) -> tuple[Tensor, float]:
        """Halve the step until the value falls enough; v itself if it never does."""
        share = 1.0
        while share > 1e-8:
            candidate = v + share * direction
            features = candidate[:-1]
            features[features.sign() * orthant[:-1] < 0] = 0.0
            lower = self.value(candidate)
            if lower <= value + 1e-4 * share * slope:
                return candidate, lower
            share /= 2
        return v, value


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
