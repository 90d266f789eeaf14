"""How much the likelihood of a network's answers depends on each weight: the diagonal of Fisher's
information matrix, the mean over examples of the squared gradient of log p(label | example).

The square of a gradient's mean is not the mean of its square, so each example's gradient is needed
by itself; but it need not be formed. A linear layer's gradient for one example is the product of
the slope at its outputs with its inputs, so that the sum of the squares over examples is one matrix
product of squared slopes and squared inputs: no more work than a step of training. A convolution
adds over positions before it squares, which takes a product for each example.
"""

from collections.abc import Iterator
from typing import Literal, TypeAlias, get_args

import torch
import torch.nn.functional as F
from torch import Tensor

from lifelong.learners.baselines.sequential import TaskOutcome
from lifelong.networks.growing import Network
from lifelong.networks.sequential import Sequential
from lifelong.tasks.task import Examples, Kind
from lifelong.training.budget import require, require_one_of

# Whose labels: the definition is the expectation over the network's own answers, and takes "all" of
# them, each as often as the network believes in it; or one is "sampled" for each example; or they
# are the data's, the "true" ones (the "empirical" Fisher information). A network that is sure of
# its answers seldom draws another, so that a sample then rests on a handful of examples.
Labels: TypeAlias = Literal["all", "sampled", "true"]

_CHUNK, _CHUNK_OF_IMAGES = 1000, 50  # rows at once: convolutions unfold theirs


def require_fisher(labels: str, examples: int | None) -> None:
    """Refuse settings of Fisher's information that are out of their range."""
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
) -> dict[str, Tensor]:
    """For every tensor of the network, from this many examples of the rows, or all of them."""
    sums = {name: torch.zeros_like(tensor) for name, tensor in network.tensors.items()}
    seen = 0
    for x, y in _first(rows, len(rows) if examples is None else examples, generator):
        _add(sums, network, kind, x, y, labels, generator)
        seen += len(x)
    return {name: total / seen for name, total in sums.items()}


def fisher_after(outcome: TaskOutcome, labels: Labels, examples: int | None) -> dict[str, Tensor]:
    """Of a network that was just trained, on the rows it was trained on."""
    return fisher(
        outcome.network,
        outcome.task.kind,
        outcome.train,
        labels=labels,
        examples=examples,
        generator=outcome.generator,
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
    inputs, outputs = _traced(network, x)
    layers = list(outputs.values())
    starts = _slopes(kind, layers[-1].detach(), y, labels, generator)
    slopes = [torch.autograd.grad(layers[-1], layers, start, retain_graph=True) for start in starts]
    for layer, alternatives in zip(outputs, zip(*slopes, strict=True), strict=True):
        seen, weight_name, bias_name = inputs[layer]
        weight, bias = sums[weight_name], sums[bias_name]
        if not network.architecture.layout.tensors[weight_name].kernel:
            squares = torch.zeros_like(alternatives[0])
            for slope in alternatives:
                squares.addcmul_(slope, slope)
            weight += squares.T @ seen.square()
            bias += squares.sum(dim=0)
            continue
        for slope in alternatives:
            by_position = slope.flatten(2)
            each = torch.bmm(by_position, seen.transpose(1, 2))
            weight += each.square().sum(dim=0).reshape(weight.shape)
            bias += by_position.sum(dim=2).square().sum(dim=0)


def _traced(
    network: Network, x: Tensor
) -> tuple[dict[str, tuple[Tensor, str, str]], dict[str, Tensor]]:
    architecture = network.architecture
    if not isinstance(architecture, Sequential):
        raise TypeError(
            f"Fisher information is there for mlp and convnet, not for {architecture!r}"
        )
    return architecture.traced(network.tensors, x)


def _slopes(
    kind: Kind, logits: Tensor, y: Tensor, labels: Labels, generator: torch.Generator
) -> list[Tensor]:
    """Of minus the log likelihood at the outputs, for each alternative whose squares add up."""
    if labels == "all":
        return _all_slopes(kind, logits)
    answers = y if labels == "true" else _drawn(kind, logits, generator)
    if kind is Kind.BINARY:
        return [torch.sigmoid(logits) - answers]
    return [torch.softmax(logits, dim=1) - F.one_hot(answers, logits.shape[1])]


def _all_slopes(kind: Kind, logits: Tensor) -> list[Tensor]:
    """Each answer's, by the root of its share, so that its square counts by that share.

    The outputs of a binary task are independent: of the products of two the expectation is zero,
    and each output's variance is left.
    """
    if kind is Kind.BINARY:
        p = torch.sigmoid(logits)
        deviation = (p * (1 - p)).sqrt()
        return list(torch.diag_embed(deviation).unbind(dim=1))
    shares = torch.softmax(logits, dim=1)
    off = shares.unsqueeze(1) - torch.eye(shares.shape[1], dtype=shares.dtype, device=shares.device)
    return list((shares.sqrt().unsqueeze(2) * off).unbind(dim=1))


def _drawn(kind: Kind, logits: Tensor, generator: torch.Generator) -> Tensor:
    """Labels as the network believes them to be, drawn on the CPU for the sake of the seed."""
    if kind is Kind.BINARY:
        chance = torch.rand(logits.shape, generator=generator).to(logits.device)
        return (chance < torch.sigmoid(logits)).to(logits.dtype)
    shares = torch.softmax(logits, dim=1).cpu()
    return torch.multinomial(shares, 1, generator=generator)[:, 0].to(logits.device)
