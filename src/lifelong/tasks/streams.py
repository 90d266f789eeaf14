"""Streams of tasks, and ways to make them from a split table:

- `one_versus_rest`: one binary task per class, over all rows;
- `class_groups`: one task per group of classes, over the rows of those classes;
- `permutations`: the same classes in every task, with the features in another order.

The same seed gives the same tasks in the same order.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import cache, partial
from typing import Any, Literal, TypeAlias, final, get_args

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from lifelong.tasks.kinds import Kind, TaskError
from lifelong.tasks.scaling import Scale, Standardise, axes_of, inputs_of
from lifelong.tasks.splits import Splits, Subset, generator_for
from lifelong.tasks.task import Task

Order: TypeAlias = Literal["drawn", "given"]
Scenario: TypeAlias = Literal["task", "domain", "class"]


@final
class Stream:
    """Tasks in order of arrival, each made on demand and not kept.

    A stream may be iterated any number of times; the tasks are equal each time. `source` describes
    the data, for the record of a run; `outputs` names the classes of each task's outputs, where
    they have names; `look_alike` says whether the data only resembles the data set of its name.

    `scenario` says what a prediction is about (van de Ven and Tolias, 2019): "task", if tasks ask
    different things, so that the task must be named; "domain", if all ask the same thing about
    different inputs, so that one head can serve all; "class", if each brings new classes that are
    to be told from all earlier ones.
    """

    def __init__(
        self,
        makers: Mapping[str, Callable[[], Task]],
        *,
        source: str,
        outputs: Mapping[str, Sequence[str]] | None = None,
        look_alike: bool = False,
        scenario: Scenario = "task",
    ) -> None:
        if scenario not in get_args(Scenario):
            allowed = "'task', 'domain' or 'class'"
            raise TaskError(f"scenario must be {allowed}, not {scenario!r}")
        if not isinstance(makers, Mapping) or not all(map(callable, makers.values())):
            raise TaskError(
                f"a stream takes functions that make tasks, by the tasks' names, not a "
                f"{type(makers).__name__} of tasks; give {{task.name: lambda task=task: task for "
                "task in tasks}"
            )
        if not makers:
            raise TaskError("a stream needs at least one task, but none was given")
        self._makers = dict(makers)
        self.source = source
        self.look_alike = look_alike
        self.scenario = scenario
        self.outputs = {name: tuple(classes) for name, classes in (outputs or {}).items()}

    @property
    def names(self) -> tuple[str, ...]:
        """Names of the tasks in order of arrival."""
        return tuple(self._makers)

    def __len__(self) -> int:
        return len(self._makers)

    def __iter__(self) -> Iterator[Task]:
        for make in self._makers.values():
            yield make()

    def __getitem__(self, name: str) -> Task:
        if name not in self._makers:
            raise TaskError(f"no task {name!r} in this stream; its tasks are {_listed(self.names)}")
        return self._makers[name]()

    def validated(self) -> "Stream":
        """The same tasks with the validation rows as test rows, for tuning."""

        def on_valid(make: Callable[[], Task]) -> Task:
            task = make()
            return Task(
                task.name,
                task.train,
                task.valid,
                task.valid,
                kind=task.kind,
                outputs=task.outputs,
                class_weights=task.class_weights,
                loss=task.loss,
            )

        makers = {name: partial(on_valid, make) for name, make in self._makers.items()}
        return self._with(makers, source=f"{self.source}, validation rows")

    def first(self, tasks: int) -> "Stream":
        """The stream of the first `tasks` tasks."""
        if not 1 <= tasks <= len(self):
            raise TaskError(f"this stream has 1 to {len(self)} tasks to take, not {tasks}")
        kept = dict(list(self._makers.items())[:tasks])
        return self._with(kept, source=self.source)

    def _with(self, makers: Mapping[str, Callable[[], Task]], source: str) -> "Stream":
        return Stream(
            makers,
            source=source,
            outputs=self.outputs,
            look_alike=self.look_alike,
            scenario=self.scenario,
        )

    def __repr__(self) -> str:
        return f"Stream({len(self)} tasks, {self.scenario}-incremental, {self.source!r})"


def one_versus_rest(
    splits: Splits,
    *,
    seed: int,
    order: Order = "drawn",
    standardise: Standardise = "features",
    source: str = "arrays",
    prefix: str = "",
    look_alike: bool = False,
) -> Stream:
    """One binary task per class: this class against all others.

    All tasks share one copy of the inputs.
    """
    inputs = cache(partial(_all_inputs, splits, _scale(splits, standardise)))
    names = [prefix + name for name in splits.classes]
    makers = {
        names[code]: partial(_versus_rest, names[code], splits, inputs, code)
        for code in _ordered(len(names), seed, order)
    }
    outputs = {name: [own] for name, own in zip(names, splits.classes, strict=True)}
    return Stream(makers, source=source, outputs=outputs, look_alike=look_alike)


def class_groups(
    splits: Splits,
    size: int,
    *,
    seed: int,
    kind: Kind | str = Kind.BINARY,
    order: Order = "drawn",
    standardise: Standardise = "features",
    source: str = "arrays",
    scenario: Scenario = "task",
    groups: Mapping[str, Sequence[int]] | None = None,
) -> Stream:
    """One task per group of `size` classes, over the rows of those classes only.

    Under `Kind.BINARY` each class is a subtask against the others of its group; under
    `Kind.CLASSES` a group is one softmax. Classes are numbered within their group in the order
    drawn; `Stream.outputs` names them. The statistics for `standardise` come from the training rows
    of all groups. `groups` names the groups and their classes instead of drawing them; then `size`
    is their size, and only their order is drawn.

    In the scenario "domain" the first classes of all groups are one class, and so on; in "class" a
    task has an output for every class of the stream. Both need `Kind.CLASSES`.
    """
    if kind not in (Kind.BINARY, Kind.CLASSES):
        raise TaskError(f"kind must be one of 'binary', 'classes', not {str(kind)!r}")
    count = len(splits.classes)
    if size < 1 or count % size or (size == 1 and count > 1):
        raise TaskError(
            f"{count} classes cannot be parted into groups of {size}; give a size that divides "
            f"{count} and is at least 2"
        )
    if scenario != "task" and Kind(kind) is not Kind.CLASSES:
        raise TaskError(f"the scenario {scenario!r} needs kind='classes', not {kind!r}")
    scale = _scale(splits, standardise)
    named = _groups(count, size, seed, order, groups)
    known = np.concatenate(list(named.values())) if scenario == "class" else None
    return Stream(
        {
            name: partial(_group_task, name, splits, scale, group, Kind(kind), known)
            for name, group in named.items()
        },
        source=source,
        outputs={
            name: [splits.classes[code] for code in (group if known is None else known)]
            for name, group in named.items()
        },
        scenario=scenario,
    )


def _groups(
    count: int, size: int, seed: int, order: Order, given: Mapping[str, Sequence[int]] | None
) -> dict[str, NDArray[np.int64]]:
    if given is None:
        drawn = _ordered(count, seed, order).reshape(-1, size)
        return {f"group {number}": group for number, group in enumerate(drawn)}
    if sorted(code for group in given.values() for code in group) != list(range(count)) or {
        len(group) for group in given.values()
    } != {size}:
        raise TaskError(f"groups must part the {count} classes into groups of {size}")
    names = list(given)
    turns = [names[place] for place in _ordered(len(names), seed, order)]
    return {name: np.array(given[name], np.int64) for name in turns}


def permutations(
    splits: Splits,
    tasks: int,
    *,
    seed: int,
    keep_first: bool = False,
    standardise: Standardise = "features",
    source: str = "arrays",
) -> Stream:
    """All classes under one softmax in every task, with the features permuted per task.

    The stream holds one copy of the rows; a task's permuted copy is made with the task. With
    `keep_first` the first task has the features in their given order.
    """
    if tasks < 1:
        raise TaskError(f"a stream of permutations needs at least 1 task, not {tasks}")
    scale = _scale(splits, standardise)
    features = int(np.prod(splits.train.x.shape[1:]))
    generator = generator_for("features", seed)
    orders = [generator.permutation(features) for _ in range(tasks)]
    if keep_first:
        orders[0] = np.arange(features)
    makers = {
        f"permutation {number}": partial(
            _permuted_task, f"permutation {number}", splits, scale, chosen
        )
        for number, chosen in enumerate(orders)
    }
    return Stream(
        makers, source=source, outputs=dict.fromkeys(makers, splits.classes), scenario="domain"
    )


def _scale(splits: Splits, standardise: Standardise) -> Callable[[], Scale]:
    """Fits the scale when the first task is made, but refuses a wrong `standardise` at once."""
    axes_of(standardise, splits.train.x.ndim)
    return cache(partial(Scale.fit, splits.train, standardise))


def _all_inputs(splits: Splits, scale: Callable[[], Scale]) -> tuple[Tensor, Tensor, Tensor]:
    train, valid, test = (inputs_of(part, scale()) for part in splits.each)
    return train, valid, test


def _versus_rest(
    name: str, splits: Splits, inputs: Callable[[], tuple[Tensor, Tensor, Tensor]], code: int
) -> Task:
    train, valid, test = inputs()
    return Task(
        name,
        (train, splits.train.labels == code),
        (valid, splits.valid.labels == code),
        (test, splits.test.labels == code),
        kind=Kind.BINARY,
        outputs=1,
    )


def _group_task(
    name: str,
    splits: Splits,
    scale: Callable[[], Scale],
    group: NDArray[np.int64],
    kind: Kind,
    known: NDArray[np.int64] | None,
) -> Task:
    answers = group if known is None else known

    def rows(part: Subset) -> tuple[Tensor, NDArray[Any]]:
        own = part.of_classes(group)
        membership = own.labels[:, None] == answers
        return inputs_of(own, scale()), (
            membership if kind is Kind.BINARY else membership.argmax(axis=1)
        )

    train, valid, test = (rows(part) for part in splits.each)
    return Task(name, train, valid, test, kind=kind, outputs=len(answers))


def _permuted_task(
    name: str, splits: Splits, scale: Callable[[], Scale], features: NDArray[np.int64]
) -> Task:
    train, valid, test = ((inputs_of(part, scale(), features), part.labels) for part in splits.each)
    return Task(name, train, valid, test, kind=Kind.CLASSES, outputs=len(splits.classes))


def _ordered(count: int, seed: int, order: Order) -> NDArray[np.int64]:
    if order not in ("drawn", "given"):
        raise TaskError(f"order must be 'drawn' (from the seed) or 'given', not {order!r}")
    return generator_for("order", seed).permutation(count) if order == "drawn" else np.arange(count)


def _listed(names: Sequence[str], most: int = 12) -> str:
    shown = ", ".join(repr(name) for name in names[:most])
    return shown if len(names) <= most else f"{shown} and {len(names) - most} more"
