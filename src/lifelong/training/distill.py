"""Distillation: labels mixed with a teacher network's probabilities, or numbers."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import final

import torch
import torch.nn.functional as F
from torch import Tensor

from lifelong.networks.growing import Network
from lifelong.tasks.task import Examples, Kind, TensorExamples


def distilled(rows: Examples, teacher: Network, kind: Kind, share: float) -> Examples:
    """The same rows; `share` is the weight of the teacher's probabilities in each label."""
    softened = _Distilled(rows, teacher, kind, share)
    if share == 0:
        return rows
    if not isinstance(rows, TensorExamples):
        return softened
    return rows.with_labels(torch.cat([y for _, y in softened.batches(4096)]))


@final
@dataclass(frozen=True, eq=False)
class _Distilled:
    rows: Examples
    teacher: Network
    kind: Kind
    share: float

    def __len__(self) -> int:
        return len(self.rows)

    @property
    def shape(self) -> tuple[int, ...]:
        return self.rows.shape

    def batches(
        self, size: int, generator: torch.Generator | None = None
    ) -> Iterator[tuple[Tensor, Tensor]]:
        for x, y in self.rows.batches(size, generator):
            # The yield is outside: inside, the caller would run without gradients too.
            with torch.no_grad():
                mixed = self._mix(y, self.teacher.logits(x))
            yield x, mixed

    def _mix(self, y: Tensor, logits: Tensor) -> Tensor:
        if self.kind.is_regression:
            return torch.lerp(y, logits, self.share)
        if self.kind is Kind.BINARY:
            return torch.lerp(y, torch.sigmoid(logits), self.share)
        one_hot = F.one_hot(y, logits.shape[1]).to(logits.dtype)
        return torch.lerp(one_hot, torch.softmax(logits, dim=1), self.share)
