"""Every learner on modules that were traced."""

import copy
import dataclasses
import signal
import subprocess
from functools import cache

import msgspec
import pytest
import torch
from torch import nn

from builders import answers, contents, quick, random, same, small_mlp
from lifelong import DEN, Kind, Task, grow
from lifelong.learners.baselines.fisher import fisher
from lifelong.learners.den.draft import Draft
from lifelong.learners.den.frozen_cache import older_statistics
from lifelong.learners.den.prune import prune_useless
from lifelong.learners.den.retrain import select
from lifelong.learners.den.split import drifts
from lifelong.learners.registry import METHODS
from lifelong.networks.growing import Network, first_network
from lifelong.networks.initial import uniform
from lifelong.networks.layout import HEAD, INPUTS, put
from lifelong.networks.sequential import mlp
from lifelong.networks.surgery import append_units, newer_units, older_units
from lifelong.networks.traced.architecture import Traced
from lifelong.persistence.checkpoint import Checkpoint
from lifelong.persistence.files import digest
from lifelong.persistence.manifest import ModelFileError
from lifelong.tasks.examples import TensorExamples
from lifelong.training import precision
from lifelong.training.budget import Budget, SettingError
from zoo import ZOO, module_of, traced

RIVALS = ("DNN", "DNN-L2", "DNN-EWC", "SI", "IMM-mode", "DNN-STL", "DNN-Progressive")
NEVER_FORGETS = ("DNN-STL", "DNN-Progressive")
BRIEF = Budget(steps=8, batch_size=12, learning_rate=0.02, check_every=4, patience=1, lr_decays=0)


def task(name, number, rows=24):
    """Labels by the order of random directions; the validation rows are near the training rows."""
    x = ZOO[name].inputs(rows, seed=number)
    rule = torch.randn(x[0].numel(), 3, generator=random(number + 100))
    y = (x.float().flatten(1) @ rule).argmax(dim=1)
    y[:3] = torch.arange(3)
    return Task(f"task {number}", (x, y), (x, y), kind="classes", outputs=3)


@cache
def fresh(name):
    """As `traced`, but learning starts at random."""
    data = msgspec.structs.replace(traced(name).data, start=())
    return Traced(data, traced(name).constants, {})


def taught(learner, name, tasks=2):
    for number in range(1, tasks + 1):
        learner.learn(task(name, number))
    return learner


@pytest.mark.parametrize(
    ("name", "split"),
    [
        ("mobile", "units"),
        ("dense", "units"),
        ("vit", "units"),
        ("text", "weights"),
        ("vit", "weights"),
        ("mobile", "auto"),
    ],
)
def test_den_grows_a_module_and_forgets_nothing(name, split, tmp_path):
    learner = DEN(fresh(name), quick(split=split, k=1, budget=BRIEF), seed=1)
    x = ZOO[name].inputs(7, seed=50)
    learner.learn(task(name, 1))
    before = answers(learner, x)
    learner.learn(task(name, 2))
    after = answers(learner, x)
    assert torch.equal(after["task 1"], before["task 1"])
    assert not torch.equal(after["task 1"], after["task 2"])
    learner.save(tmp_path)
    again = DEN.load(tmp_path)
    assert same(answers(again, x), after)
    assert same(contents(again), contents(learner))
    for one in (learner, again):
        one.learn(task(name, 3))
    assert same(contents(again), contents(learner))
    assert torch.equal(answers(learner, x)["task 2"], after["task 2"])


@pytest.mark.parametrize("method", RIVALS)
@pytest.mark.parametrize("name", ["mobile", "text"])
def test_rivals_take_a_module(method, name, tmp_path):
    learner = METHODS.named(method).make(fresh(name), budget=BRIEF)
    x = ZOO[name].inputs(7, seed=50)
    learner.learn(task(name, 1))
    before = answers(learner, x)["task 1"]
    learner.learn(task(name, 2))
    assert torch.equal(answers(learner, x)["task 1"], before) == (method in NEVER_FORGETS)
    learner.save(tmp_path)
    again = METHODS.named(method).learner.load(tmp_path)
    assert same(answers(again, x), answers(learner, x))
    for one in (learner, again):
        one.learn(task(name, 3))
    assert same(contents(again), contents(learner))


