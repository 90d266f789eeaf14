"""Growth by need: a task stores what its gain is worth.

Not in the paper. Of what a task may store (nothing but its head, patches of several sizes, new
units) it gets the one with the lowest

    validation loss / loss of a constant guess + price * stored bytes / bytes of the base network.

It starts from the last task's network with the sparse head of Equation 3, or from the untrained
network, which is kept as its seed: on few rows earlier tasks can be a burden. Tasks 2, 3, 5, 9, 17
and so on try both; each task takes what was better on average so far. The untrained network has to
be clearly better, because what a task improves helps only those that start from it. Where it is,
the same tasks try a mask of it in place of a patch.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import final

import torch
from torch import Tensor

from lifelong.learners.den.draft import Draft
from lifelong.learners.den.expand import dynamic_expansion
from lifelong.learners.den.mask import MASK, mask_of_untrained, masked_weights, untrained
from lifelong.learners.den.retrain import retrain_selected, with_sparse_head
from lifelong.learners.den.split_weights import Patching
from lifelong.learners.den.task_training import TaskTraining, movement
from lifelong.networks.growing import ROOT, GrowingNetwork
from lifelong.records import BYTES, TaskRecord
from lifelong.tasks.kinds import Kind
from lifelong.training.budget import Budget
from lifelong.training.losses import loss_of

# Of a patch, as shares of the base network. Beyond 0.16 the loss falls so little that larger ones
# are tried only where bytes are cheap: up to this product of price and size.
SIZES = (0.0025, 0.005, 0.01, 0.02, 0.04, 0.08, 0.16, 0.32, 0.64)
USUAL, DEAREST = 0.16, 0.03
# The search for a size begins with that of the task before; with this one if it overwrote nothing.
# Task 1 overwrites all of the untrained network, so that task 2 begins with the largest.
FIRST_SIZE = 0.04
MARGIN = 0.05  # share by which losses must be lower, on average, to give up what tasks improved
FROM_LAST, FROM_ROOT, PATCH = "retrain", "retrain from root", "patch"  # stages
SHARES = (1.0, 1 / 4, 1 / 16)  # of mu, that the first task tries


def first_stage(share: float) -> str:
    """Name of the first task's training with this share of mu."""
    return "first" if share == 1 else f"first, mu / {round(1 / share)}"


def share_of_mu(records: Sequence[TaskRecord]) -> float:
    """The share of mu that was best for the first task."""
    chosen = records[0].stages[-1].name if records and records[0].stages else ""
    return next((share for share in SHARES if first_stage(share) == chosen), 1.0)


def sizes_at(price: float) -> tuple[float, ...]:
    """Sizes of patches that are tried at this price."""
    most = max(USUAL, DEAREST / price if price else 1.0)
    return tuple(size for size in SIZES if size <= most)


def growth_by_need(known: GrowingNetwork, training: TaskTraining) -> Draft:
    """The draft whose validation loss and bytes are worth most."""
    headed = with_sparse_head(known, training)
    needs = _Needs(known, training)
    starts = _tried(training.earlier, FROM_LAST, FROM_ROOT)
    kinds = _tried(training.earlier, PATCH, MASK)
    masks, trying = _lower(kinds, _margin(_lower(starts, MARGIN))), _tries_all(training.number)
    if masks and not trying:
        mask = mask_of_untrained(known, training)
        stages = (*headed.stages, *mask.stages)
        return needs.unless_solved(headed, replace(mask, stages=stages))
    draft = needs.patched(headed, starts)
    from_root = draft.parent == ROOT
    if not trying or not (masks or from_root) or not masked_weights(known.architecture):
        return draft
    mask = mask_of_untrained(known, training)
    if _lower([*kinds, (draft.loss, mask.loss)], _margin(from_root)):
        return replace(mask, stages=(*draft.stages, *mask.stages))
    return replace(draft, stages=(*mask.stages, *draft.stages))  # the last is what is kept


def _margin(from_root: bool) -> float:
    """By how much a mask must be better than a patch: not at all if that helps no later task."""
    return 0.0 if from_root else MARGIN


