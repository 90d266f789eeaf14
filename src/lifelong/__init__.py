"""Networks that keep learning, task after task, and grow only where they must."""

from importlib import import_module

TYPE_CHECKING = False  # not from typing, whose import a Ctrl-C could fall into

if TYPE_CHECKING:
    from pathlib import Path

    from torch import device as Device
    from torch.nn import Module

    from lifelong.estimator import LifelongClassifier, LifelongRegressor
    from lifelong.learners.base import AnyLearner
    from lifelong.learners.den import DEN, Settings
    from lifelong.networks.adapted import adapt
    from lifelong.networks.sequential import alexnet, convnet, mlp
    from lifelong.networks.traced.architecture import grow
    from lifelong.tasks.kinds import Kind, TaskError
    from lifelong.tasks.task import Task
    from lifelong.training.budget import Budget

__all__ = [
    "DEN",
    "Budget",
    "Kind",
    "LifelongClassifier",
    "LifelongRegressor",
    "Settings",
    "Task",
    "TaskError",
    "adapt",
    "alexnet",
    "convnet",
    "grow",
    "load",
    "mlp",
]

_HOMES = {
    "lifelong.estimator": ("LifelongClassifier", "LifelongRegressor"),
    "lifelong.learners.den": ("DEN", "Settings"),
    "lifelong.networks.adapted": ("adapt",),
    "lifelong.networks.sequential": ("alexnet", "convnet", "mlp"),
    "lifelong.networks.traced.architecture": ("grow",),
    "lifelong.tasks.kinds": ("Kind", "TaskError"),
    "lifelong.tasks.task": ("Task",),
    "lifelong.training.budget": ("Budget",),
}


def load(
    path: "str | Path",
    *,
    device: "str | Device" = "cpu",
    progress: bool = False,
    module: "Module | None" = None,
) -> "AnyLearner":
    """Read a saved model of any method: the learner that `save` wrote.

    A model of a network that `adapt` made needs the `module` that it was made of.

    Safe on untrusted files, as `Learner.load` is.
    """
    from lifelong.learners.registry import load_model  # here, since it imports torch

    return load_model(path, device=device, progress=progress, module=module)


def __getattr__(name: str) -> object:
    """Import a name when it is first asked for: reading results must not wait for torch."""
    if name == "__version__":
        return import_module("importlib.metadata").version("lifelong")
    home = next((home for home, names in _HOMES.items() if name in names), None)
    if home is None:
        raise AttributeError(f"module 'lifelong' has no attribute {name!r}; it has {__all__}")
    return getattr(import_module(home), name)


def __dir__() -> list[str]:
    return [*__all__, "__version__"]
