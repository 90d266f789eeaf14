"""The base class of all learners: learn, predict, measure capacity, save and load."""

import math
from abc import ABC, abstractmethod
from collections.abc import Collection, Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext
from dataclasses import dataclass
from pathlib import Path
from threading import Lock
from typing import ClassVar, Generic, Protocol, Self, TypeVar, final

import msgspec
import numpy as np
import torch
from rich.progress import Progress as Bars
from rich.progress import TextColumn
from torch import Tensor

from lifelong.networks.growing import (
    GrowingNetwork,
    LearnedTask,
    nonzero,
    parameters,
)
from lifelong.networks.layout import Architecture, NetworkError, Tensors
from lifelong.persistence.checkpoint import Checkpoint
from lifelong.persistence.files import MOST_NAME, digest_of
from lifelong.persistence.models import ModelFileError, checksum, not_finite, read, write
from lifelong.printing import Terminal
from lifelong.records import BYTES, Capacity, TaskRecord
from lifelong.tasks.task import (
    Array,
    Examples,
    Kind,
    Task,
    TaskError,
    TensorExamples,
    plain_tensor,
)
from lifelong.training.budget import SettingError, with_new_names
from lifelong.training.loop import Progress, TrainingContext, TrainingError

CHUNK = 4096  # rows predicted at once, to bound memory

S = TypeVar("S")
_CLAIM = Lock()  # guards the flag `_learning` of every learner


@final
@dataclass(frozen=True, eq=False)
class _Learned:
    network: GrowingNetwork
    records: tuple[TaskRecord, ...]


class Predictor(Protocol):
    """A network that predicts for one task."""

    @property
    def inputs(self) -> tuple[int, ...]: ...

    @property
    def tensors(self) -> Tensors: ...

    def logits(self, x: Tensor) -> Tensor: ...

    def multiply_adds(self) -> int: ...


