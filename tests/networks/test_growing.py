"""Networks as data: shapes, axes, cost, and the network as of a task."""

import pytest
import torch
from hypothesis import given
from hypothesis import settings as runs
from hypothesis import strategies as st
from torch import nn
from torch.utils.flop_counter import FlopCounterMode

from builders import ARCHITECTURES, inputs_for, random, random_network, same, task_for
from lifelong.networks.growing import GrowingNetwork, first_network, nonzero, parameters
from lifelong.networks.initial import uniform
from lifelong.networks.layout import NetworkError, TensorSpec, fixed_axis, units_axis
from lifelong.networks.sequential import alexnet, convnet, mlp
from lifelong.networks.surgery import append_units


def test_an_mlp_computes_what_its_modules_compute():
    network = random_network(mlp(6, [5, 4, 3]), random(0))
    layers = [nn.Linear(6, 5), nn.ReLU(), nn.Linear(5, 4), nn.ReLU(), nn.Linear(4, 3), nn.ReLU()]
    module = nn.Sequential(*layers, nn.Linear(3, 2))
    module.load_state_dict(dict(zip(module.state_dict(), network.tensors.values(), strict=True)))
    x = inputs_for(network.architecture, 9)
    assert torch.equal(network.logits(x), module(x))


def test_a_convnet_computes_what_its_modules_compute():
    network = random_network(ARCHITECTURES["convnet"](), random(0))
    module = nn.Sequential(
        *[nn.Conv2d(2, 5, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2)],
        *[nn.Conv2d(5, 4, 3, padding=1), nn.ReLU()],
        *[nn.Flatten(), nn.Linear(36, 6), nn.ReLU(), nn.Linear(6, 2)],
    )
    module.load_state_dict(dict(zip(module.state_dict(), network.tensors.values(), strict=True)))
    x = inputs_for(network.architecture, 9)
    assert torch.equal(network.logits(x), module(x))


def test_axes_name_receivers_senders_and_the_span_of_a_flattened_filter():
    kernel = (fixed_axis(3), fixed_axis(3))
    conv1, conv2, hidden, outputs = (
        units_axis(group, "out") for group in ("conv1", "conv2", "hidden1", "outputs")
    )
    assert ARCHITECTURES["convnet"]().layout.tensors == {
        "conv1.weight": TensorSpec((conv1, units_axis("inputs", "in"), *kernel), "weight"),
        "conv1.bias": TensorSpec((conv1,), "bias"),
        "conv2.weight": TensorSpec((conv2, units_axis("conv1", "in"), *kernel), "weight"),
        "conv2.bias": TensorSpec((conv2,), "bias"),
        "hidden1.weight": TensorSpec((hidden, units_axis("conv2", "in", 9)), "weight"),
        "hidden1.bias": TensorSpec((hidden,), "bias"),
        "head.weight": TensorSpec((outputs, units_axis("hidden1", "in")), "weight", "task"),
        "head.bias": TensorSpec((outputs,), "bias", "task"),
    }


def test_the_papers_networks():
    small = mlp(784, [312, 128])
    assert list(small.layout.groups.items()) == [("hidden1", 312), ("hidden2", 128)]
    assert small.layout.parameters([10]) == 784 * 312 + 312 + 312 * 128 + 128 + 128 * 10 + 10
    large = alexnet()
    layout = large.layout
    shapes = {
        name: layout.shape(name, layout.groups, 10)
        for name, spec in layout.tensors.items()
        if spec.kind == "weight"
    }
    assert shapes == {
        "conv1.weight": (64, 3, 5, 5),
        "conv2.weight": (128, 64, 5, 5),
        "conv3.weight": (256, 128, 5, 5),
        "conv4.weight": (256, 256, 5, 5),
        "conv5.weight": (128, 256, 5, 5),
        "hidden1.weight": (384, 128 * 4 * 4),
        "hidden2.weight": (192, 384),
        "head.weight": (10, 192),
    }
    network = first_network(large, layout.groups, 10, uniform(random(0)))
    assert network.logits(inputs_for(large, 2)).shape == (2, 10)


