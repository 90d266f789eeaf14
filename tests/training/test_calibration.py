"""Calibration: the scale and shift of outputs that suit rows best."""

import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from builders import random
from lifelong.tasks.kinds import Kind
from lifelong.training.calibration import calibration
from lifelong.training.losses import loss_of

BINARY = loss_of(Kind.BINARY)


def rows(count, seed=0):
    """Logits, and labels that are drawn as they say."""
    logits = 2 * torch.randn(count, 1, generator=random(seed))
    drawn = torch.rand(count, 1, generator=random(seed + 1))
    return logits, (drawn < torch.sigmoid(logits)).float()


@given(st.floats(0.25, 4), st.floats(-2, 2), st.integers(0, 9))
def test_what_was_scaled_and_shifted_is_undone(scale, shift, seed):
    logits, y = rows(2000, seed)
    found, back = calibration((logits - shift) / scale, y, BINARY)
    assert BINARY(found * (logits - shift) / scale + back, y) <= BINARY(logits, y) + 1e-3
    assert found == pytest.approx(scale, rel=0.25)


@given(st.integers(2, 40), st.integers(0, 9))
def test_classes_are_calibrated_too_and_never_worse(count, seed):
    outputs = 10 * torch.randn(count, 3, generator=random(seed))
    y = torch.randint(3, (count,), generator=random(seed + 1))
    loss = loss_of(Kind.CLASSES)
    scale, shift = calibration(outputs, y, loss)
    assert scale >= 0
    assert loss(scale * outputs + shift, y) <= loss(outputs, y) + 1e-5


def test_rows_without_an_error_do_not_ask_for_any_scale():
    y = torch.tensor([[0.0], [1.0]] * 20)
    scale, shift = calibration(2 * y - 1, y, BINARY)
    assert 1 < scale < 100
    assert abs(shift) < 0.1


def test_what_is_in_the_wrong_order_is_worth_a_constant_guess():
    logits, y = rows(400)
    scale, shift = calibration(-logits, y, BINARY)
    assert scale == 0
    guess = math.log(float(y.mean()) / (1 - float(y.mean())))
    assert shift == pytest.approx(guess, abs=0.5)


@pytest.mark.parametrize(
    "outputs", [torch.zeros(4, 1), torch.full((4, 1), 1e30), torch.full((4, 1), math.nan)]
)
def test_what_cannot_be_calibrated_stays(outputs):
    y = torch.tensor([[0.0], [1.0], [0.0], [1.0]])
    scale, shift = calibration(outputs, y, BINARY)
    assert math.isfinite(scale)
    assert math.isfinite(shift)
