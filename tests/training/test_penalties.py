"""A proximal map is checked against its own definition: nothing may do better."""

import pytest
import torch
from hypothesis import given
from hypothesis import settings as runs
from hypothesis import strategies as st

from builders import random, small_convnet
from lifelong.training.penalties import (
    Around,
    KernelGroup,
    L1Norm,
    Quadratic,
    SparseGroup,
    SquaredL2,
    Sum,
    sparse_weights,
    sparsity,
)

SHAPE = (3, 2, 2, 2)
strengths = st.floats(0, 3)
steps = st.floats(1e-3, 2)
seeds = st.integers(0, 10_000)


def tensor(seed, *, scale=1.0):
    return scale * torch.randn(SHAPE, generator=random(seed), dtype=torch.float64)


@st.composite
def penalties(draw):
    simple = st.one_of(
        st.builds(L1Norm, strengths),
        st.builds(SquaredL2, strengths),
        st.builds(KernelGroup, strengths),
        st.builds(SparseGroup, strengths, strengths),
        st.builds(lambda seed: Quadratic(tensor(seed).abs(), tensor(seed + 1)), seeds),
    )
    one = draw(simple)
    if draw(st.booleans()):
        one = Sum(one, SquaredL2(draw(strengths)))
    if draw(st.booleans()):
        one = Around(tensor(draw(seeds)), one)
    return one


def objective(penalty, v, w, step):
    return float(penalty.value(v) + (v - w).square().sum() / (2 * step))


@given(penalties(), seeds, steps, st.sampled_from([0.01, 1.0, 10.0]))
@runs(max_examples=150)
def test_nothing_beats_a_proximal_map(penalty, seed, step, scale):
    w = tensor(seed, scale=scale)
    found = penalty.prox(w, step)
    least = objective(penalty, found, w, step)
    slack = 1e-12 * (1 + abs(least))
    generator = random(seed + 1)

    def noise():
        return torch.randn(SHAPE, generator=generator, dtype=torch.float64)

    candidates = [torch.zeros_like(w), w, *(share * w + (1 - share) * found for share in (0.5, 2))]
    for distance in (1e-6, 1e-4, 1e-2, 1, 10):
        candidates += [found + distance * noise() for _ in range(8)]
        one = torch.zeros_like(w)
        one.view(-1)[int(torch.randint(w.numel(), (1,), generator=generator))] = distance
        candidates += [found + one, found - one, found * (1 + distance), found * (1 - distance)]
    for candidate in candidates:
        assert least <= objective(penalty, candidate, w, step) + slack


@given(penalties(), seeds, steps)
@runs(max_examples=60)
def test_a_proximal_map_brings_no_two_points_further_apart(penalty, seed, step):
    one, two = tensor(seed), tensor(seed + 1)
    apart = torch.linalg.vector_norm(penalty.prox(one, step) - penalty.prox(two, step))
    assert apart <= torch.linalg.vector_norm(one - two) * (1 + 1e-12)


@given(st.floats(0.01, 3), st.floats(0.01, 3), seeds, steps)
@runs(max_examples=60)
def test_the_closed_forms_entry_by_entry_and_group_by_group(mu, gamma, seed, step):
    w = tensor(seed)

    def soft(value):
        return max(abs(value) - step * mu, 0) * (1 if value > 0 else -1)

    def shrunk(group, threshold):
        length = sum(v * v for v in group) ** 0.5
        return [v * max(1 - threshold / length, 0) if length else 0.0 for v in group]

    l1 = [soft(v) for v in w.flatten().tolist()]
    l2 = [v / (1 + 2 * step * mu) for v in w.flatten().tolist()]
    kernels = [v for k in w.reshape(6, 4).tolist() for v in shrunk(k, step * mu)]
    sparse = [v for g in [l1[i : i + 8] for i in (0, 8, 16)] for v in shrunk(g, step * gamma)]
    for penalty, expected in (
        (L1Norm(mu), l1),
        (SquaredL2(mu), l2),
        (KernelGroup(mu), kernels),
        (SparseGroup(mu, gamma), sparse),
    ):
        found = penalty.prox(w, step)
        expected = torch.tensor(expected, dtype=torch.float64).reshape(SHAPE)
        torch.testing.assert_close(found, expected, rtol=1e-12, atol=1e-14)
        assert torch.equal(found == 0, expected == 0)


