"""What a task of DEN-auto starts from.

The last task's network with the sparse head of Equation 3, or the untrained network, which is kept
as its seed: on few rows earlier tasks can be a burden. Tasks 2, 3, 5, 9, 17 and so on try both, and
a mask of the untrained network, which is stored instead of a patch. Each task takes what was best
on average so far. The untrained network, and its mask, have to be clearly better, because what a
task improves helps only those that start from it.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TypeAlias, final

from lifelong.learners.den.draft import Draft
from lifelong.learners.den.mask import MASK, mask_of_root, masked_weights, untrained
from lifelong.learners.den.retrain import retrain_selected
from lifelong.learners.den.task_training import TaskTraining, movement
from lifelong.networks.growing import ROOT, GrowingNetwork
from lifelong.records import StartRecord

FROM_LAST, FROM_ROOT = "retrain", "retrain from root"  # stages
OTHERS = (FROM_ROOT, MASK)  # than the last network, to start from
MARGIN = 0.05  # by which the loss from the untrained network must be lower, on average
LOST = 0.1  # by which a mask's was higher if masks are not tried again
MASK_SIZE = 1 / 32  # of a mask, in bytes of the base network: a bit per weight
DEAREST = 0.03  # product of price and size up to which bytes count as cheap
_Trial: TypeAlias = Sequence[StartRecord]  # what one task tried beside the last network


@final
@dataclass(frozen=True, eq=False)
class Starts:
    """What a task may start from, and what earlier ones tried."""

    known: GrowingNetwork
    training: TaskTraining

    @cached_property
    def others(self) -> tuple[str, ...]:
        """What is offered beside the last network. A mask only where a bit per weight is cheap, and
        not any more once its losses were far above the untrained network's in two tasks or more:
        that depends on the rows, not on what was learned before.
        """
        with_mask = [trial for trial in self._all if _of(MASK, [trial])]
        root, mask = (sum(t.loss for t in _of(start, with_mask)) for start in OTHERS)
        lost = len(with_mask) > 1 and mask > (1 + LOST) * root
        cheap = self.training.settings.price * MASK_SIZE <= DEAREST
        offered = cheap and not lost and masked_weights(self.known.architecture)
        return OTHERS if offered else (FROM_ROOT,)

    @cached_property
    def best(self) -> str:
        """By what earlier tasks tried."""
        return best_start(self._trials)

    @property
    def tries(self) -> bool:
        """Whether this task tries all: tasks 2, 3, 5, 9, ... do."""
        return not (self.training.number - 1) & (self.training.number - 2)

    @property
    def from_head(self) -> bool:
        """Whether a training starts from the sparse head."""
        return self.tries or self.best == FROM_LAST

    def trained(self, headed: Draft) -> Draft:
        """The network trained from the start that was best so far, this task included."""
        if not self.tries:
            return self._from(self.best, headed)
        tried = {start: self._from(start, headed) for start in (FROM_LAST, *self.others)}
        last = tried[FROM_LAST]
        starts = tuple(compared(s, tried[s], last, self.training) for s in self.others)
        best = best_start([*self._trials, starts])
        rest = [draft.stages[len(headed.stages) :] for s, draft in tried.items() if s != best]
        # The last stage is the training that the network comes from.
        *before, found = tried[best].stages
        return replace(tried[best], stages=(*before, *sum(rest, ()), found), starts=starts)

    @property
    def _all(self) -> list[_Trial]:
        return [record.starts for record in self.training.earlier if record.starts]

    @cached_property
    def _trials(self) -> list[_Trial]:
        """Without what is offered no more."""
        return [[tried for tried in trial if tried.name in self.others] for trial in self._all]

    def _from(self, start: str, headed: Draft) -> Draft:
        known, training = self.known, self.training
        if start == FROM_LAST:
            return retrain_selected(headed, training, head_l1(headed, training))
        make = mask_of_root if start == MASK else _root_retrained
        draft = make(known, training)
        selected = {group: len(born) for group, born in known.born.items()}
        return replace(draft, stages=(*headed.stages, *draft.stages)).noting("selected", selected)


def best_start(trials: Sequence[_Trial]) -> str:
    """The last network, unless the untrained one or its mask was lower by the share `MARGIN`; once
    it was, as long as it is lower at all, since then no task improves the last one.

    Of these two it is the mask, which takes fewer bytes and no search for a size, unless the other
    was lower by that share.
    """
    best = FROM_LAST
    for count in range(1, len(trials) + 1):
        root, mask = (_mean_ratio(_of(start, trials[:count])) for start in OTHERS)
        enough = 1 - MARGIN if best == FROM_LAST else 1.0
        if mask < enough and mask < root / (1 - MARGIN):
            best = MASK
        else:
            best = FROM_ROOT if root < enough else FROM_LAST
    return best


def _mean_ratio(tried: _Trial) -> float:
    """Of the mean losses: the ratio of single ones is any number where a task is solved."""
    ours, theirs = (
        sum(losses) for losses in ([t.loss for t in tried], [t.from_last for t in tried])
    )
    return ours / theirs if theirs > 0 else 1.0


def _of(start: str, trials: Sequence[_Trial]) -> list[StartRecord]:
    return [tried for trial in trials for tried in trial if tried.name == start]


def compared(start: str, draft: Draft, last: Draft, training: TaskTraining) -> StartRecord:
    """How its validation loss compares with that from the last network.

    Each is the loss of one training. (Of the patches that follow several are tried, and the best of
    them is low by chance where there are few rows.) Both are calibrated, as masks are.
    """
    ours, theirs = (training.loss(training.calibrated(one.network)) for one in (draft, last))
    return StartRecord(start, ours, theirs)


def _root_retrained(known: GrowingNetwork, training: TaskTraining) -> Draft:
    """The untrained network, with a fresh head, trained whole."""
    network = untrained(known, training)
    penalties = movement(training.settings, known.architecture.layout, network.tensors)
    network, stage = training.train(FROM_ROOT, network, penalties)
    return Draft(network, stage.loss, (stage,), parent=ROOT)


def head_l1(draft: Draft, training: TaskTraining) -> float:
    """The head's l1 in training: mu, stronger as validation asked for a sparser head."""
    settings = training.settings
    found = settings.head_l1 if draft.head_l1 is None else draft.head_l1
    return settings.mu * found / settings.head_l1