@pytest.mark.parametrize("name", ["mobile", "text"])
def test_all_tasks_at_once_on_a_module(name):
    learner = METHODS["DNN-MTL"].make(fresh(name), budget=BRIEF)
    learner.learn_together([task(name, 1), task(name, 2)])
    private = [known.private for known in learner.network.tasks]
    assert set(private[0]) == set(fresh(name).layout.task_owned)
    if name == "mobile":
        one, two = (p["stem.1.running_mean"] for p in private)
        assert not torch.equal(one, two)
    den = taught(DEN(fresh(name), quick(k=1, budget=BRIEF)), name)
    den.finetune([task(name, 1), task(name, 2)])
    assert all(torch.isfinite(p).all() for p in answers(den, ZOO[name].inputs(3)).values())


class Killed(BaseException):
    """Of a process, at some validation."""


def _require_resumes(load, tmp_path, monkeypatch, breaks_at):
    """The model in "1" learns a second task the same to the bit if it is killed on the way."""
    whole, killed, again = (load(tmp_path / "1") for _ in range(3))
    whole.learn(task("mobile", 2))
    keep, seen = Checkpoint.keep, []

    def keep_and_break(self, snapshot):
        keep(self, snapshot)
        seen.append(1)
        if len(seen) == breaks_at:
            raise Killed

    with monkeypatch.context() as patched:
        patched.setattr(Checkpoint, "keep", keep_and_break)
        with pytest.raises(Killed):
            killed.learn(task("mobile", 2), checkpoint=tmp_path / "2")
    again.learn(task("mobile", 2), checkpoint=tmp_path / "2")
    assert same(contents(again), contents(whole))


@pytest.mark.parametrize(("split", "breaks_at"), [("units", 3), ("weights", 2), ("auto", 5)])
def test_a_killed_learning_of_a_module_resumes_to_the_bit(split, breaks_at, tmp_path, monkeypatch):
    monkeypatch.setattr("lifelong.persistence.checkpoint.APART", 0)
    taught(DEN(fresh("mobile"), quick(split=split, k=1, budget=BRIEF), seed=3), "mobile", 1).save(
        tmp_path / "1"
    )
    _require_resumes(DEN.load, tmp_path, monkeypatch, breaks_at)


def test_one_head_for_all_tasks_leaves_each_its_statistics(tmp_path):
    learner = METHODS["DNN"].make(fresh("mobile"), budget=BRIEF, changes={"heads": "one"})
    taught(learner, "mobile")
    assert set(learner.network.tasks[0].private) == set(fresh("mobile").layout.buffers)
    learner.save(tmp_path)
    assert same(contents(METHODS["DNN"].learner.load(tmp_path)), contents(learner))


def test_training_starts_from_a_pretrained_module():
    learner = METHODS["DNN-STL"].make(traced("mobile"), budget=BRIEF)
    still = METHODS["DNN-STL"].make(traced("mobile"), budget=Budget(steps=1, learning_rate=1e-12))
    still.learn(task("mobile", 1))
    private = still.network.tasks[0].private
    weight = traced("mobile").start["blocks.0.body.0.weight"]
    torch.testing.assert_close(private["blocks.0.body.0.weight"], weight)
    learner.learn(task("mobile", 1))
    assert not torch.equal(learner.network.tasks[0].private["stem.0.weight"], weight)
    den = taught(DEN(traced("mobile"), quick(prune=False, budget=BRIEF)), "mobile", 1)
    assert {g: len(b) for g, b in den.network.born.items()} == traced("mobile").layout.groups


