"""DNN-STL: a network of its own for each task."""

from typing import ClassVar, final

import torch

from lifelong.baselines.training import Training
from lifelong.learner import Learner
from lifelong.network import GrowingNetwork, first_network, uniform
from lifelong.penalties import sparsity
from lifelong.records import GroupRecord, StageRecord, TaskRecord
from lifelong.solve import Course, Problem, ask, solve
from lifelong.tasks import Task, prepared


@final
class Single(Learner[Training]):
    """Each task gets the whole base network, trained with l1 like DEN's first task (Equation 2)."""

    method: ClassVar[str] = "DNN-STL"
    settings_type = Training

    def _learn(
        self, task: Task, generator: torch.Generator, course: Course
    ) -> tuple[GrowingNetwork, TaskRecord]:
        skeleton = self.network.skeleton
        make = uniform(generator, self.device)
        network = first_network(skeleton, skeleton.widths, task.outputs, make)
        rows = (prepared(rows, self.device) for rows in (task.train, task.valid))
        problem = Problem(
            f"{task.name}: alone",
            network.tensors,
            [ask(skeleton, task.kind, *rows)],
            movable=dict.fromkeys(network.tensors),
            penalties={
                n: sparsity(t, self.settings.mu) for n, t in network.tensors.items() if t.ndim > 1
            },
        )
        solution = solve(problem, self.settings.budget, generator, course)
        network = network.with_tensors(solution.tensors)
        stage = StageRecord("alone", solution.loss, solution.steps, solution.seconds)
        groups = {group: GroupRecord(len(born)) for group, born in network.born.items()}
        record = TaskRecord(task.name, len(self.tasks) + 1, groups, (stage,))
        known = self.network.remember(task, network, private=tuple(network.tensors))
        return known, record
