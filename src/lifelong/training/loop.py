"""The training loop: the only place with an optimiser.

`solve` minimises the mean loss over rows plus penalties. Each step is a step of Adam, or of SGD if
the budget says so, on the gradient of the loss; then the proximal map of each penalty with the
learning rate as step size, which makes zeros exact. Adam rescales each coordinate and the map does
not, so the strength of a penalty is relative to a gradient of typical size, whatever the scale of
the loss.
A quadratic pull towards old weights is smooth: its gradient is added to that of the loss before
Adam, so that both are rescaled alike.

The optimiser lives inside one call, unless a problem passes its state on. Surgery happens between
calls, so no optimiser state has to survive a change of shape.
"""

import math
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol, final

import msgspec
import torch
from torch import Tensor

from lifelong.networks.layout import Architecture, Tensors, logits
from lifelong.persistence.checkpoint import StageSnapshot
from lifelong.records import StageRecord
from lifelong.tasks.examples import Examples
from lifelong.tasks.kinds import Kind
from lifelong.tasks.task import Task
from lifelong.training.budget import Budget
from lifelong.training.losses import Loss, loss_of
from lifelong.training.optimizer import (
    Batches,
    Best,
    Passes,
    gradient_of,
    optimizer_for,
    under,
)
from lifelong.training.penalties import Penalty, Quadratic
from lifelong.training.precision import precision_of, require_precision
from lifelong.training.ranks import ALONE, AnyCheckpoint, Ranks
from lifelong.training.snapshots import (
    LoopState,
    Outcome,
    facts_in,
    fill,
    mismatch,
    set_generator,
    set_state,
    snapshot_of,
)
from lifelong.watching.events import Event, StageBegan, StageEnded, Validated, Watcher


class TrainingError(ArithmeticError):
    """A training that diverged; the message names the stage and the setting to look at."""


@final
@dataclass(frozen=True, eq=False)
class TaskObjective:
    """The objective of one task: forward pass, loss, training and validation rows.

    Attributes:
        validated: the forward pass in validation, if it is another than in training: that of the
            network which will be kept, where training relaxes it.
        training: the forward pass of a training step, if it is another one: with dropout, which
            draws from the generator, and statistics, which it updates in place.
    """

    forward: Callable[[Tensors, Any], Tensor]
    loss: Loss
    train: Batches
    valid: Batches
    validated: Callable[[Tensors, Any], Tensor] | None = field(default=None, kw_only=True)
    training: Callable[[Tensors, Any, torch.Generator], Tensor] | None = field(
        default=None, kw_only=True
    )

    def step_loss(self, tensors: Tensors, x: Any, y: Tensor, generator: torch.Generator) -> Tensor:
        """The loss of a training step, in float32 whatever the network computes in."""
        if self.training is None:
            return self.loss(self.forward(tensors, x).float(), y)
        return self.loss(self.training(tensors, x, generator).float(), y)


class StepHook(Protocol):
    """A method's own code before and after each training step."""

    def state(self) -> Mapping[str, Tensor]:
        """The tensors that it changes in place. They are checkpointed, and after training they are
        reset to their values at the best weights.
        """
        ...

    def before_step(self, tensors: Tensors) -> None:
        """Called after the backward pass; may change the gradients."""
        ...

    def after_step(self, tensors: Tensors) -> None:
        """Called after the optimiser step and before the proximal maps; may change the tensors."""
        ...


@final
@dataclass(frozen=True, eq=False)
class Problem:
    """What to minimise, and over which tensors.

    Attributes:
        stage: name of the training, for records and messages.
        tensors: initial values.
        objectives: one per task; several are trained together.
        movable: the trainable tensors, each with a mask of its trainable entries, or None for all.
        penalties: by tensor, applied by their proximal maps.
        pulls: by tensor, applied by their gradients.
        buffers: tensors that forward passes in training change in place.
        hook: a method's own code around each step, for what penalties cannot express.
        adam: initial optimiser state, which may be empty. If it is not None, the solution holds the
            final state.
    """

    stage: str
    tensors: Tensors
    objectives: Sequence[TaskObjective]
    movable: Mapping[str, Tensor | None]
    penalties: Mapping[str, Penalty] = field(default_factory=dict)
    pulls: Mapping[str, Quadratic] = field(default_factory=dict)
    buffers: Collection[str] = ()
    hook: StepHook | None = None
    adam: Tensors | None = None