class Learner(ABC, Generic[S]):
    """A network that learns tasks one after another.

    A method implements `_learn`, which returns a new network and changes nothing; `learn` then
    commits it. A task that fails or is interrupted therefore leaves the learner unchanged.
    """

    method: ClassVar[str]  # name in the paper; stored in saved models
    settings_type: type[S]

    def __init__(
        self,
        architecture: Architecture,
        settings: S | None = None,
        *,
        seed: int = 0,
        device: str | torch.device = "cpu",
        progress: bool = False,
    ) -> None:
        self.settings = settings if settings is not None else self.settings_type()
        self.seed = seed
        _require_storable(self.settings, seed)
        self.device = torch.device(device)
        self.progress = progress
        self._learned = _Learned(GrowingNetwork(architecture), ())
        self._learning = False
        self._unsaved: Checkpoint | None = None  # of the last learning, until `save`
        self._marks: dict[Path, set[str]] = {}  # checksums of models loaded or saved, by directory

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
        self._refuse(task)
        with self._context("learn", [task], checkpoint) as context:
            network, record = self._learn(task, self._generator(), context)
            self._commit(context, network, (*self.records, record))
        return record

    @final
    def predict_proba(self, x: Array, *, task: str) -> Tensor:
        """Probabilities, one row per input and one column per binary output or class."""
        return self._probabilities(x, *self._serve(task))

    def _probabilities(self, x: Array, known: LearnedTask, network: Predictor) -> Tensor:
        inputs = self._checked(x, network.inputs)
        link = torch.sigmoid if known.kind is Kind.BINARY else _softmax
        with torch.no_grad(), _in_float32(self.device):
            chunks = [link(network.logits(part.to(self.device))) for part in inputs.split(CHUNK)]
        probabilities = chunks[0] if len(chunks) == 1 else torch.cat(chunks)
        if not _all_finite(probabilities):
            raise TaskError(
                "inputs overflow the network, so that it has no answer; scale them like those that "
                "it learned from"
            )
        return probabilities

    @final
    def predict(self, x: Array, *, task: str) -> Tensor:
        """Labels as in the task's data: 0 or 1 per binary output, or the class."""
        known, network = self._serve(task)
        probabilities = self._probabilities(x, known, network)
        if known.kind is Kind.CLASSES:
            return probabilities.argmax(dim=1)
        labels = (probabilities >= 0.5).long()
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
        patches = {name: patch.values for name, patch in self.network.patches().items()}
        numbers = {n: t for n, t in self._serving_memory().items() if t.is_floating_point()}
        kept = {**self.network.everything(), **patches, **numbers}
        return Capacity(
            parameters(kept), nonzero(kept), served.multiply_adds(), self._stored_bytes()
        )

    def _stored_bytes(self) -> int:
        """Bytes of all that predictions need: tensors, patches, and masks as bits."""
        tensors = {**self.network.everything(), **self._serving_memory()}.values()
        patches = self.network.patches().values()
        return sum(tensor.nbytes for tensor in tensors) + sum(p.nbytes for p in patches)

    @final
    def learning_bytes(self) -> int:
        """Bytes of what is kept only to learn the next task, such as the importance of weights."""
        network = self.network
        kept = [*network.everything().values(), *network.memory.values()]
        patches = network.patches().values()
        whole = sum(tensor.nbytes for tensor in kept) + sum(patch.nbytes for patch in patches)
        return whole - self._stored_bytes()

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

        An existing model is replaced atomically if this learner loaded it from there or saved it
        there; any other model is replaced only with `overwrite`.
        """
        place, learned = Path(path), self._learned
        write(
            place,
            method=self.method,
            seed=self.seed,
            settings=self.settings,
            network=learned.network,
            records=learned.records,
            mine=self._marks.setdefault(place.resolve(), set()),
            overwrite=overwrite,
        )
        if learned is self._learned and self._unsaved is not None:
            self._unsaved.remove()
            self._unsaved = None

    @final
    @classmethod
    def load(
        cls, path: str | Path, *, device: str | torch.device = "cpu", progress: bool = False
    ) -> Self:
        """Read a model that `save` wrote; it predicts and learns exactly as the saved one.

        Safe on untrusted files: any defect raises `ModelFileError`.
        """
        place = Path(path)
        saved = read(place, torch.device(device), cls.method, cls._private_shape)
        manifest, network = saved.manifest, saved.network
        try:
            named = with_new_names(manifest.settings, cls.settings_type)
            settings = msgspec.convert(named, cls.settings_type)
            unknown = named.keys() - msgspec.to_builtins(settings).keys()
            if unknown:
                raise SettingError(f"there are none named {', '.join(sorted(unknown))}")
            learner = cls(
                network.architecture, settings, seed=manifest.seed, device=device, progress=progress
            )
        except (msgspec.ValidationError, ValueError, OverflowError, RecursionError) as error:
            raise ModelFileError(f"{path}: its settings are damaged: {error}") from error
        learner._learned = _Learned(network, tuple(manifest.records))
        try:
            learner._require_usable()
        except NetworkError as error:
            raise ModelFileError(f"{path}: a {cls.method} cannot go on with it: {error}") from error
        learner._marks[place.resolve()] = {saved.mark}
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
        )
        other._learned = self._learned
        return other

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

    def _refuse(self, task: Task) -> None:
        if task.name in self.tasks:
            raise TaskError(f"a task named {task.name!r} was learned already; names must differ")
        if not _is_text(task.name):
            raise TaskError(f"task {task.name!r}: its name must be text that a file can hold")
        if len(task.name) > MOST_NAME:
            raise TaskError(
                f"task {task.name[:20]!r}…: its name has {len(task.name):,} characters, but a file "
                f"can hold {MOST_NAME:,}; give it a shorter one"
            )
        self._refuse_shape(task)

    def _refuse_shape(self, task: Task) -> None:
        wanted = self.network.architecture.layout.inputs
        if task.shape != wanted:
            raise TaskError(
                f"task {task.name!r}: inputs of shape {task.shape}, but the network takes {wanted}"
            )

    @contextmanager
    def _context(
        self, what: str, tasks: Sequence[Task], checkpoint: str | Path | None
    ) -> Iterator[TrainingContext]:
        """Claim the learner, and set up progress bar and checkpoint for one learning."""
        with ExitStack() as held:
            held.enter_context(self._claimed())
            held.enter_context(torch.enable_grad())  # the caller may have turned gradients off
            held.enter_context(_in_float32(self.device))
            title = tasks[0].name if len(tasks) == 1 else "all tasks"
            progress = held.enter_context(_progress_bar(title)) if self.progress else None
            if checkpoint is None:
                yield TrainingContext(progress)
                return
            about = self._about(what, tasks)
            saved = held.enter_context(Checkpoint.at(Path(checkpoint), about))
            try:
                yield TrainingContext(progress, saved)
            except TrainingError:
                saved.remove()  # resuming would end in the same error
                raise

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
        broken = not_finite(network)
        if broken is not None:
            raise TrainingError(
                f"{records[-1].task}: {broken} became infinite or NaN, though the loss did not; a "
                "smaller learning_rate, or inputs scaled to about 1, usually mend this"
            )
        if context.checkpoint is not None:
            context.checkpoint.complete()
        # One assignment, so that another thread sees the state before or after, never a mixture.
        self._learned = _Learned(network, records)
        self._unsaved = context.checkpoint

    def _about(self, what: str, tasks: Sequence[Task]) -> dict[str, str]:
        """All that the result of a learning depends on."""
        settings = msgspec.to_builtins(self.settings)
        return {
            "method": self.method,
            "what is done": what,
            "tasks": ", ".join(repr(task) for task in tasks),
            "seed": str(self.seed),
            **{f"setting {name}": str(value) for name, value in settings.items()},
            "network": f"{self.network.architecture!r} {checksum(self.network)}",
            "data": " ".join(_data_digest(rows) for t in tasks for rows in (t.train, t.valid)),
            "torch": f"{torch.__version__} on {self.device}, {torch.get_num_threads()} threads"
            + ("" if torch.backends.mkldnn.enabled else ", without mkldnn"),
        }

    def _generator(self) -> torch.Generator:
        """Seeded by seed and task number, so that a reloaded learner continues identically."""
        entropy = np.random.SeedSequence([self.seed, len(self.tasks)]).generate_state(1, np.uint64)
        return torch.Generator().manual_seed(int(entropy[0] >> np.uint64(1)))

    def _checked(self, x: Array, wanted: tuple[int, ...]) -> Tensor:
        inputs = plain_tensor("inputs", x).to(torch.float32)
        if tuple(inputs.shape[1:]) != wanted or inputs.ndim == 0:
            raise TaskError(
                f"inputs must have rows first and then shape {wanted}, not {tuple(inputs.shape)}"
            )
        if not _all_finite(inputs):
            raise TaskError("inputs must be finite in float32; some are NaN, infinite or too large")
        return inputs


def _in_float32(device: torch.device) -> AbstractContextManager[object]:
    """Who calls may have turned autocast on: it would round to half precision on the way."""
    if not torch.is_autocast_enabled(device.type):
        return nullcontext()  # prediction of a row must not pay for what is rare
    return torch.autocast(device.type, enabled=False)


def _all_finite(numbers: Tensor) -> bool:
    """A finite sum proves finite terms and is four times as fast as checking each; it may overflow
    although all terms are finite, and only then each is checked.
    """
    return math.isfinite(numbers.detach().sum()) or bool(torch.isfinite(numbers).all())


def _require_storable(settings: object, seed: int) -> None:
    """Refuse early what could not be saved after the learning."""
    if isinstance(seed, bool) or not isinstance(seed, int) or not 0 <= seed < 2**64:
        raise SettingError(f"seed must be a whole number from 0 to 2**64 - 1, not {seed!r}")
    try:
        msgspec.json.encode(settings)
    except TypeError as error:
        raise SettingError(
            f"settings must be plain numbers, words and lists, for a model file to hold them: "
            f"{error}; use float(...), int(...) or list(...)"
        ) from error


def _is_text(name: str) -> bool:
    """Whether a name can be encoded in UTF-8; a lone surrogate cannot."""
    return name.encode(errors="ignore").decode() == name


def _data_digest(rows: Examples) -> str:
    """Digest of all rows if they are in memory, else of their number and the first few."""
    if isinstance(rows, TensorExamples):
        return digest_of({"x": rows.x, "y": rows.y})
    x, y = next(iter(rows.batches(8)))
    return f"{len(rows)} rows {digest_of({'x': x, 'y': y})}"


def _softmax(logits: Tensor) -> Tensor:
    return torch.softmax(logits, dim=1)


@contextmanager
def _progress_bar(task: str) -> Iterator[Progress]:
    title = TextColumn("{task.description}", markup=False)
    columns = (title, *Bars.get_default_columns()[1:])
    with Bars(*columns, console=Terminal(), transient=True) as bars:
        bar = bars.add_task(task)

        def show(stage: str, done: int, most: int) -> None:
            bars.update(bar, description=stage, completed=done, total=most)

        yield show
