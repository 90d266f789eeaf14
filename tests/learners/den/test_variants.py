"""The paper's variants are settings, and do what they say."""

from dataclasses import replace

import pytest
import torch

from builders import BUDGET, answers, inputs_for, learned, same, small_mlp, stream_for
from lifelong.learners.den import Settings, variants


def run(settings, count=3):
    tasks = stream_for(small_mlp(), *["one output"] * count)
    return learned(small_mlp(), tasks, replace(settings, budget=BUDGET))


def added(learner, group):
    return [record.groups[group].added for record in learner.records]


def test_selective_only_keeps_its_size_and_changes_old_weights():
    learner = run(variants.selective_only(), 1)
    widths = {group: len(born) for group, born in learner.network.born.items()}
    x = inputs_for(small_mlp(), 30)
    before = answers(learner, x)["task 1"]
    for task in stream_for(small_mlp(), *["one output"] * 3)[1:]:
        learner.learn(task)
    assert {group: len(born) for group, born in learner.network.born.items()} == widths
    assert not torch.equal(answers(learner, x)["task 1"], before)


@pytest.mark.parametrize("k", [1, 3])
def test_constant_adds_k_units_a_layer_for_every_task(k):
    learner = run(variants.constant(k))
    for group, born in learner.network.born.items():
        assert added(learner, group) == [0, k, k]
        assert [(born == number).sum().item() for number in (2, 3)] == [k, k]


def test_dynamic_offers_k_and_splits_nothing():
    learner = run(variants.dynamic(k=2))
    for group in learner.network.born:
        assert added(learner, group)[1:] == [2, 2]
        assert all(record.groups[group].split == 0 for record in learner.records)


def test_without_stamps_old_tasks_are_served_by_the_whole_network():
    stamped, unstamped = (
        run(Settings(max_new_units=None, k=3, min_improvement=0.0)),
        run(Settings(max_new_units=None, k=3, min_improvement=0.0, timestamps=False)),
    )
    x = inputs_for(small_mlp(), 30)
    one, other = answers(stamped, x), answers(unstamped, x)
    assert same(stamped.network.shared, unstamped.network.shared)
    assert torch.allclose(one["task 3"], other["task 3"])
    assert not torch.allclose(one["task 1"], other["task 1"])


def test_to_the_letter_starts_at_the_base_width_and_keeps_small_drift():
    settings = variants.paper_settings(k=2, sigma=1e6)
    learner = run(settings, 1)
    assert all(record.groups["hidden1"].split == 0 for record in learner.records)
    x = inputs_for(small_mlp(), 30)
    before = answers(learner, x)["task 1"]
    learner.learn(stream_for(small_mlp(), "one output", "one output")[1])
    assert not torch.equal(answers(learner, x)["task 1"], before)


def test_newcomers_only_never_retrains():
    learner = run(variants.newcomers_only())
    names = {stage.name for record in learner.records for stage in record.stages}
    assert names == {"first", "head", "expand", "split"}
    for record in learner.records[1:]:
        assert all(not any(group.drift) for group in record.groups.values())
