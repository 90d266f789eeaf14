"""Methods whose tasks each use some of the weights of one network: masks, stored as bits."""

from abc import abstractmethod
from collections.abc import Iterator
from typing import TypeVar, final

import torch
from torch import Tensor

from lifelong.learners.baselines.views import ViewLearner
from lifelong.networks.growing import BITS, GrowingNetwork
from lifelong.networks.layout import Tensors
from lifelong.networks.masks import bytes_for, pack_bits, unpack_bits
from lifelong.networks.sharing import Sharing
from lifelong.records import BYTES

S = TypeVar("S")


class SubnetworkLearner(ViewLearner[S]):
    """Base class: predicts for a task with the shared weights that its mask keeps."""

    @abstractmethod
    def _masks(self, network: GrowingNetwork, number: int) -> Tensors:
        """Per shared weight, the entries that task `number` uses."""

    @final
    def _weights(self, network: GrowingNetwork, number: int) -> Tensors:
        masks = self._masks(network, number)
        return {name: torch.where(masks[name], t, 0.0) for name, t in network.shared.items()}

    @final
    def _stored_bytes(self) -> int:
        """Without the weights that no task uses: the masks say which these are, and predictions do
        not need them.
        """
        unused = sum(int((~used).sum()) for used in self._used_so_far().values())
        return super()._stored_bytes() - BYTES * unused

    @final
    def sharing_of_weights(self) -> Sharing:
        """Which entries of each shared tensor each task uses."""
        network = self.network
        by_task = [self._masks(network, number) for number in range(1, len(self.tasks) + 1)]
        used = {name: torch.stack([m[name].flatten() for m in by_task]) for name in network.shared}
        return Sharing(self.tasks, used)

    @final
    def _used_so_far(self) -> dict[str, Tensor]:
        """Per shared weight, the entries that any task uses."""
        used = {n: torch.zeros_like(t, dtype=torch.bool) for n, t in self.network.shared.items()}
        for number in range(1, len(self.tasks) + 1):
            for name, mask in self._masks(self.network, number).items():
                used[name] |= mask
        return used


def pack_masks(number: int, masks: Tensors) -> dict[str, Tensor]:
    """The masks of a task as they are kept in a network's memory."""
    return {_bits(number, name): pack_bits(mask) for name, mask in masks.items()}


def unpack_masks(network: GrowingNetwork, number: int) -> dict[str, Tensor]:
    """The masks of a task from a network's memory."""
    return {
        name: unpack_bits(network.memory[_bits(number, name)], tuple(tensor.shape))
        for name, tensor in network.shared.items()
    }


def packed_shapes(network: GrowingNetwork, first: int = 1) -> Iterator[tuple[str, tuple[int, ...]]]:
    """Names and shapes of the packed masks of all tasks from the first that has any."""
    for number in range(first, len(network.tasks) + 1):
        for name, tensor in network.shared.items():
            yield _bits(number, name), (bytes_for(tensor.numel()),)


def _bits(number: int, name: str) -> str:
    return f"{BITS}{number}/{name}"
