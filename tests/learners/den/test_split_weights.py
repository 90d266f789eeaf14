"""Algorithm 4 by weights, and growth by need: what is kept, what is restored, what is stored."""

import pytest
import torch
from hypothesis import given
from hypothesis import settings as runs
from hypothesis import strategies as st

from builders import (
    ARCHITECTURES,
    BUDGET,
    KINDS,
    answers,
    contents,
    inputs_for,
    learned,
    quick,
    same,
    small_mlp,
    stored_tensors,
    stream_for,
    task_for,
)
from lifelong.learners.den import DEN
from lifelong.learners.den.by_need import (
    TriedPatch,
    constant_loss,
    search,
    share_of_mu,
    sizes_at,
)
from lifelong.learners.den.retrain import selective_retraining
from lifelong.learners.den.split_weights import Patching
from lifelong.learners.den.starts import FROM_LAST, FROM_ROOT
from lifelong.learners.den.task_training import TaskTraining
from lifelong.tasks.kinds import Kind
from lifelong.training.budget import SettingError

NEVER = 1e6  # a tau that no loss exceeds
TRY = {"min_improvement": 0.01}  # so that other strengths are tried


def patching(name="mlp", kind="one output", seed=1):
    """A second task's retrained network, and what it may keep."""
    architecture = ARCHITECTURES[name]()
    first, second = stream_for(architecture, "one output", kind)
    settings = quick(split="weights", tau=NEVER)
    known = learned(architecture, [first], settings).network
    generator = torch.Generator().manual_seed(seed)
    training = TaskTraining(second, 2, settings, generator, torch.device("cpu"))
    return Patching(known, selective_retraining(known, training), training)


@given(st.sampled_from(list(ARCHITECTURES)), st.sampled_from(KINDS), st.floats(0, 1))
@runs(max_examples=15)
def test_the_largest_changes_are_kept_and_all_others_restored(name, kind, share):
    one = patching(name=name, kind=kind)
    kept = one.largest(share)
    network = one.restored(kept).network
    changes = torch.cat([change.flatten() for change in one.changes.values()])
    chosen = torch.cat([mask.flatten() for mask in kept.values()])
    assert int((changes > changes[chosen].min()).sum() if chosen.any() else 0) <= share * one.base
    if chosen.any() and not chosen.all():
        assert changes[chosen].min() >= changes[~chosen].max()
    for tensor, old in one.before.items():
        now = network.tensors[tensor]
        assert torch.equal(now[~kept[tensor]], old[~kept[tensor]])
        assert torch.equal(now[kept[tensor]], one.draft.network.tensors[tensor][kept[tensor]])


def test_nothing_kept_is_the_network_of_before_and_everything_that_of_retraining():
    one = patching()
    nothing, everything = one.restored(one.largest(0.0)).network, one.restored(one.largest(1.0))
    assert all(torch.equal(nothing.tensors[name], old) for name, old in one.before.items())
    retrained = one.draft.network.tensors
    assert all(torch.equal(t, retrained[n]) for n, t in everything.network.tensors.items())
    assert one.bytes(nothing) == 0 < one.bytes(everything.network)


def test_training_moves_kept_entries_only():
    one = patching()
    kept = one.largest(0.2)
    start = one.restored(kept)
    trained = one.rounded(one.trained(start, kept), kept)
    for name in one.before:
        moved = trained.network.tensors[name] != start.network.tensors[name]
        assert not bool((moved & ~kept[name]).any())
    assert any(
        bool((trained.network.tensors[n] != start.network.tensors[n]).any()) for n in one.before
    )
    assert [stage.name for stage in trained.stages] == ["head", "retrain", "patch"]


@pytest.mark.parametrize("split", ["weights", "auto"])
@pytest.mark.parametrize("name", list(ARCHITECTURES))
def test_capacity_is_the_bytes_of_the_file_without_its_header(tmp_path, name, split):
    architecture = ARCHITECTURES[name]()
    settings = quick(split=split, keep=0.1, price=0.01)
    learner = learned(architecture, stream_for(architecture, *KINDS), settings)
    learner.save(tmp_path)
    stored = stored_tensors(tmp_path)
    assert learner.capacity().bytes == sum(tensor.nbytes for tensor in stored.values())
    assert any(key.startswith("patch/") for key in stored)
    assert learner.relative_capacity() == learner.capacity().bytes / (
        4 * learner.network.base_parameters()
    )


