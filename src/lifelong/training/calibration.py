"""Calibration: the scale and shift of a network's outputs that suit given rows best."""

import torch
from torch import Tensor

from lifelong.training.losses import Loss

_STEPS = 50
_PENALTY = 0.1  # on their squares, over the rows: bounds what rows without an error ask for
_MOST = 1e4  # of an output: beyond it a loss in float32 cannot be searched


def calibration(outputs: Tensor, y: Tensor, loss: Loss) -> tuple[float, float]:
    """The scale, 0 or more, and the shift of the outputs with the lowest loss; 1 and 0 if none is
    lower.
    """
    if not bool(outputs.abs().max() < _MOST):
        return 1.0, 0.0
    size = outputs.std(correction=0).clamp_min(1 / _MOST)
    found = torch.stack([size, torch.zeros_like(size)]).requires_grad_()
    search = torch.optim.LBFGS([found], max_iter=_STEPS, line_search_fn="strong_wolfe")

    def closure() -> Tensor:
        search.zero_grad()
        value = loss(found[0] * (outputs / size) + found[1], y)
        penalised = value + _PENALTY * (found * found).sum() / len(y)
        penalised.backward()
        return penalised

    with torch.enable_grad():
        search.step(closure)
    scale, shift = float(found[0].detach() / size), float(found[1].detach())
    scale = max(scale, 0.0)
    lower = bool(loss(scale * outputs + shift, y) < loss(outputs, y))  # not if it is not finite
    return (scale, shift) if lower else (1.0, 0.0)
