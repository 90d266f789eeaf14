"""Trainings and penalties that the algorithms share while one task is learned."""

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from math import ceil
from typing import final

import torch
from torch import Tensor

from lifelong.learners.den.frozen_cache import newcomers_objective
from lifelong.learners.den.settings import Settings
from lifelong.networks.growing import Network
from lifelong.networks.initial import Initialise, uniform
from lifelong.networks.layout import HEAD, Layout, Tensors, TensorSpec, statistics, trainable
from lifelong.networks.surgery import newcomers, spec_of, with_newcomers
from lifelong.records import StageRecord, TaskRecord
from lifelong.tasks.examples import Examples, to_device
from lifelong.tasks.task import Task
from lifelong.training.budget import Budget
from lifelong.training.calibration import calibration
from lifelong.training.distill import distilled
from lifelong.training.loop import (
    STANDALONE,
    Problem,
    Solution,
    TaskObjective,
    TrainingContext,
    objective,
    require_finite,
    solve,
    validation_loss,
)
from lifelong.training.losses import loss_of
from lifelong.training.optimizer import under
from lifelong.training.penalties import (
    Around,
    L1Norm,
    Penalty,
    SquaredL2,
    Sum,
    makes_sparse,
    sparsity,
    unit_groups,
)
from lifelong.training.scores import TopScores

PARTS = 50  # of the validation rows, for the standard error of a difference


@final
@dataclass(frozen=True, eq=False)
class TaskTraining:
    """The task being learned, with everything that its trainings need."""

    task: Task
    number: int
    settings: Settings
    generator: torch.Generator
    device: torch.device
    context: TrainingContext = STANDALONE
    earlier: tuple[TaskRecord, ...] = ()

    def train(
        self,
        stage: str,
        network: Network,
        penalties: Mapping[str, Penalty],
        inputs: Tensor | None = None,
        held: Collection[str] = (),
    ) -> tuple[Network, StageRecord]:
        """Solve Equation 2 or 4; `inputs` are the columns that the network reads, None for all.

        The tensors named `held` do not move.
        """
        goal = objective(network.architecture, self.task, *self.rows(inputs))
        specs = network.architecture.layout.tensors
        movable = {name: None for name in trainable(specs) if name not in held}
        solution = self._solve(stage, network.tensors, goal, penalties, specs, movable)
        return network.with_tensors(solution.tensors), solution.record(stage)

    def train_newcomers(
        self,
        stage: str,
        network: Network,
        penalties: Mapping[str, Penalty],
        teacher: Network | None = None,
    ) -> tuple[Network, StageRecord]:
        """Solve Equation 5 or 6: train only the entries that touch a newcomer.

        The penalties are by block of `surgery.newcomers`.
        """
        train, valid = self.rows()
        if teacher is not None:
            train = self._distilled(train, teacher)
        goal = newcomers_objective(network, self.number, self.task, train, valid)
        new, layout = newcomers(network, self.number), network.architecture.layout
        specs = {block: spec_of(layout, block) for block in new}
        solution = self._solve(stage, new, goal, penalties, specs)
        return with_newcomers(network, self.number, solution.tensors), solution.record(stage)

    def train_entries(
        self,
        stage: str,
        network: Network,
        movable: Mapping[str, Tensor | None],
        penalties: Mapping[str, Penalty],
        teacher: Network,
        budget: Budget | None = None,
    ) -> tuple[Network, StageRecord]:
        """Train only the entries that may move, distilled from a teacher."""
        train, valid = self.rows()
        train = self._distilled(train, teacher)
        goal = objective(network.architecture, self.task, train, valid)
        specs = network.architecture.layout.tensors
        solution = self._solve(stage, network.tensors, goal, penalties, specs, movable, budget)
        return network.with_tensors(solution.tensors), solution.record(stage)

    def train_mask(
        self, stage: str, network: Network, weights: Collection[str], share: float
    ) -> tuple[Network, StageRecord]:
        """Train a score for each entry of these weights, which stay, and all other tensors.

        Of each weight the share with the largest scores is kept, the rest is zero.
        """
        specs, make = network.architecture.layout.tensors, self.fresh()
        scores = {name: make(specs[name], tuple(network.tensors[name].shape)) for name in weights}
        chosen = TopScores(scores, share)
        free = trainable({name: spec for name, spec in specs.items() if name not in weights})
        problem = Problem(
            f"{self.task.name}: {stage}",
            {**network.tensors, **under("score", scores)},
            [chosen.objective(network.architecture, self.task, self.device)],
            {**free, **dict.fromkeys(under("score", scores))},
            buffers=statistics(specs),
            hook=chosen,
        )
        solution = solve(problem, self.settings.budget, self.generator, self.context)
        masks = chosen.masks(solution.tensors)
        kept = {name: torch.where(masks[name], network.tensors[name], 0.0) for name in weights}
        found = {name: solution.tensors[name] for name in network.tensors}
        return network.with_tensors({**found, **kept}), solution.record(stage)

    def _solve(
        self,
        stage: str,
        tensors: Tensors,
        goal: TaskObjective,
        penalties: Mapping[str, Penalty],
        specs: Mapping[str, TensorSpec],
        movable: Mapping[str, Tensor | None] | None = None,
        budget: Budget | None = None,
    ) -> Solution:
        name = f"{self.task.name}: {stage}"
        given = trainable(specs) if movable is None else movable
        may_move = {n: mask for n, mask in given.items() if specs[n].kind != "buffer"}
        applied = {n: penalty for n, penalty in penalties.items() if n in may_move}
        buffers = statistics(specs)
        problem = Problem(name, tensors, [goal], may_move, applied, buffers=buffers)
        return solve(problem, budget or self.settings.budget, self.generator, self.context)

    def _distilled(self, rows: Examples, teacher: Network) -> Examples:
        """Rows with softened labels, which a loss of the user's own need not know."""
        share = self.settings.distillation if self.task.loss is None else 0.0
        return distilled(rows, teacher, self.task.kind, share)

    def loss(self, network: Network) -> float:
        """Validation loss, which is compared with tau."""
        objectives = [objective(network.architecture, self.task, *self.rows())]
        loss = validation_loss(objectives, network.tensors, self.context.ranks)
        require_finite(loss, self.task.name, "between two trainings")
        return loss

    def loss_by_part(self, network: Network) -> Tensor:
        """Validation loss of each of `PARTS` parts of the rows, or more: their spread says what
        chance does to the mean, whatever the task's loss is.
        """
        goal = objective(network.architecture, self.task, *self.rows())
        parts = goal.valid.batches(min(4096, ceil(len(goal.valid) / PARTS)))
        with torch.no_grad():
            losses = [goal.loss(goal.forward(network.tensors, x), y) for x, y in parts if len(y)]
        here = torch.stack(losses) if losses else torch.zeros(0, device=self.device)
        return self.context.ranks.gathered(here)

    def calibrated(self, network: Network) -> Network:
        """The network with its head scaled and shifted as suits the validation rows best.

        The scale of a regression is part of its answer, and stays; so does what a loss of the
        user's own asks for.
        """
        if self.task.kind.is_regression or self.task.loss is not None:
            return network
        gathered = self.context.ranks.gathered
        with torch.no_grad():
            parts = [(network.logits(x), y) for x, y in self.rows()[1].batches(4096)]
        outputs, y = (gathered(torch.cat(each)) for each in zip(*parts, strict=True))
        scale, shift = calibration(outputs, y, loss_of(self.task))
        weight, bias = (network.tensors[name] for name in HEAD)
        head = dict(zip(HEAD, (scale * weight, scale * bias + shift), strict=True))
        return network.with_tensors({**network.tensors, **head})

    def rows(self, inputs: Tensor | None = None) -> tuple[Examples, Examples]:
        """Training and validation rows, on the device."""
        return (
            to_device(self.task.train, self.device, inputs),
            to_device(self.task.valid, self.device, inputs),
        )

    def fresh(self) -> Initialise:
        return uniform(self.generator, self.device)


