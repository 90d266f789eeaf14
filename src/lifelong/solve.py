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
from typing import Any, Protocol, TypeAlias, TypeVar, final

import msgspec
import torch
import torch.nn.functional as F
from torch import Tensor

from lifelong.journal import CheckpointError, Journal, Page
from lifelong.network import Skeleton, Tensors, logits
from lifelong.penalties import Penalty, Quadratic
from lifelong.tasks import Kind, Rows

Loss: TypeAlias = Callable[[Tensor, Tensor], Tensor]
Progress: TypeAlias = Callable[[str, int, int], None]  # stage, steps done, steps at the most
Facts = TypeVar("Facts")


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


class Batches(Protocol):
    """Rows, in batches of (what a forward pass takes, labels). `Rows` of a task are such."""

    def __len__(self) -> int: ...

    def batches(
        self, size: int, generator: torch.Generator | None = None
    ) -> Iterator[tuple[Any, Tensor]]: ...


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
class _At(msgspec.Struct, forbid_unknown_fields=True):
    """How far a training is.

    Attributes:
        consumed: of each task's rows, batches since the pass over them began.
    """

    rate: float
    taken: int = 0
    misses: int = 0
    cuts: int = 0
    ended: bool = False
    best: float = math.inf
    seconds: float = 0.0
    consumed: list[int] = []


@final
class _Outcome(msgspec.Struct, forbid_unknown_fields=True):
    """What a training came to, besides tensors."""

    loss: float
    steps: int
    seconds: float


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
        self._passes = [_Passes(ask.train, budget.batch, generator) for ask in problem.asks]
        followed = self._moving if problem.follow else {}
        self.path = {name: torch.zeros_like(t.detach()) for name, t in followed.items()}
        self.at = _At(budget.learning_rate)
        self._best = _Best(self._state())
        self._restart()

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
        return Solution(tensors, self._best.loss, self.at.taken, self._seconds(), self.path)

    def page(self) -> Page:
        """All that the next step depends on."""
        consumed = [passes.consumed for passes in self._passes]
        at = msgspec.structs.replace(
            self.at, best=self._best.loss, seconds=self._seconds(), consumed=consumed
        )
        tensors = {
            **_under("now", self._state()),
            **_under("best", self._best.kept),
            **_under("adam", self._adam.state()),
            **_under("pass", {str(n): one.began for n, one in enumerate(self._passes)}),
            "generator/": self._generator.get_state(),
        }
        return Page(self._problem.stage, False, msgspec.to_builtins(at), tensors)

    def go_on_from(self, page: Page) -> None:
        """Be what wrote this page, to the bit."""
        self.at = at = _facts(page, _At)
        budget = self._budget
        if not (
            0 < at.rate <= budget.learning_rate
            and 0 <= at.taken <= budget.steps
            and len(at.consumed) == len(self._passes)
            and all(0 <= count <= at.taken for count in at.consumed)
        ):
            raise _misfit(page, f"{at} is not on the way of this training")
        self._since -= self.at.seconds
        _fill(self._state(), page, "now")
        _fill(self._best.kept, page, "best")
        self._best.loss = self.at.best
        self._restart()
        _fill(self._adam.state(), page, "adam")
        states = [torch.zeros_like(self._generator.get_state()) for _ in self._passes]
        _fill({str(n): state for n, state in enumerate(states)}, page, "pass")
        for passes, state, count in zip(self._passes, states, at.consumed, strict=True):
            _set_state(self._generator, state, page)
            passes.skip(count)
        _set_generator(self._generator, page)

    def _seconds(self) -> float:
        return time.perf_counter() - self._since

    def _restart(self) -> None:
        """Go on from where the tensors are, with no memory of earlier steps."""
        self._adam = _Adam(self._moving)

    def _state(self) -> dict[str, Tensor]:
        """Everything that a step changes but the optimiser."""
        moving = {name: tensor.detach() for name, tensor in self._moving.items()}
        return {**moving, **_under("path", self.path)}

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


@final
class _Adam:
    """Adam (Kingma and Ba, 2015) by PyTorch's fused kernel.

    Called directly: `torch.optim.Adam` counts the steps of every tensor by itself and looks up its
    options each time, which for a small network takes as long as all of its arithmetic.
    """

    def __init__(self, moving: Tensors) -> None:
        self._moving = moving
        self._means = {name: torch.zeros_like(t.detach()) for name, t in moving.items()}
        self._squares = {name: torch.zeros_like(t.detach()) for name, t in moving.items()}
        device = next(iter(moving.values())).device
        self._taken = torch.zeros((), dtype=torch.float32, device=device)

    def state(self) -> dict[str, Tensor]:
        return {
            **_under("mean", self._means),
            **_under("square", self._squares),
            "taken": self._taken,
        }

    def step(self, rate: float) -> None:
        """Move each tensor that has a gradient."""
        moved = [name for name, tensor in self._moving.items() if tensor.grad is not None]
        self._taken += 1
        torch._fused_adam_(
            [self._moving[name] for name in moved],
            [_gradient(self._moving[name]) for name in moved],
            [self._means[name] for name in moved],
            [self._squares[name] for name in moved],
            [],
            [self._taken] * len(moved),
            lr=rate,
            beta1=0.9,
            beta2=0.999,
            weight_decay=0.0,
            eps=1e-8,
            amsgrad=False,
            maximize=False,
        )