@pytest.mark.parametrize("name", ["mobile", "vit", "text", "dense"])
@pytest.mark.parametrize("kind", [Kind.CLASSES, Kind.BINARY])
def test_fisher_information_of_a_module_is_the_mean_squared_gradient(name, kind):
    architecture = fresh(name)
    network = first_network(architecture, architecture.layout.groups, 3, uniform(random(0)))
    x = ZOO[name].inputs(5)
    y = torch.tensor([0, 1, 2, 0, 1])
    labels = y if kind is Kind.CLASSES else torch.nn.functional.one_hot(y, 3).float()
    rows = TensorExamples(x.float(), labels)
    found = fisher(network, kind, rows, labels="true", examples=None, generator=random(0))
    expected = {n: torch.zeros_like(t) for n, t in network.tensors.items()}
    moving = {
        n: t.clone().requires_grad_()
        for n, t in network.tensors.items()
        if n not in architecture.layout.buffers
    }
    one = network.with_tensors({**network.tensors, **moving})
    for row, label in zip(rows.x, labels, strict=True):
        out = one.logits(row[None])[0]
        terms = (
            torch.nn.functional.cross_entropy(out, label)
            if kind is Kind.CLASSES
            else torch.nn.functional.binary_cross_entropy_with_logits(out, label, reduction="sum")
        )
        gradients = torch.autograd.grad(terms, list(moving.values()), allow_unused=True)
        for n, gradient in zip(moving, gradients, strict=True):
            expected[n] += 0 if gradient is None else gradient.square() / len(x)
    for n, total in expected.items():
        torch.testing.assert_close(found[n], total, rtol=1e-3, atol=1e-6)


def network_of(name, seed=0):
    architecture = fresh(name)
    return first_network(architecture, architecture.layout.groups, 3, uniform(random(seed)))


@pytest.mark.parametrize("name", ZOO)
def test_all_units_of_a_dense_network_have_a_path_to_the_head(name):
    network = network_of(name)
    selected = select(network)
    assert {g: len(units) for g, units in selected.items() if g != INPUTS} == {
        g: len(b) for g, b in network.born.items()
    }


def test_units_that_only_a_bypassed_part_reads_are_not_selected():
    network = network_of("vit")
    tensors = dict(network.tensors)
    tensors["blocks.0.down.weight"] = tensors["blocks.0.down.weight"].clone()
    tensors["blocks.0.down.weight"][:, 4:] = 0
    selected = select(network.with_tensors(tensors))
    assert selected["blocks.0.up"].tolist() == [0, 1, 2, 3]
    assert len(selected["blocks.1.up"]) == network.width("blocks.1.up")


@pytest.mark.parametrize("name", ZOO)
def test_pruning_useless_units_of_a_module_changes_no_output(name):
    two = dict.fromkeys(fresh(name).layout.groups, 2)
    network = append_units(network_of(name), two, 2, uniform(random(1)))
    tensors = {n: t.clone() for n, t in network.tensors.items()}
    generator = random(5)
    for n, spec in fresh(name).layout.tensors.items():
        if spec.kind == "bias":
            tensors[n] = torch.randn(tensors[n].shape, generator=generator)
        if spec.kind == "weight" and spec.out is not None and n not in HEAD:
            empty = torch.rand(tensors[n].shape[spec.out], generator=generator) < 0.5
            tensors[n].movedim(spec.out, 0)[empty] = 0
        if spec.kind == "weight" and spec.into is not None:
            unread = torch.rand(tensors[n].shape[spec.into], generator=generator) < 0.5
            tensors[n].movedim(spec.into, 0)[unread] = 0
    sparse = network.with_tensors(tensors)
    pruned = prune_useless(Draft(sparse, 0.0), 2).network
    x = ZOO[name].inputs(6)
    with torch.no_grad():
        torch.testing.assert_close(pruned.logits(x), sparse.logits(x), rtol=1e-4, atol=1e-5)
    assert isinstance(pruned, Network)


def test_learning_behind_a_frozen_backbone_computes_it_once_per_row(tmp_path, monkeypatch):
    frozen = ["0", "3"]
    architecture = grow(module_of("convnet"), ZOO["convnet"].inputs(3), head="9", frozen=frozen)
    assert set(architecture.layout.groups) == {"6"}
    seen, compute = [], Traced.precomputed

    def counted(self, x):
        seen.append(len(x))
        return compute(self, x)

    monkeypatch.setattr(Traced, "precomputed", counted)
    learner = taught(DEN(architecture, quick(k=1, budget=BRIEF)), "convnet")
    assert sum(seen) == 2 * 2 * (24 + 1)  # two tasks, training and validation rows, and one to see
    x = ZOO["convnet"].inputs(5, seed=9)
    learner.save(tmp_path)
    assert same(answers(DEN.load(tmp_path), x), answers(learner, x))
    monkeypatch.setattr("lifelong.networks.traced.precompute.KEEP", 0)
    monkeypatch.setattr(Traced, "precomputed", lambda _self, _x: None)
    without = taught(DEN(architecture, quick(k=1, budget=BRIEF)), "convnet")
    for task_name, found in answers(learner, x).items():
        torch.testing.assert_close(found, answers(without, x)[task_name], rtol=1e-3, atol=1e-4)


