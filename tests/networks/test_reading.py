"""What the weights of a network are multiplied with, as the network tells it."""

import pytest
import torch
import torch.nn.functional as F
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn

from builders import ARCHITECTURES, inputs_for, random, random_network, same
from lifelong import grow
from lifelong.networks.growing import first_network
from lifelong.networks.initial import uniform
from lifelong.networks.layout import HEAD, KnownInputs
from lifelong.networks.traced.program import Call, Named, Program, Runner, Value, function_of
from lifelong.networks.traced.reading import readers_in, shown, unfolded
from zoo import ZOO, module_of, traced

CONVOLUTIONS = {1: F.conv1d, 2: F.conv2d, 3: F.conv3d}


@pytest.mark.filterwarnings("ignore:Using padding='same' with even kernel lengths")
@settings(max_examples=60)
@given(
    dims=st.integers(1, 3),
    kernel=st.lists(st.integers(1, 3), min_size=3, max_size=3),
    stride=st.integers(1, 3) | st.just([2, 1, 3]),
    padding=st.integers(0, 2) | st.just([1, 0, 2]) | st.sampled_from(["same", "valid"]),
    dilation=st.integers(1, 2) | st.just([2, 1, 1]),
)
def test_a_convolution_is_a_product_with_its_unfolded_inputs(
    dims, kernel, stride, padding, dilation
):
    stride, padding, dilation = (
        one[:dims] if isinstance(one, list) else one for one in (stride, padding, dilation)
    )
    stride = 1 if padding == "same" else stride  # as PyTorch wants it
    x = torch.randn(2, 3, *(7, 6, 5)[:dims], generator=random(0))
    weight = torch.randn(4, 3, *kernel[:dims], generator=random(1))
    given = (x, weight, None, stride, padding, dilation)
    found = unfolded(*given) @ weight.flatten(1).T
    wanted = CONVOLUTIONS[dims](*given).movedim(1, -1).reshape(-1, 4)
    torch.testing.assert_close(found, wanted, rtol=1e-4, atol=1e-4)


def seen_by(architecture, tensors, x):
    seen = {}
    architecture.show_inputs(tensors, x, lambda name, rows: seen.setdefault(name, []).append(rows))
    return seen


@pytest.mark.parametrize("network", ARCHITECTURES)
def test_a_chain_tells_the_inputs_of_every_weight(network):
    architecture = ARCHITECTURES[network]()
    tensors, x = random_network(architecture, random(0)).tensors, inputs_for(architecture, 4)
    assert isinstance(architecture, KnownInputs)
    named = {name for pair in architecture.readers.items() for name in pair if name is not None}
    assert named == set(architecture.layout.tensors)
    seen = seen_by(architecture, tensors, x)
    assert list(seen) == list(architecture.readers)
    for name, [rows] in seen.items():
        assert rows.shape[1] == tensors[name][0].numel()
    assert torch.equal(seen[HEAD[0]][0], architecture.features(tensors, x))


UNKNOWN = {
    "mlp": set(),
    "convnet": set(),
    "resnet": set(),
    "mobile": {"blocks.0.body.3.weight", "blocks.1.body.3.weight"},
    "dense": set(),
    "next": {"grouped.weight"},
    "vit": {"cls"},
    "text": {"tokens.weight", "places.weight"},
    "decoder": {"up.weight"},
}


@pytest.mark.parametrize("name", ZOO)
def test_a_module_tells_what_its_calls_read_and_computes_the_same(name, monkeypatch):
    architecture, x = traced(name), ZOO[name].inputs(3, seed=2)
    network = first_network(architecture, architecture.layout.groups, 3, uniform(random(0)))
    weights = {n for n, spec in architecture.layout.tensors.items() if spec.kind == "weight"}
    assert weights - set(architecture.readers) == UNKNOWN[name]
    computed = {}

    def watched(operation):
        function, takes_generator = function_of(operation)

        def run(*given, **named):
            found = function(*given, **named)
            for n, tensor in network.tensors.items():
                if len(given) > 1 and given[1] is tensor and n in architecture.readers:
                    shift = 0 if given[2:3] in ((), (None,)) else given[2]
                    units = 1 if operation.startswith("aten.conv") else -1
                    computed[n] = found.movedim(units, -1).reshape(-1, len(tensor)) - shift
            return found

        return run, takes_generator

    monkeypatch.setattr("lifelong.networks.traced.reading.function_of", watched)
    seen = seen_by(architecture, network.tensors, x)
    assert set(seen) == set(architecture.readers)
    with torch.no_grad():
        assert torch.equal(seen[HEAD[0]][0], architecture.features(network.tensors, x))
    assert set(computed) == set(seen) - {HEAD[0]}
    for n, wanted in computed.items():
        found = seen[n][0] @ network.tensors[n].flatten(1).T
        torch.testing.assert_close(found, wanted, rtol=1e-3, atol=1e-4)


