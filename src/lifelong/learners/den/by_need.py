"""Growth by need: a task stores what its gain is worth.

Not in the paper. Of what a task may store (nothing but its head, patches of several sizes, new
units) it gets the one with the lowest

    validation loss / loss of a constant guess + price * stored bytes / bytes of the base network.

What it starts from: `starts`.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import final

import torch
from torch import Tensor

from lifelong.learners.den.draft import Draft
from lifelong.learners.den.expand import dynamic_expansion
from lifelong.learners.den.mask import MASK
from lifelong.learners.den.retrain import with_sparse_head
from lifelong.learners.den.split_weights import Patching
from lifelong.learners.den.starts import DEAREST, Starts, head_l1
from lifelong.learners.den.task_training import TaskTraining
from lifelong.networks.growing import GrowingNetwork
from lifelong.records import BYTES, TaskRecord
from lifelong.tasks.kinds import Kind
from lifelong.training.budget import Budget
from lifelong.training.losses import loss_of

# Of a patch, as shares of the base network. Beyond 0.16 the loss falls so little that larger ones
# are tried only where bytes are cheap.
SIZES = (0.0025, 0.005, 0.01, 0.02, 0.04, 0.08, 0.16, 0.32, 0.64)
USUAL = 0.16
# The search for a size begins with that of the task before; with this one if it overwrote nothing.
# Task 1 overwrites all of the untrained network, so that task 2 begins with the largest.
FIRST_SIZE = 0.04
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
    starts, needs = Starts(known, training), _Needs(known, training)
    headed = with_sparse_head(known, training, doubled=starts.from_head)
    draft = starts.trained(headed)
    if draft.stages[-1].name == MASK:
        return needs.unless_solved(headed, draft)
    expands = training.settings.expand and known.born and draft.parent is None
    if expands and draft.loss > training.settings.tau:
        draft = needs.cheaper(draft, dynamic_expansion(draft, training))
    return needs.cheapest_patch(headed, draft)


@final
@dataclass(frozen=True, eq=False)
class _Needs:
    known: GrowingNetwork
    training: TaskTraining

    @cached_property
    def guess(self) -> float:
        """Validation loss of the best constant guess from the training rows."""
        return constant_loss(self.training)

    def unless_solved(self, headed: Draft, found: Draft) -> Draft:
        """What was found, or the head alone if that costs less."""
        alone, whole = (Patching(self.known, one, self.training) for one in (headed, found))
        if self.cost(alone, headed) > self.cost(whole, found):
            return found
        head, *others = found.stages
        # Last, because it is the training that the network comes from.
        stages = (*others, head)
        return replace(headed, stages=stages, groups=found.groups, starts=found.starts)

    def cost(self, patching: Patching, draft: Draft) -> float:
        return draft.loss / self.guess + self.price(patching, draft)

    def price(self, patching: Patching, draft: Draft) -> float:
        """Of the bytes that a task stores."""
        size = patching.bytes(draft.network) / (BYTES * patching.base)
        return self.training.settings.price * size

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
        strength = head_l1(headed, self.training) if draft.parent is None else None
        patching = Patching(self.known, draft, self.training, strength)
        tried = self._search(patching)
        best = min(tried, key=lambda one: one.cost)
        found = patching.rounded(patching.trained(best.draft, best.kept), best.kept)
        short = tuple(one.draft.stages[-1] for one in tried)
        stages = (*draft.stages, *short, found.stages[-1])
        return self.unless_solved(headed, replace(found, stages=stages))

    def _search(self, patching: Patching) -> list["TriedPatch"]:
        """Patches around the size of the task before, each trained shortly."""
        moved = sum(int((change > 0).sum()) for change in patching.changes.values())
        sizes = [s for s in sizes_at(self.training.settings.price) if s * patching.base < moved]
        sizes = sizes or [SIZES[0]]
        wanted = self._last_size(patching.base)
        begin = min(range(len(sizes)), key=lambda place: abs(math.log(sizes[place] / wanted)))
        return search(sizes, begin, lambda size: self._attempt(patching, size))

    def _attempt(self, patching: Patching, size: float) -> "TriedPatch":
        kept = patching.largest(size)
        trained = patching.trained(patching.restored(kept), kept, self._short(patching.draft))
        draft = patching.rounded(trained, kept)
        lack = (draft.loss - patching.draft.loss) / self.guess
        return TriedPatch(lack, self.price(patching, draft), draft, kept)

    def _short(self, draft: Draft) -> Budget:
        """A training that is long enough to compare sizes, and no longer than the retraining."""
        budget = self.training.settings.budget
        others = (stage.steps for stage in draft.stages if stage.name != MASK)
        retraining = max(others, default=0)
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
class TriedPatch:
    """A patch that was trained shortly.

    Attributes:
        lack: by how much its loss is above the retrained network's, of a constant guess's loss.
        price: of its bytes.
    """

    lack: float
    price: float
    draft: Draft
    kept: dict[str, Tensor]

    @property
    def cost(self) -> float:
        return self.lack + self.price


def search(
    sizes: Sequence[float], begin: int, attempt: Callable[[float], TriedPatch]
) -> list[TriedPatch]:
    """Of sizes, each twice the one before, one to begin with; then the neighbour of the best so far
    that should cost less, until that was tried.
    """
    tried: dict[int, TriedPatch] = {}
    place = begin
    while place not in tried:
        tried[place] = attempt(sizes[place])
        best = min(tried, key=lambda size: tried[size].cost)
        place = min(max(best + _towards_balance(tried[best]), 0), len(sizes) - 1)
    return list(tried.values())


def _towards_balance(patch: TriedPatch) -> int:
    """Whether a patch of twice the size should cost less (1), or one of half the size (-1).

    Where twice the size halves what is missing, the cost is lowest where both its parts are equal,
    and one of a neighbour is lower only if they differ by more than a factor of two.
    """
    lack = max(patch.lack, 0.0)
    if lack > 2 * patch.price:
        return 1
    return -1 if 2 * lack < patch.price else 0


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
