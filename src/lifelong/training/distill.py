"""Distillation: labels mixed with a teacher network's probabilities, or numbers."""

import torch
import torch.nn.functional as F
from torch import Tensor

from lifelong.networks.growing import Network
from lifelong.tasks.examples import Examples, relabelled
from lifelong.tasks.kinds import Kind


def distilled(rows: Examples, teacher: Network, kind: Kind, share: float) -> Examples:
    """The same rows; `share` is the weight of the teacher's probabilities in each label."""
    if share == 0:
        return rows
    return relabelled(rows, lambda x, y: _mixed(kind, y, teacher.logits(x), share))


def _mixed(kind: Kind, y: Tensor, logits: Tensor, share: float) -> Tensor:
    if kind.is_regression:
        return torch.lerp(y, logits, share)
    if kind is Kind.BINARY:
        return torch.lerp(y, torch.sigmoid(logits), share)
    one_hot = F.one_hot(y, logits.shape[1]).to(logits.dtype)
    return torch.lerp(one_hot, torch.softmax(logits, dim=1), share)
