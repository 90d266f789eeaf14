"""The base class of all learners: learn, predict, measure capacity, save and load."""

from abc import ABC, abstractmethod
from collections.abc import Collection, Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager
from copy import copy
from dataclasses import dataclass
from pathlib import Path
from threading import Lock
from typing import Any, ClassVar, Generic, Self, TypeAlias, TypeVar, final

import msgspec
import numpy as np
import torch
from torch import Tensor, nn

from lifelong.learners.checks import (
    require_architecture,
    require_divisible,
    require_new,
    require_storable,
    usable_device,
)
from lifelong.learners.predicting import (
    LINKS,
    Predictor,
    answers,
    computed,
    in_float32,
    unchanged,
)
from lifelong.networks.growing import (
    GrowingNetwork,
    LearnedTask,
    nonzero,
    parameters,
)
from lifelong.networks.layout import Architecture, NetworkError, Tensors
from lifelong.networks.traced.precompute import precomputed
from lifelong.persistence.checkpoint import Checkpoint
from lifelong.persistence.files import digest_of
from lifelong.persistence.loading import read
from lifelong.persistence.manifest import ModelFileError
from lifelong.persistence.models import Attached, Contents, Directory, checksum, not_finite, write
from lifelong.records import BYTES, Capacity, TaskRecord
from lifelong.tasks.examples import Examples, TensorExamples, part_of
from lifelong.tasks.kinds import Array, Kind, TaskError
from lifelong.tasks.task import Task
from lifelong.training.budget import SettingError, complete, with_new_names
from lifelong.training.loop import TrainingContext, TrainingError
from lifelong.training.ranks import (
    AnyCheckpoint,
    Parallel,
    Ranks,
    SharedCheckpoint,
    own_device,
    ranks_for,
)
from lifelong.watching.bar import progress_bar
from lifelong.watching.events import TaskBegan, TaskEnded, TaskFailed, Watcher

S = TypeVar("S")
_CLAIM = Lock()  # guards the flag `_learning` of every learner


@final
@dataclass(frozen=True, eq=False)
class _Learned:
    network: GrowingNetwork
    records: tuple[TaskRecord, ...]


