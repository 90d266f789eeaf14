"""ER: experience replay (Chaudhry et al., 2019) from a reservoir of rows.

The only method here that keeps data: some rows of all tasks, as many as fit into `memory` bytes,
every row seen so far with equal probability (reservoir sampling: Vitter, 1985). Each step trains on
a batch of the new task and an equally large one of kept rows.

Departs from the paper: the reservoir is filled when a task ends, not while it is learned.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from math import prod
from typing import ClassVar, final

import numpy as np
import torch
import torch.nn.functional as F
from numpy.typing import NDArray
from torch import Tensor

from lifelong.learners.baselines.sequential import (
    MethodMemory,
    SequentialLearner,
    TaskOutcome,
    heads,
)
from lifelong.learners.baselines.settings import SequentialSettings
from lifelong.networks.growing import OWN, GrowingNetwork, LearnedTask
from lifelong.networks.layout import NetworkError, Tensors, apply_head, logits
from lifelong.tasks.examples import Examples, TensorExamples, part_of, whole_of
from lifelong.tasks.kinds import Kind
from lifelong.tasks.task import Task
from lifelong.training.budget import SettingError, require
from lifelong.training.loop import TaskObjective
from lifelong.training.losses import loss_of

_X, _Y, _TASK, _SEEN = (f"{OWN}{word}" for word in ("x", "y", "task", "seen"))
_NUMBER = 4  # bytes of a stored number
_MOST_SEEN = 2**53  # rows that are counted exactly


@final
@dataclass(frozen=True)
class ERSettings(SequentialSettings):
    """`memory` is the number of bytes that kept rows, their labels and tasks may take."""

    memory: int = 2**20

    def __post_init__(self) -> None:
        super().__post_init__()
        whole = "a whole number above 0"
        require("memory", self.memory, whole, lambda v: isinstance(v, int) and v > 0)


@final
class ER(SequentialLearner[ERSettings]):
    """What keeping data buys, at its price in bytes."""

    method: ClassVar[str] = "ER"
    precomputes: ClassVar[bool] = False  # it keeps rows as they came
    settings_type = ERSettings

    def _retrained(self, known: GrowingNetwork) -> Tensors:
        return heads(known) if self.settings.heads == "own" else {}

    def _require_usable(self) -> None:
        super()._require_usable()
        network, memory = self.network, self.network.memory
        if not network.tasks:
            return
        if any(name not in memory for name in (_X, _Y, _TASK, _SEEN)):
            raise NetworkError("it has no reservoir")
        count, widest = len(memory[_TASK].flatten()), max(map(_labels, network.tasks))
        wanted = {
            _X: (count, *network.architecture.layout.inputs),
            _Y: (count, widest),
            _TASK: (count,),
            _SEEN: (),
        }
        for name, shape in wanted.items():
            if tuple(memory[name].shape) != shape:
                raise NetworkError(f"its reservoir has {tuple(memory[name].shape)} as {name}")
        numbers = memory[_TASK]
        if not ((numbers >= 1) & (numbers <= len(network.tasks)) & (numbers % 1 == 0)).all():
            raise NetworkError("its reservoir has rows of no task")
        seen = float(memory[_SEEN])
        if not count <= seen <= _MOST_SEEN:
            raise NetworkError(f"its reservoir is of {seen:g} rows, and has {count} of them")
        if not self._valid_labels():
            raise NetworkError("its reservoir has labels that no task has")

    def _valid_labels(self) -> bool:
        """Whether every kept label is one that its task can have."""
        memory = self.network.memory
        for number, one in enumerate(self.network.tasks, 1):
            if one.kind.is_regression:
                continue
            y = memory[_Y][memory[_TASK] == number]
            most = one.outputs - 1 if one.kind is Kind.CLASSES else 1
            whole = one.kind is Kind.BINARY or bool((y[:, 0] % 1 == 0).all())
            if not (whole and bool(((y >= 0) & (y <= most)).all())):
                return False
        return True

    def _objectives(
        self, task: Task, train: Examples, valid: Examples, generator: torch.Generator
    ) -> Sequence[TaskObjective]:
        new = super()._objectives(task, train, valid, generator)
        known = self.network
        if not known.tasks:
            return new
        kept = known.memory
        labels = torch.cat([kept[_TASK][:, None], kept[_Y]], dim=1)
        rows = self._shared(TensorExamples(kept[_X], labels))
        # There are no kept validation rows: kept rows stand in for them.
        if self.settings.heads == "own":
            return [*new, TaskObjective(self._by_task, self._loss_by_task, rows, rows)]
        kind = known.tasks[0].kind
        return [
            *new,
            TaskObjective(
                lambda tensors, x: logits(known.architecture, tensors, x),
                lambda outputs, y: loss_of(kind)(outputs, _truth(kind, y[:, 1:])),
                rows,
                rows,
            ),
        ]

    def _shared(self, rows: Examples) -> Examples:
        """What this process has of the kept rows."""
        return rows if self.ranks.alone else part_of(rows, self.ranks.rank, self.ranks.count)

    def _by_task(self, tensors: Tensors, x: Tensor) -> Tensor:
        """Outputs of all earlier heads, side by side, each with the statistics of its task."""
        architecture, known = self.network.architecture, self.network
        features = None if architecture.layout.buffers else architecture.features(tensors, x)
        found = []
        for number, one in enumerate(known.tasks, 1):
            own = {name: tensors.get(f"{number}.{name}", t) for name, t in one.private.items()}
            if architecture.layout.buffers:
                features = architecture.features({**tensors, **own}, x)
            assert features is not None
            found.append(apply_head(features, own))
        return torch.cat(found, dim=1)

    def _loss_by_task(self, outputs: Tensor, y: Tensor) -> Tensor:
        """Mean over rows, each under the head of its task."""
        tasks = self.network.tasks
        by_task = outputs.split([one.outputs for one in tasks], dim=1)
        total = outputs.new_zeros(())
        for number, (one, found) in enumerate(zip(tasks, by_task, strict=True), 1):
            rows = (y[:, 0] == number).nonzero()[:, 0]
            if len(rows):
                truth = _truth(one.kind, y[rows, 1 : 1 + _labels(one)])
                total = total + loss_of(one.kind)(found[rows], truth) * (len(rows) / len(y))
        return total

    def _keep(self, outcome: TaskOutcome) -> MethodMemory:
        task, old = outcome.task, outcome.before.memory
        number = len(outcome.before.tasks) + 1
        labels = max(_labels(task), old[_Y].shape[1] if old else 0)
        capacity = self._capacity(task, labels)
        if old:
            kept = [old[_X], _padded(old[_Y], labels), old[_TASK]]
            seen = int(old[_SEEN])
        else:
            x = torch.zeros(0, *task.shape, device=self.device)
            kept, seen = [x, x.new_zeros(0, labels), x.new_zeros(0)], 0
        fewer = torch.randperm(len(kept[2]), generator=outcome.generator)[:capacity]
        if len(fewer) < len(kept[2]):  # labels have become wider
            kept = [column[fewer.to(column.device)] for column in kept]
        slots = reservoir(seen, len(task.train), capacity, outcome.generator)
        x, y = _rows(whole_of(outcome.train), slots[slots >= 0])
        new = [x, _padded(y.reshape(len(y), -1).float(), labels), x.new_full((len(y),), number)]
        stays = torch.from_numpy(slots < 0)[: len(kept[2])]
        columns = [torch.cat([a[stays.to(a.device)], b]) for a, b in zip(kept, new, strict=True)]
        count = torch.tensor(float(seen + len(task.train)), device=self.device)
        memory = dict(zip((_X, _Y, _TASK, _SEEN), (*columns, count), strict=True))
        return MethodMemory(outcome.shared, memory)

    def _capacity(self, task: Task, labels: int) -> int:
        """Rows that fit into the memory."""
        row = _NUMBER * (prod(task.shape) + labels + 1)
        if row > self.settings.memory:
            raise SettingError(
                f"memory must hold a row at least, which takes {row} bytes, not "
                f"{self.settings.memory}"
            )
        return self.settings.memory // row


def reservoir(
    seen: int, coming: int, capacity: int, generator: torch.Generator
) -> NDArray[np.int64]:
    """For each place of a reservoir, which of the coming rows is in it afterwards, or -1.

    After any number of calls each row ever seen is there with equal probability. There are as many
    places as rows seen, up to the capacity.
    """
    numbers = np.arange(seen, seen + coming)
    drawn = torch.rand(coming, dtype=torch.float64, generator=generator).numpy()
    places = np.where(numbers < capacity, numbers, (drawn * (numbers + 1)).astype(np.int64))
    slots = np.full(min(capacity, seen + coming), -1, np.int64)
    inside = places < capacity
    slots[places[inside]] = np.arange(coming)[inside]  # of several for a place, the last stays
    return slots


def _rows(rows: Examples, chosen: NDArray[np.int64]) -> tuple[Tensor, Tensor]:
    """The rows of these numbers, in the order stored."""
    wanted = np.sort(chosen)
    found, start = [], 0
    for x, y in rows.batches(4096):
        inside = wanted[(wanted >= start) & (wanted < start + len(x))] - start
        places = torch.from_numpy(inside).to(x.device)
        found.append((x[places], y[places]))
        start += len(x)
    return torch.cat([x for x, _ in found]), torch.cat([y for _, y in found])


def _labels(task: Task | LearnedTask) -> int:
    """Columns that the labels of a task take."""
    return 1 if task.kind is Kind.CLASSES else task.outputs


def _truth(kind: Kind, columns: Tensor) -> Tensor:
    """Stored labels in the form that the loss takes."""
    return columns[:, 0].long() if kind is Kind.CLASSES else columns


def _padded(columns: Tensor, count: int) -> Tensor:
    return F.pad(columns, (0, count - columns.shape[1]))
