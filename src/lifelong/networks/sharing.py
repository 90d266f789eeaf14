"""Units shared between tasks."""

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
        used: per group, a boolean matrix (task, unit).
    """

    tasks: tuple[str, ...]
    used: dict[str, Tensor]

    def overlap(self) -> Tensor:
        """Per pair of tasks, units that both use over units that either uses (Jaccard index)."""
        used = torch.cat(list(self.used.values()), dim=1).double()
        both = used @ used.T
        size = used.sum(dim=1)
        either = size[:, None] + size - both
        return torch.where(either > 0, both / either.clamp_min(1), 1.0)