def test_kept_rows_are_as_they_came_behind_a_frozen_backbone(tmp_path):
    architecture = grow(module_of("convnet"), ZOO["convnet"].inputs(3), head="9", frozen=["0", "3"])
    learner = taught(METHODS["ER"].make(architecture, budget=BRIEF), "convnet")
    assert learner.network.memory["own/x"].shape[1:] == architecture.layout.inputs
    learner.save(tmp_path)
    again = METHODS["ER"].learner.load(tmp_path)
    for one in (learner, again):
        one.learn(task("convnet", 3))
    assert same(contents(again), contents(learner))


def _changed(manifest, change):
    """The manifest with a change, sealed again as one who means harm would."""
    members = msgspec.json.decode(manifest.read_bytes())
    change(members["module"])
    members["seal"] = ""
    members["seal"] = digest(msgspec.json.encode(members))
    manifest.write_bytes(msgspec.json.encode(members))


def _other_operation(module):
    module["evaluation"]["calls"][0]["operation"] = "aten.from_file.default"


def _huge_value(module):
    device = {"device": {"type": "word", "kind": "device", "name": ""}}
    call = {"operation": "aten.zeros.default", "arguments": [[2**20, 2**20]], "named": device}
    module["training"]["calls"].insert(0, call)


def _value_elsewhere(module):
    _huge_value(module)
    module["training"]["calls"][0]["named"] = {}


def _other_axis(module):
    module["layout"]["tensors"]["0.weight"]["axes"][1]["segments"][0]["span"] = 7


def _no_group(module):
    module["layout"]["tensors"]["0.weight"]["axes"][0]["segments"][0]["group"] = "nothing"


def _later_value(module):
    module["training"]["calls"][0]["arguments"][0] = {"type": "value", "number": 5}


@pytest.mark.parametrize(
    ("change", "told"),
    [
        (_other_operation, "does more than to compute"),
        (_huge_value, "numbers for a few rows"),
        (_value_elsewhere, "makes a tensor on no known device"),
        (_other_axis, "cannot be run|not float32 of"),
        (_no_group, "axes that cannot be"),
        (_later_value, "which is not there"),
        (lambda module: module.update(result=1), "unknown field"),
    ],
)
def test_a_traced_module_from_a_file_is_checked(change, told, tmp_path):
    learner = taught(DEN(fresh("mlp"), quick(budget=BRIEF)), "mlp", 1)
    learner.save(tmp_path)
    _changed(tmp_path / "manifest.json", lambda _module: None)
    DEN.load(tmp_path)
    _changed(tmp_path / "manifest.json", change)
    with pytest.raises(ModelFileError, match=told):
        DEN.load(tmp_path)


FAMILY = ("LPF", "LwF", "ER", "GPM", "PackNet", "Piggyback", "SupSup", "WSN", "HAT", "LoRA", "APD")
KEEPS_ALL = ("LPF", "PackNet", "Piggyback", "SupSup", "WSN", "HAT", "LoRA")


@pytest.mark.parametrize("method", FAMILY)
@pytest.mark.parametrize("name", ["mobile", "dense", "text"])
def test_the_family_takes_a_module(method, name, tmp_path):
    learner = METHODS.named(method).make(fresh(name), budget=BRIEF)
    x = ZOO[name].inputs(7, seed=50)
    learner.learn(task(name, 1))
    before = answers(learner, x)["task 1"]
    learner.learn(task(name, 2))
    after = answers(learner, x)["task 1"]
    if method in KEEPS_ALL:
        assert torch.equal(after, before)
    learner.save(tmp_path)
    again = METHODS.named(method).learner.load(tmp_path)
    assert same(answers(again, x), answers(learner, x))
    for one in (learner, again):
        one.learn(task(name, 3))
    assert same(contents(again), contents(learner))