@final
@dataclass(frozen=True, eq=False)
class Solution:
    """The tensors with the lowest validation loss, and what the training took.

    Attributes:
        adam: optimiser state after the last step, if the problem gave an initial one.
    """

    tensors: Tensors
    loss: float
    steps: int
    seconds: float
    adam: Tensors = field(default_factory=dict)

    def record(self, stage: str) -> StageRecord:
        return StageRecord(stage, self.loss, self.steps, self.seconds)


def objective(
    architecture: Architecture, about: Kind | Task, train: Examples, valid: Examples
) -> TaskObjective:
    """The objective of one task, of which the kind may be enough, on such a network."""
    return TaskObjective(
        lambda t, x: logits(architecture, t, x),
        loss_of(about),
        train,
        valid,
        training=lambda t, x, generator: logits(architecture, t, x, generator),
    )


@final
@dataclass(frozen=True)
class TrainingContext:
    """Who watches a training, where it is checkpointed, for which task it is, and which processes
    train together.
    """

    watchers: Sequence[Watcher] = ()
    checkpoint: AnyCheckpoint | None = None
    task: str = ""
    ranks: Ranks = ALONE

    def tell(self, event: Event) -> None:
        """Pass an event on to all who watch."""
        for watcher in self.watchers:
            watcher(event)


STANDALONE = TrainingContext()


def solve(
    problem: Problem,
    budget: Budget,
    generator: torch.Generator,
    context: TrainingContext = STANDALONE,
) -> Solution:
    """Train until the validation loss stops falling; the initial tensors are a candidate too."""
    _hold_freed_memory()
    require_precision(budget, next(iter(problem.tensors.values())).device)
    checkpoint = context.checkpoint
    saved = checkpoint.turn(problem.stage) if checkpoint is not None else None
    if saved is not None and saved.ended:
        return _solution_in(saved, problem, budget, generator)
    budget = budget.in_steps(max(len(objective.train) for objective in problem.objectives))
    training = _Loop(problem, budget, generator, context.ranks)
    context.tell(StageBegan(problem.stage, budget.steps))
    if saved is None:
        context.tell(training.start())
    else:
        training.restore(saved)
    while not training.over:
        look = training.train_until_validation()
        if checkpoint is not None:
            checkpoint.keep(training.snapshot)
        context.tell(look)
    solution = training.solution()
    context.ranks.require_same_tensors(f"{problem.stage}: the networks", solution.tensors)
    if checkpoint is not None:
        checkpoint.end(_snapshot_of(solution, problem, generator))
    context.tell(StageEnded(problem.stage, solution.record(problem.stage)))
    return solution


def _snapshot_of(solution: Solution, problem: Problem, generator: torch.Generator) -> StageSnapshot:
    """Snapshot of a training that has ended."""
    outcome = Outcome(solution.loss, solution.steps, solution.seconds)
    moved = {name: solution.tensors[name] for name in (*problem.movable, *problem.buffers)}
    parts = {"now": moved, "hook": _hook_state(problem), "adam": solution.adam}
    return snapshot_of(problem.stage, outcome, parts, generator)


def _solution_in(
    snapshot: StageSnapshot, problem: Problem, budget: Budget, generator: torch.Generator
) -> Solution:
    """The solution of a training that ended before the restart."""
    moving = {name: torch.empty_like(problem.tensors[name].detach()) for name in problem.movable}
    adam = {} if problem.adam is None else optimizer_for(budget, moving, problem.adam).state()
    buffers = {name: torch.empty_like(problem.tensors[name]) for name in problem.buffers}
    moved = {**moving, **buffers}
    fill({"now": moved, "hook": _hook_state(problem), "adam": adam}, snapshot)
    set_generator(generator, snapshot)
    outcome = facts_in(snapshot, Outcome)
    tensors = {**problem.tensors, **moved}
    return Solution(tensors, outcome.loss, outcome.steps, outcome.seconds, adam)


def _hook_state(problem: Problem) -> Mapping[str, Tensor]:
    return {} if problem.hook is None else problem.hook.state()


