"""Solvers of Equation 3, which see the rows by sums only: binary outputs one by one, regressions by
the lasso, classes together.

Each returns a head on centred features, and how far it is from the optimality condition that
`sparse_head` states.
"""

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Protocol, final

import torch
import torch.nn.functional as F
from torch import Tensor

TOLERANCE = 1e-3  # of mu_max
MANY_ROWS = 16  # per feature: from there on a pass over the rows is what costs
LARGE = 1_000_000  # rows times weights: from there on steps within orthants take too long
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


class Rows(Protocol):
    """Features, a last row of ones, and labels, in chunks; see `sparse_head.HeadRows`."""

    rows: int
    outputs: int

    def sum(
        self, term: Callable[[Tensor, Tensor], Tensor], instead: Sequence[Tensor] = ()
    ) -> Tensor: ...

    def chunks(self) -> Iterator[tuple[Tensor, Tensor]]: ...

    def start(self, outputs: int = 0) -> Tensor: ...


def _violation(weight: Tensor, gradient: Tensor, mu: Tensor | float) -> float:
    """Largest distance of the negative gradient from the subdifferential of mu * |w|_1."""
    at_zero = F.relu(gradient.abs() - mu)
    elsewhere = (gradient + mu * weight.sign()).abs()
    return float(torch.where(weight == 0, at_zero, elsewhere).max())


def fit_binary(data: Rows, output: int, strength: float) -> SparseHead:
    """Proximal Newton: a few weighted least-squares problems of the head's size.

    The intercept is the last coordinate, with a threshold of zero.
    """
    rows = data.rows
    mean = data.sum(lambda _, y: y[output].sum()) / rows
    odds = mean.clamp(1 / (2 * rows), 1 - 1 / (2 * rows))
    mu_max = data.sum(lambda columns, y: columns[:-1] @ (mean - y[output])).abs().max() / rows
    v = data.start()
    thresholds = _thresholds(v, float(strength * mu_max))
    v[-1] = (odds / (1 - odds)).log()
    if strength == 1 or mu_max <= NOTHING:
        return SparseHead(v[:-1], v[-1], mu_max, 0.0)

    def objective(v: Tensor) -> Tensor:
        loss = data.sum(
            lambda columns, y: F.binary_cross_entropy_with_logits(
                v @ columns, y[output], reduction="sum"
            )
        )
        return loss / rows + (thresholds * v.abs()).sum()

    def slope(columns: Tensor, y: Tensor) -> Tensor:
        return columns @ (torch.sigmoid(v @ columns) - y[output])

    def curvature(columns: Tensor, _: Tensor) -> Tensor:
        p = torch.sigmoid(v @ columns)
        return (columns * (p * (1 - p))) @ columns.T

    scale, steps = float(mu_max), 0
    for _ in range(50):
        gradient = data.sum(slope) / rows
        gap = _violation(v, gradient, thresholds) / scale
        if gap <= TOLERANCE:
            break
        model = _Curvature(data.sum(curvature) / rows)
        goal = model.lowest(v, gradient, thresholds, TOLERANCE * scale / 10)
        v = _backtrack(objective, v, goal)
        steps += 1
    return SparseHead(v[:-1], v[-1], mu_max, gap, steps)


def lasso(data: Rows) -> Callable[[int, float], SparseHead]:
    """Fits outputs by squared error: one quadratic problem each, with the same curvature."""
    rows = data.rows
    model = _Curvature(data.sum(lambda columns, _: 2 * columns @ columns.T) / rows)

    def slope(v: Tensor, output: int) -> Tensor:
        return 2 * data.sum(lambda columns, y: columns @ (v @ columns - y[output])) / rows

    def fit(output: int, strength: float) -> SparseHead:
        v = data.start()
        v[-1] = data.sum(lambda _, y: y[output].sum()) / rows
        mu_max = slope(v, output)[:-1].abs().max()
        thresholds, scale = _thresholds(v, float(strength * mu_max)), float(mu_max)
        typical = (data.sum(lambda _, y: y[output].square().sum()) / rows).sqrt()
        if strength == 1 or scale <= NOTHING * float(typical):
            return SparseHead(v[:-1], v[-1], mu_max, 0.0)
        v = model.lowest(v, slope(v, output), thresholds, TOLERANCE * scale / 10)
        gap = _violation(v, slope(v, output), thresholds) / scale
        return SparseHead(v[:-1], v[-1], mu_max, gap)

    return fit


