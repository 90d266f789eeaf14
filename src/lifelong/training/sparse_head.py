"""Equation 3: a sparse linear head on fixed features.

Minimises `mean loss(features @ W.T + b) + mu * |W|_1` with b free. The problem is convex and is
solved, in double precision, until the optimality condition holds to a stated tolerance:

    |gradient_j + mu * sign(w_j)| <= tolerance * mu_max   where w_j is not zero,
    |gradient_j| <= mu + tolerance * mu_max               where it is,

and the same for b without mu. `mu_max` is the smallest mu whose head is all zero; mu is given as a
share of it, so that it means the same on every data set. Each binary output is a separate problem
with its own mu_max, and so is each output of a regression; classes under a softmax are one problem.
A regression is the lasso: squared error, whichever error the task itself is trained with, since a
head that only selects units need not resist outliers.

Features are centred: with a free intercept this leaves the weights unchanged and speeds up the
solvers. The condition holds, and `gap` is measured, on centred features.

The solvers (`head_solvers`) see the rows by sums only (`HeadRows.sum`), so that rows may come in
chunks, and several processes may each have some of them.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial, reduce
from operator import add
from typing import final

import torch
import torch.nn.functional as F
from torch import Tensor

from lifelong.tasks.kinds import Kind
from lifelong.training.head_solvers import SparseHead, fit_binary, fit_classes, lasso
from lifelong.training.ranks import ALONE, Ranks


@final
class HeadRows:
    """Features and labels that heads are fitted on, in chunks, and sums over them.

    A chunk has centred features in double precision, one per row, with a last row of ones for the
    intercept; and labels, one output or class per row. Examples come last because the softmax is
    several times faster so. A single chunk is kept; several are made anew whenever they are read.

    Attributes:
        rows: their number in all processes.
        mean: of each feature.
    """

    def __init__(
        self,
        chunks: Iterable[tuple[Tensor, Tensor]],
        kind: Kind,
        outputs: int,
        ranks: Ranks = ALONE,
    ) -> None:
        """Chunks of (features, labels), which are read many times."""
        self.kind, self.outputs, self._ranks = kind, outputs, ranks
        self._source = chunks
        self._kept: list[tuple[Tensor, Tensor]] = []
        self.mean, count = torch.zeros(0), 0
        sums: list[Tensor] = []
        for features, labels in chunks:
            columns = _columns(features)
            sums.append(columns[:-1].sum(dim=1))
            self._kept = [(columns, self._truth(labels))]
            count += len(labels)
            self._dtype = features.dtype
        self.rows = count if ranks.alone else int(ranks.summed(torch.tensor(count)))
        self.mean = self._total(sums) / self.rows
        if len(sums) == 1:
            self._kept[0][0][:-1] -= self.mean[:, None]
        else:
            self._kept = []

    def sum(
        self, term: Callable[[Tensor, Tensor], Tensor], instead: Sequence[Tensor] = ()
    ) -> Tensor:
        """The sum over all rows of all processes of a function of chunks: of their features, and of
        their labels or what is given for each chunk instead.
        """
        if instead:
            columns = (columns for columns, _ in self.chunks())
            return self._total(term(*pair) for pair in zip(columns, instead, strict=True))
        return self._total(term(*chunk) for chunk in self.chunks())

    def _total(self, terms: Iterable[Tensor]) -> Tensor:
        return self._ranks.summed(reduce(add, terms))

    def chunks(self) -> Iterator[tuple[Tensor, Tensor]]:
        """Centred features and labels of the rows of this process."""
        if self._kept:
            yield from self._kept
            return
        for features, labels in self._source:
            columns = _columns(features)
            columns[:-1] -= self.mean[:, None]
            yield columns, self._truth(labels)

    def fit(self, strength: float, warm: SparseHead | None = None) -> SparseHead:
        """Solve Equation 3 with mu = strength * mu_max.

        `warm` is the solution for another strength, from which classes start.
        """
        strength = min(strength, 1.0)  # from mu_max on the head is zero
        if self.kind is Kind.CLASSES:
            solved = fit_classes(self, strength, None if warm is None else self._joined(warm))
        else:
            fit_output = lasso(self) if self.kind.is_regression else partial(fit_binary, self)
            solved = _stacked([fit_output(output, strength) for output in range(self.outputs)])
        bias = solved.bias - solved.weight @ self.mean
        # Contiguous, as after saving and loading: the memory layout may affect rounding.
        weight = solved.weight.to(self._dtype).contiguous()
        found = (weight, bias.to(self._dtype))
        weight, bias = (self._ranks.from_first(tensor) for tensor in found)
        return SparseHead(weight, bias, solved.mu_max, solved.gap, solved.steps)

    def start(self, outputs: int = 0) -> Tensor:
        """A head of zeros: a column of coordinates, or one for each of these outputs."""
        shape = (len(self.mean) + 1, outputs) if outputs else (len(self.mean) + 1,)
        return self.mean.new_zeros(shape)

    def _truth(self, labels: Tensor) -> Tensor:
        if self.kind is Kind.CLASSES:
            return F.one_hot(labels, self.outputs).double().T.contiguous()
        return labels.double().T

    def _joined(self, head: SparseHead) -> Tensor:
        """A head as the matrix of coordinates that is solved for, on centred features."""
        weight = head.weight.double()
        bias = head.bias.double() + weight @ self.mean
        return torch.cat([weight, bias[:, None]], dim=1).T.contiguous()


def fit_sparse_head(
    features: Tensor,
    labels: Tensor,
    kind: Kind,
    outputs: int,
    strength: float,
    warm: SparseHead | None = None,
) -> SparseHead:
    """Solve Equation 3 on features in memory with mu = strength * mu_max."""
    return HeadRows([(features, labels)], kind, outputs).fit(strength, warm)


def _columns(features: Tensor) -> Tensor:
    rows, units = features.shape
    columns = torch.ones(units + 1, rows, dtype=torch.float64, device=features.device)
    columns[:-1] = features.T
    return columns


def _stacked(parts: list[SparseHead]) -> SparseHead:
    """The heads of separate outputs as one."""
    weight = torch.stack([part.weight for part in parts])
    bias = torch.stack([part.bias for part in parts])
    mu_max = torch.stack([part.mu_max for part in parts])
    gap, steps = max(part.gap for part in parts), sum(part.steps for part in parts)
    return SparseHead(weight, bias, mu_max, gap, steps)
