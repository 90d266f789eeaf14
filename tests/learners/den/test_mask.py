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
from lifelong.learners.den import DEN, by_need
from lifelong.learners.den.mask import MASK, mask_of_root, masked_weights, recalibrated
from lifelong.learners.den.task_training import TaskTraining
from lifelong.networks.growing import ROOT

AUTO = {"split": "auto", "price": 0.01}


def mask_if_tried(found):
    """The untrained network, and a mask of it as soon as one was tried, whatever their losses."""
    return MASK if any(MASK in losses for losses in found) else by_need.FROM_ROOT


def training_for(task):
    generator = torch.Generator().manual_seed(3)
    return TaskTraining(task, 2, quick(**AUTO), generator, torch.device("cpu"))


def masked(learner):
    return [record.number for record in learner.records if record.stages[-1].name == MASK]


@pytest.mark.parametrize("name", ARCHITECTURES)
@pytest.mark.parametrize("width", [0.5, 1.0])
def test_masks_are_stored_in_bits_and_nothing_is_forgotten(name, width, tmp_path, monkeypatch):
    monkeypatch.setattr(by_need, "_best_start", mask_if_tried)
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
    assert 2 in masked(learner)
    assert all(learner.records[number - 1].parent == ROOT for number in masked(learner))
    for name_of, patch in learner.network.tasks[1].patches.items():
        if name_of in masked_weights(architecture):
            entries = learner.network.entries(name_of, 1)
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
    assert draft.loss == training.loss(draft.network)
    root = known.start_from(ROOT)
    for weight in masked_weights(architecture):
        found = draft.network.tensors[weight]
        kept = found != 0
        assert len(found[kept].abs().unique()) == 1
        assert torch.equal(found[kept].sign(), root[weight][kept].sign())
        assert abs(int(kept.sum()) - kept.numel() / 2) <= 1


@given(st.sampled_from([*KINDS, *REGRESSIONS]), st.floats(0.25, 4), st.floats(-2, 2))
@runs(max_examples=20)
def test_recalibration_keeps_the_order_and_never_raises_the_loss(kind, scale, shift):
    architecture = small_mlp()
    task = task_for(architecture, kind, seed=6)
    known = learned(architecture, [task], quick(**AUTO)).network
    network = known.as_of(1)
    weight, bias = network.tensors["head.weight"], network.tensors["head.bias"]
    head = {"head.weight": scale * weight, "head.bias": scale * bias + shift}
    spoilt = network.with_tensors({**network.tensors, **head})
    training = training_for(task)
    mended = recalibrated(spoilt, training)
    assert training.loss(mended) <= training.loss(spoilt)
    undone = math.log(scale) ** 2 + (shift / scale) ** 2  # what the penalty asks for it
    assert training.loss(mended) <= training.loss(network) + undone / (2 * len(task.valid)) + 1e-3
    x = task.valid.x
    for column, other in zip(spoilt.logits(x).T, mended.logits(x).T, strict=True):
        ordered = other[column.argsort()]
        assert (ordered.diff() >= -1e-4 * other.abs().max()).all()


def test_a_mask_that_is_only_tried_changes_no_weight(monkeypatch):
    architecture = small_mlp()
    tasks = stream_for(architecture, "one output", "classes", "one output", "one output")
    monkeypatch.setattr(by_need, "_best_start", lambda _: by_need.FROM_ROOT)
    tried = learned(architecture, tasks, quick(**AUTO))
    monkeypatch.setattr(by_need, "masked_weights", lambda _: ())
    without = learned(architecture, tasks, quick(**AUTO))
    stages = [[stage.name for stage in record.stages] for record in tried.records]
    assert [MASK in names for names in stages] == [False, True, True, False]
    assert same(contents(tried), contents(without))


LOSSES = {by_need.FROM_LAST: 1.0, by_need.FROM_ROOT: 1.0, MASK: 1.0}


@pytest.mark.parametrize(
    ("found", "best"),
    [
        ([], by_need.FROM_LAST),
        ([LOSSES], by_need.FROM_LAST),
        ([LOSSES | {by_need.FROM_ROOT: 0.96}], by_need.FROM_LAST),  # not clearly
        ([LOSSES | {by_need.FROM_ROOT: 0.9}], by_need.FROM_ROOT),
        ([LOSSES | {by_need.FROM_ROOT: 0.9, MASK: 0.89}], MASK),
        ([LOSSES | {by_need.FROM_ROOT: 0.9, MASK: 0.91}], by_need.FROM_ROOT),
        ([LOSSES | {MASK: 0.96}], by_need.FROM_LAST),  # not clearly
        ([LOSSES | {MASK: 0.9}], MASK),
        ([LOSSES | {MASK: 0.8}, {"head": 0.1}, LOSSES | {MASK: 1.3}], by_need.FROM_LAST),
    ],
)
def test_what_later_tasks_start_from(found, best):
    assert by_need._best_start(found) == best


def test_a_pretrained_module_has_no_mask():
    module = nn.Sequential(nn.Linear(6, 5), nn.ReLU(), nn.Linear(5, 2))
    pretrained = grow(module, torch.zeros(2, 6), head="2", pretrained=True)
    assert pretrained.start
    assert not masked_weights(pretrained)
    assert masked_weights(small_mlp()) == ("hidden1.weight", "hidden2.weight")