def linear(x, weight, *bias):
    return Call("aten.linear.default", [Value(x), Named(weight), *map(Named, bias)])


SHAPES = {"w": (3, 3), "v": (3, 3), "b": (3,), "c": (3,), "one": (1,)}


@pytest.mark.parametrize(
    ("calls", "found"),
    [
        ([linear(0, "w", "b"), linear(1, "w", "b")], {"w": "b"}),
        ([linear(0, "w", "b"), linear(1, "w")], {"w": None}),
        ([linear(0, "w", "b"), linear(1, "w", "c")], {"w": None}),
        ([linear(0, "w", "b"), linear(1, "v", "b")], {"w": None, "v": None}),
        ([linear(0, "w", "one")], {"w": None}),
        ([linear(0, "w", "frozen")], {"w": None}),
        ([linear(0, "frozen", "b")], {}),
        ([linear(0, "b")], {}),
        ([linear(0, "w", "b"), Call("aten.add.Tensor", [Value(1), Named("w")])], {}),
        ([linear(0, "w", "b"), Call("aten.add.Tensor", [Value(1), Named("b")])], {"w": None}),
        ([Call("aten.linear.default", [Named("w"), Named("v")])], {"v": None}),
        ([Call("aten.embedding.default", [Named("w"), Value(0)]), linear(1, "w")], {}),
        ([Call("aten.mm.default", [Value(0), Named("w")])], {}),
        ([Call("aten.linear.default", [Value(0)], {"weight": Named("w")})], {"w": None}),
    ],
)
def test_inputs_are_known_of_weights_that_are_used_as_such_only(calls, found):
    assert readers_in(Program(tuple(calls), len(calls), {}), SHAPES) == found


def test_a_weight_that_is_used_twice_is_shown_twice_as_it_was_read_before_changes_in_place():
    calls = (linear(0, "w"), Call("aten.relu_.default", [Value(0)]), linear(2, "w"))
    program, seen = Program(calls, 3, {}), []
    instead = shown(program, {"w"}, lambda name, rows: seen.append((name, rows.clone())))
    x = torch.tensor([[-1.0, 2.0, -3.0]])
    Runner(program, {}, instead)({"w": torch.eye(3)}, x.clone())
    assert [name for name, _ in seen] == ["w", "w"]
    assert torch.equal(seen[0][1], x)
    assert torch.equal(seen[1][1], x.relu())


def test_what_frozen_parts_computed_is_taken_for_inputs():
    made = ZOO["convnet"].inputs
    architecture = grow(module_of("convnet"), made(3), head="9", frozen=["0", "3"])
    network = first_network(architecture, architecture.layout.groups, 3, uniform(random(0)))
    assert set(architecture.readers) == {"6.weight", HEAD[0]}
    x = made(4, seed=1)
    whole, rest = (
        {n: rows for n, [rows] in seen_by(architecture, network.tensors, given).items()}
        for given in (x, architecture.precomputed(x))
    )
    assert same(whole, rest)


def test_padding_may_be_named():
    module = nn.Sequential(
        *(nn.Conv1d(3, 4, 3, padding="same"), nn.Tanh(), nn.Flatten(), nn.Linear(20, 3))
    )
    x = torch.randn(2, 3, 5, generator=random(0))
    architecture = grow(module, x, head="3", pretrained=True)
    network = first_network(architecture, architecture.layout.groups, 3, uniform(random(0)))
    [rows] = seen_by(architecture, network.tensors, x)["0.weight"]
    assert torch.equal(rows[0], F.pad(x[0, :, :2], [1, 0]).flatten())
    assert len(rows) == 2 * 5


def test_a_modules_memory_format_is_left_behind():
    module = nn.Sequential(
        *(nn.Conv2d(3, 4, 3), nn.ReLU(), nn.Conv2d(4, 4, 3), nn.Flatten(), nn.Linear(16, 3))
    ).to(memory_format=torch.channels_last)
    architecture = grow(module, torch.randn(2, 3, 6, 6), head="4", pretrained=True)
    assert all(tensor.is_contiguous() for tensor in architecture.start.values())
    assert torch.equal(architecture.start["0.weight"], module[0].weight)
