"""The training loop: the only place with an optimiser.

`solve` minimises the mean loss over rows plus penalties. Each step is Adam's on the gradient of the
loss, then the proximal map of each penalty with the learning rate as its step, so that zeros are
exact. (Adam scales every coordinate by itself and the map does not: with it the strength of a
penalty is relative to a gradient of typical size, the same on every scale of the loss.)
A quadratic pull towards old weights is smooth and belongs to the loss instead: its gradient is
added to the loss's before Adam, so that both are scaled alike and balance where they should.

The optimiser lives inside one call, unless a problem hands its state on. Surgery happens between
calls, so no state is ever carried through growth.
"""

import math
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeAlias, final

import msgspec
import torch
import torch.nn.functional as F
from torch import Tensor

from lifelong.budget import Budget
from lifelong.journal import Journal, Page
from lifelong.pages import At, Outcome, facts_on, fill, misfit, page_of, set_generator, set_state
from lifelong.penalties import Penalty, Quadratic
from lifelong.skeleton import Skeleton, Tensors, logits
from lifelong.stepping import Adam, Batches, Best, Passes, under
from lifelong.tasks import Kind, Rows

Loss: TypeAlias = Callable[[Tensor, Tensor], Tensor]
Progress: TypeAlias = Callable[[str, int, int], None]  # stage, steps done, steps at the most


class TrainingError(ArithmeticError):
    """A training that diverged; the message names the stage and the setting to look at."""


@final
@dataclass(frozen=True, eq=False)
class Rehearsal:
    """What one task asks of the tensors: how its outputs are computed, its loss and its rows."""

    forward: Callable[[Tensors, Any], Tensor]
    loss: Loss
    train: Batches
    valid: Batches


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
        adam: the optimiser's state to go on from, empty for none; where it is given the solution
            has the state in the end.
    """

    stage: str
    tensors: Tensors
    asks: Sequence[Rehearsal]
    movable: Mapping[str, Tensor | None]
    penalties: Mapping[str, Penalty] = field(default_factory=dict)
    pulls: Mapping[str, Quadratic] = field(default_factory=dict)
    follow: bool = False
    adam: Tensors | None = None


@final
@dataclass(frozen=True, eq=False)
class Solution:
    """The tensors with the lowest validation loss that was seen, and what it took.

    Attributes:
        path: where the problem says `follow`, for each tensor that moved the loss that each entry
            saved on the way here: minus the sum over steps of its gradient times its move.
        adam: where the problem has one, the optimiser's state after the last step.
    """

    tensors: Tensors
    loss: float
    steps: int
    seconds: float
    path: Tensors = field(default_factory=dict)
    adam: Tensors = field(default_factory=dict)


def loss_of(kind: Kind) -> Loss:
    """Mean cross-entropy: over rows and binary outputs, or over rows under a softmax."""
    binary, classes = F.binary_cross_entropy_with_logits, F.cross_entropy
    return binary if kind is Kind.BINARY else classes


def ask(skeleton: Skeleton, kind: Kind, train: Rows, valid: Rows) -> Rehearsal:
    """One task on a network of this skeleton."""
    return Rehearsal(lambda t, x: logits(skeleton, t, x), loss_of(kind), train, valid)


@final
@dataclass(frozen=True)
class Course:
    """Who is told how a learning goes, and where it is kept so that it can go on after a kill."""

    progress: Progress | None = None
    journal: Journal | None = None


ALONE = Course()


def solve(
    problem: Problem, budget: Budget, generator: torch.Generator, course: Course = ALONE
) -> Solution:
    """Train until the validation loss stops falling; the start counts as a candidate."""
    _hold_freed_memory()
    journal = course.journal
    kept = journal.turn(problem.stage) if journal is not None else None
    if kept is not None and kept.ended:
        return _solution_on(kept, problem, generator)
    training = _Training(problem, budget, generator)
    if kept is None:
        training.start()
    else:
        training.go_on_from(kept)
    while not training.over:
        training.go_to_next_look()
        if course.progress is not None:
            course.progress(problem.stage, training.at.taken, budget.steps)
        if journal is not None:
            journal.keep(training.page)
    solution = training.solution()
    if journal is not None:
        journal.end(_page_of(solution, problem, generator))
    return solution


def _page_of(solution: Solution, problem: Problem, generator: torch.Generator) -> Page:
    """A training that has ended."""
    outcome = Outcome(solution.loss, solution.steps, solution.seconds)
    moved = {name: solution.tensors[name] for name in problem.movable}
    parts = {"now": moved, "path": solution.path, "adam": solution.adam}
    return page_of(problem.stage, outcome, parts, generator)


def _solution_on(page: Page, problem: Problem, generator: torch.Generator) -> Solution:
    """What an ended training came to, without training again."""
    moved = {name: torch.empty_like(problem.tensors[name].detach()) for name in problem.movable}
    path = {name: torch.empty_like(t) for name, t in moved.items()} if problem.follow else {}
    adam = {} if problem.adam is None else Adam(moved, problem.adam).state()
    fill({"now": moved, "path": path, "adam": adam}, page)
    set_generator(generator, page)
    outcome = facts_on(page, Outcome)
    tensors = {**problem.tensors, **moved}
    return Solution(tensors, outcome.loss, outcome.steps, outcome.seconds, path, adam)


def _hold_freed_memory() -> None:
    """Let the C library keep what a step frees for the next one, in place of giving it back to the
    system, which hands it out again page by page: a quarter of a step's time.

    glibc keeps up to twice the size of the largest mapped block that was ever freed, if that is at
    most 32 MB. These bytes are never touched; elsewhere nothing happens.
    """
    torch.empty(31 * 2**20, dtype=torch.uint8)


def validation_loss(asks: Sequence[Rehearsal], tensors: Tensors) -> float:
    """Mean over the rows of each task's validation set, then over tasks."""
    with torch.no_grad():
        return sum(_mean_loss(ask, tensors) for ask in asks) / len(asks)