def _tries_all(number: int) -> bool:
    """Whether this is one of tasks 2, 3, 5, 9 and so on."""
    return (number - 1) & (number - 2) == 0


def _retrained(
    known: GrowingNetwork,
    headed: Draft,
    training: TaskTraining,
    found: Sequence[tuple[float, float]],
) -> Draft:
    """The retrained network, from the start that was better so far."""
    if not _tries_all(training.number):
        if _lower(found, MARGIN):
            return _from_root(known, headed, training)
        return _from_last(headed, training)
    last, root = _from_last(headed, training), _from_root(known, headed, training)
    chosen = root if _lower([*found, (last.loss, root.loss)], MARGIN) else last
    return replace(chosen, stages=(*last.stages, root.stages[-1]))


def _lower(found: Sequence[tuple[float, float]], margin: float) -> bool:
    """Whether the second of two losses was lower on average, by more than this share."""
    ratios = [math.log(max(second, 1e-12) / max(first, 1e-12)) for first, second in found]
    return bool(ratios) and sum(ratios) / len(ratios) < -margin


def _tried(records: Sequence[TaskRecord], first: str, second: str) -> list[tuple[float, float]]:
    """Validation losses of the tasks that tried both of two stages."""
    by_stage = [{stage.name: stage.loss for stage in record.stages} for record in records]
    return [
        (losses[first], losses[second])
        for losses in by_stage
        if first in losses and second in losses
    ]


def _from_last(headed: Draft, training: TaskTraining) -> Draft:
    return retrain_selected(headed, training, _head_l1(headed, training))


def _from_root(known: GrowingNetwork, headed: Draft, training: TaskTraining) -> Draft:
    """The untrained network, with a fresh head, trained whole."""
    network = untrained(known, training)
    penalties = movement(training.settings, known.architecture.layout, network.tensors)
    network, stage = training.train(FROM_ROOT, network, penalties)
    draft = Draft(network, stage.loss, (headed.stages[0], stage), parent=ROOT)
    return draft.noting("selected", {group: len(born) for group, born in known.born.items()})


def _head_l1(draft: Draft, training: TaskTraining) -> float:
    """The head's l1 in training: mu, stronger as validation asked for a sparser head."""
    settings = training.settings
    found = settings.head_l1 if draft.head_l1 is None else draft.head_l1
    return settings.mu * found / settings.head_l1