@given(
    st.one_of(
        st.builds(mlp, st.integers(1, 9), st.lists(st.integers(1, 9), min_size=1, max_size=4)),
        st.builds(
            lambda size, filters, widths, kernel, pool: convnet(
                size, filters, widths, kernel=kernel, pool=pool
            ),
            st.tuples(st.integers(1, 3), st.integers(4, 9), st.integers(4, 9)),
            st.lists(st.integers(1, 5), min_size=2, max_size=2),
            st.lists(st.integers(1, 6), min_size=1, max_size=2),
            st.sampled_from([1, 3, 5]),
            st.lists(st.booleans(), min_size=2, max_size=2),
        ),
    ),
    st.integers(1, 4),
)
@runs(max_examples=40)
def test_multiply_adds_are_half_the_floating_point_operations_that_torch_counts(
    architecture, outputs
):
    network = random_network(architecture, random(0), outputs)
    with FlopCounterMode(display=False) as counter:
        network.logits(inputs_for(architecture, 1))
    assert 2 * architecture.multiply_adds(network.tensors) == counter.get_total_flops()
    for name, tensor in network.tensors.items():
        assert tensor.shape == architecture.layout.shape(name, architecture.layout.groups, outputs)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: mlp(0, [3]), r"inputs must be one or more whole numbers above 0, not \[0\]"),
        (lambda: mlp(4, [3, 0]), r"widths must be one or more whole numbers above 0, not \[3, 0\]"),
        (lambda: mlp(4, []), r"widths must be one or more whole numbers above 0, not \[\]"),
        (lambda: mlp(4, [2.5]), "widths must be one or more whole"),
        (lambda: mlp(4, [-1]), "widths must be one or more whole"),
        (lambda: convnet((1, 8, 8), [0], [3]), r"filters must be .* not \[0\]"),
        (lambda: convnet((1, 8, 8), [2], []), "widths must be"),
        (lambda: convnet((1, 8, 8), [], [2]), "filters must be"),
        (lambda: convnet((1, 8), [2], [2]), r"inputs \(channels, height, width\).* not inputs="),
        (lambda: convnet((1, 8, 8), [2], [2], kernel=4), "an odd kernel, not .* kernel=4"),
        (lambda: convnet((1, 8, 8), [2], [2], kernel=0), r"kernel must be .* not \[0\]"),
        (lambda: convnet((1, 8, 8), [2], [2], pool=[True, True]), "one `pool` for each of"),
        (lambda: convnet((1, 3, 8), [2, 2], [2]), r"inputs of shape \(1, 3, 8\) leave nothing"),
    ],
)
def test_a_network_that_cannot_be_is_refused(make, message):
    with pytest.raises(NetworkError, match=message):
        make()


def test_weights_are_drawn_within_one_over_the_root_of_the_fan_in():
    architecture = ARCHITECTURES["convnet"]()
    network = first_network(architecture, architecture.layout.groups, 3, uniform(random(4)))
    for name, tensor in network.tensors.items():
        if tensor.ndim == 1:
            assert not tensor.any()
        else:
            bound = tensor[0].numel() ** -0.5
            assert 0.5 * bound < tensor.abs().max() <= bound, name
    assert all(stamps.eq(1).all() for stamps in network.born.values())
    again = first_network(architecture, architecture.layout.groups, 3, uniform(random(4)))
    assert same(network.tensors, again.tensors)


def grown(architecture):
    """What three tasks left, each on more units than the last, and what each was learned with."""
    groups = list(architecture.layout.groups)
    network = random_network(architecture, random(0), 1)
    known = GrowingNetwork(architecture).remember(task_for(architecture, name="task 1"), network)
    seen = [network]
    for number, counts in enumerate([{groups[0]: 2}, {groups[-1]: 1, groups[0]: 1}], 2):
        width = seen[-1].tensors["head.weight"].shape[1]
        head = torch.randn(1, width, generator=random(number)), torch.ones(1)
        network = append_units(known.with_head(*head), counts, number, filled(number))
        known = known.remember(task_for(architecture, name=f"task {number}"), network)
        seen.append(network)
    return known, seen


def filled(seed):
    generator = random(seed)
    return lambda _, size: torch.randn(size, generator=generator)


@pytest.mark.parametrize("make", ARCHITECTURES.values(), ids=ARCHITECTURES)
def test_the_network_as_of_a_task_is_the_one_it_was_learned_with(make):
    known, seen = grown(make())
    assert [known.numbers[f"task {n}"] for n in (1, 2, 3)] == [1, 2, 3]
    x = inputs_for(known.architecture, 5)
    for number, network in enumerate(seen, 1):
        view = known.as_of(number)
        assert same(view.tensors, network.tensors)
        assert same(view.born, network.born)
        assert torch.equal(view.logits(x), network.logits(x))
    assert known.as_of(2) is known.as_of(2)


@pytest.mark.parametrize("make", ARCHITECTURES.values(), ids=ARCHITECTURES)
def test_without_stamps_the_head_reads_nothing_from_later_units(make):
    known, seen = grown(make())
    last = known.as_of(3)
    for number, network in enumerate(seen, 1):
        now = known.without_stamps(number)
        own = network.tensors["head.weight"]
        head = now.tensors["head.weight"]
        assert torch.equal(head[:, : own.shape[1]], own)
        assert head.shape[1] == last.tensors["head.weight"].shape[1]
        assert not head[:, own.shape[1] :].any()
        assert all(torch.equal(now.tensors[name], known.shared[name]) for name in known.shared)
    x = inputs_for(known.architecture, 5)
    assert not torch.allclose(known.without_stamps(1).logits(x), seen[0].logits(x))


def test_parameters_are_counted_by_hand():
    tensors = {"a": torch.tensor([[1.0, 0.0], [0.0, 2.0]]), "b": torch.zeros(3)}
    assert (parameters(tensors), nonzero(tensors)) == (7, 2)