def _hold_freed_memory() -> None:
    """Make glibc keep the memory that a step frees; returning it to the system and getting it back
    page by page takes a quarter of a step's time.

    glibc keeps up to twice the size of the largest mapped block ever freed, up to 32 MB. This block
    is never touched; with other C libraries nothing happens.
    """
    torch.empty(31 * 2**20, dtype=torch.uint8)


def validation_loss(
    objectives: Sequence[TaskObjective], tensors: Tensors, ranks: Ranks = ALONE
) -> float:
    """Mean over the rows of each task's validation set, then over tasks."""
    with torch.no_grad():
        losses = [_mean_loss(objective, tensors, ranks) for objective in objectives]
    return sum(losses) / len(losses)


def _mean_loss(objective: TaskObjective, tensors: Tensors, ranks: Ranks) -> float:
    forward = objective.validated or objective.forward
    sums = [
        objective.loss(forward(tensors, x), y) * len(y)
        for x, y in objective.valid.batches(4096)
        if len(y)
    ]
    here = torch.stack(sums).sum() if sums else torch.zeros((), device=ranks.device)
    return float(ranks.summed(here)) / len(objective.valid)


@final
class _Loop:
    """A running training: trainable tensors, optimiser, and position in the data."""

    def __init__(
        self, problem: Problem, budget: Budget, generator: torch.Generator, ranks: Ranks
    ) -> None:
        self._since = time.perf_counter()
        self._problem, self._budget, self._generator = problem, budget, generator
        self._ranks, self._own_generator = ranks, generator
        self.tensors = {
            name: tensor.detach().clone().requires_grad_() if name in problem.movable else tensor
            for name, tensor in problem.tensors.items()
        }
        self._moving = {name: self.tensors[name] for name in problem.movable}
        self._buffers = {name: self.tensors[name].clone() for name in problem.buffers}
        self.tensors |= self._buffers
        self._masks = {name: mask for name, mask in problem.movable.items() if mask is not None}
        # As numbers: a product with bits takes ten times as long.
        self._factors = {name: mask.to(self.tensors[name]) for name, mask in self._masks.items()}
        self._passes = [
            Passes(objective.train, budget.batch_size, generator)
            for objective in problem.objectives
        ]
        self.at = LoopState(budget.learning_rate)
        self._best = Best(self._state())
        self._optimizer = optimizer_for(budget, self._moving, problem.adam)

    def start(self) -> Validated:
        """Record the initial tensors as the first candidate."""
        loss = validation_loss(self._problem.objectives, self.tensors, self._ranks)
        self._best.offer(loss)
        return self._look(loss)

    @property
    def over(self) -> bool:
        return self.at.ended or self.at.taken >= self._budget.steps

    def train_until_validation(self) -> Validated:
        """Train up to the next validation, then decay the learning rate or end if need be."""
        at, budget, problem = self.at, self._budget, self._problem
        self._own_generator = self._ranks.own(self._generator, at.taken)
        for _ in range(min(budget.check_every, budget.steps - at.taken)):
            self.step(at.rate)
            at.taken += 1
        loss = validation_loss(problem.objectives, self.tensors, self._ranks)
        require_finite(loss, problem.stage, f"at step {at.taken}")
        at.misses = 0 if self._best.offer(loss) else at.misses + 1
        look = self._look(loss)
        if at.misses < budget.patience:
            return look
        if at.lr_decays == budget.lr_decays:
            at.ended = True
            return look
        at.rate, at.lr_decays, at.misses = at.rate * budget.lr_decay, at.lr_decays + 1, 0
        self._best.put_back()
        self._restart()
        return look

    def _look(self, loss: float) -> Validated:
        at, stage, most = self.at, self._problem.stage, self._budget.steps
        return Validated(stage, at.taken, most, loss, self._best.loss, at.rate)

    def solution(self) -> Solution:
        self._best.put_back()
        tensors = {name: tensor.detach() for name, tensor in self.tensors.items()}
        adam = {} if self._problem.adam is None else self._optimizer.state()
        return Solution(tensors, self._best.loss, self.at.taken, self._seconds(), adam)

    def snapshot(self) -> StageSnapshot:
        """All that the next step depends on."""
        consumed = [passes.consumed for passes in self._passes]
        at = msgspec.structs.replace(
            self.at, best=self._best.loss, seconds=self._seconds(), consumed=consumed
        )
        parts = {
            "now": self._state(),
            "best": self._best.kept,
            "adam": self._optimizer.state(),
            "pass": {str(number): one.began for number, one in enumerate(self._passes)},
        }
        return snapshot_of(self._problem.stage, at, parts, self._generator)

    def restore(self, snapshot: StageSnapshot) -> None:
        """Restore the saved state, bit-exactly."""
        self.at = at = facts_in(snapshot, LoopState)
        budget = self._budget
        if not (
            0 < at.rate <= budget.learning_rate
            and 0 <= at.taken <= budget.steps
            and len(at.consumed) == len(self._passes)
            and all(0 <= count <= at.taken for count in at.consumed)
        ):
            raise mismatch(snapshot, f"{at} is not on the way of this training")
        self._since -= self.at.seconds
        self._best.loss = self.at.best
        self._restart()
        state = {"now": self._state(), "best": self._best.kept, "adam": self._optimizer.state()}
        fill(state, snapshot)
        starts = [torch.zeros_like(self._generator.get_state()) for _ in self._passes]
        fill({"pass": {str(number): start for number, start in enumerate(starts)}}, snapshot)
        for passes, start, count in zip(self._passes, starts, at.consumed, strict=True):
            set_state(self._generator, start, snapshot)
            passes.skip(count)
        set_generator(self._generator, snapshot)

    def _seconds(self) -> float:
        return time.perf_counter() - self._since

    def _restart(self) -> None:
        """Reset the optimiser; the tensors stay as they are."""
        self._optimizer = optimizer_for(self._budget, self._moving)

    def _state(self) -> dict[str, Tensor]:
        """Everything that a step changes, except the optimiser state."""
        moving = {name: tensor.detach() for name, tensor in self._moving.items()}
        return {**moving, **self._buffers, **under("hook", _hook_state(self._problem))}

    def step(self, rate: float) -> None:
        for tensor in self._moving.values():
            tensor.grad = None
        for objective, rows in zip(self._problem.objectives, self._passes, strict=True):
            self._add_gradients(objective, rows)
        with torch.no_grad():
            if not self._ranks.alone:
                self._ranks.sum_in_place([gradient_of(t) for t in self._moving.values()])
            # With a zero gradient Adam leaves an entry bit-exactly as it is.
            for name, factor in self._factors.items():
                gradient_of(self._moving[name]).mul_(factor)
            self._move(rate)
            for name, penalty in self._problem.penalties.items():
                _apply(penalty, self._moving[name], self._masks.get(name), rate)

    def _add_gradients(self, objective: TaskObjective, rows: Passes) -> None:
        """Gradients of the mean over objectives, and over the rows of all processes."""
        x, y = next(rows)
        if not len(y):  # none of this batch's rows are here
            return
        share = 1.0 if self._ranks.alone else len(y) / rows.batch_rows
        divisor = len(self._problem.objectives) / share
        with precision_of(self._budget, y.device):
            loss = objective.step_loss(self.tensors, x, y, self._own_generator)
        (loss if divisor == 1 else loss / divisor).backward()

    def _move(self, rate: float) -> None:
        hook = self._problem.hook
        if hook is not None:
            hook.before_step(self._moving)
        for name, pull in self._problem.pulls.items():
            tensor = self._moving[name]
            gradient_of(tensor).addcmul_(pull.weight, tensor - pull.center)
        if self._budget.weight_decay:
            self._decay_weights(self._budget.weight_decay)
        self._optimizer.step(rate)
        if hook is not None:
            hook.after_step(self._moving)

    def _decay_weights(self, strength: float) -> None:
        """Only of entries that may move: the others stay bit-exactly as they are."""
        for name, tensor in self._moving.items():
            mask = self._masks.get(name)
            gradient_of(tensor).add_(tensor if mask is None else tensor * mask, alpha=strength)


def _apply(penalty: Penalty, tensor: Tensor, mask: Tensor | None, step: float) -> None:
    shrunk = penalty.prox(tensor, step)
    tensor.copy_(shrunk if mask is None else torch.where(mask, shrunk, tensor))


def require_finite(loss: float, stage: str, when: str) -> None:
    """Stop a training that diverged."""
    if not math.isfinite(loss):
        raise TrainingError(
            f"{stage}: the validation loss became {loss} {when}; a smaller learning_rate, "
            "or inputs scaled to about 1, usually mend this"
        )
