"""Which units tasks have in common."""

from dataclasses import dataclass
from typing import final

import torch
from torch import Tensor


@final
@dataclass(frozen=True, eq=False)
class Sharing:
    """Which units each task uses, and how much any two tasks share.

    Attributes:
        tasks: names, in the order of learning.
        used: for each group, a boolean matrix (task, unit).
    """

    tasks: tuple[str, ...]
    used: dict[str, Tensor]

    def overlap(self) -> Tensor:
        """Units that two tasks both use over the units that either uses, for every pair."""
        used = torch.cat(list(self.used.values()), dim=1).double()
        both = used @ used.T
        size = used.sum(dim=1)
        either = size[:, None] + size - both
        return torch.where(either > 0, both / either.clamp_min(1), 1.0)
