"""A mask of the untrained network as what a task stores: what is kept, and what it changes."""

import math
from dataclasses import replace

import msgspec
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
from lifelong.learners.den.mask import MASK, mask_of_untrained, masked_weights, recalibrated
from lifelong.learners.den.task_training import TaskTraining
from lifelong.networks.growing import ROOT

AUTO = {"split": "auto", "price": 0.01}


@pytest.fixture
def preferred(monkeypatch):
    """The untrained network and its masks are taken, whatever their losses."""
    monkeypatch.setattr(by_need, "MARGIN", -math.inf)
    monkeypatch.setattr(by_need, "_margin", lambda _: -math.inf)


def training_for(task):
    generator = torch.Generator().manual_seed(3)
    return TaskTraining(task, 2, quick(**AUTO), generator, torch.device("cpu"))


def masked(learner):
    return [record.number for record in learner.records if record.stages[-1].name == MASK]


@pytest.mark.parametrize("name", ARCHITECTURES)
@pytest.mark.parametrize("width", [0.5, 1.0])
@pytest.mark.usefixtures("preferred")
def test_masks_are_stored_in_bits_and_nothing_is_forgotten(name, width, tmp_path):
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
    assert masked(learner)[:2] == [2, 3]
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
    draft = mask_of_untrained(known, training)
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


@pytest.mark.usefixtures("preferred")
def test_a_mask_that_is_only_tried_changes_no_weight(monkeypatch):
    architecture = small_mlp()
    tasks = stream_for(architecture, "one output", "classes", "one output", "one output")
    tried = []

    def worse(known, training):
        tried.append(training.number)
        mask = mask_of_untrained(known, training)
        stage = msgspec.structs.replace(mask.stages[-1], loss=math.inf)
        return replace(mask, loss=math.inf, stages=(stage,))

    with monkeypatch.context() as patched:
        patched.setattr(by_need, "mask_of_untrained", worse)
        learner = learned(architecture, tasks, quick(**AUTO))
    monkeypatch.setattr(by_need, "masked_weights", lambda _: ())
    without = learned(architecture, tasks, quick(**AUTO))
    assert tried[:2] == [2, 3]
    assert same(contents(learner), contents(without))


def test_a_pretrained_module_has_no_mask():
    module = nn.Sequential(nn.Linear(6, 5), nn.ReLU(), nn.Linear(5, 2))
    pretrained = grow(module, torch.zeros(2, 6), head="2", pretrained=True)
    assert pretrained.start
    assert not masked_weights(pretrained)
    assert masked_weights(small_mlp()) == ("hidden1.weight", "hidden2.weight")