@final
@dataclass(frozen=True, eq=False)
class _Needs:
    known: GrowingNetwork
    training: TaskTraining

    @cached_property
    def guess(self) -> float:
        """Validation loss of the best constant guess from the training rows."""
        return constant_loss(self.training)

    def patched(self, headed: Draft, starts: Sequence[tuple[float, float]]) -> Draft:
        """What a patch, of the start that was better so far, and new units are worth."""
        draft = _retrained(self.known, headed, self.training, starts)
        settings = self.training.settings
        expands = settings.expand and self.known.born and draft.parent is None
        if expands and draft.loss > settings.tau:
            draft = self.cheaper(draft, dynamic_expansion(draft, self.training))
        return self.cheapest_patch(headed, draft)

    def unless_solved(self, headed: Draft, found: Draft) -> Draft:
        """What was found, or the head alone if that costs less."""
        alone, whole = (Patching(self.known, one, self.training) for one in (headed, found))
        if self.cost(alone, headed) > self.cost(whole, found):
            return found
        head, *others = found.stages
        # Last, because it is the training that the network comes from.
        return replace(headed, stages=(*others, head), groups=found.groups)

    def cost(self, patching: Patching, draft: Draft) -> float:
        size = patching.bytes(draft.network) / (BYTES * patching.base)
        return draft.loss / self.guess + self.training.settings.price * size

    def cheaper(self, small: Draft, large: Draft) -> Draft:
        """The one whose loss and bytes cost less, given that old weights change in both."""
        new = sum(
            large.network.tensors[name].numel() - small.network.tensors[name].numel()
            for name in small.network.tensors
        )
        base = self.known.architecture.layout.parameters([])
        price = self.training.settings.price * new / base
        better = large.loss / self.guess + price < small.loss / self.guess
        if better:
            return large
        return replace(large.shrunk_to(small.network), loss=small.loss)

    def cheapest_patch(self, headed: Draft, draft: Draft) -> Draft:
        """The draft with a patch of the size that costs least, or with its head alone."""
        strength = _head_l1(headed, self.training) if draft.parent is None else None
        patching = Patching(self.known, draft, self.training, strength)
        tried = self._search(patching)
        best = min(tried, key=lambda one: one.cost)
        found = patching.rounded(patching.trained(best.draft, best.kept), best.kept)
        short = tuple(one.draft.stages[-1] for one in tried)
        stages = (*draft.stages, *short, found.stages[-1])
        return self.unless_solved(headed, replace(found, stages=stages))

    def _search(self, patching: Patching) -> list["_Tried"]:
        """From the size of the task before: smaller ones while the cost falls, else larger ones.

        Each is trained shortly.
        """
        moved = sum(int((change > 0).sum()) for change in patching.changes.values())
        sizes = [s for s in sizes_at(self.training.settings.price) if s * patching.base < moved]
        sizes = sizes or [SIZES[0]]
        wanted = self._last_size(patching.base)
        begin = min(range(len(sizes)), key=lambda place: abs(math.log(sizes[place] / wanted)))
        tried = [self._attempt(patching, sizes[begin])]
        for towards in (sizes[begin - 1 :: -1] if begin else [], sizes[begin + 1 :]):
            for size in towards:
                tried.append(self._attempt(patching, size))
                if tried[-1].cost >= min(one.cost for one in tried[:-1]):
                    break
            if len(tried) > 2 or (len(towards) == 1 and tried[-1].cost < tried[0].cost):
                break  # smaller ones were better
        return tried

    def _attempt(self, patching: Patching, size: float) -> "_Tried":
        kept = patching.largest(size)
        trained = patching.trained(patching.restored(kept), kept, self._short(patching.draft))
        draft = patching.rounded(trained, kept)
        return _Tried(self.cost(patching, draft), draft, kept)

    def _short(self, draft: Draft) -> Budget:
        """A training that is long enough to compare sizes, and no longer than the retraining."""
        budget = self.training.settings.budget
        retraining = max((stage.steps for stage in draft.stages), default=0)
        most = max(retraining, 5 * budget.check_every)
        return replace(
            budget,
            steps=min(budget.steps, most),
            patience=min(2, budget.patience),
            lr_decays=0,
        )

    def _last_size(self, base: int) -> float:
        """Share of the base network that the task before overwrote, or the last one without a
        mask.
        """
        patched = [r for r in self.training.earlier if r.stages and r.stages[-1].name != MASK]
        changed = sum(patched[-1].changed.values()) if patched else 0
        return changed / base if changed else FIRST_SIZE


@final
@dataclass(frozen=True, eq=False)
class _Tried:
    """A patch that was trained shortly, and what it costs."""

    cost: float
    draft: Draft
    kept: dict[str, Tensor]


def constant_loss(training: TaskTraining) -> float:
    """Validation loss of the best constant guess from the training rows."""
    kind, outputs = training.task.kind, training.task.outputs
    ranks = training.context.ranks
    train, valid = (
        ranks.gathered(torch.cat([y for _, y in rows.batches(4096)])) for rows in training.rows()
    )
    if kind is Kind.REGRESSION:
        guess = train.mean(dim=0)
    elif kind is Kind.MEDIAN_REGRESSION:
        guess = train.median(dim=0).values
    elif kind is Kind.BINARY:
        share = train.mean(dim=0).clamp(0.5 / len(train), 1 - 0.5 / len(train))
        guess = torch.log(share / (1 - share))
    else:
        guess = (torch.bincount(train, minlength=outputs) + 0.5).log()
    loss = float(loss_of(training.task)(guess.expand(len(valid), outputs), valid))
    return max(loss, torch.finfo(torch.float32).tiny)