def movement(
    settings: Settings, layout: Layout, centers: Tensors, head_l1: float | None = None
) -> dict[str, Penalty]:
    """Penalties on the distance from the previous weights (Equations 4 and 6).

    Departs from the paper: Equation 4 has an l2 penalty on the weights themselves and Equation 6 a
    squared distance from the previous ones. Neither keeps any weight, or a zero, exactly unchanged.
    An l1 penalty on the distance (the footnote of Equation 4 allows l1) does: sparse networks stay
    sparse, and only few units drift. The squared anchor is added if `lam` is above 0.
    """
    penalties = on_heads(settings, layout, head_l1)
    for block, center in centers.items():
        spec = spec_of(layout, block)
        if spec.owner == "shared":
            sparse = sparsity(spec, settings.mu)
            anchored = Sum(sparse, SquaredL2(settings.lam)) if settings.lam else sparse
            penalties[block] = Around(center, anchored)
    return penalties


def growth(settings: Settings, layout: Layout, new: Tensors) -> dict[str, Penalty]:
    """The sparse-group penalty on what touches newcomers (Equation 5)."""
    specs = {block: spec_of(layout, block) for block in new}
    sparse = {
        block: unit_groups(spec, settings.mu, settings.gamma)
        for block, spec in specs.items()
        if makes_sparse(spec) and spec.owner == "shared"
    }
    return {**sparse, **on_heads(settings, layout)}


def on_heads(
    settings: Settings, layout: Layout, strength: float | None = None
) -> dict[str, Penalty]:
    """l1 on the weights of the task's own tensors, of strength mu if none is given."""
    return {
        name: L1Norm(settings.mu if strength is None else strength)
        for name in layout.task_owned
        if layout.tensors[name].kind == "weight"
    }
