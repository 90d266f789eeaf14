"""The diagonal of the Fisher information matrix: the mean over examples of the squared gradient of
log p(label | example), for each weight. Of a regression, p is a normal distribution of variance 1
(squared error) or a Laplace distribution of scale 1 (absolute error) around the prediction.

Gradients have to be squared per example, but need not be formed. For a linear layer, the gradient
of one example is the outer product of the gradient at its outputs and its inputs, so the sum of
squares over examples is one matrix product of squared output gradients and squared inputs: no more
work than a training step. A convolution sums over positions before squaring, which takes one
product per example. For a traced module gradients are formed row by row.
"""

from collections.abc import Callable, Iterator
from typing import Literal, TypeAlias, get_args

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.nn.attention import SDPBackend, sdpa_kernel

from lifelong.learners.baselines.sequential import TaskOutcome
from lifelong.networks.growing import Network
from lifelong.networks.layout import Tensors, logits, trainable
from lifelong.networks.sequential import Sequential
from lifelong.tasks.examples import Examples, whole_of
from lifelong.tasks.kinds import Kind
from lifelong.training.budget import require, require_one_of
from lifelong.training.ranks import ALONE, Ranks

# The definition is the expectation over the network's own predictions: over "all" labels, weighted
# by their probabilities, or over one label "sampled" per example. "true" takes the labels of the
# data (the empirical Fisher information). A confident network seldom samples another label, so the
# sampled estimate then rests on a few examples. "predicted" takes the likeliest label, as some
# published code does: of a confident network it is smaller, and of a regression zero.
Labels: TypeAlias = Literal["all", "sampled", "true", "predicted"]

_CHUNK, _CHUNK_OF_IMAGES = 1000, 50  # rows at once; fewer images, because they are unfolded
_GRADIENTS = 2**25  # numbers at once, where gradients are formed row by row


def require_fisher(labels: str, examples: int | None) -> None:
    """Refuse settings of the Fisher information that are out of range."""
    require_one_of("labels", labels, get_args(Labels))
    if examples is not None:
        whole = isinstance(examples, int)
        require("examples", examples, "a whole number above 0", lambda v: whole and v > 0)


def fisher(
    network: Network,
    kind: Kind,
    rows: Examples,
    *,
    labels: Labels,
    examples: int | None,
    generator: torch.Generator,
    ranks: Ranks = ALONE,
) -> dict[str, Tensor]:
    """Fisher information per tensor, estimated from this many examples, or all if None.

    Several processes share the examples if all are taken; some, or labels that are sampled, must be
    the same ones in all processes.
    """
    if examples is not None or labels == "sampled":
        rows, ranks = whole_of(rows), ALONE
    sums = {name: torch.zeros_like(tensor) for name, tensor in network.tensors.items()}
    seen = 0
    for x, y in _first(rows, len(rows) if examples is None else examples, generator):
        if len(x):
            _add(sums, network, kind, x, y, labels, generator)
        seen += len(x)
    ranks.sum_in_place(list(sums.values()))
    count = seen if ranks.alone else len(rows)
    return {name: total / count for name, total in sums.items()}


def fisher_after(outcome: TaskOutcome, labels: Labels, examples: int | None) -> dict[str, Tensor]:
    """Fisher information of the trained network on its training rows."""
    return fisher(
        outcome.network,
        outcome.task.kind,
        outcome.train,
        labels=labels,
        examples=examples,
        generator=outcome.generator,
        ranks=outcome.ranks,
    )


def _first(
    rows: Examples, examples: int, generator: torch.Generator
) -> Iterator[tuple[Tensor, Tensor]]:
    """Batches in a random order, until there are this many examples."""
    left = examples
    size = _CHUNK if len(rows.shape) == 1 else _CHUNK_OF_IMAGES
    for x, y in rows.batches(min(size, examples), generator):
        yield x[:left], y[:left]
        left -= len(x)
        if left <= 0:
            return


def _add(
    sums: dict[str, Tensor],
    network: Network,
    kind: Kind,
    x: Tensor,
    y: Tensor,
    labels: Labels,
    generator: torch.Generator,
) -> None:
    if not isinstance(network.architecture, Sequential):
        _add_by_row(sums, network, kind, x, y, labels, generator)
        return
    inputs, outputs = network.architecture.traced(network.tensors, x)
    layers = list(outputs.values())
    starts = _slopes(kind, layers[-1].detach(), y, labels, generator)
    slopes = [torch.autograd.grad(layers[-1], layers, start, retain_graph=True) for start in starts]
    for layer, alternatives in zip(outputs, zip(*slopes, strict=True), strict=True):
        seen, weight_name, bias_name = inputs[layer]
        weight, bias = sums[weight_name], None if bias_name is None else sums[bias_name]
        if not network.architecture.layout.tensors[weight_name].kernel:
            squares = torch.zeros_like(alternatives[0])
            for slope in alternatives:
                squares.addcmul_(slope, slope)
            weight += squares.T @ seen.square()
            if bias is not None:
                bias += squares.sum(dim=0)
            continue
        for slope in alternatives:
            by_position = slope.flatten(2)
            each = torch.bmm(by_position, seen.transpose(1, 2))
            weight += each.square().sum(dim=0).reshape(weight.shape)
            if bias is not None:
                bias += by_position.sum(dim=2).square().sum(dim=0)


