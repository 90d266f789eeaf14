"""Recipes whose networks are modules: their keys, their networks, and a run of each kind."""

import msgspec
import pytest
import torch
from torch import nn

from lifelong.experiments import modules
from lifelong.experiments.configuration import NetworkPlan
from lifelong.experiments.modules import BehindTrunk, ResNet, Transformer, Trunk
from lifelong.experiments.perform import Job, architecture, perform
from lifelong.experiments.recipes import DataPlan, recipe
from lifelong.networks.layout import NetworkError
from lifelong.networks.traced.architecture import Traced
from lifelong.training.budget import Budget


def test_plans_without_a_module_are_stored_as_before():
    assert b"module" not in msgspec.json.encode(NetworkPlan((8, 4)))
    plan = NetworkPlan((8, 4), module="resnet")
    assert msgspec.json.decode(msgspec.json.encode(plan), type=NetworkPlan) == plan
    assert str(plan) == "resnet of 8-4"
    assert b"precision" not in msgspec.json.encode(Budget())


def test_the_residual_network_has_about_300_000_parameters():
    module = ResNet(3, recipe("modules-cifar100", "paper").network.widths)
    assert 290_000 < sum(p.numel() for p in module.parameters()) < 320_000
    assert any(isinstance(part, nn.BatchNorm2d) for part in module.modules())


def test_a_planned_module_is_the_same_network_each_time_and_scales():
    plan = NetworkPlan((4, 6), module="resnet")
    one, two = (architecture(plan, (3, 16, 16)) for _ in range(2))
    assert repr(one) == repr(two)
    assert isinstance(one, Traced)
    half = architecture(plan, (3, 16, 16), scale=0.5)
    assert [2 * n for n in half.layout.groups.values()] == list(one.layout.groups.values())
    with pytest.raises(NetworkError, match="no module 'resent'; did you mean resnet"):
        architecture(NetworkPlan((4,), module="resent"), (3, 16, 16))


def test_a_run_on_lines_of_source(tmp_path):
    small = recipe("modules-lines", "small")
    plan = msgspec.structs.replace(small.network, widths=(8, 8))
    entry = next(entry for entry in small.entries if entry.method == "DEN-auto")
    made = small.configuration(entry, 0)
    settings = {**made.settings, "budget": {**made.settings["budget"], "steps": 20}}
    given = msgspec.structs.replace(made, network=plan, settings=settings, tasks=2)
    stored = perform(Job(given, tmp_path))
    assert len(stored.run.tasks) == 2
    assert stored.run.results is not None
    assert stored.run.results.forgetting() == 0
    assert perform(Job(given, tmp_path)).run == stored.run


def test_the_trunk_is_trained_once_and_kept(tmp_path, monkeypatch):
    monkeypatch.setenv("LIFELONG_DATA", str(tmp_path))
    trunk, trained = Trunk(3, modules.TRUNK), []
    state = {n: t for n, t in trunk.state_dict().items() if not n.endswith("tracked")}

    def train(_checkpoint):
        trained.append(1)
        return state

    monkeypatch.setattr(modules, "_train_trunk", train)
    modules.trained_trunk.cache_clear()
    one = architecture(NetworkPlan((6, 5), module="behind-trunk"), (3, 32, 32))
    modules.trained_trunk.cache_clear()
    two = architecture(NetworkPlan((6, 5), module="behind-trunk"), (3, 32, 32))
    modules.trained_trunk.cache_clear()
    assert len(trained) == 1
    assert repr(one) == repr(two)
    assert set(one.layout.groups) == {"layers.0", "layers.2"}
    assert torch.equal(one.constants["trunk.stem.weight"], state["stem.weight"])
    assert isinstance(BehindTrunk(trunk, 128, (6,)), nn.Module)
    assert isinstance(Transformer(4, 10, (8, 8)), nn.Module)
    assert DataPlan("cifar-100", 5).name == recipe("modules-frozen", "paper").data.name