def _mean_loss(ask: Rehearsal, tensors: Tensors) -> float:
    sums = [ask.loss(ask.forward(tensors, x), y) * len(y) for x, y in ask.valid.batches(4096)]
    return float(torch.stack(sums).sum()) / len(ask.valid)


@final
class _Training:
    """A problem in the course of being solved: what moves, the optimiser, and the rows to come."""

    def __init__(self, problem: Problem, budget: Budget, generator: torch.Generator) -> None:
        self._since = time.perf_counter()
        self._problem, self._budget, self._generator = problem, budget, generator
        self.tensors = {
            name: tensor.detach().clone().requires_grad_() if name in problem.movable else tensor
            for name, tensor in problem.tensors.items()
        }
        self._moving = {name: self.tensors[name] for name in problem.movable}
        self._masks = {name: mask for name, mask in problem.movable.items() if mask is not None}
        self._passes = [Passes(ask.train, budget.batch, generator) for ask in problem.asks]
        followed = self._moving if problem.follow else {}
        self.path = {name: torch.zeros_like(t.detach()) for name, t in followed.items()}
        self.at = At(budget.learning_rate)
        self._best = Best(self._state())
        self._adam = Adam(self._moving, problem.adam)

    def start(self) -> None:
        """The start is the first candidate."""
        self._best.offer(validation_loss(self._problem.asks, self.tensors))

    @property
    def over(self) -> bool:
        return self.at.ended or self.at.taken >= self._budget.steps

    def go_to_next_look(self) -> None:
        """Take some steps, look at the validation loss, and cut the rate or end if need be."""
        at, budget, problem = self.at, self._budget, self._problem
        for _ in range(min(budget.check_every, budget.steps - at.taken)):
            self.step(at.rate)
            at.taken += 1
        loss = validation_loss(problem.asks, self.tensors)
        require_finite(loss, problem.stage, f"at step {at.taken}")
        at.misses = 0 if self._best.offer(loss) else at.misses + 1
        if at.misses < budget.patience:
            return
        if at.cuts == budget.cuts:
            at.ended = True
            return
        at.rate, at.cuts, at.misses = at.rate * budget.cut, at.cuts + 1, 0
        self._best.put_back()
        self._restart()

    def solution(self) -> Solution:
        self._best.put_back()
        tensors = {name: tensor.detach() for name, tensor in self.tensors.items()}
        adam = {} if self._problem.adam is None else self._adam.state()
        return Solution(tensors, self._best.loss, self.at.taken, self._seconds(), self.path, adam)

    def page(self) -> Page:
        """All that the next step depends on."""
        consumed = [passes.consumed for passes in self._passes]
        at = msgspec.structs.replace(
            self.at, best=self._best.loss, seconds=self._seconds(), consumed=consumed
        )
        parts = {
            "now": self._state(),
            "best": self._best.kept,
            "adam": self._adam.state(),
            "pass": {str(number): one.began for number, one in enumerate(self._passes)},
        }
        return page_of(self._problem.stage, at, parts, self._generator)

    def go_on_from(self, page: Page) -> None:
        """Be what wrote this page, to the bit."""
        self.at = at = facts_on(page, At)
        budget = self._budget
        if not (
            0 < at.rate <= budget.learning_rate
            and 0 <= at.taken <= budget.steps
            and len(at.consumed) == len(self._passes)
            and all(0 <= count <= at.taken for count in at.consumed)
        ):
            raise misfit(page, f"{at} is not on the way of this training")
        self._since -= self.at.seconds
        self._best.loss = self.at.best
        self._restart()
        kept = {"now": self._state(), "best": self._best.kept, "adam": self._adam.state()}
        fill(kept, page)
        states = [torch.zeros_like(self._generator.get_state()) for _ in self._passes]
        fill({"pass": {str(number): state for number, state in enumerate(states)}}, page)
        for passes, state, count in zip(self._passes, states, at.consumed, strict=True):
            set_state(self._generator, state, page)
            passes.skip(count)
        set_generator(self._generator, page)

    def _seconds(self) -> float:
        return time.perf_counter() - self._since

    def _restart(self) -> None:
        """Go on from where the tensors are, with no memory of earlier steps."""
        self._adam = Adam(self._moving, None if self._problem.adam is None else {})

    def _state(self) -> dict[str, Tensor]:
        """Everything that a step changes but the optimiser."""
        moving = {name: tensor.detach() for name, tensor in self._moving.items()}
        return {**moving, **under("path", self.path)}

    def step(self, rate: float) -> None:
        for tensor in self._moving.values():
            tensor.grad = None
        asks = self._problem.asks
        for ask, rows in zip(asks, self._passes, strict=True):
            x, y = next(rows)
            loss = ask.loss(ask.forward(self.tensors, x), y)
            (loss if len(asks) == 1 else loss / len(asks)).backward()
        with torch.no_grad():
            # With a gradient of zero Adam leaves an entry as it is, to the bit.
            for name, mask in self._masks.items():
                _gradient(self._moving[name]).mul_(mask)
            if self.path:
                self._move_and_follow(rate)
            else:
                self._move(rate)
            for name, penalty in self._problem.penalties.items():
                _apply(penalty, self._moving[name], self._masks.get(name), rate)

    def _move(self, rate: float) -> None:
        for name, pull in self._problem.pulls.items():
            tensor = self._moving[name]
            _gradient(tensor).addcmul_(pull.weight, tensor - pull.center)
        self._adam.step(rate)

    def _move_and_follow(self, rate: float) -> None:
        """The gradient that counts is that of the loss alone, without what pulls."""
        before = {name: self._moving[name].clone() for name in self.path}
        slopes = {name: _gradient(self._moving[name]).clone() for name in self.path}
        self._move(rate)
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


def require_finite(loss: float, stage: str, when: str) -> None:
    """Stop a training whose loss says nothing any more."""
    if not math.isfinite(loss):
        raise TrainingError(
            f"{stage}: the validation loss became {loss} {when}; a smaller learning_rate, "
            "or inputs scaled to about 1, usually mend this"
        )
