"""Labels softened by what a network answers, for a smaller one to learn from."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import final

import torch
import torch.nn.functional as F
from torch import Tensor

from lifelong.networks.growing import Network
from lifelong.tasks.task import Examples, Kind, TensorExamples


def distilled(rows: Examples, teacher: Network, kind: Kind, share: float) -> Examples:
    """The same rows, each label mixed with the teacher's probabilities in this share."""
    lecture = _Distilled(rows, teacher, kind, share)
    if share == 0:
        return rows
    if not isinstance(rows, TensorExamples):
        return lecture
    return TensorExamples(rows.x, torch.cat([y for _, y in lecture.batches(4096)]))


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
            # Not yielded from within: who takes the batch would compute without gradients too.
            with torch.no_grad():
                mixed = self._mix(y, self.teacher.logits(x))
            yield x, mixed

    def _mix(self, y: Tensor, answer: Tensor) -> Tensor:
        if self.kind is Kind.BINARY:
            return torch.lerp(y, torch.sigmoid(answer), self.share)
        hits = F.one_hot(y, answer.shape[1]).to(answer.dtype)
        return torch.lerp(hits, torch.softmax(answer, dim=1), self.share)