@pytest.mark.parametrize("method", ["LwF", "ER", "GPM"])
def test_one_head_and_statistics_of_each_task(method):
    learner = METHODS[method].make(fresh("mobile"), budget=BRIEF, changes={"heads": "one"})
    taught(learner, "mobile")
    assert set(learner.network.tasks[0].private) == set(fresh("mobile").layout.buffers)


def test_each_task_has_statistics_and_scales_of_its_own_under_masks():
    learner = taught(METHODS["WSN"].make(fresh("mobile"), budget=BRIEF), "mobile")
    one, two = (known.private for known in learner.network.tasks)
    assert not torch.equal(one["stem.1.running_mean"], two["stem.1.running_mean"])
    assert not torch.equal(one["stem.1.weight"], two["stem.1.weight"])
    assert not any("running" in name for name in learner.network.shared)


def test_a_linear_probe_keeps_the_statistics_of_its_frozen_network():
    learner = taught(METHODS["LPF"].make(fresh("mobile"), budget=BRIEF), "mobile")
    one, two = (known.private for known in learner.network.tasks)
    assert torch.equal(one["stem.1.running_mean"], two["stem.1.running_mean"])
    assert not torch.equal(one[HEAD[0]], two[HEAD[0]])


def gpm(name, tasks, **changes):
    """A learner that has learned so many tasks, the first one of few rows: they leave directions in
    which steps may go.
    """
    longer = dataclasses.replace(BRIEF, steps=24, patience=6)
    learner = METHODS["GPM"].make(fresh(name), budget=longer, changes=changes)
    for number in range(1, tasks + 1):
        learner.learn(task(name, number, rows=6 if number == 1 else 24))
    return learner


@pytest.mark.parametrize("heads", ["own", "one"])
@pytest.mark.parametrize("name", ["resnet", "mobile", "vit", "text"])
def test_gpm_keeps_what_each_layer_of_a_module_computes_along_earlier_directions(name, heads):
    learner = gpm(name, 1, threshold=0.9, heads=heads)
    readers, memory = fresh(name).readers, learner.network.memory
    before = dict(learner.network.shared)
    learner.learn(task(name, 2))
    after = learner.network.shared
    moved = {n for n in before if not torch.equal(before[n], after[n])}
    projected = {n for pair in readers.items() for n in pair if n in before}
    assert moved
    assert moved <= projected
    for weight, bias in readers.items():
        if weight not in before:  # the head of each task
            continue
        parts = [n for n in (weight, bias) if n is not None]
        one, two = (
            torch.cat([tensors[n].reshape(len(tensors[n]), -1) for n in parts], dim=1)
            for tensors in (before, after)
        )
        kept = memory[f"own/{weight.removesuffix('.weight')}"]
        torch.testing.assert_close(two @ kept, one @ kept, rtol=0, atol=1e-5)


@pytest.mark.parametrize("name", ["resnet", "mobile", "dense", "vit", "text"])
def test_gpm_keeps_the_answers_of_a_module_that_fine_tuning_forgets(name):
    first, second = task(name, 1, rows=6), task(name, 2)
    moved = {}
    for method, changes in (("GPM", {"threshold": 0.999}), ("DNN", {})):
        learner = METHODS[method].make(fresh(name), budget=BRIEF, changes=changes)
        learner.learn(first)
        before = learner.decision_function(first.train.x, task="task 1")
        learner.learn(second)
        after = learner.decision_function(first.train.x, task="task 1")
        moved[method] = float((after - before).abs().max())
    assert moved["GPM"] < 0.1 * moved["DNN"]


def test_gpm_on_a_module_as_on_the_same_network():
    """Directions of a traced module are those of a chain of the same layers and weights."""
    chain = mlp(6, [10, 7])
    layers = (nn.Linear(6, 10), nn.ReLU(), nn.Linear(10, 7), nn.ReLU(), nn.Linear(7, 3))
    traced_chain = grow(nn.Sequential(*layers), torch.randn(3, 6), head="4")
    one, two = (
        taught(METHODS["GPM"].make(network, budget=BRIEF), "mlp")
        for network in (chain, traced_chain)
    )
    for layer, named in (("hidden1", "0"), ("hidden2", "2")):
        for part in ("weight", "bias"):
            wanted = one.network.shared[f"{layer}.{part}"]
            torch.testing.assert_close(two.network.shared[f"{named}.{part}"], wanted)
        wanted, found = one.network.memory[f"own/{layer}"], two.network.memory[f"own/{named}"]
        torch.testing.assert_close(found @ found.T, wanted @ wanted.T, rtol=0, atol=1e-3)