def _add_by_row(
    sums: dict[str, Tensor],
    network: Network,
    kind: Kind,
    x: Tensor,
    y: Tensor,
    labels: Labels,
    generator: torch.Generator,
) -> None:
    """For any architecture: the gradient of each row is formed, many rows at once."""
    architecture, tensors = network.architecture, network.tensors
    moving = network.only(trainable(architecture.layout.tensors))

    def chosen(moved: Tensors, row: Tensor, slope: Tensor) -> Tensor:
        outputs = logits(architecture, {**tensors, **moved}, row.unsqueeze(0))
        return (outputs[0] * slope).sum()

    with torch.no_grad():
        starts = _slopes(kind, network.logits(x), y, labels, generator)
    at_once = max(1, _GRADIENTS // sum(tensor.numel() for tensor in moving.values()))
    by_row = torch.func.vmap(
        torch.func.grad(chosen), in_dims=(None, 0, 0), chunk_size=at_once, randomness="error"
    )
    for start in starts:
        try:
            with sdpa_kernel(SDPBackend.MATH):  # the only attention that takes rows one by one
                found = by_row(moving, x, start)
        except RuntimeError:  # what branches on values, and recurrent layers, take no rows at once
            _add_one_by_one(sums, chosen, moving, x, start)
            continue
        for name, gradients in found.items():
            sums[name] += gradients.square().sum(dim=0)


def _add_one_by_one(
    sums: dict[str, Tensor],
    chosen: Callable[[Tensors, Tensor, Tensor], Tensor],
    moving: Tensors,
    x: Tensor,
    slopes: Tensor,
) -> None:
    leaves = {name: t.detach().requires_grad_() for name, t in moving.items()}
    for row, slope in zip(x, slopes, strict=True):
        value = chosen(leaves, row, slope)
        gradients = torch.autograd.grad(value, list(leaves.values()), allow_unused=True)
        for name, gradient in zip(leaves, gradients, strict=True):
            if gradient is not None:
                sums[name] += gradient.square()


def _slopes(
    kind: Kind, logits: Tensor, y: Tensor, labels: Labels, generator: torch.Generator
) -> list[Tensor]:
    """Gradients of the negative log-likelihood at the outputs; their squares are to be summed."""
    if labels == "all":
        return _all_slopes(kind, logits)
    if kind.is_regression:
        wanted = {"true": y, "predicted": logits}.get(labels)
        return [_regression_slopes(kind, logits, wanted, generator)]
    answers = _answers(kind, logits, y, labels, generator)
    if kind is Kind.BINARY:
        return [torch.sigmoid(logits) - answers]
    return [torch.softmax(logits, dim=1) - F.one_hot(answers, logits.shape[1])]


def _all_slopes(kind: Kind, logits: Tensor) -> list[Tensor]:
    """One gradient per label, scaled by the root of its probability, which then weights its square.

    The outputs of a binary task are independent: the expectation of a product of two is zero, and
    the variance of each output is left.
    """
    if kind.is_regression:  # both distributions have an information of 1 about their centre
        return list(torch.diag_embed(torch.ones_like(logits)).unbind(dim=1))
    if kind is Kind.BINARY:
        p = torch.sigmoid(logits)
        deviation = (p * (1 - p)).sqrt()
        return list(torch.diag_embed(deviation).unbind(dim=1))
    shares = torch.softmax(logits, dim=1)
    off = shares.unsqueeze(1) - torch.eye(shares.shape[1], dtype=shares.dtype, device=shares.device)
    return list((shares.sqrt().unsqueeze(2) * off).unbind(dim=1))


def _regression_slopes(
    kind: Kind, predicted: Tensor, y: Tensor | None, generator: torch.Generator
) -> Tensor:
    """The error, or its sign under absolute error; y is sampled if it is None."""
    if y is None:
        noise = torch.randn(predicted.shape, generator=generator).to(predicted.device)
        return noise if kind is Kind.REGRESSION else noise.sign()  # a Laplace error has either sign
    return predicted - y if kind is Kind.REGRESSION else (predicted - y).sign()


def _answers(
    kind: Kind, logits: Tensor, y: Tensor, labels: Labels, generator: torch.Generator
) -> Tensor:
    """The labels that the gradients are of."""
    if labels == "true":
        return y
    if labels == "sampled":
        return _drawn(kind, logits, generator)
    return (logits > 0).to(logits.dtype) if kind is Kind.BINARY else logits.argmax(dim=1)


def _drawn(kind: Kind, logits: Tensor, generator: torch.Generator) -> Tensor:
    """Labels sampled from the network's probabilities, on the CPU for reproducibility."""
    if kind is Kind.BINARY:
        chance = torch.rand(logits.shape, generator=generator).to(logits.device)
        return (chance < torch.sigmoid(logits)).to(logits.dtype)
    shares = torch.softmax(logits, dim=1).cpu()
    return torch.multinomial(shares, 1, generator=generator)[:, 0].to(logits.device)