class Learner(ABC, Generic[S]):
    """A network that learns tasks one after another.

    A method implements `_learn`, which returns a new network and changes nothing; `learn` then
    commits it. A task that fails or is interrupted therefore leaves the learner unchanged.
    """

    method: ClassVar[str]  # name in the paper; stored in saved models
    precomputes: ClassVar[bool] = True  # whether it learns from what frozen parts make of rows
    settings_type: type[S]

    def __init__(
        self,
        architecture: Architecture,
        settings: S | None = None,
        *,
        seed: int = 0,
        device: str | torch.device = "cpu",
        progress: bool = False,
        parallel: Parallel | None = None,
    ) -> None:
        require_architecture(architecture)
        self.settings = settings if settings is not None else self.settings_type()
        self.seed = int(seed) if isinstance(seed, np.integer) else seed
        require_storable(self.settings, self.seed)
        self._require_fit(architecture)
        self.device = usable_device(own_device(device) if parallel else device)
        self.progress = progress
        self.parallel = parallel
        self.ranks = ranks_for(parallel, self.device)  # the processes that learn together
        require_divisible(architecture, self.ranks)
        self._watchers: tuple[Watcher, ...] = ()
        self._learned = _Learned(GrowingNetwork(architecture), ())
        self.attached: Attached | None = None  # what a front end saves with the model
        self._learning = False
        self._unsaved: AnyCheckpoint | None = None  # of the last learning, until `save`
        self._directories: dict[Path, Directory] = {}  # of models loaded or saved

    def _require_fit(self, architecture: Architecture) -> None:
        """Refuse a network that the method, or these settings, cannot learn on."""

    @property
    def network(self) -> GrowingNetwork:
        """All that was learned, as an immutable value."""
        return self._learned.network

    @property
    def records(self) -> tuple[TaskRecord, ...]:
        """One record per learned task."""
        return self._learned.records

    @abstractmethod
    def _learn(
        self, task: Task, generator: torch.Generator, context: TrainingContext
    ) -> tuple[GrowingNetwork, TaskRecord]:
        """Learn the task: the new network, and a record of the training."""

    @final
    def learn(self, task: Task, *, checkpoint: str | Path | None = None) -> TaskRecord:
        """Learn one more task. Its data is not kept.

        With a `checkpoint` directory, a killed `learn` resumes when it is called again with the
        same task, by a learner with the same network, settings and seed. `save` removes the
        checkpoint; learning the next task replaces it.
        """
        require_new(task, self.tasks, self.network.architecture)
        with self._context("learn", [task], checkpoint) as context:
            [ready] = self._parts([task])
            if self.precomputes:
                ready = precomputed(ready, self.network.architecture, self.device)
            try:
                network, record = self._learn(ready, self._generator(), context)
            except torch.linalg.LinAlgError as error:  # type: ignore[attr-defined]
                raise TrainingError(
                    f"{task.name}: {error} Numbers became too large; a smaller learning_rate, or "
                    "inputs scaled to about 1, usually mend this"
                ) from error
            self._commit(context, network, (*self.records, record))
        return record

    @final
    def predict_proba(self, x: Array, *, task: str) -> Tensor:
        """Probabilities, one row per input and one column per binary output or class."""
        known, network = self._serve(task)
        if known.kind.is_regression:
            raise TaskError(
                f"task {task!r} is a {known.kind}, which has no probabilities; predict gives its "
                "numbers"
            )
        return answers(x, network, LINKS[known.kind], self.device)

    @final
    def decision_function(self, x: Array, *, task: str) -> Tensor:
        """Outputs of the network: logits before the sigmoid or softmax, numbers of a regression."""
        return answers(x, self._serve(task)[1], unchanged, self.device)

    @final
    def outputs(self, x: Tensor, *, task: str) -> Tensor:
        """As `decision_function`, for who has made sure that x is finite float32 of the network's
        shape, and `aligned` in memory: a third of the time for a single row.
        """
        return computed(x, self._serve(task)[1], unchanged, self.device)

    @final
    def predict(self, x: Array, *, task: str) -> Tensor:
        """Labels as in the task's data: 0 or 1 per binary output, the class, or numbers."""
        known, network = self._serve(task)
        found = answers(x, network, LINKS[known.kind], self.device)
        if known.kind is Kind.CLASSES:
            return found.argmax(dim=1) + known.first
        labels = found if known.kind.is_regression else (found >= 0.5).long()
        return labels[:, 0] if known.outputs == 1 else labels

    @final
    def capacity(self, as_of: str | None = None) -> Capacity:
        """Size of everything that is stored, or of the network that serves one task.

        Multiply-adds are per row, for the last task learned or the task named.
        """
        if not self.network.tasks:
            return Capacity(0, 0, 0)
        last = self.network.tasks[-1].name
        _, served = self._serve(as_of if as_of is not None else last)
        if as_of is not None:
            kept = served.tensors
            return Capacity(parameters(kept), nonzero(kept), served.multiply_adds())
        stored = {**self.network.stored(), **self._serving_memory()}
        kept = {n: tensor for n, tensor in stored.items() if tensor.is_floating_point()}
        return Capacity(
            parameters(kept), nonzero(kept), served.multiply_adds(), self._stored_bytes()
        )

    def _stored_bytes(self) -> int:
        """Bytes of all that predictions need: tensors, patches, and masks as bits."""
        stored = {**self.network.stored(), **self._serving_memory()}
        return sum(tensor.nbytes for tensor in stored.values())

    @final
    def learning_bytes(self) -> int:
        """Bytes of what is kept only to learn the next task, such as the importance of weights."""
        kept = [*self.network.stored().values(), *self.network.memory.values()]
        return sum(tensor.nbytes for tensor in kept) - self._stored_bytes()

    def _serving_memory(self) -> Tensors:
        """The part of the network's memory that predictions need."""
        return {}

    @final
    def relative_capacity(self) -> float:
        """Bytes relative to the base network with one head per task (DNN-MTL)."""
        return self.capacity().bytes / (BYTES * self.network.base_parameters())

    @final
    def save(self, path: str | Path, *, overwrite: bool = False) -> None:
        """Write the model into a directory: a manifest in JSON and tensors in safetensors.

        Where this learner has saved or loaded before, only what is new is written, and the model
        is replaced atomically; any other model is replaced only with `overwrite`, which writes
        everything. Of several processes that learn together the first one writes.
        """
        if not self.ranks.first:
            return
        place, learned = Path(path), self._learned
        write(
            place,
            method=self.method,
            seed=self.seed,
            settings=self.settings,
            contents=Contents(learned.network, learned.records, self.attached),
            directory=self._directories.setdefault(place.resolve(), Directory()),
            overwrite=overwrite,
        )
        if learned is self._learned and self._unsaved is not None:
            self._unsaved.remove()
            self._unsaved = None

    @final
    @classmethod
    def load(
        cls,
        path: str | Path,
        *,
        device: str | torch.device = "cpu",
        progress: bool = False,
        module: nn.Module | None = None,
        parallel: Parallel | None = None,
    ) -> Self:
        """Read a model that `save` wrote; it predicts and learns exactly as the saved one.

        A network that was made by `adapt` needs its `module` again, because files hold no code.

        Safe on untrusted files: any defect raises `ModelFileError`.
        """
        place = Path(path)
        device = own_device(device) if parallel else device
        saved = read(place, usable_device(device), cls.method, cls._private_shape, module)
        manifest, network = saved.manifest, saved.network
        try:
            named = with_new_names(manifest.settings, cls.settings_type)
            settings = complete(msgspec.convert(named, cls.settings_type))
            unknown = named.keys() - msgspec.to_builtins(settings).keys()
            if unknown:
                raise SettingError(f"there are none named {', '.join(sorted(unknown))}")
            learner = cls(
                network.architecture,
                settings,
                seed=manifest.seed,
                device=device,
                progress=progress,
                parallel=parallel,
            )
        except (msgspec.ValidationError, ValueError, OverflowError, RecursionError) as error:
            raise ModelFileError(f"{path}: its settings are damaged: {error}") from error
        learner._learned = _Learned(network, tuple(manifest.records))
        learner.attached = saved.attached
        try:
            learner._require_usable()
        except NetworkError as error:
            raise ModelFileError(f"{path}: a {cls.method} cannot go on with it: {error}") from error
        learner._directories[place.resolve()] = saved.directory
        return learner

    @final
    def with_settings(self, settings: S) -> Self:
        """A learner with the same network and other settings."""
        other = type(self)(
            self.network.architecture,
            settings,
            seed=self.seed,
            device=self.device,
            progress=self.progress,
            parallel=self.parallel,
        )
        other._learned, other._watchers = self._learned, self._watchers
        other.attached = self.attached
        return other

    @final
    def going_on_with(self, settings: S) -> Self:
        """This learner with other settings from now on: it may replace what this one saved."""
        other = self.with_settings(settings)
        other._directories = self._directories
        return other

    @final
    def watch(self, watcher: Watcher) -> None:
        """From now on tell this function what happens while tasks are learned.

        See `lifelong.watching`. An exception that it raises ends the learning, which then changes
        nothing.
        """
        self._watchers = (*self._watchers, watcher)

    def _require_usable(self) -> None:
        """Refuse, by a `NetworkError`, a network from a file that this method would not have made.

        That it can predict was checked before; this is about learning one more task.
        """

    @final
    def _require_network(
        self, own: Collection[str], *, grows: bool = False, memory: Collection[str] = ()
    ) -> None:
        """That each task has these tensors for itself, that the network has kept its size unless it
        grows, and that it remembers this of each shared tensor.
        """
        network, groups = self.network, self.network.architecture.layout.groups
        if network.tasks and network.tasks[0].private.keys() != set(own):
            raise NetworkError(f"its tasks have {list(network.tasks[0].private)} for themselves")
        if not grows and any(len(born) != groups[g] for g, born in network.born.items()):
            raise NetworkError("its layers have other widths than the base network")
        for name in (f"{word}/{name}" for word in memory for name in network.shared):
            if name not in network.memory or network.memory[name].shape != (
                network.shared[name.rpartition("/")[2]].shape
            ):
                raise NetworkError(f"it does not remember {name}")

    @property
    def tasks(self) -> tuple[str, ...]:
        """Names of the tasks learned, in order."""
        return tuple(known.name for known in self.network.tasks)

    def __repr__(self) -> str:
        network = self.network
        widths = {group: len(born) for group, born in network.born.items()}
        units = ", ".join(
            f"{group} {widths.get(group, base)}"
            for group, base in network.architecture.layout.groups.items()
        )
        size = parameters(network.everything())
        return (
            f"<{self.method}: {_listed(self.tasks)}; inputs {network.architecture.layout.inputs}, "
            f"{units}; {size:,} parameters; seed {self.seed}>"
        )

    @final
    def predictor(self, task: str) -> tuple[LearnedTask, Predictor]:
        """What a task's outputs mean, and the network that serves it."""
        return self._serve(task)

    def _serve(self, task: str) -> tuple[LearnedTask, Predictor]:
        network = self.network
        number = network.numbers.get(task)
        if number is None:
            learned = ", ".join(map(repr, network.numbers)) or "none yet"
            raise TaskError(f"no task named {task!r} was learned; learned so far: {learned}")
        return network.tasks[number - 1], self._view(network, number)

    def _view(self, network: GrowingNetwork, number: int) -> Predictor:
        """The network that serves task `number`."""
        return network.as_of(number)

    @staticmethod
    def _private_shape(network: GrowingNetwork, number: int, name: str) -> tuple[int, ...]:
        """Shape of a tensor that is task `number`'s own."""
        layout, outputs = network.architecture.layout, network.tasks[number - 1].outputs
        spec = layout.tensors[name]
        born = {g: network.born[g] for axis in spec.axes for g in axis.groups if g in network.born}
        widths = {
            group: int(torch.searchsorted(at, number, right=True)) for group, at in born.items()
        }
        return spec.shape(layout.widths(widths, outputs))

    @contextmanager
    def _context(
        self, what: str, tasks: Sequence[Task], checkpoint: str | Path | None
    ) -> Iterator[TrainingContext]:
        """Claim the learner, and set up watchers and checkpoint for one learning."""
        with ExitStack() as held:
            held.enter_context(self._claimed())
            # The caller may have turned gradients off.
            held.enter_context(torch.inference_mode(False))
            held.enter_context(torch.enable_grad())
            held.enter_context(in_float32(self.device))
            title = tasks[0].name if len(tasks) == 1 else "all tasks"
            ranks = self.ranks
            ranks.require_equal("what is to be learned", str(self._about(what, tasks, data=False)))
            shown = self.progress and ranks.first
            bar = (held.enter_context(progress_bar(title)),) if shown else ()
            watchers = (*bar, *self._watchers) if ranks.first else ()
            saved: AnyCheckpoint | None = None
            if checkpoint is not None:
                saved = held.enter_context(self._checkpoint(Path(checkpoint), what, tasks))
            context = TrainingContext(watchers, saved, title, ranks)
            number = len(self.tasks) + 1 if len(tasks) == 1 else len(tasks)
            context.tell(TaskBegan(self.method, title, number))
            try:
                yield context
            except BaseException as error:
                if saved is not None and isinstance(error, TrainingError):
                    saved.remove()  # resuming would end in the same error
                context.tell(TaskFailed(self.method, title, str(error) or type(error).__name__))
                raise

    def _checkpoint(
        self, directory: Path, what: str, tasks: Sequence[Task]
    ) -> AbstractContextManager[AnyCheckpoint]:
        """The checkpoint; of several processes the first one has it."""
        if self.ranks.alone:
            return Checkpoint.at(directory, self._about(what, tasks))
        return SharedCheckpoint.at(directory, lambda: self._about(what, tasks), self.ranks)

    @final
    def _parts(self, tasks: Sequence[Task]) -> list[Task]:
        """The tasks with the rows that this process has."""
        return list(tasks) if self.ranks.alone else [_part(task, self.ranks) for task in tasks]

    @contextmanager
    def _claimed(self) -> Iterator[None]:
        """Refuse concurrent learning: one result would overwrite the other."""
        with _CLAIM:
            if self._learning:
                raise TaskError(
                    "this learner is learning already, in another thread; wait for it, or learn "
                    "with a learner of its own"
                )
            self._learning = True
        try:
            yield
        finally:
            self._learning = False

    @final
    def _commit(
        self, context: TrainingContext, network: GrowingNetwork, records: tuple[TaskRecord, ...]
    ) -> None:
        """Take over the result of a learning: the only place where a learner changes."""
        broken = not_finite(network, self.network)
        if broken is not None:
            raise TrainingError(
                f"{records[-1].task}: {broken} became infinite or NaN, though the loss did not; a "
                "smaller learning_rate, or inputs scaled to about 1, usually mend this"
            )
        if not context.ranks.alone:
            context.ranks.require_equal(f"{context.task}: the networks", checksum(network))
        if context.checkpoint is not None:
            context.checkpoint.complete()
        units = {group: len(born) for group, born in network.born.items()}
        size, count = parameters(network.everything()), len(network.tasks)
        context.tell(TaskEnded(self.method, context.task, count, units, size))
        # One assignment, so that another thread sees the state before or after, never a mixture.
        self._learned = _Learned(network, records)
        self._unsaved = context.checkpoint

    def _about(self, what: str, tasks: Sequence[Task], *, data: bool = True) -> dict[str, str]:
        """All that the result of a learning depends on; if need be without reading the rows."""
        settings = msgspec.to_builtins(self.settings)
        rows = [rows for task in tasks for rows in (task.train, task.valid)]
        return {
            "method": self.method,
            "what is done": what,
            "tasks": ", ".join(repr(task) for task in tasks),
            "seed": str(self.seed),
            **{f"setting {name}": str(value) for name, value in settings.items()},
            "network": f"{self.network.architecture!r} {checksum(self.network)}",
            "data": " ".join(_data_digest(r) if data else f"{len(r)} rows" for r in rows),
            "torch": f"{torch.__version__} on {self.device}, {torch.get_num_threads()} threads"
            + ("" if torch.backends.mkldnn.enabled else ", without mkldnn"),
        }

    def _generator(self) -> torch.Generator:
        """Seeded by seed and task number, so that a reloaded learner continues identically."""
        entropy = np.random.SeedSequence([self.seed, len(self.tasks)]).generate_state(1, np.uint64)
        return torch.Generator().manual_seed(int(entropy[0] >> np.uint64(1)))