@pytest.mark.parametrize("adam", ["anew", "carried"])
def test_gpm_resumes_on_a_module_to_the_bit(adam, tmp_path, monkeypatch):
    monkeypatch.setattr("lifelong.persistence.checkpoint.APART", 0)
    gpm("mobile", 1, adam=adam).save(tmp_path / "1")
    _require_resumes(METHODS["GPM"].learner.load, tmp_path, monkeypatch, breaks_at=1)


@pytest.mark.parametrize("harm", [lambda basis: basis[1:].contiguous(), lambda _: None])
def test_gpm_refuses_a_saved_module_without_its_directions(harm, tmp_path):
    learner, layer = gpm("text", 1), "encoder.layers.0.self_attn.in_proj_weight"
    memory = {**learner.network.memory}
    harmed = harm(memory.pop(f"own/{layer}"))
    if harmed is not None:
        memory[f"own/{layer}"] = harmed
    network = dataclasses.replace(learner.network, memory=memory)
    learner._learned = dataclasses.replace(learner._learned, network=network)
    learner.save(tmp_path)
    with pytest.raises(ModelFileError, match=f"as directions of {layer}, not 9 rows"):
        METHODS["GPM"].learner.load(tmp_path)


def test_gpm_behind_a_frozen_backbone_and_in_any_memory_format():
    module = copy.deepcopy(module_of("convnet")).to(memory_format=torch.channels_last)
    example = ZOO["convnet"].inputs(3)
    frozen = grow(module, example, head="9", frozen=["0", "3"])
    whole = grow(module, example, head="9", pretrained=True)
    for architecture, layers in ((frozen, {"own/6"}), (whole, {"own/0", "own/3", "own/6"})):
        learner = taught(METHODS["GPM"].make(architecture, budget=BRIEF), "convnet")
        assert set(learner.network.memory) == layers


@pytest.mark.parametrize("name", ["mobile", "text"])
def test_steps_in_bfloat16_keep_weights_and_answers_in_float32(name, monkeypatch):
    monkeypatch.setattr(precision, "_works", lambda: True)  # see conftest.py
    budgets = [dataclasses.replace(BRIEF, steps=4, precision="bfloat16")] * 2
    budgets.append(dataclasses.replace(BRIEF, steps=4))
    learner, again, full = (
        taught(METHODS["DNN-STL"].make(fresh(name), budget=budget), name, 1) for budget in budgets
    )
    assert same(contents(again), contents(learner))
    assert all(t.dtype == torch.float32 for t in learner.network.everything().values())
    assert not same(contents(full), contents(learner))


def test_a_precision_that_ends_a_process_is_refused(monkeypatch):
    killed = subprocess.CompletedProcess([], -signal.SIGILL)
    monkeypatch.setattr(precision.subprocess, "run", lambda *_given, **_named: killed)
    monkeypatch.setattr(precision, "_works", precision._works.__wrapped__)
    brief = dataclasses.replace(BRIEF, precision="bfloat16")
    learner = DEN(fresh("mlp"), quick(budget=brief))
    with pytest.raises(SettingError, match="ONEDNN_MAX_CPU_ISA=AVX512_CORE_BF16 before Python"):
        learner.learn(task("mlp", 1))
    assert learner.tasks == ()
    with pytest.raises(SettingError, match="precision must be one of 'bfloat16', not 'float16'"):
        Budget(precision="float16")


