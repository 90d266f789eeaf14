"""Surgery: what it changes, and what it must not."""

import pytest
import torch
from hypothesis import given
from hypothesis import settings as runs
from hypothesis import strategies as st

from builders import (
    ARCHITECTURES,
    in_double,
    inputs_for,
    random,
    random_network,
    same,
    touching_newcomers,
    units_on,
)
from lifelong.networks.growing import GrowingNetwork
from lifelong.networks.initial import enlarged, uniform
from lifelong.networks.layout import Axis, Segment, TensorSpec, put, take
from lifelong.networks.surgery import (
    append_units,
    duplicate_units,
    gather,
    newcomers,
    scatter,
    with_newcomers,
    without_newcomers,
)
from lifelong.tasks.task import Task

networks = st.builds(
    lambda name, seed, density: random_network(ARCHITECTURES[name](), random(seed), 2, density),
    st.sampled_from(list(ARCHITECTURES)),
    st.integers(0, 999),
    st.sampled_from([0.3, 1.0]),
)


def some_units(data, network, *, inputs=False, least=1):
    """Some units of each group, in any order."""
    groups = ["inputs"] * inputs + list(network.born)
    chosen = {}
    for group in groups:
        units = st.lists(
            st.integers(0, network.width(group) - 1), min_size=least, max_size=4, unique=True
        )
        chosen[group] = torch.tensor(data.draw(units, label=group), dtype=torch.long)
    return chosen


def marked(network, group, units, *, receives):
    """Where tensors touch these units of a group, by a loop over every axis."""
    marks = {}
    for name, tensor in network.tensors.items():
        mark = torch.zeros(tensor.shape, dtype=torch.bool)
        for dim, own, role, span in units_on(network.architecture, name):
            if own == group and (role == "out") == receives:
                for unit in units:
                    mark.narrow(dim, unit * span, span).fill_(True)
        marks[name] = mark
    return marks


@given(networks, st.data(), st.integers(0, 99))
@runs(max_examples=40)
def test_appended_units_change_nothing_for_the_tasks_before(network, data, seed):
    counts = {group: data.draw(st.integers(0, 3), label=group) for group in network.born}
    grown = append_units(network, counts, 2, uniform(random(seed)))
    x = inputs_for(network.architecture, 5)
    rows = (x.numpy(), [[0, 1], [1, 0], [0, 0], [1, 1], [0, 1]])
    known = GrowingNetwork(network.architecture).remember(Task("one", rows, rows), network)
    before = known.as_of(1).logits(x)
    known = known.remember(Task("two", rows, rows), grown)
    assert torch.equal(known.as_of(1).logits(x), before)
    assert same(known.as_of(1).tensors, network.tensors)
    for group, count in counts.items():
        assert grown.width(group) == network.width(group) + count
        assert grown.born[group].tolist() == [1] * network.width(group) + [2] * count
    for name, tensor in grown.tensors.items():
        assert tensor.shape == grown.architecture.layout.shape(
            name, {g: len(b) for g, b in grown.born.items()}, 2
        )


@given(networks, st.data())
@runs(max_examples=40)
def test_newcomers_are_all_entries_that_touch_a_new_unit_and_all_of_the_head(network, data):
    counts = {group: data.draw(st.integers(0, 3), label=group) for group in network.born}
    grown = append_units(network, counts, 2, uniform(random(0)))
    expected = {
        name: torch.full(t.shape, name.startswith("head.")) for name, t in grown.tensors.items()
    }
    for group in counts:
        new = range(network.width(group), grown.width(group))
        for receives in (True, False):
            for name, mark in marked(grown, group, new, receives=receives).items():
                expected[name] |= mark
    assert same(touching_newcomers(grown, 2), expected)
    blocks = newcomers(grown, 2)
    assert sum(t.numel() for t in blocks.values()) == sum(int(m.sum()) for m in expected.values())
    assert same(with_newcomers(grown, 2, blocks).tensors, grown.tensors)
    assert same(without_newcomers(grown, 2), without_newcomers(network, 2))


@given(networks, st.data())
@runs(max_examples=40)
def test_a_duplicate_receives_and_sends_what_its_original_does(network, data):
    network = in_double(network)
    chosen = some_units(data, network, least=0)
    doubled = duplicate_units(network, chosen, 3)
    for group, units in chosen.items():
        width = network.width(group)
        assert doubled.born[group].tolist() == [1] * width + [3] * len(units)
    for name, tensor in doubled.tensors.items():
        old = network.tensors[name]
        assert torch.equal(tensor[tuple(slice(size) for size in old.shape)], old)
    # Without the originals the copies stand in for them.
    stand_in = {}
    for group, units in chosen.items():
        order = torch.arange(network.width(group))
        order[units] = network.width(group) + torch.arange(len(units))
        stand_in[group] = order
    replaced = gather(doubled, stand_in)
    assert same(replaced.tensors, network.tensors)