AnyLearner: TypeAlias = Learner[Any]  # of whatever method


def _part(task: Task, ranks: Ranks) -> Task:
    for split, rows in (("train", task.train), ("valid", task.valid)):
        if len(rows) < ranks.count:
            raise TaskError(
                f"task {task.name!r}, {split}: {len(rows)} rows for {ranks.count} processes; each "
                "needs one at least: start fewer processes"
            )
    mine = copy(task)
    mine.train, mine.valid = (
        part_of(rows, ranks.rank, ranks.count) for rows in (task.train, task.valid)
    )
    return mine


def _listed(tasks: Sequence[str], most: int = 5) -> str:
    """The last few by name; their escapes make them safe to print."""
    if not tasks:
        return "no task yet"
    named = ", ".join(repr(task if len(task) <= 40 else f"{task[:40]}…") for task in tasks[-most:])
    count = f"{len(tasks)} task{'s'[: len(tasks) > 1]}"
    return f"{count}, {'… ' if len(tasks) > most else ''}{named}"


def _data_digest(rows: Examples) -> str:
    """Digest of all rows if they are in memory, else of their number and the first few."""
    if isinstance(rows, TensorExamples):
        return digest_of({"x": rows.x, "y": rows.y})
    x, y = next(iter(rows.batches(8)))
    return f"{len(rows)} rows {digest_of({'x': x, 'y': y})}"
