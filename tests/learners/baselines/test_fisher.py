"""Fisher's information against one example at a time."""

from collections.abc import Callable

import pytest
import torch
import torch.nn.functional as F
from hypothesis import given, settings
from hypothesis import strategies as st

from builders import ARCHITECTURES, KINDS, in_double, inputs_for, random, random_network
from lifelong.learners.baselines.fisher import fisher
from lifelong.networks.growing import Network
from lifelong.networks.layout import logits
from lifelong.tasks.examples import TensorExamples
from lifelong.tasks.kinds import Kind

Oracle = Callable[[Network, Kind, TensorExamples], dict[str, torch.Tensor]]
OUTPUTS = {"one output": 1, "subtasks": 2, "classes": 3}


def setting(network, kind, seed, rows):
    architecture, generator = ARCHITECTURES[network](), random(seed)
    outputs = OUTPUTS[kind]
    net = in_double(random_network(architecture, generator, outputs))
    x = inputs_for(architecture, rows, seed).double()
    if kind == "classes":
        return (
            net,
            Kind.CLASSES,
            TensorExamples(x, torch.randint(outputs, (rows,), generator=generator)),
        )
    y = torch.randint(2, (rows, outputs), generator=generator).double()
    return net, Kind.BINARY, TensorExamples(x, y)


def surprise(kind, answer, y):
    if kind is Kind.REGRESSION:
        return (answer - y).square().sum() / 2
    if kind is Kind.MEDIAN_REGRESSION:
        return (answer - y).abs().sum()
    if kind is Kind.CLASSES:
        return F.cross_entropy(answer, y)
    return F.binary_cross_entropy_with_logits(answer, y, reduction="sum")


def squares(net, kind, x, y):
    """Of the gradient for one example, by autograd."""
    leaves = {n: t.clone().requires_grad_() for n, t in net.tensors.items()}
    loss = surprise(kind, logits(net.architecture, leaves, x[None]), y[None])
    return dict(
        zip(leaves, (g**2 for g in torch.autograd.grad(loss, leaves.values())), strict=True)
    )


def with_true_labels(net, kind, data):
    """The mean of each example's squared gradient."""
    each = [squares(net, kind, x, y) for x, y in zip(data.x, data.y, strict=True)]
    return {name: torch.stack([one[name] for one in each]).mean(dim=0) for name in net.tensors}


def expectation(net, kind, data):
    """Over every answer that the network could give, one at a time."""
    expected = {name: torch.zeros_like(t) for name, t in net.tensors.items()}
    with torch.no_grad():
        answers = net.logits(data.x)
    for x, answer in zip(data.x, answers, strict=True):
        for y, chance in outcomes(kind, answer):
            for name, square in squares(net, kind, x, y).items():
                expected[name] += chance * square / len(data.x)
    return expected


def outcomes(kind, answer):
    """All labels of one example, with how probable the network's answer makes them."""
    if kind is Kind.CLASSES:
        return [(torch.tensor(number), share) for number, share in enumerate(answer.softmax(0))]
    grid = torch.cartesian_prod(*[torch.tensor([0.0, 1.0]).double()] * len(answer))
    p = answer.sigmoid()
    return [(y, torch.where(y == 1, p, 1 - p).prod()) for y in grid.reshape(-1, len(answer))]


@pytest.mark.parametrize("network", ARCHITECTURES)
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(
    ("labels", "one_at_a_time"), [("true", with_true_labels), ("all", expectation)]
)
@settings(max_examples=5)
@given(seed=st.integers(0, 10**6), rows=st.integers(1, 120))
def test_it_is_what_one_example_at_a_time_gives(network, kind, labels, one_at_a_time, seed, rows):
    net, kind_, data = setting(network, kind, seed, rows)
    found = fisher(net, kind_, data, labels=labels, examples=None, generator=random(0))
    expected = one_at_a_time(net, kind_, data)
    for name, tensor in found.items():
        torch.testing.assert_close(tensor, expected[name])


@pytest.mark.parametrize("kind", KINDS)
def test_with_sampled_labels_it_tends_to_that_expectation(kind):
    net, kind_, data = setting("mlp", kind, 3, 2)
    expected = expectation(net, kind_, data)
    often = 20_000
    many = TensorExamples(data.x.repeat(often, 1), data.y.repeat(often, *[1] * (data.y.ndim - 1)))
    found = fisher(net, kind_, many, labels="sampled", examples=None, generator=random(1))
    for name in expected:
        torch.testing.assert_close(found[name], expected[name], rtol=0.05, atol=5e-3)


@pytest.mark.parametrize("network", ARCHITECTURES)
@pytest.mark.parametrize("kind", KINDS)
def test_predicted_labels_are_the_likeliest_ones(network, kind):
    net, kind_, data = setting(network, kind, 5, 20)
    with torch.no_grad():
        answers = net.logits(data.x)
    likeliest = answers.argmax(dim=1) if kind == "classes" else answers.sigmoid().round()
    as_predicted = TensorExamples(data.x, likeliest)
    found = fisher(net, kind_, data, labels="predicted", examples=None, generator=random(0))
    expected = fisher(net, kind_, as_predicted, labels="true", examples=None, generator=random(0))
    for name, tensor in found.items():
        torch.testing.assert_close(tensor, expected[name])


@pytest.mark.parametrize("kind", [Kind.REGRESSION, Kind.MEDIAN_REGRESSION])
def test_of_a_regression_it_is_that_of_errors_with_unit_information(kind):
    net, _, data = setting("mlp", "subtasks", 3, 6)
    data = TensorExamples(data.x, torch.randn(data.y.shape, generator=random(4)).double())
    found = fisher(net, kind, data, labels="true", examples=None, generator=random(0))
    expected = with_true_labels(net, kind, data)
    for name, tensor in found.items():
        torch.testing.assert_close(tensor, expected[name])
    whole = fisher(net, kind, data, labels="all", examples=None, generator=random(0))
    many = TensorExamples(data.x.repeat(4000, 1), data.y.repeat(4000, 1))
    drawn = fisher(net, kind, many, labels="sampled", examples=None, generator=random(1))
    for name in whole:
        torch.testing.assert_close(drawn[name], whole[name], rtol=0.1, atol=2e-2)


def test_fewer_examples_are_a_random_part_of_the_rows():
    net, kind, data = setting("mlp", "classes", 1, 50)

    def information(examples, seed):
        found = fisher(net, kind, data, labels="true", examples=examples, generator=random(seed))
        return found["hidden1.weight"]

    assert torch.equal(information(10, 1), information(10, 1))
    assert not torch.equal(information(10, 1), information(10, 2))
    torch.testing.assert_close(information(50, 1), information(999, 2))
