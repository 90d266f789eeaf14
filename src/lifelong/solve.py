"""The training loop: the only place with an optimiser.

`solve` minimises the mean loss over rows plus penalties. Each step is Adam's on the gradient of the
loss, then the proximal map of each penalty with the learning rate as its step, so that zeros are
exact. (Adam scales every coordinate by itself and the map does not: with it the strength of a
penalty is relative to a gradient of typical size, the same on every scale of the loss.)
A quadratic pull towards old weights is smooth and belongs to the loss instead: its gradient is
added to the loss's before Adam, so that both are scaled alike and balance where they should.

The optimiser lives inside one call. Surgery happens between calls, so no state is ever carried
through growth.
"""

import math
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TypeAlias, final

import torch
import torch.nn.functional as F
from torch import Tensor

from lifelong.network import Skeleton, Tensors, logits
from lifelong.penalties import Penalty, Quadratic
from lifelong.tasks import Kind, Rows

Loss: TypeAlias = Callable[[Tensor, Tensor], Tensor]
Progress: TypeAlias = Callable[[str, int, int], None]  # stage, steps done, steps at the most


class TrainingError(ArithmeticError):
    """A training that diverged; the message names the stage and the setting to look at."""


@final
@dataclass(frozen=True)
class Budget:
    """How long a training may take, and how it goes.

    Attributes:
        steps: at the most.
        batch: rows a step; all rows where there are fewer.
        learning_rate: of Adam, and the step of the proximal maps.
        check_every: steps between two looks at the validation loss.
        patience: looks without a better validation loss before the learning rate is cut.
        cuts: how often it is cut; after the last, training ends.
        cut: factor of a cut.
    """

    steps: int = 6000
    batch: int = 256
    learning_rate: float = 1e-3
    check_every: int = 40
    patience: int = 5
    cuts: int = 1
    cut: float = 0.3

    def __post_init__(self) -> None:
        for name in ("steps", "batch", "check_every", "patience"):
            require(
                name, getattr(self, name), "a whole number above 0", lambda v: _whole(v) and v > 0
            )
        require("cuts", self.cuts, "a whole number, 0 or more", lambda v: _whole(v) and v >= 0)
        require("learning_rate", self.learning_rate, "above 0", lambda v: v > 0)
        require("cut", self.cut, "above 0 and below 1", lambda v: 0 < v < 1)


class SettingError(ValueError):
    """A setting out of its range; the message names it, what came and what is allowed."""


def require(name: str, value: float, allowed: str, holds: Callable[[float], bool]) -> None:
    """Refuse a setting that is not a finite number for which `holds` is true."""
    number = isinstance(value, int | float) and not isinstance(value, bool)
    if not number or not math.isfinite(value) or not holds(value):
        raise SettingError(f"{name} must be {allowed} and finite, not {value!r}")


def _whole(value: float) -> bool:
    return isinstance(value, int)


@final
@dataclass(frozen=True, eq=False)
class Rehearsal:
    """What one task asks of the tensors: how its outputs are computed, its loss and its rows."""

    forward: Callable[[Tensors, Tensor], Tensor]
    loss: Loss
    train: Rows
    valid: Rows


@final
@dataclass(frozen=True, eq=False)
class Problem:
    """What to minimise, and over what.

    Attributes:
        stage: its name, for records and messages.
        tensors: where to start.
        asks: the task to learn, or several to learn together.
        movable: the tensors that may move, each with a mask of the entries that may, or None for
            all. What is not named stays.
        penalties: by tensor, applied by their proximal maps.
        pulls: by tensor, applied by their gradients.
        follow: whether to integrate the loss's gradient along the path of training.
    """

    stage: str
    tensors: Tensors
    asks: Sequence[Rehearsal]
    movable: Mapping[str, Tensor | None]
    penalties: Mapping[str, Penalty] = field(default_factory=dict)
    pulls: Mapping[str, Quadratic] = field(default_factory=dict)
    follow: bool = False


@final
@dataclass(frozen=True, eq=False)
class Solution:
    """The tensors with the lowest validation loss that was seen, and what it took.

    Attributes:
        path: where the problem says `follow`, for each tensor that moved the loss that each entry
            saved on the way here: minus the sum over steps of its gradient times its move.
    """

    tensors: Tensors
    loss: float
    steps: int
    seconds: float
    path: Tensors = field(default_factory=dict)


def loss_of(kind: Kind) -> Loss:
    """Mean cross-entropy: over rows and binary outputs, or over rows under a softmax."""
    binary, classes = F.binary_cross_entropy_with_logits, F.cross_entropy
    return binary if kind is Kind.BINARY else classes


def ask(skeleton: Skeleton, kind: Kind, train: Rows, valid: Rows) -> Rehearsal:
    """One task on a network of this skeleton."""
    return Rehearsal(lambda t, x: logits(skeleton, t, x), loss_of(kind), train, valid)