def _thresholds(coordinates: Tensor, mu: float) -> Tensor:
    """One per coordinate; zero for the intercept."""
    thresholds = torch.full_like(coordinates, mu)
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


def fit_classes(data: Rows, strength: float, warm: Tensor | None = None) -> SparseHead:
    """By the features' Gram matrix if there are many rows per feature, else by Newton steps: within
    orthants, or on a model that has the l1 too if the head is large.
    """
    rows = data.rows
    share = data.sum(lambda _, hits: hits.sum(dim=1)) / rows
    at_zero = data.sum(lambda columns, hits: columns[:-1] @ (share[:, None] - hits).T)
    mu_max = at_zero.abs().max() / rows
    v = data.start(data.outputs)
    thresholds = _thresholds(v[:, 0], float(strength * mu_max))[:, None]
    v[-1] = share.clamp_min(1 / (2 * rows)).log()
    if strength == 1 or mu_max <= NOTHING:
        return SparseHead(v[:-1].T, v[-1], mu_max, 0.0)
    problem = _Softmax(data, thresholds)
    few = _by_proximal_newton if rows * v.numel() >= LARGE else _by_newton
    solver = _by_gram if rows > MANY_ROWS * len(v) else few
    v, steps = solver(problem, v if warm is None else warm, float(mu_max))
    gap = problem.gap(v) / float(mu_max)
    return SparseHead(v[:-1].T, v[-1], mu_max, gap, steps)


def _by_gram(problem: "_Softmax", v: Tensor, scale: float) -> tuple[Tensor, int]:
    """Accelerated proximal steps in the metric of half the features' Gram matrix, which bounds the
    curvature of a softmax: correlated features do not slow it down, and a step needs one pass over
    the rows.
    """
    data, thresholds = problem.data, problem.thresholds
    model = _Curvature(data.sum(lambda columns, _: columns @ columns.T) / (2 * data.rows))
    steps = 0

    def advance(u: Tensor) -> Tensor:
        nonlocal steps
        steps += 1
        return model.lowest(u, problem.gradient(u), thresholds, TOLERANCE * scale / 10)

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
        gradient = problem.gradient(v)
        gap = _violation(v, gradient, problem.thresholds) / scale
        if gap <= TOLERANCE:
            break
        orthant = _orthant(v, gradient, problem.thresholds)
        slope = torch.where(orthant != 0, gradient + problem.thresholds * orthant, 0.0)
        precision = min(0.1, math.sqrt(gap))
        direction = problem.newton_direction(v, slope, orthant != 0, precision)
        v, lower = problem.search(v, direction, orthant, value, float((slope * direction).sum()))
        if not lower < value:
            break
        value, steps = lower, steps + 1
    return v, steps


