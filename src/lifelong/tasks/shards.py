"""Which rows of a split each of several processes computes with.

Process r of n has rows r, r + n, r + 2 n and so on. A batch is the same set of rows however many
processes there are: all draw the same order, and each takes the rows of the batch that it has.
"""

from dataclasses import dataclass
from typing import Any, final

import torch
import torch.nn.functional as F
from torch import Tensor


@final
@dataclass(frozen=True, eq=False)
class Shard:
    """The rows that one of `count` processes has of the rows `whole`."""

    rank: int
    count: int
    whole: Any  # `Examples`, which this module is below of

    @property
    def rows(self) -> slice:
        return slice(self.rank, None, self.count)

    def drawn(self, size: int, generator: torch.Generator | None) -> tuple[Tensor, list[int]]:
        """The numbers in `whole` of the rows that this process has, in the order of the batches,
        and how many of them, maybe none, are in each batch of `size` rows.
        """
        total = len(self.whole)
        order = (
            torch.arange(total) if generator is None else torch.randperm(total, generator=generator)
        )
        mine = order % self.count == self.rank
        by_batch = F.pad(mine, (0, -total % size)).reshape(-1, size).sum(dim=1)
        return order[mine], by_batch.tolist()
