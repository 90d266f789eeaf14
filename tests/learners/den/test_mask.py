"""A mask of the untrained network as what a task stores: what is kept, and what it changes."""

import math

import pytest
import torch
from hypothesis import given
from hypothesis import settings as runs
from hypothesis import strategies as st
from torch import nn

from builders import (
    ARCHITECTURES,
    KINDS,
    REGRESSIONS,
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
from lifelong import grow
from lifelong.learners.den import DEN, starts
from lifelong.learners.den.mask import MASK, mask_of_root, masked_weights
from lifelong.learners.den.starts import FROM_LAST, FROM_ROOT, OTHERS, Starts, best_start
from lifelong.learners.den.task_training import TaskTraining
from lifelong.networks.growing import ROOT
from lifelong.records import StartRecord, TaskRecord
from lifelong.tasks.task import Task

AUTO = {"split": "auto", "price": 0.01}


def mask_if_tried(trials):
    """The untrained network, and a mask of it as soon as one was tried, whatever their losses."""
    tried = [start.name for trial in trials for start in trial]
    return MASK if MASK in tried else FROM_ROOT


def training_for(task, trials=()):
    generator = torch.Generator().manual_seed(3)
    earlier = [TaskRecord(f"{n}", n, {}, (), starts=tuple(t)) for n, t in enumerate(trials, 1)]
    cpu = torch.device("cpu")
    return TaskTraining(task, 2, quick(**AUTO), generator, cpu, earlier=tuple(earlier))


def masked(learner):
    return [record.number for record in learner.records if record.stages[-1].name == MASK]


@pytest.mark.parametrize("name", ARCHITECTURES)
@pytest.mark.parametrize("width", [0.5, 1.0])
def test_masks_are_stored_in_bits_and_nothing_is_forgotten(name, width, tmp_path, monkeypatch):
    monkeypatch.setattr(starts, "best_start", mask_if_tried)
    monkeypatch.setattr(starts, "LOST", math.inf)
    architecture = ARCHITECTURES[name]()
    tasks = stream_for(architecture, *KINDS, "one output", "classes")
    learner = DEN(architecture, quick(**AUTO, initial_width=width), seed=2)
    learner.learn(tasks[0])
    x = inputs_for(architecture, 9)
    before = [answers(learner, x)]
    for task in tasks[1:]:
        learner.learn(task)
        now = answers(learner, x)
        assert all(torch.equal(now[key], old) for seen in before for key, old in seen.items())
        before.append(now)
    first = masked(learner)[0]
    assert all(learner.records[number - 1].parent == ROOT for number in masked(learner))
    for name_of, patch in learner.network.tasks[first - 1].patches.items():
        if name_of in masked_weights(architecture):
            entries = learner.network.entries(name_of, first - 1)
            assert patch.nbytes <= min(1 + -(-entries // 8) + 2, 1 + 2 * entries)
    learner.save(tmp_path / "model")
    assert learner.capacity().bytes == sum(
        t.nbytes for t in stored_tensors(tmp_path / "model").values()
    )
    again = DEN.load(tmp_path / "model")
    assert same(answers(again, x), answers(learner, x))
    assert same(contents(again), contents(learner))


@given(st.sampled_from(list(ARCHITECTURES)), st.sampled_from([*KINDS, *REGRESSIONS]))
@runs(max_examples=10)
def test_a_mask_has_the_signs_of_the_untrained_network_and_one_size(name, kind):
    architecture = ARCHITECTURES[name]()
    known = learned(architecture, [task_for(architecture)], quick(**AUTO)).network
    task = task_for(architecture, kind, seed=4)
    training = training_for(task)
    state = training.generator.get_state()
    draft = mask_of_root(known, training)
    assert torch.equal(training.generator.get_state(), state)
    assert draft.loss == draft.stages[-1].loss == training.loss(draft.network)
    root = known.start_from(ROOT)
    for weight in masked_weights(architecture):
        found = draft.network.tensors[weight]
        kept = found != 0
        assert len(found[kept].abs().unique()) == 1
        assert torch.equal(found[kept].sign(), root[weight][kept].sign())
        assert abs(int(kept.sum()) - kept.numel() / 2) <= 1


def test_a_mask_that_is_only_tried_changes_no_weight(monkeypatch):
    architecture = small_mlp()
    tasks = stream_for(architecture, "one output", "classes", "one output", "one output")
    monkeypatch.setattr(starts, "best_start", lambda _: FROM_ROOT)
    tried = learned(architecture, tasks, quick(**AUTO))
    monkeypatch.setattr(starts, "masked_weights", lambda _: ())
    without = learned(architecture, tasks, quick(**AUTO))
    stages = [[stage.name for stage in record.stages] for record in tried.records]
    assert [MASK in names for names in stages] == [False, True, True, False]
    assert same(contents(tried), contents(without))


def root(loss, from_last=1.0):
    return StartRecord(FROM_ROOT, loss, from_last)


def mask(loss, from_last=1.0):
    return StartRecord(MASK, loss, from_last)


@pytest.mark.parametrize(
    ("trials", "best"),
    [
        ([], FROM_LAST),
        ([[root(1.2), mask(1.1)]], FROM_LAST),
        ([[root(0.96), mask(0.96)]], FROM_LAST),  # not by the margin
        ([[root(0.9), mask(0.96)]], FROM_ROOT),
        ([[root(0.9), mask(0.89)]], MASK),
        ([[root(0.9), mask(0.93)]], MASK),  # not clearly higher than the untrained network
        ([[root(0.8), mask(0.9)]], FROM_ROOT),
        ([[mask(0.9)], [mask(1.06)]], MASK),  # once taken, as long as it is lower at all
        ([[mask(0.96)], [mask(1.0)]], FROM_LAST),
        ([[mask(0.8)], [mask(1.25)]], FROM_LAST),  # on average
        ([[mask(0.8)], [mask(1e-3, 1e-9)]], MASK),  # whatever the ratio where a task is solved
        ([[mask(0.0, 0.0), root(0.0, 0.0)]], FROM_LAST),
        ([[mask(0.8), root(1e300, 1e-300)]], MASK),
    ],
)
def test_what_later_tasks_start_from(trials, best):
    assert best_start(trials) == best


@pytest.mark.parametrize(
    ("trials", "offered"),
    [
        ([], True),
        ([[root(2.0), mask(3.0)]], True),  # of two tasks, not of one
        ([[root(2.0), mask(3.0)], [root(2.0), mask(1.9)]], False),
        ([[root(2.0), mask(2.1)], [root(2.0), mask(2.1)]], True),
        ([[root(0.8), mask(0.9)], [root(0.8), mask(0.9)]], False),
        ([[root(0.8), mask(0.9)], [root(0.8), mask(0.9)], [root(9.0)]], False),  # for good
        ([[root(0.8)], [root(0.8)]], True),  # of before there were masks
    ],
)
def test_masks_that_were_far_from_the_untrained_network_are_offered_no_more(trials, offered):
    known = DEN(small_mlp(), quick(**AUTO)).network
    training = training_for(task_for(small_mlp(), "one output", 1, "task"), trials)
    assert Starts(known, training).others == OTHERS[: 1 + offered]


def test_what_is_offered_no_more_is_not_chosen_by_what_it_was(monkeypatch):
    """The mean of a mask that lost stays, while that of the untrained network goes on."""
    losses = iter([(0.8, 0.9), (0.8, 0.9), (9.0,)])

    def compared(start, *_):
        nonlocal now
        if start == FROM_ROOT:
            now = next(losses)
        return StartRecord(start, now[start == MASK], 1.0)

    now = ()
    monkeypatch.setattr(starts, "compared", compared)
    tasks = stream_for(small_mlp(), *["one output"] * 6)
    learner = learned(small_mlp(), tasks, quick(**AUTO))
    names = [[start.name for start in record.starts] for record in learner.records]
    assert names == [[], list(OTHERS), list(OTHERS), [], [FROM_ROOT], []]
    assert [record.parent for record in learner.records[2:]] == [ROOT, ROOT, None, None]


def test_a_price_at_which_no_mask_is_offered_is_heeded_after_a_mask_was_best(monkeypatch):
    monkeypatch.setattr(starts, "compared", lambda s, *_: StartRecord(s, 1.0 - (s == MASK), 2.0))
    tasks = stream_for(small_mlp(), *["one output"] * 5)
    learner = learned(small_mlp(), tasks[:3], quick(**AUTO))
    dear = learner.with_settings(quick(**{**AUTO, "price": 1.0}))
    for task in tasks[3:]:
        dear.learn(task)
    assert masked(learner)
    assert all(number <= 3 for number in masked(dear))


def test_each_stage_is_in_the_record_once_where_the_head_reads_nothing():
    tasks = stream_for(small_mlp(), "one output", "one output")
    learner = learned(small_mlp(), tasks, quick(**AUTO, head_l1=1.0))
    names = [stage.name for stage in learner.records[1].stages]
    assert names.count("head") == 1


def test_what_was_tried_is_in_the_record(tmp_path):
    architecture = small_mlp()
    tasks = stream_for(architecture, *["one output"] * 4)
    learner = learned(architecture, tasks, quick(**AUTO))
    names = [[start.name for start in record.starts] for record in learner.records]
    assert names == [[], [FROM_ROOT, MASK], [FROM_ROOT, MASK], []]
    for record in learner.records:
        assert all(0 < start.loss < 2 and 0 < start.from_last < 2 for start in record.starts)
    learner.save(tmp_path)
    assert DEN.load(tmp_path).records == learner.records


def test_starts_of_a_regression_are_compared_as_they_are():
    """Its scale is part of the answer, and may be any."""
    architecture = small_mlp()
    tasks = stream_for(architecture, "regression", "regression", "regression")
    large = [
        Task(t.name, *((rows.x, 1e6 * rows.y) for rows in (t.train, t.valid)), kind=t.kind)
        for t in tasks
    ]
    learner = learned(architecture, large, quick(**AUTO))
    for record in learner.records[1:]:
        assert [start.name for start in record.starts] == [FROM_ROOT, MASK]
        losses = {stage.name: stage.loss for stage in record.stages}
        assert record.starts[0].loss == pytest.approx(losses[FROM_ROOT], rel=1e-5)
        assert record.starts[0].from_last == pytest.approx(losses[FROM_LAST], rel=1e-5)


def test_a_mask_is_not_tried_where_bytes_are_dear():
    tasks = stream_for(small_mlp(), "one output", "one output")
    dear, cheap = (
        learned(small_mlp(), tasks, quick(split="auto", price=price)).records[1].starts
        for price in (1.0, 0.9)
    )
    assert [start.name for start in dear] == [FROM_ROOT]
    assert [start.name for start in cheap] == [FROM_ROOT, MASK]


def test_a_pretrained_module_has_no_mask():
    module = nn.Sequential(nn.Linear(6, 5), nn.ReLU(), nn.Linear(5, 2))
    pretrained = grow(module, torch.zeros(2, 6), head="2", pretrained=True)
    assert pretrained.start
    assert not masked_weights(pretrained)
    assert masked_weights(small_mlp()) == ("hidden1.weight", "hidden2.weight")
