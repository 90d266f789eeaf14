"""One network of constant size that is trained on the tasks one after another.

Each method adds its own defence against forgetting: penalties while a task is learned, and a memory
of it afterwards.
"""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import ClassVar, TypeVar, final

import torch
from torch import Tensor

from lifelong.learners.base import Learner
from lifelong.learners.baselines.settings import SequentialSettings
from lifelong.networks.growing import GrowingNetwork, Network, first_network
from lifelong.networks.initial import uniform
from lifelong.networks.layout import HEAD, NetworkError, Tensors, trainable
from lifelong.records import GroupRecord, TaskRecord
from lifelong.tasks.examples import Examples, to_device
from lifelong.tasks.kinds import TaskError
from lifelong.tasks.task import Task
from lifelong.training.loop import (
    Problem,
    Solution,
    StepHook,
    TaskObjective,
    TrainingContext,
    objective,
    solve,
)
from lifelong.training.optimizer import under
from lifelong.training.penalties import Penalty, Quadratic, sparse_weights
from lifelong.training.ranks import ALONE, Ranks

S = TypeVar("S", bound=SequentialSettings)
_ADAM = "adam"  # prefix in a network's memory


@final
@dataclass(frozen=True, eq=False)
class TaskOutcome:
    """The result of training on one task, from which the method computes its memory.

    Attributes:
        before: the network of all earlier tasks.
        start: the tensors before training.
        network: the trained network.
        shared: the tensors of the trained network that all tasks share.
        hook: the method's hook in that training, if any.
        train: the task's training rows.
        ranks: the processes that share them.
    """

    task: Task
    before: GrowingNetwork
    start: Tensors
    network: Network
    shared: Tensors
    hook: StepHook | None
    train: Examples
    generator: torch.Generator
    ranks: Ranks = ALONE


@final
@dataclass(frozen=True, eq=False)
class MethodMemory:
    """The shared tensors and the memory that a method keeps after a task."""

    shared: Tensors
    memory: Tensors