def test_values_by_hand():
    w = torch.tensor([[3.0, -4.0], [0.0, 1.0]])
    assert L1Norm(2).value(w) == 16
    assert SquaredL2(0.5).value(w) == 13
    assert SparseGroup(1, 10).value(w) == 8 + 60
    assert KernelGroup(2).value(w.reshape(2, 1, 2, 1)) == 12
    assert Quadratic(2 * torch.ones(2, 2), torch.ones(2, 2)).value(w) == 4 + 25 + 1
    assert Around(torch.ones(2, 2), L1Norm(1)).value(w) == 2 + 5 + 1
    assert Sum(L1Norm(2), SquaredL2(0.5)).value(w) == 29


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize(
    "penalty",
    [L1Norm(1.0), KernelGroup(4.0), SparseGroup(0.5, 4.0), Sum(L1Norm(1.0), SquaredL2(1.0))],
)
def test_zeros_are_exact(penalty, dtype):
    w = torch.randn(50, 2, 2, 2, generator=random(0)).to(dtype)
    found = penalty.prox(w, 0.5)
    zeros = found == 0
    assert 0 < int(zeros.sum()) < zeros.numel()
    assert not found[found.abs() < 1e-6].any()
    assert torch.isfinite(penalty.prox(torch.zeros_like(w), 0.5)).all()
    assert not penalty.prox(torch.zeros_like(w), 0.5).any()


def test_a_whole_unit_or_kernel_goes_at_once():
    w = torch.randn(40, 3, 2, 2, generator=random(0))
    kernels = KernelGroup(3.0).prox(w, 0.5).reshape(120, 4)
    units = SparseGroup(0.0, 6.0).prox(w, 0.5).reshape(40, 12)
    for groups in (kernels, units):
        dead = (groups == 0).all(dim=1)
        assert 0 < int(dead.sum()) < len(dead)
        assert (groups[~dead] != 0).all()


@given(seeds, steps, st.sampled_from([L1Norm(0.7), KernelGroup(1.0), SparseGroup(0.3, 0.5)]))
@runs(max_examples=60)
def test_around_a_center_what_does_not_move_is_the_center_to_the_bit(seed, step, penalty):
    center = torch.randn(SHAPE, generator=random(seed)) * 3
    w = center + 0.5 * torch.randn(SHAPE, generator=random(seed + 1))
    found = Around(center, penalty).prox(w, step)
    still = penalty.prox(w - center, step) == 0
    assert torch.equal(found[still], center[still])
    torch.testing.assert_close(found - center, penalty.prox(w - center, step), atol=2e-6, rtol=0)
    assert torch.equal(Around(center, penalty).prox(center, step), center)


def test_strength_zero_is_no_penalty():
    w = tensor(3).float()
    for penalty in (L1Norm(0.0), SquaredL2(0.0), KernelGroup(0.0), SparseGroup(0.0, 0.0)):
        assert torch.equal(penalty.prox(w, 0.5), w)


def test_equation_2_takes_kernels_for_a_convolution_and_entries_for_all_else():
    specs = small_convnet().layout.tensors
    found = sparse_weights(specs, 0.1)
    assert found == {
        "conv1.weight": KernelGroup(0.1),
        "conv2.weight": KernelGroup(0.1),
        "hidden1.weight": L1Norm(0.1),
        "head.weight": L1Norm(0.1),
    }
    assert sparsity(specs["conv1.bias"], 0.1) == L1Norm(0.1)
