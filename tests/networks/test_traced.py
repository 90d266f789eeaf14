"""Modules that were traced: what they compute, what grows, and what is refused."""

import msgspec
import pytest
import torch
from hypothesis import given
from hypothesis import settings as runs
from hypothesis import strategies as st
from torch import nn

from builders import in_double, random, same
from lifelong import grow
from lifelong.networks.growing import GrowingNetwork, Network
from lifelong.networks.initial import uniform
from lifelong.networks.layout import HEAD, INPUTS, NetworkError, put
from lifelong.networks.surgery import (
    append_units,
    duplicate_units,
    gather,
    newcomers,
    only,
    scatter,
    with_newcomers,
)
from lifelong.networks.traced.architecture import Traced
from lifelong.networks.traced.data import TracedData
from lifelong.networks.traced.program import Call, Named, Program, Size, Value
from lifelong.networks.traced.rules import RULES, Rule, register_rule
from lifelong.tasks.task import Task
from zoo import ZOO, module_of, traced

names = st.sampled_from(list(ZOO))


def own(name):
    """The network of a module's own values."""
    architecture, module = traced(name), module_of(name)
    head = module.get_submodule(ZOO[name].head)
    values = dict(zip(HEAD, (head.weight.detach(), head.bias.detach()), strict=True))
    born = {g: torch.ones(n, dtype=torch.long) for g, n in architecture.layout.groups.items()}
    return Network(architecture, {**architecture.start, **values}, born)


def logits(network, x):
    with torch.no_grad():
        return network.logits(x)