@given(networks, st.data())
@runs(max_examples=40)
def test_kept_units_compute_as_if_the_others_were_silent(network, data):
    network = in_double(network)
    kept = some_units(data, network)
    small = gather(network, kept)
    silenced = dict(network.tensors)
    for group, units in kept.items():
        gone = set(range(network.width(group))) - set(units.tolist())
        for name, mark in marked(network, group, gone, receives=False).items():
            silenced[name] = silenced[name].masked_fill(mark, 0)
    x = inputs_for(network.architecture, 4).double()
    # Sums over fewer terms, in another order, round differently.
    torch.testing.assert_close(small.logits(x), network.with_tensors(silenced).logits(x))
    for group, units in kept.items():
        assert small.width(group) == len(units)


@given(networks, st.data())
@runs(max_examples=40)
def test_scattering_what_was_gathered_changes_nothing(network, data):
    selected = some_units(data, network, inputs=True)
    part = gather(network, selected)
    back = scatter(network, part, selected)
    assert same(back.tensors, network.tensors)
    assert same(back.born, network.born)
    sizes = {group: len(units) for group, units in selected.items()}
    for name, tensor in part.tensors.items():
        assert tensor.shape == network.architecture.layout.shape(name, sizes, 2)


@given(networks, st.data())
@runs(max_examples=40)
def test_scattering_changes_exactly_the_entries_between_selected_units(network, data):
    selected = some_units(data, network, inputs=True)
    before = {name: tensor.clone() for name, tensor in network.tensors.items()}
    part = gather(network, selected)
    other = part.with_tensors({name: tensor + 1 for name, tensor in part.tensors.items()})
    back = scatter(network, other, selected)
    inside = {name: torch.ones(t.shape, dtype=torch.bool) for name, t in network.tensors.items()}
    for group, units in selected.items():
        out = set(range(network.width(group))) - set(units.tolist())
        for receives in (True, False):
            for name, mark in marked(network, group, out, receives=receives).items():
                inside[name] &= ~mark
    for name, tensor in network.tensors.items():
        assert torch.equal(back.tensors[name], torch.where(inside[name], tensor + 1, tensor))
    assert same(network.tensors, before)


def test_a_unit_after_a_flatten_has_neighbouring_places():
    axis = ARCHITECTURES["convnet"]().layout.tensors["hidden1.weight"].axes[1]
    places = axis.places({"conv2": torch.tensor([2, 0])}, {"conv2": 4})
    assert places.tolist() == [*range(18, 27), *range(9)]


def test_units_have_places_in_every_repeat_and_segment_of_an_axis():
    axis = Axis((Segment("a", repeat=2, span=2), Segment(None, span=3), Segment("b")), "in")
    widths = {"a": 3, "b": 2}
    assert axis.size(widths) == 2 * 3 * 2 + 3 + 2
    chosen = {"a": torch.tensor([1]), "b": torch.tensor([0])}
    assert axis.places(chosen, widths).tolist() == [2, 3, 8, 9, 12, 13, 14, 15]
    assert axis.places({}, widths).tolist() == list(range(17))


@given(st.integers(1, 4), st.integers(1, 4), st.integers(0, 3), st.integers(0, 99))
def test_on_any_axis_what_grew_and_is_cut_back_is_what_it_was(width, other, more, seed):
    """Fused queries, keys and values, and a concatenation: new units are not at the end."""
    out = Axis((Segment("a", repeat=3, span=2),), "out")
    read = Axis((Segment("b"), Segment("a", span=2)), "in")
    spec = TensorSpec((read, out), "weight")  # read units first, as a transposed layer has them
    before, after = {"a": width, "b": other}, {"a": width + more, "b": other + 1}
    tensor = torch.randn(spec.shape(before), generator=random(seed))
    grown = enlarged(tensor, spec, before, after, lambda _, size: torch.full(size, 7.0))
    assert grown.shape == spec.shape(after)
    units = {group: torch.arange(count) for group, count in before.items()}
    region = spec.region(after, out=units, into=units)
    assert torch.equal(take(grown, region), tensor)
    put(grown, region, 7.0)
    assert (grown == 7).all()


@pytest.mark.parametrize("make", ARCHITECTURES.values(), ids=ARCHITECTURES)
def test_surgery_leaves_its_argument_alone(make):
    network = random_network(make(), random(0))
    before = {name: tensor.clone() for name, tensor in network.tensors.items()}
    group = next(iter(network.born))
    units = {group: torch.tensor([1, 0])}
    results = (
        append_units(network, {group: 2}, 2, uniform(random(0))),
        duplicate_units(network, units, 2),
        gather(network, units),
    )
    for result in results:
        for name, tensor in result.tensors.items():
            if tensor is not network.tensors[name]:
                tensor.fill_(7)
    assert same(network.tensors, before)
