"""DNN-STL: one separate network per task."""

from typing import ClassVar, final

import torch

from lifelong.learners.base import Learner
from lifelong.learners.baselines.settings import TrainingSettings
from lifelong.networks.growing import GrowingNetwork, first_network
from lifelong.networks.initial import uniform
from lifelong.networks.layout import trainable
from lifelong.records import GroupRecord, TaskRecord
from lifelong.tasks.examples import to_device
from lifelong.tasks.task import Task
from lifelong.training.loop import Problem, TrainingContext, objective, solve
from lifelong.training.penalties import sparse_weights


@final
class Single(Learner[TrainingSettings]):
    """Each task gets the whole base network, trained with l1 like DEN's first task (Equation 2)."""

    method: ClassVar[str] = "DNN-STL"
    settings_type = TrainingSettings

    def _require_usable(self) -> None:
        self._require_network(self.network.architecture.layout.tensors)

    def _learn(
        self, task: Task, generator: torch.Generator, context: TrainingContext
    ) -> tuple[GrowingNetwork, TaskRecord]:
        architecture = self.network.architecture
        make = uniform(generator, self.device)
        network = first_network(architecture, architecture.layout.groups, task.outputs, make)
        rows = (to_device(rows, self.device) for rows in (task.train, task.valid))
        problem = Problem(
            f"{task.name}: alone",
            network.tensors,
            [objective(architecture, task, *rows)],
            movable=trainable(architecture.layout.tensors),
            penalties=sparse_weights(architecture.layout.tensors, self.settings.mu),
            buffers=architecture.layout.buffers,
        )
        solution = solve(problem, self.settings.budget, generator, context)
        network = network.with_tensors(solution.tensors)
        groups = {group: GroupRecord(len(born)) for group, born in network.born.items()}
        record = TaskRecord(task.name, len(self.tasks) + 1, groups, (solution.record("alone"),))
        known = self.network.remember(task, network, private=tuple(network.tensors))
        return known, record