def _by_proximal_newton(problem: "_Softmax", v: Tensor, scale: float) -> tuple[Tensor, int]:
    """Newton steps whose model has the l1 too, so that any number of signs may change at once.

    With few rows for many classes, steps within an orthant are cut at hundreds of signs, one after
    another; a few of these replace hundreds of those.
    """
    thresholds, value, steps = problem.thresholds, problem.value(v), 0
    for _ in range(100):
        gradient = problem.gradient(v)
        gap = _violation(v, gradient, thresholds)
        if gap <= TOLERANCE * scale:
            break
        goal = problem.lowest_of_model(v, gradient, 0.3 * gap)
        fall = (gradient * (goal - v)).sum() + (thresholds * (goal.abs() - v.abs())).sum()
        v, lower = problem.search(v, goal - v, None, value, float(fall))
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

    data: Rows
    thresholds: Tensor

    def value(self, v: Tensor) -> float:
        def loss(columns: Tensor, hits: Tensor) -> Tensor:
            logits = v.T @ columns
            return (torch.logsumexp(logits, dim=0) - (logits * hits).sum(dim=0)).sum()

        penalty = (self.thresholds * v.abs()).sum()
        return float(self.data.sum(loss) / self.data.rows + penalty)

    def gap(self, v: Tensor) -> float:
        """Largest violation of the optimality condition."""
        return _violation(v, self.gradient(v), self.thresholds)

    def gradient(self, v: Tensor) -> Tensor:
        """Of the cross-entropy alone."""

        def slope(columns: Tensor, hits: Tensor) -> Tensor:
            return columns @ (_probabilities(v, columns) - hits).T

        return self.data.sum(slope) / self.data.rows

    def newton_direction(self, v: Tensor, slope: Tensor, free: Tensor, precision: float) -> Tensor:
        """Solve curvature @ direction = -slope by conjugate gradients on the free coordinates,
        preconditioned by the diagonal of the curvature.
        """
        data, rows = self.data, self.data.rows
        at_v = [_probabilities(v, columns) for columns, _ in data.chunks()]

        def squares(columns: Tensor, p: Tensor) -> Tensor:
            return columns.square() @ (p * (1 - p)).T

        diagonal = data.sum(squares, at_v) / rows
        ridge = 1e-6 * float(diagonal[:-1].mean()) + 1e-12  # for features of dead units
        inverse = torch.where(free, 1 / (diagonal + ridge), 0.0)

        def curved(d: Tensor) -> Tensor:
            def product(columns: Tensor, p: Tensor) -> Tensor:
                weighted = p * (d.T @ columns)
                return columns @ (weighted - p * weighted.sum(dim=0)).T

            return torch.where(free, data.sum(product, at_v) / rows + ridge * d, 0.0)

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

    def lowest_of_model(self, v: Tensor, gradient: Tensor, tolerance: float) -> Tensor:
        """About the minimiser of the quadratic model at v plus the l1: accelerated proximal steps
        in the metric of the curvature's diagonal, times a factor that is found on the way.
        """
        data, rows, thresholds = self.data, self.data.rows, self.thresholds
        at_v = [_probabilities(v, columns) for columns, _ in data.chunks()]
        diagonal = data.sum(lambda columns, p: columns.square() @ (p * (1 - p)).T, at_v) / rows
        diagonal += 1e-6 * float(diagonal[:-1].mean()) + 1e-12  # for features of dead units

        def curved(d: Tensor) -> Tensor:
            def product(columns: Tensor, p: Tensor) -> Tensor:
                weighted = p * (d.T @ columns)
                return columns @ (weighted - p * weighted.sum(dim=0)).T

            return data.sum(product, at_v) / rows

        # With each point goes how much the model's gradient differs there from that at v.
        at = ahead = v
        bent_at = bent_ahead = torch.zeros_like(v)
        metric, momentum = diagonal, 1.0
        for iteration in range(60):
            moved = ahead - (gradient + bent_ahead) / metric
            new = moved.sign() * F.relu(moved.abs() - thresholds / metric)
            change = new - ahead
            along = curved(change)
            if float((change * along).sum()) > float((change.square() * metric).sum()):
                metric = 1.5 * metric  # the model curves more than the metric: a shorter step
                continue
            bent = bent_ahead + along
            if iteration % 4 == 3 and _violation(new, gradient + bent, thresholds) <= tolerance:
                return new
            if float((metric * (ahead - new) * (new - at)).sum()) > 0:  # uphill: begin anew
                at = ahead = new
                bent_at = bent_ahead = bent
                momentum = 1.0
                continue
            following = (1 + math.sqrt(1 + 4 * momentum**2)) / 2
            share = (momentum - 1) / following
            ahead, bent_ahead = new + share * (new - at), bent + share * (bent - bent_at)
            at, bent_at, momentum = new, bent, following
        return at

    def search(
        self, v: Tensor, direction: Tensor, orthant: Tensor | None, value: float, slope: float
    ) -> tuple[Tensor, float]:
        """Halve the step until the value falls enough; v itself if it never does. In an orthant, a
        feature's weight that would leave it ends at zero.
        """
        share = 1.0
        while share > 1e-8:
            candidate = v + share * direction
            if orthant is not None:
                features = candidate[:-1]
                features[features.sign() * orthant[:-1] < 0] = 0.0
            lower = self.value(candidate)
            if lower <= value + 1e-4 * share * slope:
                return candidate, lower
            share /= 2
        return v, value


def _probabilities(v: Tensor, columns: Tensor) -> Tensor:
    return torch.softmax(v.T @ columns, dim=0)


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
