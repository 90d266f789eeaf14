"""The DEN learner."""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import ClassVar, final

import msgspec
import torch

from lifelong.learners.base import Learner
from lifelong.learners.den.by_need import share_of_mu
from lifelong.learners.den.incremental import incremental_learning
from lifelong.learners.den.retrain import select
from lifelong.learners.den.settings import Settings
from lifelong.learners.den.task_training import TaskTraining
from lifelong.networks.growing import GrowingNetwork, Network
from lifelong.networks.initial import uniform
from lifelong.networks.layout import INPUTS, Architecture
from lifelong.networks.sharing import Sharing
from lifelong.records import StageRecord, TaskRecord
from lifelong.tasks.task import Task
from lifelong.training.budget import SettingError
from lifelong.training.loop import TrainingContext
from lifelong.training.multitask import (
    multitask_loss,
    share_all_units,
    shrink_and_perturb,
    train_multitask,
)


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

    def _require_fit(self, architecture: Architecture) -> None:
        self.settings.offered(architecture.layout.groups)  # refuses settings that do not fit
        if not architecture.layout.groups and self.settings.split == "units":
            raise SettingError(
                "this network has no units that could be split, so that only heads would be "
                "learned; use Settings(split='weights') or 'auto', or a network made by grow"
            )

    def _view(self, network: GrowingNetwork, number: int) -> Network:
        stamped = self.settings.timestamps
        return network.as_of(number) if stamped else network.without_stamps(number)

    def _require_usable(self) -> None:
        self._require_network(self.network.architecture.layout.task_owned, grows=True)

    def _learn(
        self, task: Task, generator: torch.Generator, context: TrainingContext
    ) -> tuple[GrowingNetwork, TaskRecord]:
        number = len(self.tasks) + 1
        known = self._rooted()
        settings = replace(self.settings, mu=share_of_mu(self.records) * self.settings.mu)
        training = TaskTraining(
            task, number, settings, generator, self.device, context, self.records
        )
        draft = incremental_learning(known, training)
        record = draft.record(task.name, number)
        if self.settings.split not in ("weights", "auto"):
            return known.remember(task, draft.network), record
        network = known.patched_by(task, draft.network, draft.parent)
        changed = network.overwritten(number)
        return network, msgspec.structs.replace(record, changed=changed, parent=draft.parent)

    def _rooted(self) -> GrowingNetwork:
        """The network, before its first task with the seed of the untrained one if that is used."""
        network = self.network
        wanted = self.settings.split == "auto" and not network.tasks
        return replace(network, root=self.seed) if wanted else network

    def finetune(
        self, tasks: Sequence[Task], *, checkpoint: str | Path | None = None
    ) -> StageRecord:
        """DEN-Finetune: train all tasks together on the structure that was found.

        Needs the data of every learned task again. Since nothing can be forgotten then, every task
        may use every unit: from now on all units count as born with the first task. The weights are
        shrunk and perturbed before training. If the mean validation loss does not fall, nothing
        changes. `checkpoint` is a directory, as in `learn`.
        """
        settings, generator = self.settings, self._generator()
        tasks, whole = self._parts(tasks), tasks
        before = multitask_loss(self.network, tasks, self.ranks)
        make = uniform(generator, self.device)
        start = shrink_and_perturb(
            share_all_units(self.network), make, settings.shrink, settings.perturb
        )
        with self._context("finetune", whole, checkpoint) as context:
            network, solution = train_multitask(
                start, tasks, settings.budget, settings.mu, generator, context
            )
            better = network if solution.loss < before else self.network
            self._commit(context, better, self.records)
        loss = min(solution.loss, before)
        return replace(solution, loss=loss).record("finetune")

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
