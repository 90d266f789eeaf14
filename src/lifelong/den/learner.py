"""The learner: a network, settings, and Algorithm 1."""

from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import ClassVar, final

import torch

from lifelong.den.lesson import Lesson
from lifelong.den.lifelong import incremental_learning
from lifelong.den.retrain import select
from lifelong.den.settings import Settings
from lifelong.learner import Learner
from lifelong.network import GrowingNetwork, Network, uniform
from lifelong.penalties import sparsity
from lifelong.records import StageRecord, TaskRecord
from lifelong.sharing import Sharing
from lifelong.skeleton import INPUTS, Skeleton
from lifelong.solve import Course
from lifelong.tasks import Task
from lifelong.together import loss_together, opened, shaken, train_together


@final
class DEN(Learner[Settings]):
    """A Dynamically Expandable Network.

    >>> from lifelong import DEN, mlp
    >>> learner = DEN(mlp(784, [312, 128]), seed=0)
    >>> learner.tasks
    ()
    """

    method: ClassVar[str] = "DEN"
    settings_type = Settings

    def __init__(
        self,
        skeleton: Skeleton,
        settings: Settings | None = None,
        *,
        seed: int = 0,
        device: str | torch.device = "cpu",
        progress: bool = False,
    ) -> None:
        super().__init__(skeleton, settings, seed=seed, device=device, progress=progress)
        self.settings.offered(skeleton.widths)  # refuses here, not later, what does not fit

    def _view(self, network: GrowingNetwork, number: int) -> Network:
        stamped = self.settings.timestamps
        return network.as_of(number) if stamped else network.without_stamps(number)

    def _learn(
        self, task: Task, generator: torch.Generator, course: Course
    ) -> tuple[GrowingNetwork, TaskRecord]:
        number = len(self.tasks) + 1
        lesson = Lesson(task, number, self.settings, generator, self.device, course)
        network = incremental_learning(self.network, lesson)
        return self.network.remember(task, network), lesson.record(network)

    def finetune(
        self, tasks: Sequence[Task], *, checkpoint: str | Path | None = None
    ) -> StageRecord:
        """DEN-Finetune: train all tasks together on the structure that was found.

        Needs the data of every task that was learned, again. With all data at hand nothing can be
        forgotten, so the network is opened first: every task may use every unit, and from then on
        all units count as born with the first task. The weights are shaken before they are
        trained. All stays as it was if the validation loss of all tasks did not fall. With a
        `checkpoint` directory, as in `learn`.
        """
        settings, generator = self.settings, self._generator()
        before = loss_together(self.network, tasks)
        make = uniform(generator, self.device)
        start = shaken(opened(self.network), make, settings.keep, settings.noise)
        penalty = partial(sparsity, mu=settings.mu)
        with self._course("finetune", tasks, checkpoint) as course:
            network, solution = train_together(
                start, tasks, settings.budget, penalty, generator, course
            )
            better = network if solution.loss < before else self.network
            self._take_over(course, better, self.records)
        loss = min(solution.loss, before)
        return StageRecord("finetune", loss, solution.steps, solution.seconds)

    def sharing(self) -> Sharing:
        """Which hidden units have a path to each task's head."""
        used = {
            group: torch.zeros(len(self.tasks), len(born), dtype=torch.bool)
            for group, born in self.network.born.items()
        }
        for row in range(len(self.tasks)):
            for group, units in select(self.network.as_of(row + 1)).items():
                if group != INPUTS:
                    used[group][row, units.cpu()] = True
        return Sharing(self.tasks, used)
