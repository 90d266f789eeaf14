"""What a learner refuses before it begins: settings, devices, networks, tasks."""

from collections.abc import Collection

import msgspec
import torch

from lifelong.networks.layout import Architecture, NetworkError
from lifelong.persistence.files import MOST_NAME
from lifelong.tasks.kinds import TaskError
from lifelong.tasks.task import Task
from lifelong.training.budget import SettingError
from lifelong.training.ranks import Ranks

MOST_WEIGHTS = 2**34  # of a base network: 64 GiB of float32


def require_architecture(architecture: object) -> None:
    """Refuse what is no network of this library, or one that no machine holds."""
    if not hasattr(architecture, "layout"):
        raise NetworkError(
            "a learner takes a network made by mlp, convnet or alexnet, such as "
            f"mlp(784, [312, 128]), not {architecture!r}"
        )
    weights = architecture.layout.parameters([])
    if weights > MOST_WEIGHTS:
        raise NetworkError(
            f"the network has {weights:,} weights; at most {MOST_WEIGHTS:,} are allowed: make its "
            "layers narrower"
        )


def require_storable(settings: object, seed: int) -> None:
    """Refuse early what could not be saved after the learning."""
    if isinstance(seed, bool) or not isinstance(seed, int) or not 0 <= seed < 2**64:
        raise SettingError(f"seed must be a whole number from 0 to 2**64 - 1, not {seed!r}")
    try:
        msgspec.json.encode(settings)
    except TypeError as error:
        raise SettingError(
            f"settings must be plain numbers, words and lists, for a model file to hold them: "
            f"{error}; use float(...), int(...) or list(...)"
        ) from error


def usable_device(device: str | torch.device) -> torch.device:
    """The device; refuses one that is not there."""
    try:
        chosen = torch.device(device)
        if chosen.type != "cpu":
            torch.empty(0, device=chosen)
    except (RuntimeError, AssertionError, TypeError) as error:
        reason = str(error).splitlines()[0]
        raise SettingError(
            f"device {str(device)!r} cannot be used here: {reason}; use 'cpu', or install a "
            "PyTorch that has it"
        ) from error
    return chosen


def require_divisible(architecture: Architecture, ranks: Ranks) -> None:
    """Refuse networks whose training needs whole batches."""
    if architecture.layout.buffers and not ranks.alone:
        raise NetworkError(
            f"several processes train networks without running statistics, but this one has "
            f"{architecture.layout.buffers[0]}, which each would take of its own rows; use group "
            "or layer normalisation, freeze that part, or learn in one process"
        )


def require_new(task: Task, learned: Collection[str], architecture: Architecture) -> None:
    """Refuse a task whose name was taken or fits in no file, or that is not for this network."""
    if task.name in learned:
        raise TaskError(f"a task named {task.name!r} was learned already; names must differ")
    if not _is_text(task.name):
        raise TaskError(f"task {task.name!r}: its name must be text that a file can hold")
    if len(task.name) > MOST_NAME:
        raise TaskError(
            f"task {task.name[:20]!r}…: its name has {len(task.name):,} characters, but a file "
            f"can hold {MOST_NAME:,}; give it a shorter one"
        )
    require_shape(task, architecture)


def require_shape(task: Task, architecture: Architecture) -> None:
    """Refuse inputs of another shape than the network takes."""
    wanted = architecture.layout.inputs
    if task.shape != wanted:
        raise TaskError(
            f"task {task.name!r}: inputs of shape {task.shape}, but the network takes {wanted}"
        )


def _is_text(name: str) -> bool:
    """Whether a name can be encoded in UTF-8; a lone surrogate cannot."""
    return name.encode(errors="ignore").decode() == name
