"""Algorithm 2: selective retraining."""

import time
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from math import prod
from typing import final

import torch
from torch import Tensor

from lifelong.learners.den.draft import Draft
from lifelong.learners.den.task_training import TaskTraining, movement
from lifelong.networks.growing import GrowingNetwork, Network
from lifelong.networks.layout import (
    FIXED,
    HEAD,
    INPUTS,
    OUTPUTS,
    Architecture,
    Layout,
    Tensors,
    TensorSpec,
    Units,
    Widths,
)
from lifelong.networks.surgery import gather, scatter
from lifelong.records import StageRecord
from lifelong.tasks.examples import Examples
from lifelong.training.head_solvers import SparseHead
from lifelong.training.loop import TrainingError
from lifelong.training.sparse_head import HeadRows

CHUNK = 4096  # rows at once
KEEP = 2**28  # bytes of features that are kept
AT_ONCE = 2**26  # bytes of features that Equation 3 takes as one chunk


def selective_retraining(known: GrowingNetwork, training: TaskTraining) -> Draft:
    """Fit a sparse head (Equation 3) and retrain only the units that it reads (Equation 4)."""
    return retrain_selected(with_sparse_head(known, training), training)


def retrain_selected(draft: Draft, training: TaskTraining, head_l1: float | None = None) -> Draft:
    """Retrain the units that the head reads (Equation 4), with this l1 on the head if not mu."""
    network = draft.network
    selected = select(network)
    noted = draft.noting("selected", {group: len(selected[group]) for group in network.born})
    if not len(selected[INPUTS]) or not bool(network.tensors[HEAD[0]].any()):
        return noted  # there is no path from inputs to head
    # A layer that others bypass may be read by nobody: one unit keeps its place.
    selected = {g: units if len(units) else torch.arange(1) for g, units in selected.items()}
    part, layout = gather(network, selected), network.architecture.layout
    penalties = movement(training.settings, layout, part.tensors, head_l1)
    held = _cannot_be_split(layout) if training.settings.split == "units" else ()
    inputs = selected[INPUTS] if len(selected[INPUTS]) < network.width(INPUTS) else None
    part, stage = training.train("retrain", part, penalties, inputs, held)
    return noted.trained(scatter(network, part, selected), stage)


def _cannot_be_split(layout: Layout) -> tuple[str, ...]:
    """Tensors whose units never change: a split would restore all of them."""
    return tuple(n for n, s in layout.tensors.items() if s.out is None and s.owner == "shared")


def with_sparse_head(known: GrowingNetwork, training: TaskTraining, doubled: bool = True) -> Draft:
    """The network with the solution of Equation 3 as its head.

    Departs from the paper: its strength is doubled for as long as the validation loss falls; the
    sparser head is kept if the loss fell by the share `min_improvement` (0: not tried). On few rows
    a head that is not sparse enough overfits, and training that starts from it does not recover.
    Not `doubled` where the training starts from another head.
    """
    began = time.perf_counter()
    train, _ = training.rows()
    tensors = {**known.current, **known.statistics}
    task, settings, ranks = training.task, training.settings, training.context.ranks
    chunks = feature_chunks(known.architecture, tensors, train)
    rows = HeadRows(chunks, task.kind, task.outputs, ranks)
    if not bool(torch.isfinite(rows.mean).all()):
        raise TrainingError(
            f"{training.task.name}: head: its inputs overflow the features of the network; "
            "scale them to about 1"
        )
    strength, min_improvement = settings.head_l1, settings.min_improvement
    heads: list[SparseHead] = []

    def headed(strength: float) -> Draft:
        warm = heads[-1] if heads else None
        heads.append(rows.fit(strength, warm))
        network = known.with_head(heads[-1].weight, heads[-1].bias)
        return Draft(network, training.loss(network), head_l1=strength)

    as_given = sparsest = headed(strength)
    while doubled and min_improvement and strength < 1:  # from 1 on the head is zero
        strength *= 2
        sparser = headed(strength)
        if sparser.loss >= sparsest.loss:
            break
        sparsest = sparser
    better = sparsest.loss <= as_given.loss * (1 - min_improvement)
    chosen = sparsest if better else as_given
    steps = sum(head.steps for head in heads)
    seconds = time.perf_counter() - began
    return chosen.trained(chosen.network, StageRecord("head", chosen.loss, steps, seconds))


