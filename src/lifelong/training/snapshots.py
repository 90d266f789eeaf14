"""Conversion of a training to a `StageSnapshot` and back.

A snapshot may be damaged or belong to another training: everything read is checked, and a mismatch
raises `CheckpointError`.
"""

import math
from collections.abc import Mapping
from typing import TypeVar, final

import msgspec
import torch
from torch import Tensor

from lifelong.networks.layout import Tensors
from lifelong.persistence.checkpoint import CheckpointError, StageSnapshot

Facts = TypeVar("Facts")


@final
class LoopState(msgspec.Struct, forbid_unknown_fields=True):
    """Position of a running training.

    Attributes:
        consumed: batches used of the current pass, per task.
    """

    rate: float
    taken: int = 0
    misses: int = 0
    lr_decays: int = 0
    ended: bool = False
    best: float = math.inf
    seconds: float = 0.0
    consumed: list[int] = []


@final
class Outcome(msgspec.Struct, forbid_unknown_fields=True):
    """Result of an ended training, without its tensors."""

    loss: float
    steps: int
    seconds: float


def snapshot_of(
    stage: str, facts: LoopState | Outcome, parts: Mapping[str, Tensors], generator: torch.Generator
) -> StageSnapshot:
    """Snapshot of a running or ended training, with the state of the generator."""
    tensors = {
        f"{part}/{name}": tensor for part, named in parts.items() for name, tensor in named.items()
    }
    tensors["generator/"] = generator.get_state()
    return StageSnapshot(stage, isinstance(facts, Outcome), msgspec.to_builtins(facts), tensors)


def facts_in(snapshot: StageSnapshot, kind: type[Facts]) -> Facts:
    try:
        return msgspec.convert(snapshot.facts, kind)
    except (msgspec.ValidationError, OverflowError) as error:
        raise mismatch(snapshot, str(error)) from error


def fill(parts: Mapping[str, Tensors], snapshot: StageSnapshot) -> None:
    """Copy saved values into existing tensors, because the memory layout may affect rounding."""
    for part, targets in parts.items():
        for name, target in targets.items():
            target.copy_(_like(target, snapshot, part, name))


def _like(target: Tensor, snapshot: StageSnapshot, part: str, name: str) -> Tensor:
    source = snapshot.tensors.get(f"{part}/{name}")
    if source is None or (source.shape, source.dtype) != (target.shape, target.dtype):
        came = "nothing" if source is None else f"{source.dtype} of {tuple(source.shape)}"
        expected = f"{target.dtype} of {tuple(target.shape)}"
        raise mismatch(snapshot, f"{came} for {part} {name}, not {expected}")
    return source


def set_generator(generator: torch.Generator, snapshot: StageSnapshot) -> None:
    """Restore the generator's state from the snapshot."""
    state = generator.get_state()
    fill({"generator": {"": state}}, snapshot)
    set_state(generator, state, snapshot)


def set_state(generator: torch.Generator, state: Tensor, snapshot: StageSnapshot) -> None:
    try:
        generator.set_state(state)
    except RuntimeError as error:
        raise mismatch(snapshot, str(error)) from error


def mismatch(snapshot: StageSnapshot, why: str) -> CheckpointError:
    return CheckpointError(
        f"{snapshot.stage}: its checkpoint does not fit: {why}; remove the checkpoint to learn "
        "from the start"
    )