def _gradient(tensor: Tensor) -> Tensor:
    """Of a tensor that moves; zero if no loss depends on it."""
    if tensor.grad is None:
        tensor.grad = torch.zeros_like(tensor)
    return tensor.grad


def _apply(penalty: Penalty, tensor: Tensor, mask: Tensor | None, step: float) -> None:
    shrunk = penalty.prox(tensor, step)
    tensor.copy_(shrunk if mask is None else torch.where(mask, shrunk, tensor))


@final
class _Passes:
    """Batches without end: pass after pass over the rows, each in an order of its own."""

    def __init__(self, rows: Batches, size: int, generator: torch.Generator) -> None:
        self._rows, self._size, self._generator = rows, size, generator
        self._current: Iterator[tuple[Any, Tensor]] = iter(())
        self.began = generator.get_state()
        self.consumed = 0

    def __next__(self) -> tuple[Any, Tensor]:
        batch = next(self._current, None)
        while batch is None:
            self._begin()
            batch = next(self._current, None)
        self.consumed += 1
        return batch

    def skip(self, count: int) -> None:
        """Be after so many batches of a pass that begins here."""
        for _ in range(count):
            next(self)

    def _begin(self) -> None:
        self.began = self._generator.get_state()
        self.consumed = 0
        self._current = self._rows.batches(self._size, self._generator)


def require_finite(loss: float, stage: str, when: str) -> None:
    """Stop a training whose loss says nothing any more."""
    if not math.isfinite(loss):
        raise TrainingError(
            f"{stage}: the validation loss became {loss} {when}; a smaller learning_rate, "
            "or inputs scaled to about 1, usually mend this"
        )


@final
class _Best:
    """The best state so far. Only what moves is copied."""

    def __init__(self, state: Tensors) -> None:
        self._state = state
        self.kept = {name: tensor.clone() for name, tensor in state.items()}
        self.loss = math.inf

    def offer(self, loss: float) -> bool:
        if not loss < self.loss:
            return False
        self.loss = loss
        _copy(self._state, self.kept)
        return True

    def put_back(self) -> None:
        _copy(self.kept, self._state)


def _copy(sources: Tensors, targets: Tensors) -> None:
    for name, target in targets.items():
        target.copy_(sources[name])


def _page_of(solution: Solution, problem: Problem, generator: torch.Generator) -> Page:
    """A training that has ended: what came out, and what the generator will draw next."""
    moved = {name: solution.tensors[name] for name in problem.movable}
    outcome = _Outcome(solution.loss, solution.steps, solution.seconds)
    tensors = {
        **_under("now", moved),
        **_under("path", solution.path),
        "generator/": generator.get_state(),
    }
    return Page(problem.stage, True, msgspec.to_builtins(outcome), tensors)


def _solution_on(page: Page, problem: Problem, generator: torch.Generator) -> Solution:
    """What an ended training came to, without training again."""
    moved = {name: torch.empty_like(problem.tensors[name].detach()) for name in problem.movable}
    path = {name: torch.empty_like(t) for name, t in moved.items()} if problem.follow else {}
    _fill(moved, page, "now")
    _fill(path, page, "path")
    _set_generator(generator, page)
    outcome = _facts(page, _Outcome)
    tensors = {**problem.tensors, **moved}
    return Solution(tensors, outcome.loss, outcome.steps, outcome.seconds, path)


def _facts(page: Page, kind: type[Facts]) -> Facts:
    try:
        return msgspec.convert(page.facts, kind)
    except msgspec.ValidationError as error:
        raise _misfit(page, str(error)) from error


def _misfit(page: Page, why: str) -> CheckpointError:
    return CheckpointError(
        f"{page.stage}: its checkpoint does not fit: {why}; remove the checkpoint to learn from "
        "the start"
    )


def _under(prefix: str, tensors: Tensors) -> dict[str, Tensor]:
    return {f"{prefix}/{name}": tensor for name, tensor in tensors.items()}


def _fill(targets: Tensors, page: Page, prefix: str) -> None:
    """Copy what was kept into tensors that lie in memory as they did: the layout may change how a
    product rounds.
    """
    for name, target in targets.items():
        source = page.tensors.get(f"{prefix}/{name}")
        if source is None or (source.shape, source.dtype) != (target.shape, target.dtype):
            came = "nothing" if source is None else f"{source.dtype} of {tuple(source.shape)}"
            expected = f"{target.dtype} of {tuple(target.shape)}"
            raise _misfit(page, f"{came} for {prefix} {name}, not {expected}")
        target.copy_(source)


def _set_generator(generator: torch.Generator, page: Page) -> None:
    state = generator.get_state()
    _fill({"": state}, page, "generator")
    _set_state(generator, state, page)


def _set_state(generator: torch.Generator, state: Tensor, page: Page) -> None:
    try:
        generator.set_state(state)
    except RuntimeError as error:
        raise _misfit(page, str(error)) from error
