"""Progressive networks: columns that read each other and never change."""

import pytest
import torch

from builders import (
    ARCHITECTURES,
    BUDGET,
    KINDS,
    answers,
    inputs_for,
    small_mlp,
    stream_for,
)
from lifelong.learners.baselines import Progressive, ProgressiveSettings
from lifelong.learners.baselines.progressive import Columns
from lifelong.networks.layout import HEAD
from lifelong.networks.sequential import mlp
from lifelong.training.budget import SettingError


def taught(network, *kinds, width=0.5):
    architecture = ARCHITECTURES[network]()
    learner = Progressive(architecture, ProgressiveSettings(width=width, mu=0.0, budget=BUDGET))
    for task in stream_for(architecture, *kinds):
        learner.learn(task)
    return learner


@pytest.mark.parametrize("network", ARCHITECTURES)
def test_earlier_answers_are_bit_equal_for_ever(network):
    learner = Progressive(ARCHITECTURES[network](), ProgressiveSettings(budget=BUDGET))
    x, first = inputs_for(ARCHITECTURES[network](), 40), {}
    for task in stream_for(ARCHITECTURES[network](), *KINDS, *KINDS):
        learner.learn(task)
        now = answers(learner, x)
        for name, answer in first.items():
            assert torch.equal(now[name], answer)
        first[task.name] = now[task.name]


def test_the_columns_are_one_network_whose_old_units_do_not_read_the_new():
    learner = taught("mlp", "classes", "classes", "classes")
    columns = [known.private for known in learner.network.tasks]
    first = torch.cat([c["hidden1.weight"] for c in columns])
    rows = [c["hidden2.weight"] for c in columns]
    second = torch.zeros(sum(len(r) for r in rows), len(first))
    at = 0
    for row in rows:
        second[at : at + len(row), : row.shape[1]] = row
        at += len(row)
    x = inputs_for(small_mlp(), 20)
    h = torch.relu(x @ first.T + torch.cat([c["hidden1.bias"] for c in columns]))
    h = torch.relu(h @ second.T + torch.cat([c["hidden2.bias"] for c in columns]))
    expected = h @ columns[-1]["head.weight"].T + columns[-1]["head.bias"]
    torch.testing.assert_close(Columns(small_mlp(), tuple(columns)).logits(x), expected)


@pytest.mark.parametrize("network", ARCHITECTURES)
def test_every_earlier_column_is_read(network):
    learner = taught(network, "classes", "classes", "classes")
    columns = [dict(known.private) for known in learner.network.tasks]
    sequential, x = ARCHITECTURES[network](), inputs_for(ARCHITECTURES[network](), 20)
    whole = Columns(sequential, tuple(columns)).logits(x)
    for number in (0, 1):
        silent = {n: t if n in HEAD else torch.zeros_like(t) for n, t in columns[number].items()}
        without = Columns(sequential, tuple({**dict(enumerate(columns)), number: silent}.values()))
        assert not torch.equal(without.logits(x), whole)
        other_head = {n: t + 1 if n in HEAD else t for n, t in columns[number].items()}
        asked = Columns(
            sequential, tuple({**dict(enumerate(columns)), number: other_head}.values())
        )
        assert torch.equal(asked.logits(x), whole)


def test_width_says_how_large_a_column_is():
    learner = taught("mlp", "one output", "one output", width=1.0)
    one = small_mlp().layout.parameters([1])
    laterals = 10 * 7 + 7  # of the second column: hidden2 and head read the first one too
    assert learner.capacity().parameters == 2 * one + laterals
    assert learner.capacity(as_of="task 1").parameters == one
    half = taught("mlp", "one output", width=0.5)
    assert half.capacity().parameters == mlp(6, [5, 4]).layout.parameters([1])
    born = learner.network.born["hidden1"].tolist()
    assert born == [1] * 10 + [2] * 10
    assert learner.records[1].groups["hidden1"].added == 10


def test_multiply_adds_are_those_of_the_columns_read():
    learner = taught("mlp", "one output", "one output", width=1.0)
    assert learner.capacity(as_of="task 1").multiply_adds == 6 * 10 + 10 * 7 + 7
    both = 2 * 6 * 10 + 10 * 7 + 20 * 7 + 14
    assert learner.capacity(as_of="task 2").multiply_adds == both


def test_a_width_of_nothing_is_refused():
    with pytest.raises(SettingError, match=r"width must be above 0 and at most 10 .*, not 0"):
        ProgressiveSettings(width=0)
