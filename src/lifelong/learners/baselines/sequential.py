"""One network of constant size that is trained on each task in turn.

What keeps it from forgetting is up to the method: what pulls the weights while a task is learned,
and what is remembered of it afterwards.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import ClassVar, TypeVar, final

import torch

from lifelong.learners.base import Learner
from lifelong.learners.baselines.settings import SequentialSettings
from lifelong.networks.growing import GrowingNetwork, Network, first_network, uniform
from lifelong.networks.layout import NetworkError, Tensors
from lifelong.records import GroupRecord, TaskRecord
from lifelong.tasks.task import Examples, Task, TaskError, to_device
from lifelong.training.loop import Problem, Solution, StepHook, TrainingContext, objective, solve
from lifelong.training.optimizer import under
from lifelong.training.penalties import Penalty, Quadratic, sparse_weights

S = TypeVar("S", bound=SequentialSettings)
_ADAM = "adam"  # in a network's memory


@final
@dataclass(frozen=True, eq=False)
class TaskOutcome:
    """A task that was just learned, for the method to make up its mind about.

    Attributes:
        before: the network of all earlier tasks.
        start: the tensors that training started from.
        network: as training has left it.
        shared: those of its tensors that all tasks use.
        hook: what accompanied the training, where the method has one.
        train: the task's rows.
    """

    task: Task
    before: GrowingNetwork
    start: Tensors
    network: Network
    shared: Tensors
    hook: StepHook | None
    train: Examples
    generator: torch.Generator


@final
@dataclass(frozen=True, eq=False)
class MethodMemory:
    """What a method makes of a turn: the shared tensors to go on with, and what to remember."""

    shared: Tensors
    memory: Tensors


class SequentialLearner(Learner[S]):
    """A method says what pulls and what it keeps, if anything; the rest is the same for all."""

    remembers: ClassVar[tuple[str, ...]] = ()  # of each shared tensor, in a network's memory

    def _pulls(self, known: GrowingNetwork) -> Mapping[str, Quadratic]:
        """Quadratic penalties on the shared tensors while the next task is learned."""
        del known
        return {}

    def _keep(self, outcome: TaskOutcome) -> MethodMemory:
        """What becomes of the shared tensors, and what is remembered of the task."""
        return MethodMemory(outcome.shared, {})

    def _start(self, known: GrowingNetwork) -> Tensors:
        """The shared tensors that training starts from."""
        return known.shared

    def _carries(self) -> bool:
        """Whether Adam's averages go on from task to task."""
        return False

    def _penalties(self, known: GrowingNetwork) -> dict[str, Penalty]:
        """Penalties besides the pulls: unless a method says more, on what is new with a task."""
        specs = known.architecture.layout.tensors
        new = {name: spec for name, spec in specs.items() if name not in known.shared}
        return sparse_weights(new, self.settings.mu)

    def _hook(self, start: Tensors) -> StepHook | None:
        """What the method does around each step of a training that starts from these tensors."""
        del start
        return None

    def _require_usable(self) -> None:
        self._require_network(self._own(), memory=self.remembers)
        taken = _named(f"{_ADAM}/taken", self.network.memory)
        if any(count.ndim > 0 for count in taken.values()):
            raise NetworkError("there is a count of Adam's steps that is not a number")

    def _own(self) -> tuple[str, ...]:
        """Names of the tensors that each task has for itself."""
        return self.network.architecture.layout.task_owned if self.settings.heads == "own" else ()

    @final
    def _learn(
        self, task: Task, generator: torch.Generator, context: TrainingContext
    ) -> tuple[GrowingNetwork, TaskRecord]:
        known = self.network
        self._refuse_other_outputs(task)
        start = self._network(task, generator)
        hook = self._hook(start.tensors)
        train, valid = (to_device(rows, self.device) for rows in (task.train, task.valid))
        problem = Problem(
            f"{task.name}: in turn",
            start.tensors,
            [objective(known.architecture, task.kind, train, valid)],
            movable=dict.fromkeys(start.tensors),
            penalties=self._penalties(known),
            pulls=self._pulls(known),
            hook=hook,
            adam=_named(_ADAM, known.memory) if self._carries() else None,
        )
        solution = solve(problem, self.settings.budget, generator, context)
        trained = start.with_tensors(solution.tensors)
        own = self._own()
        shared = {name: t for name, t in trained.tensors.items() if name not in own}
        outcome = TaskOutcome(task, known, start.tensors, trained, shared, hook, train, generator)
        kept = self._keep(outcome)
        network = trained.with_tensors({**trained.tensors, **kept.shared})
        # A task's own head starts anew, and so do its averages.
        adam = {n: t for n, t in solution.adam.items() if n.partition("/")[2] in shared}
        memory = {**kept.memory, **under(_ADAM, adam)}
        after = replace(known.remember(task, network, private=own), memory=memory)
        return after, self._record(task, network, solution)

    def _network(self, task: Task, generator: torch.Generator) -> Network:
        """Where the training starts: what is known, and fresh tensors for what is not."""
        architecture = self.network.architecture
        make = uniform(generator, self.device)
        fresh = first_network(architecture, architecture.layout.groups, task.outputs, make)
        return fresh.with_tensors({**fresh.tensors, **self._start(self.network)})

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


def _named(prefix: str, tensors: Tensors) -> Tensors:
    """What `under` has put there."""
    start = f"{prefix}/"
    return {name.removeprefix(start): t for name, t in tensors.items() if name.startswith(start)}