class SequentialLearner(Learner[S]):
    """Base class: methods override the hooks below; the training is the same for all."""

    remembers: ClassVar[tuple[str, ...]] = ()  # of each shared tensor, in a network's memory

    def _pulls(self, known: GrowingNetwork) -> Mapping[str, Quadratic]:
        """Quadratic penalties on the shared tensors while the next task is learned."""
        del known
        return {}

    def _keep(self, outcome: TaskOutcome) -> MethodMemory:
        """The shared tensors and the memory after the task."""
        return MethodMemory(outcome.shared, {})

    def _start(self, known: GrowingNetwork) -> Tensors:
        """The shared tensors that training starts from."""
        return known.shared

    def _pulls_on_new(self, new: Tensors) -> Mapping[str, Quadratic]:
        """Quadratic penalties on tensors that are new with a later task, such as its head."""
        del new
        return {}

    def _penalties(self, known: GrowingNetwork) -> dict[str, Penalty]:
        """Penalties besides the pulls; by default on tensors that are new with the task."""
        specs = known.architecture.layout.tensors
        new = {name: spec for name, spec in specs.items() if name not in known.shared}
        return sparse_weights(new, self.settings.mu)

    def _hook(self, start: Tensors) -> StepHook | None:
        """The method's code around each step of a training that starts from these tensors."""
        del start
        return None

    def _held(self) -> Collection[str]:
        """Names of the shared tensors that do not move while the next task is learned."""
        return ()

    def _objectives(
        self, task: Task, train: Examples, valid: Examples, generator: torch.Generator
    ) -> Sequence[TaskObjective]:
        """What is trained on: by default the task alone."""
        del generator
        return [objective(self.network.architecture, task, train, valid)]

    def _retrained(self, known: GrowingNetwork) -> Tensors:
        """Tensors of earlier tasks that are trained too, named as in `everything`; by default none.

        With a head for each task these may be the earlier heads.
        """
        del known
        return {}

    def _require_usable(self) -> None:
        self._require_network(self._own(), memory=self.remembers)
        taken = _named(f"{_ADAM}/taken", self.network.memory)
        if any(count.ndim > 0 for count in taken.values()):
            raise NetworkError("there is a count of Adam's steps that is not a number")

    def _own(self) -> tuple[str, ...]:
        """Names of the tensors that each task has for itself."""
        layout = self.network.architecture.layout
        return layout.task_owned if self.settings.heads == "own" else layout.buffers

    @final
    def _learn(
        self, task: Task, generator: torch.Generator, context: TrainingContext
    ) -> tuple[GrowingNetwork, TaskRecord]:
        known = self.network
        self._refuse_other_outputs(task)
        start = self._network(task, generator)
        still = {*known.architecture.layout.buffers, *self._held()}
        movable = dict.fromkeys(n for n in start.tensors if n not in still)
        hook = self._hook(start.only(movable))
        train, valid = (to_device(rows, self.device) for rows in (task.train, task.valid))
        tensors = {**start.tensors, **self._retrained(known)}
        problem = Problem(
            f"{task.name}: in turn",
            tensors,
            self._objectives(task, train, valid, generator),
            movable={**movable, **dict.fromkeys(self._retrained(known))},
            penalties=self._penalties(known),
            pulls=self._all_pulls(known, start),
            buffers=known.architecture.layout.buffers,
            hook=hook,
            adam=_named(_ADAM, known.memory) if self.settings.adam == "carried" else None,
        )
        solution = solve(problem, self.settings.budget, generator, context)
        trained = start.with_tensors({name: solution.tensors[name] for name in start.tensors})
        own = self._own()
        shared = {name: t for name, t in trained.tensors.items() if name not in own}
        outcome = TaskOutcome(
            task, known, start.tensors, trained, shared, hook, train, generator, context.ranks
        )
        kept = self._keep(outcome)
        network = trained.with_tensors({**trained.tensors, **kept.shared})
        # Each task's own head is new, and so is Adam's state for it.
        adam = {n: t for n, t in solution.adam.items() if n.partition("/")[2] in shared}
        memory = {**kept.memory, **under(_ADAM, adam)}
        if self._retrained(known):
            known = _with_private(known, solution.tensors)
        after = replace(known.remember(task, network, private=own), memory=memory)
        return after, self._record(task, network, solution)

    def _network(self, task: Task, generator: torch.Generator) -> Network:
        """The initial network: known shared tensors, and fresh ones for the rest."""
        architecture = self.network.architecture
        make = uniform(generator, self.device)
        fresh = first_network(architecture, architecture.layout.groups, task.outputs, make)
        known = {**self._start(self.network), **self.network.statistics}
        return fresh.with_tensors({**fresh.tensors, **known})

    def _all_pulls(self, known: GrowingNetwork, start: Network) -> dict[str, Quadratic]:
        if not known.tasks:
            return {**self._pulls(known)}
        moved = trainable(known.architecture.layout.tensors)
        new = start.only([name for name in moved if name not in known.shared])
        return {**self._pulls(known), **self._pulls_on_new(new)}

    def _record(self, task: Task, network: Network, solution: Solution) -> TaskRecord:
        groups = {group: GroupRecord(len(born)) for group, born in network.born.items()}
        return TaskRecord(task.name, len(self.tasks) + 1, groups, (solution.record("in turn"),))

    def _refuse_other_outputs(self, task: Task) -> None:
        if self.settings.heads == "own" or not self.network.tasks:
            return
        first = self.network.tasks[0]
        came, wanted = (task.kind.value, task.outputs), (first.kind.value, first.outputs)
        if came != wanted:
            raise TaskError(
                f"task {task.name!r}: kind and outputs are {came}, but one head serves all tasks "
                f"and has {wanted}; use heads='own' for tasks that ask different things"
            )


def _with_private(known: GrowingNetwork, tensors: Tensors) -> GrowingNetwork:
    """The network with those tensors of its tasks that were trained again."""
    tasks = tuple(
        replace(one, private={n: tensors.get(f"{number}.{n}", t) for n, t in one.private.items()})
        for number, one in enumerate(known.tasks, 1)
    )
    return replace(known, tasks=tasks)


def heads(known: GrowingNetwork) -> dict[str, Tensor]:
    """The heads of all earlier tasks, named as in `everything`."""
    return {
        f"{number}.{n}": one.private[n] for number, one in enumerate(known.tasks, 1) for n in HEAD
    }


def _named(prefix: str, tensors: Tensors) -> Tensors:
    """The tensors under a prefix, without it: the inverse of `under`."""
    start = f"{prefix}/"
    return {name.removeprefix(start): t for name, t in tensors.items() if name.startswith(start)}
