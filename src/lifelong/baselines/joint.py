"""DNN-MTL: one base network, trained on all tasks at once."""

from collections.abc import Sequence
from pathlib import Path
from typing import ClassVar, final

import torch

from lifelong.baselines.training import Training
from lifelong.learner import Learner
from lifelong.network import GrowingNetwork, Network, first_network, uniform
from lifelong.penalties import sparsity
from lifelong.records import GroupRecord, StageRecord, TaskRecord
from lifelong.skeleton import HEAD
from lifelong.solve import Course
from lifelong.tasks import Task, TaskError
from lifelong.together import train_together


@final
class Joint(Learner[Training]):
    """The batch model: it must be given every task's data together, by `learn_together`."""

    method: ClassVar[str] = "DNN-MTL"
    settings_type = Training

    def _learn(
        self, task: Task, generator: torch.Generator, course: Course
    ) -> tuple[GrowingNetwork, TaskRecord]:
        if self.tasks:
            raise TaskError(
                f"task {task.name!r}: a multi-task network cannot take one more task; "
                "give it all of them with learn_together(tasks)"
            )
        return self._train([task], generator, course)

    def learn_together(
        self, tasks: Sequence[Task], *, checkpoint: str | Path | None = None
    ) -> TaskRecord:
        """Learn all tasks at once, in place of whatever was learned before.

        With a `checkpoint` directory, as in `learn`.
        """
        names = [task.name for task in tasks]
        if len(set(names)) < len(names):
            raise TaskError(f"tasks must have names that differ, not {names}")
        for task in tasks:
            self._refuse_shape(task)
        with self._course("learn together", tasks, checkpoint) as course:
            network, record = self._train(tasks, self._generator(), course)
            self._take_over(course, network, (record,))
        return record

    def _train(
        self, tasks: Sequence[Task], generator: torch.Generator, course: Course
    ) -> tuple[GrowingNetwork, TaskRecord]:
        known = self._untrained(tasks, generator)
        known, solution = train_together(
            known,
            tasks,
            self.settings.budget,
            lambda t: sparsity(t, self.settings.mu),
            generator,
            course,
        )
        stage = StageRecord("together", solution.loss, solution.steps, solution.seconds)
        groups = {group: GroupRecord(len(born)) for group, born in known.born.items()}
        return known, TaskRecord(" + ".join(t.name for t in tasks), 1, groups, (stage,))

    def _untrained(self, tasks: Sequence[Task], generator: torch.Generator) -> GrowingNetwork:
        skeleton, make = self.network.skeleton, uniform(generator, self.device)
        known = GrowingNetwork(skeleton)
        for task in tasks:
            fresh = first_network(skeleton, skeleton.widths, task.outputs, make)
            head = {name: fresh.tensors[name] for name in HEAD}
            tensors = {**fresh.tensors, **known.shared, **head}
            known = known.remember(task, Network(skeleton, tensors, fresh.born))
        return known
