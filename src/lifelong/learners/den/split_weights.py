"""Algorithm 4 by weights: keep the largest changes of old weights, and restore all others.

Departs from the paper, which copies whole units. What retraining finds is spread over nearly all
units, so that a limit on copies throws most of it away; of the weights a few per cent are enough.
Every task starts from the weights as its predecessor left them.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from typing import final

import torch
from torch import Tensor

from lifelong.learners.den.draft import Draft
from lifelong.learners.den.task_training import TaskTraining, on_heads
from lifelong.networks.growing import GrowingNetwork, Network
from lifelong.networks.layout import HEAD, Region, Tensors, put, take
from lifelong.networks.patches import difference, old_region, to_half
from lifelong.training.budget import Budget


def split_weights(known: GrowingNetwork, draft: Draft, training: TaskTraining) -> Draft:
    """Keep the share `keep` of the base network's weights that changed most, restore the others,
    and train what is kept, distilled from the network before.
    """
    patching = Patching(known, draft, training)
    kept = patching.largest(training.settings.keep)
    return patching.rounded(patching.trained(patching.restored(kept), kept), kept)


@final
@dataclass(frozen=True, eq=False)
class Patching:
    """A retrained network, and what it may keep of its changes.

    Attributes:
        known: the network before the task.
        draft: the retrained network, which is also the teacher.
        head_l1: strength of the head's l1 while the kept entries are trained; None for mu.
    """

    known: GrowingNetwork
    draft: Draft
    training: TaskTraining
    head_l1: float | None = None

    @cached_property
    def before(self) -> Tensors:
        parent = self.draft.parent
        return self.known.start_from(len(self.known.tasks) if parent is None else parent)

    @cached_property
    def regions(self) -> dict[str, Region]:
        """Of each shared tensor, the entries between units from before the task."""
        layout, network = self.known.architecture.layout, self.draft.network
        then = {**network.widths, **{g: len(born) for g, born in self.known.born.items()}}
        return {
            name: old_region(layout.tensors[name], then, network.widths) for name in self.before
        }

    @cached_property
    def changes(self) -> dict[str, Tensor]:
        tensors = self.draft.network.tensors
        return {
            n: (take(tensors[n], self.regions[n]) - old).abs() for n, old in self.before.items()
        }

    @cached_property
    def base(self) -> int:
        """Entries of the base network without its heads: what shares are relative to."""
        return self.known.architecture.layout.parameters([])

    def largest(self, share: float) -> dict[str, Tensor]:
        """Which old entries changed most, over all tensors."""
        everything = torch.cat([change.flatten() for change in self.changes.values()])
        count = min(round(share * self.base), len(everything))
        least = everything.topk(count).values[-1] if count else torch.inf
        return {name: (change >= least) & (change > 0) for name, change in self.changes.items()}

    def restored(self, kept: Mapping[str, Tensor]) -> Draft:
        """The draft with every other old entry as it was before, bit-exactly."""
        tensors = dict(self.draft.network.tensors)
        for name, old in self.before.items():
            changed = take(tensors[name], self.regions[name])
            tensors[name] = tensors[name].clone()
            put(tensors[name], self.regions[name], torch.where(kept[name], changed, old))
        return replace(self.draft, network=replace(self.draft.network, tensors=tensors))

    def trained(
        self, start: Draft, kept: Mapping[str, Tensor], budget: Budget | None = None
    ) -> Draft:
        """The draft after its kept entries, its new units and its head were trained."""
        movable = dict.fromkeys(start.network.tensors, None) | {
            name: self._mask(name, kept[name]) for name in self.before
        }
        penalties = on_heads(self.training.settings, self.known.architecture.layout, self.head_l1)
        network, stage = self.training.train_entries(
            "patch", start.network, movable, penalties, self.draft.network, budget
        )
        return start.trained(network, stage)

    def _mask(self, name: str, kept: Tensor) -> Tensor:
        """The entries of a whole tensor that may move: kept ones, and those of new units."""
        mask = torch.ones_like(self.draft.network.tensors[name], dtype=torch.bool)
        put(mask, self.regions[name], kept)
        return mask

    def rounded(self, draft: Draft, kept: Mapping[str, Tensor]) -> Draft:
        """The draft with its kept entries in 16 bits."""
        tensors = dict(draft.network.tensors)
        for name in self.before:
            places = torch.zeros_like(tensors[name], dtype=torch.bool)
            put(places, self.regions[name], kept[name])
            tensors[name] = torch.where(places, to_half(tensors[name]), tensors[name])
        network = replace(draft.network, tensors=tensors)
        return replace(draft, network=network, loss=self.training.loss(network))

    def bytes(self, network: Network) -> int:
        """What a task stores that is learned as this network, beside its head."""
        whole = sum(tensor.nbytes for name, tensor in network.tensors.items() if name not in HEAD)
        old = sum(tensor.nbytes for tensor in self.before.values())
        patches = (
            difference(before, take(network.tensors[name], self.regions[name]).contiguous())
            for name, before in self.before.items()
        )
        return whole - old + sum(patch.nbytes for patch in patches if len(patch))
