"""LwF: learning without forgetting (Li and Hoiem, 2016).

Before a task is learned, the network answers its rows for every earlier task. While it is learned,
the network is trained to keep these answers too, softened by a temperature: distillation without
any earlier data.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar, Literal, final

import torch
import torch.nn.functional as F
from torch import Tensor

from lifelong.learners.baselines.sequential import SequentialLearner, heads
from lifelong.learners.baselines.settings import SequentialSettings
from lifelong.networks.growing import GrowingNetwork
from lifelong.networks.layout import HEAD, Architecture, Tensors, apply_head
from lifelong.tasks.examples import Examples, relabelled
from lifelong.tasks.kinds import Kind
from lifelong.tasks.task import Task
from lifelong.training.budget import require, require_one_of
from lifelong.training.loop import TaskObjective
from lifelong.training.losses import loss_of


@final
@dataclass(frozen=True)
class LwFSettings(SequentialSettings):
    """Symbols of LwF.

    Attributes:
        strength: lambda_o, of the old answers; of no effect if `weighting` is "share".
        temperature: T, by which outputs are divided before sigmoid or softmax.
        weighting: "sum" adds strength times the distillation of each earlier task, as in the paper;
            "share" gives the t-th task 1/t of the loss, and the mean distillation the rest, as van
            de Ven and Tolias do.
    """

    strength: float = 1.0
    temperature: float = 2.0
    weighting: Literal["sum", "share"] = "sum"

    def __post_init__(self) -> None:
        super().__post_init__()
        require("strength", self.strength, "0 or more", lambda v: v >= 0)
        require("temperature", self.temperature, "above 0", lambda v: v > 0)
        require_one_of("weighting", self.weighting, ("sum", "share"))


@final
class LwF(SequentialLearner[LwFSettings]):
    """Keeps no data: the new task's rows stand in for those of earlier tasks."""

    method: ClassVar[str] = "LwF"
    settings_type = LwFSettings

    def _retrained(self, known: GrowingNetwork) -> Tensors:
        return heads(known) if self.settings.heads == "own" else {}

    def _objectives(
        self, task: Task, train: Examples, valid: Examples, generator: torch.Generator
    ) -> Sequence[TaskObjective]:
        if not self.network.tasks:
            return super()._objectives(task, train, valid, generator)
        own = self.settings.heads == "own"
        teacher = _Answers(self.network, self.settings.temperature, own)
        loss = self._loss(task, teacher)
        rows = (relabelled(part, teacher.after_labels) for part in (train, valid))
        return [TaskObjective(teacher.outputs, loss, *rows, training=teacher.outputs)]

    def _loss(self, task: Task, teacher: "_Answers") -> "_Distilling":
        number, settings = len(self.network.tasks) + 1, self.settings
        if settings.weighting == "share":
            old = (1 - 1 / number) / len(teacher.kinds)
            return _Distilling(task, teacher, 1 / number, old)
        return _Distilling(task, teacher, 1.0, settings.strength)


@final
class _Answers:
    """The network before the task, which answers for every earlier task, or by the one head.

    Attributes:
        kinds, sizes: what each answer means, and its number of outputs.
    """

    def __init__(self, known: GrowingNetwork, temperature: float, own_heads: bool) -> None:
        self._known, self.temperature, self._own_heads = known, temperature, own_heads
        tasks = known.tasks if own_heads else known.tasks[:1]
        self.kinds = tuple(one.kind for one in tasks)
        self.sizes = tuple(one.outputs for one in tasks)

    def of(self, x: Tensor) -> Tensor:
        """Softened probabilities for each earlier task, side by side."""
        tensors = {**self._known.everything(), **self._known.statistics}
        found = self._old(tensors, self._architecture.features(tensors, x))
        by_task = zip(self.kinds, found, strict=True)
        return torch.cat([_softened(kind, o, self.temperature) for kind, o in by_task], dim=1)

    def outputs(
        self, tensors: Tensors, x: Tensor, generator: torch.Generator | None = None
    ) -> Tensor:
        """Outputs for the new task and for each earlier one, side by side."""
        features = self._architecture.features(tensors, x, generator)
        return torch.cat([apply_head(features, tensors), *self._old(tensors, features)], dim=1)

    def after_labels(self, x: Tensor, y: Tensor) -> Tensor:
        """Labels, followed by the old network's answers."""
        return torch.cat([y.reshape(len(y), -1).float(), self.of(x)], dim=1)

    @property
    def _architecture(self) -> Architecture:
        return self._known.architecture

    def _old(self, tensors: Tensors, features: Tensor) -> list[Tensor]:
        if not self._own_heads:
            return [apply_head(features, tensors)]
        return [
            apply_head(features, {name: tensors[f"{number}.{name}"] for name in HEAD})
            for number in range(1, len(self.kinds) + 1)
        ]


@final
@dataclass(frozen=True, eq=False)
class _Distilling:
    """Loss of the new task times `new`, plus that of each old answer times `old`."""

    task: Task
    teacher: _Answers
    new: float
    old: float

    def __call__(self, outputs: Tensor, y: Tensor) -> Tensor:
        kind, own = self.task.kind, self.task.outputs
        labels = 1 if kind is Kind.CLASSES else own
        truth = y[:, 0].long() if kind is Kind.CLASSES else y[:, :labels]
        loss = self.new * loss_of(self.task)(outputs[:, :own], truth)
        sizes, temperature = self.teacher.sizes, self.teacher.temperature
        found = outputs[:, own:].split(sizes, dim=1)
        wanted = y[:, labels:].split(sizes, dim=1)
        for old, one, answer in zip(self.teacher.kinds, found, wanted, strict=True):
            # The square of T makes up for what it divides the gradients by. Numbers have no T.
            t = 1.0 if old.is_regression else temperature
            loss = loss + self.old * t**2 * loss_of(old)(one / t, answer)
        return loss


def _softened(kind: Kind, outputs: Tensor, temperature: float) -> Tensor:
    if kind.is_regression:
        return outputs
    soft = outputs / temperature
    return torch.sigmoid(soft) if kind is Kind.BINARY else F.softmax(soft, dim=1)
