"""APD: what is shared, what is a task's own, and what a later task may change."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from builders import ARCHITECTURES, BUDGET, KINDS, random, small_mlp, stream_for
from lifelong.learners.baselines import APD, APDSettings
from lifelong.learners.baselines.apd import decomposed
from lifelong.training.budget import SettingError


@pytest.mark.parametrize("network", ARCHITECTURES)
@settings(max_examples=3)
@given(lam1=st.floats(0.001, 1.0), lam2=st.floats(0.5, 1000.0))
def test_an_earlier_task_moves_by_its_slack_at_most(network, lam1, lam2):
    architecture, given_settings = ARCHITECTURES[network](), APDSettings(lam1, lam2, BUDGET)
    learner = APD(architecture, given_settings)
    before = []
    for task in stream_for(architecture, *KINDS):
        learner.learn(task)
        count = len(learner.tasks)
        now = [dict(learner._view(learner.network, n + 1).tensors) for n in range(count)]
        for old, new in zip(before, now, strict=False):
            for name in learner.network.shared:
                most = float((new[name] - old[name]).abs().max())
                assert most <= given_settings.slack + 1e-5
        before = now


@pytest.mark.parametrize("shape", [(4, 6), (4, 3, 2, 2)])
def test_gradients_of_decomposed_weights_are_those_of_their_sum(shape):
    made = random(0)
    given = [torch.randn(size, generator=made) for size in (shape, shape[:1], shape)]
    slope = torch.randn(shape, generator=made)
    ours, plain = ([tensor.clone().requires_grad_() for tensor in given] for _ in range(2))
    sigma, gate, tau = plain
    open_share = torch.sigmoid(gate).reshape(-1, *[1] * (len(shape) - 1))
    expected = sigma * open_share + tau
    found = decomposed(*ours)
    torch.testing.assert_close(found, expected)
    for weights in (found, expected):
        weights.backward(slope)
    for one, other in zip(ours, plain, strict=True):
        torch.testing.assert_close(one.grad, other.grad)


def learned(**changes):
    learner = APD(small_mlp(), APDSettings(**changes, budget=BUDGET))
    for task in stream_for(small_mlp(), "one output", "classes"):
        learner.learn(task)
    return learner


def own_weights(learner, number):
    memory = learner.network.memory
    return sum(t.numel() for n, t in memory.items() if n.startswith(f"own/{number}/tau/"))


def test_a_task_has_fewer_weights_of_its_own_the_more_they_cost():
    assert 0 < own_weights(learned(lam1=0.1), 2) < own_weights(learned(lam1=0.001), 2)
    assert own_weights(learned(lam1=1.0), 2) < 10


def test_sigma_moves_and_what_that_costs_an_earlier_task_is_in_its_own_weights():
    learner = APD(small_mlp(), APDSettings(lam1=0.001, lam2=1000.0, budget=BUDGET))
    first, second = stream_for(small_mlp(), "one output", "classes")
    learner.learn(first)
    sigma = {name: t.clone() for name, t in learner.network.shared.items()}
    assert own_weights(learner, 1) == 0
    learner.learn(second)
    moved = sum(int((t != sigma[name]).sum()) for name, t in learner.network.shared.items())
    assert 0 < own_weights(learner, 1) <= moved


@pytest.mark.parametrize(
    ("changes", "says"),
    [({"lam1": -1.0}, "lam1 must be 0 or more"), ({"lam2": 0.0}, "lam2 must be above 0")],
)
def test_a_strength_out_of_range_is_refused(changes, says):
    with pytest.raises(SettingError, match=says):
        APDSettings(**changes)


def test_bytes_count_only_the_weights_that_are_there():
    cheap, dear = learned(lam1=1.0), learned(lam1=0.001)
    assert cheap.capacity().bytes < dear.capacity().bytes
    assert torch.is_tensor(cheap.network.memory["own/bits/2/hidden1.weight"])