def solve(
    problem: Problem, budget: Budget, generator: torch.Generator, progress: Progress | None = None
) -> Solution:
    """Train until the validation loss stops falling; the start counts as a candidate."""
    start = time.perf_counter()
    training = _Training(problem, budget, generator)
    best = _Best(training.state(), validation_loss(problem.asks, training.tensors))
    rate, taken, misses, cuts = budget.learning_rate, 0, 0, 0
    while taken < budget.steps:
        for _ in range(min(budget.check_every, budget.steps - taken)):
            training.step(rate)
            taken += 1
        loss = _finite(validation_loss(problem.asks, training.tensors), problem.stage, taken)
        misses = 0 if best.offer(loss) else misses + 1
        if progress is not None:
            progress(problem.stage, taken, budget.steps)
        if misses >= budget.patience:
            if cuts == budget.cuts:
                break
            rate, cuts, misses = rate * budget.cut, cuts + 1, 0
            best.put_back()
            training.restart(rate)
    best.put_back()
    seconds = time.perf_counter() - start
    return Solution(training.result(), best.loss, taken, seconds, training.path)


def validation_loss(asks: Sequence[Rehearsal], tensors: Tensors) -> float:
    """Mean over the rows of each task's validation set, then over tasks."""
    with torch.no_grad():
        return sum(_mean_loss(ask, tensors) for ask in asks) / len(asks)


def _mean_loss(ask: Rehearsal, tensors: Tensors) -> float:
    sums = [ask.loss(ask.forward(tensors, x), y) * len(x) for x, y in ask.valid.batches(4096)]
    return float(torch.stack(sums).sum()) / len(ask.valid)


@final
class _Training:
    """A problem in the course of being solved: what moves, the optimiser, and the rows to come."""

    def __init__(self, problem: Problem, budget: Budget, generator: torch.Generator) -> None:
        self._problem = problem
        self.tensors = {
            name: tensor.detach().clone().requires_grad_() if name in problem.movable else tensor
            for name, tensor in problem.tensors.items()
        }
        self._moving = {name: self.tensors[name] for name in problem.movable}
        self._masks = {name: mask for name, mask in problem.movable.items() if mask is not None}
        self._batches = [_endless(ask.train, budget.batch, generator) for ask in problem.asks]
        followed = self._moving if problem.follow else {}
        self.path = {name: torch.zeros_like(t.detach()) for name, t in followed.items()}
        self.restart(budget.learning_rate)

    def restart(self, rate: float) -> None:
        """Go on from where the tensors are, with no memory of earlier steps."""
        self._optimiser = torch.optim.Adam(self._moving.values(), lr=rate, fused=True)

    def state(self) -> list[Tensor]:
        """Everything that a step changes but the optimiser."""
        return [*(tensor.detach() for tensor in self._moving.values()), *self.path.values()]

    def result(self) -> Tensors:
        return {name: tensor.detach() for name, tensor in self.tensors.items()}

    def step(self, rate: float) -> None:
        self._optimiser.zero_grad()
        asks = self._problem.asks
        for ask, rows in zip(asks, self._batches, strict=True):
            x, y = next(rows)
            loss = ask.loss(ask.forward(self.tensors, x), y) / len(asks)
            loss.backward()
        with torch.no_grad():
            # With a gradient of zero Adam leaves an entry as it is, to the bit.
            for name, mask in self._masks.items():
                _gradient(self._moving[name]).mul_(mask)
            if self.path:
                self._move_and_follow()
            else:
                self._move()
            for name, penalty in self._problem.penalties.items():
                _apply(penalty, self._moving[name], self._masks.get(name), rate)

    def _move(self) -> None:
        for name, pull in self._problem.pulls.items():
            tensor = self._moving[name]
            _gradient(tensor).addcmul_(pull.weight, tensor - pull.center)
        self._optimiser.step()

    def _move_and_follow(self) -> None:
        """The gradient that counts is that of the loss alone, without what pulls."""
        before = {name: self._moving[name].clone() for name in self.path}
        slopes = {name: _gradient(self._moving[name]).clone() for name in self.path}
        self._move()
        for name, saved in self.path.items():
            saved.addcmul_(slopes[name], before[name].sub_(self._moving[name]))


def _gradient(tensor: Tensor) -> Tensor:
    """Of a tensor that moves; zero if no loss depends on it."""
    if tensor.grad is None:
        tensor.grad = torch.zeros_like(tensor)
    return tensor.grad


def _apply(penalty: Penalty, tensor: Tensor, mask: Tensor | None, step: float) -> None:
    shrunk = penalty.prox(tensor, step)
    tensor.copy_(shrunk if mask is None else torch.where(mask, shrunk, tensor))


def _endless(rows: Rows, size: int, generator: torch.Generator) -> Iterator[tuple[Tensor, Tensor]]:
    while True:
        yield from rows.batches(size, generator)


def _finite(loss: float, stage: str, step: int) -> float:
    if not math.isfinite(loss):
        raise TrainingError(
            f"{stage}: the validation loss became {loss} at step {step}; a smaller learning_rate, "
            "or inputs scaled to about 1, usually mend this"
        )
    return loss


@final
class _Best:
    """The best state so far. Only what moves is copied."""

    def __init__(self, state: list[Tensor], loss: float) -> None:
        self._state = state
        self._kept = [tensor.clone() for tensor in state]
        self.loss = loss if math.isfinite(loss) else math.inf

    def offer(self, loss: float) -> bool:
        if loss >= self.loss:
            return False
        self.loss = loss
        for kept, tensor in zip(self._kept, self._state, strict=True):
            kept.copy_(tensor)
        return True

    def put_back(self) -> None:
        for kept, tensor in zip(self._kept, self._state, strict=True):
            tensor.copy_(kept)
