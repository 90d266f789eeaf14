"""What a sequential network computes, in whichever order it computes it."""

import torch
import torch.nn.functional as F
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from builders import inputs_for, random, random_network
from lifelong.networks.layout import Tensors
from lifelong.networks.sequential import Convolution, Linear, MaxPool, Relu, Sequential, convnet


def plainly(network: Sequential, tensors: Tensors, x: Tensor) -> Tensor:
    """Layer after layer, as they are listed."""
    for layer in network.layers:
        match layer:
            case Convolution(name, padding=padding):
                bias = tensors.get(f"{name}.bias")
                x = F.conv2d(x, tensors[f"{name}.weight"], bias, padding=padding)
            case Linear(name):
                x = F.linear(x, tensors[f"{name}.weight"], tensors.get(f"{name}.bias"))
            case MaxPool(size):
                x = F.max_pool2d(x, size)
            case Relu():
                x = F.relu(x)
            case _:
                x = x.flatten(1)
    return x


@given(
    seed=st.integers(0, 99),
    side=st.integers(4, 9),
    channels=st.integers(1, 3),
    pool=st.lists(st.booleans(), min_size=2, max_size=2),
    kernel=st.sampled_from([1, 3]),
)
def test_images_are_computed_in_another_order_to_the_same_end(seed, side, channels, pool, kernel):
    network = convnet((channels, side, side), (3, 5), (4,), kernel=kernel, pool=pool)
    tensors = random_network(network, random(seed)).tensors
    tensors = {name: tensor.double().requires_grad_() for name, tensor in tensors.items()}
    x = inputs_for(network, 3, seed).double()
    weights = torch.rand(3, 4, generator=random(seed)).double()
    ours, plain = network.features(tensors, x), plainly(network, tensors, x)
    torch.testing.assert_close(ours, plain)
    shared = [tensor for name, tensor in tensors.items() if not name.startswith("head")]
    for found, expected in zip(
        torch.autograd.grad((ours * weights).sum(), shared, allow_unused=True),
        torch.autograd.grad((plain * weights).sum(), shared, allow_unused=True),
        strict=True,
    ):
        torch.testing.assert_close(found, expected)