@pytest.mark.parametrize("name", ["mobile", "dense", "resnet"])
def test_old_units_are_normalised_as_in_evaluation_while_new_ones_train(name):
    one = network_of(name)
    generator = random(3)
    moved = {
        n: one.tensors[n] + torch.rand(one.tensors[n].shape, generator=generator)
        for n in fresh(name).layout.buffers
    }
    one = one.with_tensors({**one.tensors, **moved})
    two = append_units(one, dict.fromkeys(one.born, 2), 2, uniform(random(1)))
    held = older_statistics(two, 2)
    tensors = {n: t.clone() for n, t in two.tensors.items()}
    for n, spec in two.architecture.layout.tensors.items():
        if spec.reads(two.born):  # nobody reads new units, so that old ones can be seen alone
            newer = newer_units(two, 2)
            put(tensors[n], spec.region(two.widths, into=newer), 0.0)
    x = ZOO[name].inputs(6)
    with torch.no_grad():
        evaluated = two.architecture.features(tensors, x)
        before = {n: tensors[n].clone() for n in held}
        trained = fresh(name).run("training", tensors, x, random(0), held)
    older = two.architecture.layout.tensors[HEAD[0]]
    places = older.axes[1].places(older_units(two, 2), two.widths)
    if name != "mobile":  # which has dropout before its head
        torch.testing.assert_close(trained[:, places], evaluated[:, places])
    for n, mark in held.items():
        assert torch.equal(tensors[n][mark], before[n][mark])
        if n.endswith("running_var"):  # the mean of a unit that reads nothing stays 0
            assert (tensors[n][~mark] != before[n][~mark]).all()


def test_drift_does_not_see_what_normalisation_removes():
    known = DEN(fresh("mobile"), quick(k=1, initial_width=1.0, prune=False, budget=BRIEF))
    known.learn(task("mobile", 1))
    network = known.network.as_of(1)
    assert fresh("mobile").scales["stem.0.weight"] == "stem.1.weight"
    longer = network.tensors["stem.0.weight"] * 3
    same_direction = network.with_tensors({**network.tensors, "stem.0.weight": longer})
    found = drifts(known.network, same_direction, relative=True)
    assert float(max(amounts.max() for amounts in found.values())) < 1e-5
    scaled = network.tensors["stem.1.weight"].clone()
    scaled[1] *= 1.5
    rescaled = network.with_tensors({**network.tensors, "stem.1.weight": scaled})
    found = drifts(known.network, rescaled, relative=True)["stem.0"]
    assert (found > 0.01).tolist() == [False, True, False, False]


SPLITS = {"mlp": "auto", "convnet": "units", "resnet": "units", "mobile": "weights"} | {
    "dense": "auto",
    "next": "units",
    "vit": "auto",
    "text": "units",
    "decoder": "units",
}


@pytest.mark.parametrize("name", ZOO)
def test_every_earlier_task_is_the_same_to_the_bit_and_goes_back_into_the_users_class(name):
    settings = quick(split=SPLITS[name], k=1, budget=BRIEF, initial_width=1.0)
    learner, before = DEN(fresh(name), settings, seed=1), {}
    x = ZOO[name].inputs(5, seed=50)
    for number in (1, 2):
        learner.learn(task(name, number, rows=18))
        found = answers(learner, x)
        assert all(torch.equal(found[one], told) for one, told in before.items())
        before = found
    for number in (1, 2):
        view = learner.network.as_of(number)
        if {g: len(b) for g, b in view.born.items()} != fresh(name).layout.groups:
            continue  # it has grown beyond the class
        module = copy.deepcopy(module_of(name))
        module.load_state_dict(fresh(name).state_dict(view), strict=False)
        module.eval()
        with torch.no_grad():
            torch.testing.assert_close(module(x), view.logits(x.float()), rtol=1e-3, atol=1e-4)


@pytest.mark.parametrize("method", [*FAMILY, *RIVALS, "DEN", "DEN-W", "DEN-auto"])
@pytest.mark.parametrize("architecture", [small_mlp, lambda: fresh("mobile")])
def test_the_recorded_loss_is_that_of_the_network_that_predicts(method, architecture):
    learner = METHODS[method].make(architecture(), budget=BRIEF)
    one = task("mobile" if len(learner.network.architecture.layout.inputs) > 1 else "mlp", 1)
    record = learner.learn(one)
    outputs = learner.decision_function(one.valid.x, task=one.name)
    found = float(torch.nn.functional.cross_entropy(outputs, one.valid.y))
    assert found == pytest.approx(record.stages[-1].loss, rel=1e-4)
