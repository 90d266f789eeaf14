"""DNN-MTL: one base network, trained on all tasks at once."""

from collections.abc import Sequence
from pathlib import Path
from typing import ClassVar, final

import torch

from lifelong.learners.base import Learner
from lifelong.learners.baselines.settings import TrainingSettings
from lifelong.learners.checks import require_shape
from lifelong.networks.growing import GrowingNetwork, Network, first_network
from lifelong.networks.initial import uniform
from lifelong.records import GroupRecord, TaskRecord
from lifelong.tasks.kinds import TaskError
from lifelong.tasks.task import Task
from lifelong.training.loop import TrainingContext
from lifelong.training.multitask import train_multitask


@final
class Joint(Learner[TrainingSettings]):
    """Multi-task learning: needs the data of all tasks at once, by `learn_together`."""

    method: ClassVar[str] = "DNN-MTL"
    settings_type = TrainingSettings

    def _require_usable(self) -> None:
        self._require_network(self.network.architecture.layout.task_owned)

    def _learn(
        self, task: Task, generator: torch.Generator, context: TrainingContext
    ) -> tuple[GrowingNetwork, TaskRecord]:
        if self.tasks:
            raise TaskError(
                f"task {task.name!r}: a multi-task network cannot take one more task; "
                "give it all of them with learn_together(tasks)"
            )
        return self._train([task], generator, context)

    def learn_together(
        self, tasks: Sequence[Task], *, checkpoint: str | Path | None = None
    ) -> TaskRecord:
        """Learn all tasks at once, replacing whatever was learned before.

        `checkpoint` is a directory, as in `learn`.
        """
        names = [task.name for task in tasks]
        if len(set(names)) < len(names):
            raise TaskError(f"tasks must have names that differ, not {names}")
        for task in tasks:
            require_shape(task, self.network.architecture)
        with self._context("learn together", tasks, checkpoint) as context:
            network, record = self._train(self._parts(tasks), self._generator(), context)
            self._commit(context, network, (record,))
        return record

    def _train(
        self, tasks: Sequence[Task], generator: torch.Generator, context: TrainingContext
    ) -> tuple[GrowingNetwork, TaskRecord]:
        known = self._untrained(tasks, generator)
        known, solution = train_multitask(
            known,
            tasks,
            self.settings.budget,
            self.settings.mu,
            generator,
            context,
        )
        groups = {group: GroupRecord(len(born)) for group, born in known.born.items()}
        return known, TaskRecord(
            " + ".join(t.name for t in tasks), 1, groups, (solution.record("together"),)
        )

    def _untrained(self, tasks: Sequence[Task], generator: torch.Generator) -> GrowingNetwork:
        architecture, make = self.network.architecture, uniform(generator, self.device)
        known = GrowingNetwork(architecture)
        for task in tasks:
            fresh = first_network(architecture, architecture.layout.groups, task.outputs, make)
            tensors = {**fresh.tensors, **known.shared}
            known = known.remember(task, Network(architecture, tensors, fresh.born))
        return known