@pytest.mark.parametrize("name", ZOO)
def test_it_computes_what_the_module_computes(name):
    module, x = module_of(name).eval(), ZOO[name].inputs(5, seed=1)
    with torch.no_grad():
        torch.testing.assert_close(logits(own(name), x), module(x), rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("name", ZOO)
def test_every_module_of_the_zoo_grows(name):
    expected = {
        "mlp": 2,
        "convnet": 3,
        "resnet": 12,
        "mobile": 6,
        "dense": 3,
        "next": 2,
        "vit": 4,
        "text": 2,
        "decoder": 2,
    }
    layout = traced(name).layout
    assert len(layout.groups) == expected[name]
    for group in layout.groups:
        assert any(group in axis.groups for spec in layout.tensors.values() for axis in spec.axes)
        assert group in traced(name).report()


def marked(network, chosen, role):
    """Where tensors touch these units in this role, by a loop over every axis."""
    marks = {}
    for name, tensor in network.tensors.items():
        mark = torch.zeros(tensor.shape, dtype=torch.bool)
        for dim, axis in enumerate(network.architecture.layout.tensors[name].axes):
            start = 0
            for segment in axis.segments:
                width = segment.width(network.widths)
                for unit in chosen.get(segment.group, []) if axis.role == role else []:
                    for passed in range(segment.repeat):
                        first = start + (passed * width + int(unit)) * segment.span
                        mark.narrow(dim, first, segment.span).fill_(True)
                start += segment.size(network.widths)
        marks[name] = mark
    return marks


def silenced(network, units):
    """Nothing reads these units."""
    marks = marked(network, units, "in")
    return network.with_tensors({n: t.masked_fill(marks[n], 0) for n, t in network.tensors.items()})


def counts_for(data, network):
    return {group: data.draw(st.integers(0, 2), label=group) for group in network.born}


@given(names, st.data())
@runs(max_examples=25, deadline=None)
def test_appended_units_change_nothing_for_earlier_tasks_nor_while_they_are_silent(name, data):
    network, x = own(name), ZOO[name].inputs(4, seed=2)
    before = logits(network, x)
    grown = append_units(network, counts_for(data, network), 2, uniform(random(1)))
    labels = torch.tensor([0, 1, 2, 0])
    rows = (x.float(), labels)
    known = GrowingNetwork(network.architecture).remember(Task("one", rows, rows), network)
    known = known.remember(Task("two", rows, rows), grown)
    assert torch.equal(logits(known.as_of(1), x), before)
    assert same(known.as_of(1).tensors, network.tensors)
    new = {g: range(network.width(g), grown.width(g)) for g in network.born}
    torch.testing.assert_close(logits(silenced(grown, new), x), before, rtol=1e-4, atol=1e-5)


@given(names, st.data())
@runs(max_examples=25, deadline=None)
def test_gathered_units_compute_as_if_the_others_were_silent(name, data):
    network, x = in_double(own(name)), ZOO[name].inputs(4, seed=3)
    x = x.double() if x.is_floating_point() else x
    everyone = {g: torch.arange(len(b)) for g, b in network.born.items()}
    assert same(gather(network, everyone).tensors, network.tensors)
    kept = {
        group: torch.tensor(
            sorted(data.draw(st.sets(st.integers(0, n - 1), min_size=1), label=group))
        )
        for group, n in network.architecture.layout.groups.items()
    }
    gone = {g: sorted({*range(network.width(g))} - {*kept[g].tolist()}) for g in kept}
    small = gather(network, kept)
    torch.testing.assert_close(logits(small, x), logits(silenced(network, gone), x))
    assert same(scatter(network, small, kept).tensors, network.tensors)


@given(names, st.data())
@runs(max_examples=25, deadline=None)
def test_newcomers_are_what_touches_a_new_unit_and_what_the_task_owns(name, data):
    network = own(name)
    grown = append_units(network, counts_for(data, network), 2, uniform(random(1)))
    new = {g: range(network.width(g), grown.width(g)) for g in network.born}
    touched, read = marked(grown, new, "out"), marked(grown, new, "in")
    specs = grown.architecture.layout.tensors
    expected = {n: touched[n] | read[n] | (specs[n].owner == "task") for n in touched}
    nothing = {n: torch.zeros(t.shape, dtype=torch.bool) for n, t in grown.tensors.items()}
    blocks = newcomers(grown, 2)
    full = {name: torch.ones_like(block, dtype=torch.bool) for name, block in blocks.items()}
    assert same(with_newcomers(grown.with_tensors(nothing), 2, full).tensors, expected)
    assert same(with_newcomers(grown, 2, blocks).tensors, grown.tensors)


@given(names, st.data())
@runs(max_examples=25, deadline=None)
def test_copies_can_stand_in_for_their_originals(name, data):
    network = own(name)
    chosen = {
        g: torch.tensor(
            sorted(data.draw(st.sets(st.integers(0, n - 1)), label=g)), dtype=torch.long
        )
        for g, n in network.architecture.layout.groups.items()
    }
    doubled = duplicate_units(network, chosen, 2)
    instead = {}
    for group, units in chosen.items():
        instead[group] = torch.arange(network.width(group))
        instead[group][units] = network.width(group) + torch.arange(len(units))
    assert same(gather(doubled, instead).tensors, network.tensors)


@pytest.mark.parametrize("name", ZOO)
def test_as_data_it_computes_the_same(name):
    architecture = traced(name)
    data = msgspec.json.decode(msgspec.json.encode(architecture.data), type=TracedData)
    data.check()
    again = Traced(data, architecture.constants, architecture.start)
    x = ZOO[name].inputs(4, seed=5)
    network = own(name)
    assert torch.equal(logits(Network(again, network.tensors, network.born), x), logits(network, x))
    assert repr(again) == repr(architecture)


@pytest.mark.parametrize("name", ["mobile", "text", "convnet"])
def test_dropout_draws_from_the_generator_alone(name):
    architecture, network, x = traced(name), own(name), ZOO[name].inputs(6)
    state = torch.get_rng_state()

    def trained(seed):
        tensors = {n: t.clone() for n, t in network.tensors.items()}
        return architecture.features(tensors, x, random(seed))

    assert torch.equal(trained(1), trained(1))
    assert not torch.equal(trained(1), trained(2))
    assert torch.equal(torch.get_rng_state(), state)


def test_statistics_are_the_tasks_own_and_training_passes_update_them():
    architecture, network = traced("resnet"), own("resnet")
    layout = architecture.layout
    assert "bn1.running_mean" in layout.buffers
    assert set(layout.buffers) < set(layout.task_owned)
    tensors = {n: t.clone() for n, t in network.tensors.items()}
    architecture.features(tensors, ZOO["resnet"].inputs(6), random(0))
    moved = {n for n, t in network.tensors.items() if not torch.equal(t, tensors[n])}
    assert moved == set(layout.buffers)


@pytest.mark.parametrize("name", ["resnet", "vit"])
def test_a_tasks_network_goes_back_into_the_module(name):
    module, x = ZOO[name].make().eval(), ZOO[name].inputs(4, seed=7)
    state = traced(name).state_dict(own(name))
    missing, unexpected = module.load_state_dict(state, strict=False)
    assert all(key.endswith("num_batches_tracked") for key in missing)
    assert not unexpected
    with torch.no_grad():
        torch.testing.assert_close(module(x), logits(own(name), x))


def test_the_module_stays_what_it_was():
    module = ZOO["mobile"].make().train()
    module.stem.eval()
    before = {n: t.clone() for n, t in module.state_dict().items()}
    modes = [part.training for part in module.modules()]
    state = torch.get_rng_state()
    grow(module, ZOO["mobile"].inputs(3))
    assert same(dict(module.state_dict()), before)
    assert [part.training for part in module.modules()] == modes
    assert torch.equal(torch.get_rng_state(), state)


def test_frozen_parts_are_constants_that_do_not_grow():
    module, x = module_of("resnet"), ZOO["resnet"].inputs(3)
    frozen = ("conv1", "bn1", "layers.0", "layers.1")
    architecture = grow(module, x, frozen=frozen)
    layout = architecture.layout
    assert "conv1.weight" in architecture.constants
    assert "bn1.running_mean" in architecture.constants
    assert not any(name.startswith(("layers.0.", "layers.1.")) for name in layout.tensors)
    assert "conv1" not in layout.groups
    assert len(layout.groups) == 9
    tensors = {n: t.clone() for n, t in architecture.constants.items()}
    own_values = {n: traced("resnet").start[n] for n in layout.tensors if n not in HEAD}
    architecture.features(own_values, x, random(0))
    assert same(dict(architecture.constants), tensors)


def test_frozen_parts_at_the_beginning_can_be_computed_once():
    module, x = module_of("resnet"), ZOO["resnet"].inputs(3)
    parts = [f"layers.{n}" for n in range(7)]
    architecture = grow(module, x, frozen=["conv1", "bn1", *parts], pretrained=True)
    between = architecture.precomputed(x)
    assert between.shape == (3, 8, 2, 2)
    for generator in (lambda: None, lambda: random(1)):
        tensors = ({n: t.clone() for n, t in architecture.start.items()} for _ in range(2))
        whole, rest = (
            architecture.features(next(tensors), given_, generator()) for given_ in (x, between)
        )
        assert torch.equal(whole, rest)
    assert architecture.precomputed(x).requires_grad is False
    assert traced("resnet").precomputed(x) is None
    inner = grow(module, x, frozen=["layers.0"], pretrained=True)
    assert inner.precomputed(x) is None


def test_multiply_adds_follow_the_widths():
    architecture = traced("mlp")
    network = own("mlp")
    assert network.multiply_adds() == 6 * 10 + 10 * 7 + 7 * 3
    grown = append_units(network, {"0": 2}, 2, uniform(random(0)))
    assert grown.multiply_adds() == 6 * 12 + 12 * 7 + 7 * 3
    assert architecture.layout.silent == {"0": "negative", "2": "never"}


def test_an_unknown_operation_fixes_what_it_touches_and_runs():
    class Rolled(nn.Module):
        def __init__(self):
            super().__init__()
            self.a, self.b, self.fc = nn.Linear(6, 5), nn.Linear(5, 4), nn.Linear(4, 2)

        def forward(self, x):
            return self.fc(torch.relu(self.b(torch.roll(self.a(x), 1, 1))))

    module, x = Rolled(), torch.randn(4, 6, generator=random(0))
    architecture = grow(module, x)
    assert list(architecture.layout.groups) == ["b"]
    assert "roll has no rule" in architecture.layout.fixed["a"]
    assert "roll has no rule" in architecture.report()


def test_a_rule_of_ones_own_lets_the_units_around_an_operation_grow(monkeypatch):
    class Flipped(nn.Module):
        def __init__(self):
            super().__init__()
            self.a, self.b, self.fc = nn.Linear(6, 5), nn.Linear(5, 4), nn.Linear(4, 2)

        def forward(self, x):
            return self.fc(torch.relu(self.b(torch.atan(self.a(x)))))

    module, x = Flipped(), torch.randn(4, 6, generator=random(0))
    assert list(grow(module, x).layout.groups) == ["b"]
    monkeypatch.setattr(RULES, "_rows", dict(RULES))
    register_rule(Rule("aten.atan", lambda operation: list(operation["self"])))
    assert list(grow(module, x).layout.groups) == ["a", "b"]


class _Causal(nn.Module):
    """Attention whose result is viewed as its kernel laid it out; its head is the embedding."""

    def __init__(self, head_first=False):
        super().__init__()
        if head_first:
            self.fc = nn.Linear(8, 9, bias=False)
        self.embed = nn.Embedding(9, 8)
        self.qkv, self.out, self.again = nn.Linear(8, 24), nn.Linear(8, 8), nn.Linear(8, 8)
        self.again.weight = self.out.weight
        if head_first:
            self.embed.weight = self.fc.weight
        else:
            self.fc = nn.Linear(8, 9, bias=False)
            self.fc.weight = self.embed.weight

    def forward(self, x):
        x = self.embed(x)
        rows, places, size = x.shape
        parts = self.qkv(x).split(size, dim=2)
        q, k, v = (part.view(rows, places, 2, 4).transpose(1, 2) for part in parts)
        y = nn.functional.scaled_dot_product_attention(q, k, v, is_causal=True)
        y = y.transpose(1, 2).contiguous().view(rows, places, size)
        return self.fc((x + self.again(torch.relu(self.out(y))))[:, -1])


@pytest.mark.parametrize("head_first", [False, True])
def test_causal_attention_and_tied_weights(head_first):
    x = torch.randint(9, (6, 5), generator=random(0))
    architecture = grow(_Causal(head_first), x)  # which proves that it computes the same
    tensors = set(architecture.layout.tensors) - {*HEAD}
    parts = {f"{layer}.bias" for layer in ("qkv", "out", "again")}
    assert tensors == {"embed.weight", "qkv.weight", "out.weight", *parts}
    assert architecture.layout.groups == {"embed": 2}  # heads, since the weight is square


def test_an_example_of_one_row_is_enough():
    module = nn.Sequential(nn.Linear(6, 5), nn.BatchNorm1d(5), nn.ReLU(), nn.Linear(5, 2))
    assert grow(module, torch.randn(1, 6, generator=random(0)), head="3").layout.groups == {"0": 5}


def test_what_is_tied_to_a_frozen_part_is_frozen():
    module = nn.Sequential(nn.Linear(6, 6), nn.Linear(6, 6), nn.Linear(6, 5), nn.Linear(5, 2))
    module[1].weight = module[0].weight
    architecture = grow(module, torch.randn(4, 6, generator=random(0)), head="3", frozen=["1"])
    assert set(architecture.constants) == {"1.weight", "1.bias"}
    assert set(architecture.layout.tensors) == {"0.bias", "2.weight", "2.bias", *HEAD}


class _Recurrent(nn.Module):
    def __init__(self, kind):
        super().__init__()
        self.rnn = getattr(nn, kind)(3, 4, num_layers=2, batch_first=True, dropout=0.5)
        self.up, self.fc = nn.Linear(4, 6), nn.Linear(6, 2)

    def forward(self, x):
        return self.fc(torch.relu(self.up(self.rnn(x)[0][:, -1])))


@pytest.mark.parametrize("kind", ["LSTM", "GRU", "RNN"])
def test_around_a_recurrent_layer_units_grow_and_its_dropout_draws_from_the_generator(kind):
    x = torch.randn(6, 5, 3, generator=random(0))
    architecture = grow(_Recurrent(kind), x, pretrained=True)
    assert architecture.layout.groups == {"up": 6}
    assert "has no rule" in architecture.layout.fixed["rnn"]
    state = torch.get_rng_state()
    one, other, third = (architecture.features(architecture.start, x, random(n)) for n in (1, 1, 2))
    assert torch.equal(one, other)
    assert not torch.equal(one, third)
    assert torch.equal(torch.get_rng_state(), state)


class _Softmax(nn.Module):
    def __init__(self):
        super().__init__()
        self.a, self.fc = nn.Linear(6, 5), nn.Linear(5, 2)

    def forward(self, x):
        return torch.softmax(self.fc(torch.relu(self.a(x))), 1)


class _Branches(_Softmax):
    def forward(self, x):
        return self.fc(self.a(x) if x.sum() > 0 else -self.a(x))


class _Twice(_Softmax):
    def forward(self, x):
        return self.fc(torch.relu(self.a(x))) + self.fc(torch.tanh(self.a(x)))


class _Sequence(_Softmax):
    def forward(self, x):
        return self.fc(torch.relu(self.a(x))[:, None].expand(-1, 3, -1))


class _Noise(_Softmax):
    def forward(self, x):
        return self.fc(torch.dropout(self.a(x), 0.5, True))


class _Random(_Softmax):
    def forward(self, x):
        return self.fc(torch.poisson(self.a(x).abs()))


class _Writes(_Softmax):
    def forward(self, x):
        return self.fc(torch.relu(self.a(x.mul_(2))))


class _Norm(_Softmax):
    def forward(self, x):
        return self.fc(nn.functional.layer_norm(self.a(x), [5]))


class _Length(_Softmax):
    def forward(self, x):
        return self.fc(torch.relu(self.a(x)).view(len(x), -1))


class _NoGrad(_Softmax):
    def forward(self, x):
        with torch.no_grad():
            x = self.a(x)
        return self.fc(torch.relu(x))


class _Computed(_Softmax):
    def __init__(self):
        super().__init__()
        nn.utils.parametrizations.weight_norm(self.fc)

    def forward(self, x):
        return self.fc(torch.relu(self.a(x)))


class _Lazy(_Computed):
    def __init__(self):
        super().__init__()
        self.a = nn.LazyLinear(5)


@pytest.mark.parametrize(
    ("module", "told"),
    [
        (_Softmax, "must return the outputs of its head 'fc' as they are"),
        (_Branches, "cannot be traced in evaluation mode"),
        (_Twice, "a Linear layer that the module calls once, not 2 times"),
        (_Sequence, "the head must read rows of features"),
        (_Noise, "draws random numbers in evaluation mode"),
        (_Random, r"draws random numbers from PyTorch's global state\. `lifelong\.adapt` takes"),
        (_Length, r"x\.shape\[0\] may differ, len\(x\) is one number"),
        (_NoGrad, "a part of its forward runs under torch.no_grad or another context"),
        (_Computed, "not 0 times; it calls a. A head whose weight is computed"),
        (_Lazy, "a.weight has no values yet; call the module once"),
        (_Writes, "writes into its input"),
        (_Norm, r"no layer of _Norm can grow: a \(layer_norm: layer normalisation over it\)"),
    ],
)
def test_what_cannot_grow_is_refused_with_the_reason(module, told):
    with pytest.raises(NetworkError, match=told):
        grow(module(), torch.randn(4, 6, generator=random(0)))


@pytest.mark.parametrize(
    ("given", "told"),
    [
        ({"head": "nothing"}, "head='nothing' is no part of the module; it has 0, 1"),
        ({"head": "1"}, "must be a Linear layer, not a ReLU"),
        ({"frozen": ["9"]}, "frozen='9' is no part"),
        ({"frozen": "0"}, "frozen must be a list of names, not '0'"),
        ({"example": torch.zeros(3, 6).double()}, r"float64; use example\.float\(\)"),
        ({"example": torch.zeros(3, 6).long()}, r"others are example\.float\(\)"),
        ({"example": torch.zeros(3)}, r"at least one more dim, not \(3,\)"),
        ({"example": (torch.zeros(3, 6), torch.zeros(3))}, "wrapped to take one"),
        ({"module": len}, "an nn.Module is needed, not a builtin"),
        ({"module": nn.Linear(6, 2).double()}, "no part of the module"),
    ],
)
def test_wrong_arguments_are_refused(given, told):
    default = {"module": module_of("mlp"), "example": ZOO["mlp"].inputs(3), "head": "4"}
    arguments = {**default, **given}
    with pytest.raises(NetworkError, match=told):
        grow(arguments.pop("module"), arguments.pop("example"), **arguments)


@pytest.mark.parametrize(
    ("call", "told"),
    [
        (Call("aten.from_file.default", ["x"]), "does more than to compute"),
        (Call("os.system.default", ["x"]), "not an operation of PyTorch's"),
        (Call("aten.relu.default.x", [Value(0)]), "not the name of an operation"),
        (Call("aten.nothing.default", [Value(0)]), "no operation of this version"),
        (Call("aten.relu.default", [Value(1)]), "which is not there"),
        (Call("aten.relu.default", [Named("secret")]), "which is not there"),
        (Call("aten.view.default", [Value(0), [Size(((1, ("zzz",)),))]]), "which is not there"),
        (Call("aten.poisson.default", [Value(0)]), "draws random numbers"),
    ],
)
def test_a_program_from_a_file_can_only_compute(call, told):
    with pytest.raises(NetworkError, match=told):
        Program((call,), 1, {}).check({"weight"})


def test_only_leaves_places_without_units_out():
    axis = traced("dense").layout.tensors["norm.weight"].axes[0]
    assert [segment.group for segment in axis.segments] == [None, "convs.0", "convs.1", "convs.2"]
    widths = traced("dense").layout.groups
    nobody = {group: torch.arange(0) for group in widths}
    assert axis.places(nobody, widths).tolist() == [0, 1, 2]
    assert axis.places(only(nobody), widths).tolist() == []
    assert INPUTS in only({})
    tensor = torch.zeros(15)
    put(tensor, (axis.places(only({**nobody, "convs.0": torch.tensor([1])}), widths),), 1)
    assert tensor.nonzero().flatten().tolist() == [4]