@pytest.mark.parametrize("split", ["weights", "auto"])
def test_a_loaded_model_answers_and_learns_on_as_the_saved_one(tmp_path, split):
    architecture = small_mlp()
    *tasks, last = stream_for(architecture, *KINDS, "one output")
    learner = learned(architecture, tasks, quick(split=split, keep=0.1, price=0.01))
    learner.save(tmp_path)
    loaded = DEN.load(tmp_path)
    x = inputs_for(architecture, 9)
    assert same(answers(loaded, x), answers(learner, x))
    assert loaded.records == learner.records
    learner.learn(last)
    loaded.learn(last)
    assert same(contents(loaded), contents(learner))


def test_a_task_that_the_network_solves_stores_a_head_and_nothing_else():
    architecture = small_mlp()
    task = task_for(architecture)
    again = task_for(architecture, name="again")
    learner = learned(architecture, [task], quick(split="auto", price=10.0))
    before = learner.capacity()
    record = learner.learn(again)
    heads = sum(t.nbytes for t in learner.network.tasks[-1].private.values())
    assert learner.capacity().bytes == before.bytes + heads
    assert record.changed == {}


def test_bytes_without_a_price_are_taken_and_dear_ones_are_not():
    architecture = small_mlp()
    tasks = stream_for(architecture, "one output", "classes", "subtasks")
    sizes = [
        learned(architecture, tasks, quick(split="auto", price=price)).capacity().bytes
        for price in (0.0, 1.0, 1000.0)
    ]
    assert sizes[0] > sizes[1] > sizes[2]


def test_larger_patches_are_tried_where_bytes_are_cheap():
    assert max(sizes_at(DEN.settings_type().price)) == 0.16
    largest = [max(sizes_at(price)) for price in (0.0, 0.03, 0.08, 0.15, 3.0)]
    assert largest == [0.64, 0.64, 0.32, 0.16, 0.16]


def searched(lacks, begin, price=1.0):
    """Places of the sizes that are tried where a patch of size 2^n lacks this much."""
    sizes = [0.01 * 2**place for place in range(len(lacks))]

    def attempt(size):
        places.append(sizes.index(size))
        return TriedPatch(lacks[places[-1]], price * size, None, {})

    places = []
    found = search(sizes, begin, attempt)
    assert [one.lack for one in found] == [lacks[place] for place in places]
    return places, min(found, key=lambda one: one.cost)


def test_small_patches_that_gain_nothing_do_not_hide_larger_ones_that_do():
    """A search that went on while smaller ones cost less ended at the smallest."""
    lacks = [0.5, 0.5, 0.5, 0.2, 0.05, 0.0]
    places, best = searched(lacks, 2)
    assert places == [2, 3, 4]
    assert best.lack == 0.05


@pytest.mark.parametrize(
    ("lacks", "places"),
    [
        ([0.3, 0.1, 0.04, 0.02, 0.01], [2]),  # bytes cost what is missing: nothing else is tried
        ([0.3, 0.1, 0.02, 0.01, 0.0], [2]),  # or about that
        ([0.3, 0.02, 0.005, 0.0, 0.0], [2, 1]),  # little is missing: a smaller one
        ([0.0, -0.1, -0.1, -0.1, -0.1], [2, 1, 0]),  # nothing is
        ([0.6, 0.6, 0.3, 0.02, 0.0], [2, 3]),  # much is
        ([0.3, 0.3, 0.3, 0.3, 0.3], [2, 3]),  # and a larger one misses as much
    ],
)
def test_the_search_goes_to_the_size_where_bytes_cost_what_is_missing(lacks, places):
    assert searched(lacks, 2)[0] == places


def test_without_a_price_the_search_ends_where_nothing_is_missing():
    assert searched([0.2, 0.1, 0.05, 0.0, -0.1], 1, price=0.0)[0] == [1, 2, 3]


@given(st.lists(st.floats(-0.1, 1), min_size=1, max_size=9), st.integers(0, 8), st.floats(0, 9))
def test_a_search_tries_no_size_twice_and_finds_none_that_costs_more(lacks, begin, price):
    places, best = searched(lacks, begin % len(lacks), price)
    assert places[0] == begin % len(lacks)
    assert len(set(places)) == len(places)
    assert best.cost <= lacks[places[0]] + price * 0.01 * 2 ** places[0]


