"""Avalanche 0.6 beside us, where it is installed (`pip install avalanche-lib==0.6.0`).

Its package imports torchvision, Weights & Biases and others at once, none of which its training
loops use. Where these are missing, empty modules stand in for them.
"""

import importlib.abc
import importlib.machinery
import importlib.util
import sys
import types
from collections.abc import Sequence
from typing import Any

import torch
from torch import nn

UNUSED = ("torchvision", "wandb", "pytorchcv", "gdown", "GPUtil", "tensorboard", "qpsolvers")


class _Nothing:
    """Takes anything and does nothing."""

    def __init__(self, *_args: object, **_options: object) -> None:
        pass


class _Empty(types.ModuleType):
    """A module that has every name."""

    def __getattr__(self, name: str) -> type:
        if name.startswith("__"):
            raise AttributeError(name)
        return type(name, (_Nothing,), {})


class _StandIns(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    def __init__(self, missing: Sequence[str]) -> None:
        self._missing = missing

    def find_spec(self, name: str, path: Sequence[str] | None, target: Any = None) -> Any:
        del path, target
        missing = any(name == one or name.startswith(f"{one}.") for one in self._missing)
        return importlib.machinery.ModuleSpec(name, self, is_package=True) if missing else None

    def create_module(self, spec: Any) -> types.ModuleType:
        return _Empty(spec.name)

    def exec_module(self, module: types.ModuleType) -> None:
        del module


def has_avalanche() -> bool:
    """Whether its training can be used; from now on with stand-ins for what it does not need."""
    if importlib.util.find_spec("avalanche") is None:
        return False
    if not any(isinstance(finder, _StandIns) for finder in sys.meta_path):
        missing = [name for name in UNUSED if importlib.util.find_spec(name) is None]
        if "tensorboard" in missing:
            missing.append("torch.utils.tensorboard")  # which is there, but needs the package
        sys.meta_path.insert(0, _StandIns(missing))
    return True


def one_pass(model: nn.Module, rate: float, batch: int) -> dict[str, Any]:
    """What each of its strategies takes: Adam, one pass over an experience, nothing evaluated."""
    return {
        "model": model,
        "optimizer": torch.optim.Adam(model.parameters(), lr=rate),
        "criterion": nn.CrossEntropyLoss(),
        "train_mb_size": batch,
        "train_epochs": 1,
        "evaluator": None,
    }
