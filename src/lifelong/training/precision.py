"""Training steps in less than float32."""

import subprocess
import sys
from contextlib import AbstractContextManager, nullcontext
from functools import cache

import torch
from msgspec import UNSET

from lifelong.training.budget import Budget, SettingError

_TRIAL = (
    "import torch, torch.nn.functional as F\n"
    "x = torch.ones(4, 8, 6, 6, requires_grad=True)\n"
    "with torch.autocast('cpu', dtype=torch.bfloat16):\n"
    "    y = F.linear(F.conv2d(x, torch.ones(8, 8, 3, 3)).flatten(1), torch.ones(8, 128))\n"
    "y.float().sum().backward()\n"
)
_SECONDS = 120


def precision_of(budget: Budget, device: torch.device) -> AbstractContextManager[object]:
    """The context of a training step; weights stay in float32 in any case."""
    if budget.precision is UNSET:
        return nullcontext()
    return torch.autocast(device.type, dtype=getattr(torch, budget.precision))


def require_precision(budget: Budget, device: torch.device) -> None:
    """Refuse a precision that this machine only claims to have: a step would end the process."""
    if budget.precision is UNSET or device.type != "cpu" or _works():
        return
    raise SettingError(
        "precision='bfloat16' ends a process on this machine, whose processor announces "
        "instructions that it does not carry out; set the environment variable "
        "ONEDNN_MAX_CPU_ISA=AVX512_CORE_BF16 before Python starts, or leave precision out"
    )


@cache
def _works() -> bool:
    """Tried in another process, once."""
    try:
        trial = subprocess.run(
            [sys.executable, "-c", _TRIAL], capture_output=True, timeout=_SECONDS, check=False
        )
    except (OSError, subprocess.TimeoutExpired):
        return True  # it cannot be tried here
    return trial.returncode >= 0