@given(st.floats(1e-5, 1e-1), st.integers(0, 8), st.floats(1e-3, 9))
def test_where_what_is_missing_halves_the_search_ends_near_the_lowest_cost(lack, begin, price):
    lacks = [lack / 2**place for place in range(9)]
    costs = [lack + price * 0.01 * 2**place for place, lack in enumerate(lacks)]
    assert searched(lacks, begin, price)[1].cost <= 1.07 * min(costs)


def test_both_starts_are_tried_as_often_as_the_tasks_double():
    architecture = small_mlp()
    tasks = [task_for(architecture, "one output", n, f"task {n}") for n in range(1, 7)]
    learner = learned(architecture, tasks, quick(split="auto"))
    tried = [
        {stage.name for stage in record.stages} >= {FROM_LAST, FROM_ROOT}
        for record in learner.records
    ]
    assert tried == [False, True, True, False, True, False]
    assert [record.parent for record in learner.records] == [
        known.parent for known in learner.network.tasks
    ]


@pytest.mark.parametrize("kind", KINDS)
def test_the_loss_of_a_constant_guess_is_that_of_the_shares(kind):
    task = task_for(small_mlp(), kind)
    training = TaskTraining(task, 1, quick(), torch.Generator(), torch.device("cpu"))
    if task.kind is Kind.CLASSES:
        counts = torch.bincount(task.train.y, minlength=3) + 0.5
        expected = -(counts / counts.sum()).log()[task.valid.y].mean()
    else:
        share = task.train.y.mean(dim=0)
        p = torch.where(task.valid.y == 1, share, 1 - share)
        expected = -p.log().mean()
    assert constant_loss(training) == pytest.approx(float(expected), rel=1e-5)


@pytest.mark.parametrize("split", ["unit", 1, None, "Weights"])
def test_another_split_is_refused(split):
    with pytest.raises(SettingError, match="split must be one of 'units', 'weights', 'auto'"):
        quick(split=split)


def test_a_model_of_before_there_was_a_choice_splits_units():
    assert quick(split=True).split == "units"
    assert quick(split=False).split is False
    assert quick().budget == BUDGET


@pytest.mark.parametrize("mu", [0.01, 2.0])
def test_the_first_task_chooses_the_strength_of_the_l1(mu):
    """Under a strong l1 nothing is learned; a weaker one is then chosen, and inherited."""
    architecture = small_mlp()
    learner = learned(architecture, [task_for(architecture)], quick(split="auto", mu=mu, **TRY))
    stages = learner.records[0].stages
    share = share_of_mu(learner.records)
    assert (share < 1) == (mu == 2.0)
    assert stages[-1].loss <= min(stage.loss for stage in stages) + TRY["min_improvement"]
    assert {stage.name for stage in stages} >= {"first", "first, mu / 4"}


def test_a_strength_that_is_better_by_chance_is_not_chosen(monkeypatch):
    """The loss falls, but only in one of fifty parts of the validation rows."""
    lucky = torch.zeros(50)
    lucky[7] = 5.0
    parts = iter([lucky, torch.zeros(50)])
    monkeypatch.setattr(TaskTraining, "loss_by_part", lambda *_: next(parts))
    architecture = small_mlp()
    learner = learned(architecture, [task_for(architecture)], quick(split="auto", mu=2.0, **TRY))
    assert share_of_mu(learner.records) == 1.0


@given(st.sampled_from(KINDS), st.integers(20, 400))
@runs(max_examples=15)
def test_losses_by_part_have_the_mean_of_the_loss(kind, rows):
    architecture = small_mlp()
    task = task_for(architecture, kind, rows=rows)
    network = learned(architecture, [task], quick()).network.as_of(1)
    training = TaskTraining(task, 1, quick(), torch.Generator().manual_seed(0), torch.device("cpu"))
    losses = training.loss_by_part(network)
    assert len(losses) >= min(25, len(task.valid))
    if len(task.valid) % len(losses) == 0:
        assert float(losses.mean()) == pytest.approx(training.loss(network), rel=1e-4)


def test_trying_other_strengths_leaves_the_default_as_it_was():
    architecture = small_mlp()
    one, two = (
        learned(architecture, [task_for(architecture)], quick(split="auto", mu=0.01, **changes))
        for changes in (TRY, {})
    )
    assert len(one.records[0].stages) > len(two.records[0].stages) == 1
    assert same(contents(one), contents(two))


def test_without_records_the_strength_is_mu():
    assert share_of_mu(()) == 1.0
