"""Networks whose hidden layers have no biases: what they compute, and every method on them."""

import msgspec
import pytest
import torch
from torch import nn

from builders import (
    ARCHITECTURES,
    BUDGET,
    answers,
    contents,
    inputs_for,
    random,
    random_network,
    same,
    small_mlp,
    stream_for,
)
from lifelong.deployment.export import export
from lifelong.experiments.configuration import NetworkPlan
from lifelong.experiments.perform import architecture as planned
from lifelong.learners.baselines import Joint
from lifelong.learners.baselines.fisher import fisher
from lifelong.learners.registry import METHODS
from lifelong.networks.growing import first_network
from lifelong.networks.layout import NetworkError
from lifelong.networks.sequential import convnet, mlp
from lifelong.tasks.examples import TensorExamples
from lifelong.tasks.kinds import Kind

NETWORKS = {
    "mlp": lambda: mlp(6, [10, 7], bias=False),
    "convnet": lambda: convnet((2, 6, 6), [5, 4], [6], kernel=3, pool=[True, False], bias=False),
}
IMAGES = ("DEN", "DNN-EWC", "DNN-Progressive", "GPM", "HAT", "WSN")
GUISES = ("DEN-Constant-13", "DEN-Constant-20", "DEN-Dynamic", "DEN-No-Stamp", "IMM-mean")
PAIRS = [
    *((name, "mlp") for name in METHODS if name not in GUISES),
    *((name, "convnet") for name in IMAGES),
]


def test_they_compute_what_modules_without_biases_compute():
    modules = {
        "mlp": [nn.Linear(6, 10, False), nn.ReLU(), nn.Linear(10, 7, False), nn.ReLU()],
        "convnet": [
            *[nn.Conv2d(2, 5, 3, padding=1, bias=False), nn.ReLU(), nn.MaxPool2d(2)],
            *[nn.Conv2d(5, 4, 3, padding=1, bias=False), nn.ReLU()],
            *[nn.Flatten(), nn.Linear(36, 6, False), nn.ReLU()],
        ],
    }
    for kind, make in NETWORKS.items():
        network = random_network(make(), random(0))
        head = nn.Linear(network.tensors["head.weight"].shape[1], 2)
        module = nn.Sequential(*modules[kind], head)
        tensors = zip(module.state_dict(), network.tensors.values(), strict=True)
        module.load_state_dict(dict(tensors))
        x = inputs_for(network.architecture, 9)
        assert torch.equal(network.logits(x), module(x))


@pytest.mark.parametrize(("name", "network"), PAIRS)
def test_every_method_learns_on_them_and_is_saved_and_loaded(name, network, tmp_path):
    method, architecture = METHODS[name], NETWORKS[network]()
    *tasks, last = stream_for(architecture, "one output", "classes", "one output")
    learner = method.make(architecture, budget=BUDGET, seed=0)
    if isinstance(learner, Joint):
        learner.learn_together(tasks)
    else:
        for task in tasks:
            learner.learn(task)
    kept = contents(learner)
    assert kept
    assert not [n for n in kept if "hidden" in n and n.endswith("bias")]
    x = inputs_for(architecture, 7)
    learner.save(tmp_path / "model")
    loaded = method.learner.load(tmp_path / "model")
    assert same(contents(loaded), kept)
    assert same(answers(loaded, x), answers(learner, x))
    for one in () if isinstance(learner, Joint) else (learner, loaded):
        one.learn(last)
    assert same(contents(loaded), contents(learner))


@pytest.mark.parametrize("network", NETWORKS)
@pytest.mark.parametrize("name", ["DNN", "DNN-Progressive"])
def test_they_are_exported(name, network, tmp_path):
    learner = METHODS[name].make(NETWORKS[network](), budget=BUDGET, seed=0)
    for task in stream_for(NETWORKS[network](), "one output", "classes"):
        learner.learn(task)
    for format in ("onnx", "state-dict"):
        assert export(learner, tmp_path / format, task="task 2", format=format).difference <= 1e-5


@pytest.mark.parametrize("network", NETWORKS)
def test_fishers_information_is_that_of_the_same_network_with_biases_of_zero(network):
    bare = random_network(NETWORKS[network](), random(0), outputs=3)
    like = ARCHITECTURES[network]()
    zeros = first_network(like, like.layout.groups, 3, lambda _, size: torch.zeros(size))
    rows = TensorExamples(inputs_for(like, 9), torch.arange(9) % 3)
    found, expected = (
        fisher(one, Kind.CLASSES, rows, labels="all", examples=None, generator=random(0))
        for one in (bare, zeros.with_tensors({**zeros.tensors, **bare.tensors}))
    )
    assert found.keys() == bare.tensors.keys()
    assert same(found, {name: expected[name] for name in found})


def test_layers_with_biases_are_stored_as_before():
    assert b"bias" not in msgspec.json.encode(small_mlp())
    bare = mlp(6, [10, 7], bias=False)
    assert bare != small_mlp()
    assert msgspec.json.decode(msgspec.json.encode(bare), type=type(bare)) == bare


@pytest.mark.parametrize("bias", [None, 0, "no"])
def test_whatever_is_neither_true_nor_false_is_refused(bias):
    with pytest.raises(NetworkError, match="bias must be True or False, not"):
        mlp(6, [10], bias=bias)


def test_plans_with_biases_are_stored_as_before_and_others_make_bare_networks():
    plan = NetworkPlan((10, 7), bias=False)
    assert b"bias" not in msgspec.json.encode(NetworkPlan((10, 7)))
    assert msgspec.json.decode(msgspec.json.encode(plan), type=NetworkPlan) == plan
    assert str(plan) == "10-7 without biases"
    assert planned(plan, (6,)) == mlp(6, [10, 7], bias=False)
    images = planned(NetworkPlan((6,), (5,), kernel=3, bias=False), (2, 6, 6))
    assert images == convnet((2, 6, 6), [5], [6], kernel=3, bias=False)