@final
@dataclass(frozen=True, eq=False)
class _Features:
    """Features and labels of rows in batches, computed whenever they are read."""

    architecture: Architecture
    tensors: Tensors
    rows: Examples

    def __iter__(self) -> Iterator[tuple[Tensor, Tensor]]:
        for x, y in self.rows.batches(CHUNK):
            with torch.no_grad():
                features = self.architecture.features(self.tensors, x)
            yield features, y

    def kept(self) -> tuple[Tensor, Tensor]:
        """All of them in two tensors that are made first: chunks that stay, between others that
        do not, would keep the memory of both.
        """
        whole: tuple[Tensor, ...] = ()
        done = 0
        for chunk in self:
            whole = whole or tuple(t.new_empty(len(self.rows), *t.shape[1:]) for t in chunk)
            for part, tensor in zip(whole, chunk, strict=True):
                part[done : done + len(tensor)] = tensor
            done += len(chunk[1])
        features, labels = whole
        return features[:done], labels[:done]

    def row_bytes(self) -> int:
        x, _ = next(iter(self.rows.batches(CHUNK)))  # of 1 there would be as many as rows
        with torch.no_grad():
            like = self.architecture.features(self.tensors, x[:1])
        return like.element_size() * prod(like.shape[1:])


def feature_chunks(
    architecture: Architecture, tensors: Tensors, rows: Examples
) -> Iterable[tuple[Tensor, Tensor]]:
    """Features and labels in chunks. Features are frozen: unless they are too large to be kept,
    they are computed once, and make one chunk if they are small.
    """
    computed = _Features(architecture, tensors, rows)
    size = len(rows) * computed.row_bytes()
    if size > KEEP:
        return computed
    kept = computed.kept()
    return (
        list(zip(*(part.split(CHUNK) for part in kept), strict=True)) if size > AT_ONCE else [kept]
    )


def select(network: Network) -> Units:
    """Per group, including inputs, the units that have a path to the head.

    A unit is selected if a selected unit, an output or a place that belongs to no unit reads it
    with a non-zero weight. The sweep is repeated until nothing changes, so the order of layers does
    not matter.
    """
    links = _links(network)
    reached = {group: torch.zeros(n, dtype=torch.bool) for group, n in network.widths.items()}
    reached |= {FIXED: torch.ones(1, dtype=torch.bool)}
    reached[OUTPUTS][:] = True
    if not any(sender == INPUTS for _, sender, _ in links):  # inputs are read as a whole
        reached[INPUTS][:] = True
    growing = True
    while growing:
        before = sum(int(mask.sum()) for mask in reached.values())
        for receiver, sender, connected in links:
            reached[sender] |= connected[reached[receiver]].any(dim=0)
        growing = sum(int(mask.sum()) for mask in reached.values()) > before
    hidden = (INPUTS, *network.born)
    return {group: reached[group].nonzero().flatten() for group in hidden}


def _links(network: Network) -> list[tuple[str, str, Tensor]]:
    """Per weight tensor: receiving group, sending group, and matrix of connections."""
    links = []
    for name, spec in network.architecture.layout.tensors.items():
        if spec.into is None:
            continue
        linked = network.tensors[name] != 0
        # Rows that belong to no unit are one receiver, which is always there.
        out = linked.unsqueeze(0) if spec.out is None else linked.movedim(spec.out, 0)
        into = 1 + spec.into - (spec.out is not None and spec.out < spec.into)
        for receiver, rows in _receivers(spec, out, network.widths):
            for sender, part in spec.axes[spec.into].fold(rows, into, network.widths):
                connected = part.movedim(into, 1).flatten(2).any(dim=2).cpu()
                links.append((receiver, sender, connected))
    return links[::-1]  # from the head down, so that a sequential network needs two sweeps


def _receivers(spec: TensorSpec, linked: Tensor, widths: Widths) -> Iterator[tuple[str, Tensor]]:
    """Each receiving group, with one row of connections per unit."""
    if spec.out is None:
        yield FIXED, linked
        return
    axis, start = spec.axes[spec.out], 0
    for segment in axis.segments:
        rows = linked[start : start + segment.size(widths)]
        start += segment.size(widths)
        if segment.group is None:
            yield FIXED, rows.any(dim=0, keepdim=True)
            continue
        shape = (segment.repeat, segment.width(widths), segment.span)
        yield segment.group, rows.unflatten(0, shape).movedim(1, 0).flatten(1, 2).any(dim=1)
