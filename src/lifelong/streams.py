"""Tasks that arrive one after another, and ways to make them from arrays.

First the rows of a table are parted into training, validation and test rows (`split` where there is
one table, `hold_out` where the test rows are given); then the parts become a stream:

- `one_versus_rest`: a binary task for each class, over all rows;
- `class_groups`: a task for each group of classes, over the rows of those classes;
- `permutations`: the same classes again and again, the features in another order each time.

Everything drawn is drawn from a seed: the same seed gives the same rows in the same order, and the
global random state is neither read nor changed.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache, partial
from typing import Any, Literal, TypeAlias, final

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray
from torch import Tensor

from lifelong.tasks import Kind, Task, TaskError

Order: TypeAlias = Literal["drawn", "given"]
Standardise: TypeAlias = Literal["whole", "features", "channels", "range"] | None
Sizes: TypeAlias = tuple[int, int, int] | tuple[float, float, float]

CHUNK = 256  # rows converted at once: bounds the copies made beside the result


@final
class Stream:
    """Tasks in the order in which they arrive, each made when it is asked for and then let go.

    A stream may be iterated any number of times; the tasks are equal each time. `source` says in
    words what data it is made of, and belongs into the record of a run; `outputs` names the classes
    that the outputs of each task stand for, where they have names.
    """

    def __init__(
        self,
        makers: Mapping[str, Callable[[], Task]],
        *,
        source: str,
        outputs: Mapping[str, Sequence[str]] | None = None,
    ) -> None:
        if not makers:
            raise TaskError("a stream needs at least one task, but none was given")
        self._makers = dict(makers)
        self.source = source
        self.outputs = {name: tuple(classes) for name, classes in (outputs or {}).items()}

    @property
    def names(self) -> tuple[str, ...]:
        """Names of the tasks in the order in which they arrive."""
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
        """The same tasks, tested on their validation rows: to choose settings by."""

        def on_valid(make: Callable[[], Task]) -> Task:
            task = make()
            return Task(
                task.name,
                task.train,
                task.valid,
                task.valid,
                kind=task.kind,
                outputs=task.outputs,
            )

        makers = {name: partial(on_valid, make) for name, make in self._makers.items()}
        return Stream(makers, source=f"{self.source}, validation rows", outputs=self.outputs)

    def first(self, tasks: int) -> "Stream":
        """The stream that ends after so many tasks."""
        if not 1 <= tasks <= len(self):
            raise TaskError(f"this stream has 1 to {len(self)} tasks to take, not {tasks}")
        kept = dict(list(self._makers.items())[:tasks])
        return Stream(kept, source=self.source, outputs=self.outputs)

    def __repr__(self) -> str:
        return f"Stream({len(self)} tasks, {self.source!r})"


@final
@dataclass(frozen=True, eq=False)
class Part:
    """Some rows of a table, by number, so that several parts can share one table."""

    x: NDArray[Any]
    y: NDArray[np.int64]
    rows: NDArray[np.int64]

    @property
    def labels(self) -> NDArray[np.int64]:
        labels: NDArray[np.int64] = self.y[self.rows]
        return labels

    def of_classes(self, chosen: NDArray[np.int64]) -> "Part":
        """Only the rows of the chosen classes."""
        return Part(self.x, self.y, self.rows[np.isin(self.labels, chosen)])

    def chunks(self) -> Iterator[NDArray[Any]]:
        for start in range(0, len(self.rows), CHUNK):
            yield self.x[self.rows[start : start + CHUNK]]


@final
@dataclass(frozen=True, eq=False)
class Parts:
    """Rows to train, validate and test on; labels are positions in `classes`, which are names."""

    train: Part
    valid: Part
    test: Part
    classes: tuple[str, ...]

    @property
    def each(self) -> tuple[Part, Part, Part]:
        return self.train, self.valid, self.test


def split(
    x: ArrayLike,
    y: ArrayLike,
    sizes: Sizes,
    *,
    seed: int,
    test: ArrayLike | None = None,
    classes: Sequence[str] | None = None,
) -> Parts:
    """Part one table at random, class by class, into training, validation and test rows.

    `sizes` are three numbers of rows a class, or three shares of each class's rows. `test` marks
    the rows to draw test rows from, the others being for training and validation; without it all
    rows are for all. `classes` names the distinct labels in sorted order; without it a class is
    named by its label.
    """
    table, labels = _table(x, y)
    codes, names = _encode(labels, classes)
    _check_sizes(sizes)
    pools = _pools(len(labels), sizes, test)
    generator = generator_for("rows", seed)

    def draw(code: int, name: str) -> list[NDArray[np.int64]]:
        rows = [np.flatnonzero(mask & (codes == code)) for mask, _ in pools]
        cuts = [
            _cut(generator.permutation(pool), own, name)
            for pool, (_, own) in zip(rows, pools, strict=True)
        ]
        return [part for cut in cuts for part in cut]

    drawn = [draw(code, name) for code, name in enumerate(names)]
    train, valid, tested = (
        Part(table, codes, generator.permutation(np.concatenate(rows)))
        for rows in zip(*drawn, strict=True)
    )
    return Parts(train, valid, tested, names)


def hold_out(
    train: tuple[ArrayLike, ArrayLike],
    test: tuple[ArrayLike, ArrayLike],
    *,
    valid: int,
    seed: int,
    classes: Sequence[str] | None = None,
) -> Parts:
    """Hold `valid` rows out of the training rows, each class by its share; keep the test rows."""
    table, labels = _table(*train)
    test_table, test_labels = _table(*test)
    if not 1 <= valid < len(labels):
        raise TaskError(
            f"valid must be between 1 and {len(labels) - 1}, since there are {len(labels)} rows to "
            f"hold validation rows out of, not {valid}"
        )
    codes, names = _encode(np.concatenate([labels, test_labels]), classes)
    train_codes, test_codes = codes[: len(labels)], codes[len(labels) :]
    generator = generator_for("rows", seed)
    held = _spread(train_codes, valid, generator)
    kept = np.setdiff1d(np.arange(len(labels)), held)
    return Parts(
        Part(table, train_codes, generator.permutation(kept)),
        Part(table, train_codes, generator.permutation(held)),
        Part(test_table, test_codes, np.arange(len(test_codes))),
        names,
    )


def generator_for(purpose: str, seed: int) -> np.random.Generator:
    """A generator of its own for each purpose: no draw hangs on how much was drawn for another."""
    if isinstance(seed, bool) or not isinstance(seed, int | np.integer) or seed < 0:
        raise TaskError(f"a seed must be a whole number from 0, not {seed!r}")
    return np.random.default_rng([int(seed), *purpose.encode()])


def consecutive(table: NDArray[Any], drawn: Parts) -> Parts:
    """The same parts over a table of the rows drawn only: train rows first, then valid, then test.

    For tables too costly to make whole: draw rows by their labels, then make those.
    """
    ends = np.cumsum([len(part.rows) for part in drawn.each])
    labels = np.concatenate([part.labels for part in drawn.each])
    train, valid, test = (
        Part(table, labels, rows) for rows in np.split(np.arange(ends[2]), ends[:2])
    )
    return Parts(train, valid, test, drawn.classes)


def one_versus_rest(
    parts: Parts,
    *,
    seed: int,
    order: Order = "drawn",
    standardise: Standardise = "features",
    source: str = "arrays",
    prefix: str = "",
) -> Stream:
    """A binary task for each class: is a row of this class, or of any other?

    All tasks share one set of inputs, so that ten tasks hold one copy of them and not ten.
    """
    inputs = cache(partial(_all_inputs, parts, _scale(parts, standardise)))
    names = [prefix + name for name in parts.classes]
    makers = {
        names[code]: partial(_versus_rest, names[code], parts, inputs, code)
        for code in _ordered(len(names), seed, order)
    }
    outputs = {name: [own] for name, own in zip(names, parts.classes, strict=True)}
    return Stream(makers, source=source, outputs=outputs)


def class_groups(
    parts: Parts,
    size: int,
    *,
    seed: int,
    kind: Kind | str = Kind.BINARY,
    order: Order = "drawn",
    standardise: Standardise = "features",
    source: str = "arrays",
) -> Stream:
    """A task for each group of `size` classes, over the rows of those classes only.

    Under `Kind.BINARY` each class of the group is a subtask of its own, against the others of the
    group; under `Kind.CLASSES` they are the classes of one softmax. Classes are numbered within
    their group, in the order drawn; `Stream.outputs` names them. The statistics for `standardise`
    come from the training rows of all groups.
    """
    if kind not in list(Kind):
        raise TaskError(f"kind must be one of 'binary', 'classes', not {kind!r}")
    count = len(parts.classes)
    if size < 1 or count % size or (size == 1 and count > 1):
        raise TaskError(
            f"{count} classes cannot be parted into groups of {size}; give a size that divides "
            f"{count} and is at least 2"
        )
    scale = _scale(parts, standardise)
    groups = _ordered(count, seed, order).reshape(-1, size)
    named = {f"group {number}": group for number, group in enumerate(groups)}
    return Stream(
        {
            name: partial(_group_task, name, parts, scale, group, Kind(kind))
            for name, group in named.items()
        },
        source=source,
        outputs={name: [parts.classes[code] for code in group] for name, group in named.items()},
    )


def permutations(
    parts: Parts,
    tasks: int,
    *,
    seed: int,
    keep_first: bool = False,
    standardise: Standardise = "features",
    source: str = "arrays",
) -> Stream:
    """All classes under softmax in every task, the features in an order drawn for each task.

    The stream holds one copy of the rows; a task's own copy is made when the task is. With
    `keep_first` the first task has the features in their given order.
    """
    if tasks < 1:
        raise TaskError(f"a stream of permutations needs at least 1 task, not {tasks}")
    scale = _scale(parts, standardise)
    features = int(np.prod(parts.train.x.shape[1:]))
    generator = generator_for("features", seed)
    orders = [generator.permutation(features) for _ in range(tasks)]
    if keep_first:
        orders[0] = np.arange(features)
    makers = {
        f"permutation {number}": partial(
            _permuted_task, f"permutation {number}", parts, scale, chosen
        )
        for number, chosen in enumerate(orders)
    }
    return Stream(makers, source=source, outputs=dict.fromkeys(makers, parts.classes))


@final
@dataclass(frozen=True, eq=False)
class Scale:
    """Inputs as float32 with mean 0 and standard deviation 1 over the training rows.

    `mean` and `deviation` broadcast over a row: one number for the whole table, one for each
    feature, or one for each channel (the first axis of a row). By "range" they are the smallest
    value of all and its distance to the largest, so that inputs go from 0 to 1.
    """

    mean: NDArray[np.floating[Any]]
    deviation: NDArray[np.floating[Any]]

    @classmethod
    def fit(cls, train: Part, over: Standardise) -> "Scale":
        """Statistics of training rows; validation and test rows must never be given here."""
        axes = _axes(over, train.x.ndim)
        if over is None:
            return cls(np.zeros(1, np.float32), np.ones(1, np.float32))
        if over == "range":
            return cls._of_range(train)
        count, total, squares = 0, 0.0, 0.0
        # Squares are summed about a value near the mean, or a large mean would drown the variance.
        pivot = next(train.chunks()).mean(axis=axes, keepdims=True, dtype=np.float64)
        for rows in train.chunks():
            centred = rows - pivot
            count += centred.size // pivot.size
            total = total + centred.sum(axis=axes, keepdims=True)
            squares = squares + np.square(centred, out=centred).sum(axis=axes, keepdims=True)
        offset = total / count
        mean = pivot + offset
        deviation = np.sqrt(np.maximum(squares / count - np.square(offset), 0.0))
        # A feature that never varies says nothing: it becomes 0, or the rounding of its mean would
        # be blown up to the size of the others.
        deviation = np.where(deviation > 1e-12 * np.abs(mean), deviation, 1.0)
        # In the precision of the rows, so that a large mean is subtracted before it is rounded.
        precision = np.result_type(train.x, np.float32)
        return cls(mean[0].astype(precision), deviation[0].astype(precision))

    @classmethod
    def _of_range(cls, train: Part) -> "Scale":
        low = min(rows.min() for rows in train.chunks())
        high = max(rows.max() for rows in train.chunks())
        distance = float(high) - float(low)
        precision = np.result_type(train.x, np.float32)
        return cls(np.array([low], precision), np.array([distance or 1.0], precision))

    def apply(self, rows: NDArray[Any], into: NDArray[np.float32]) -> None:
        np.subtract(rows, self.mean, out=into, casting="same_kind")
        np.divide(into, self.deviation, out=into, casting="same_kind")


def inputs_of(part: Part, scale: Scale, features: NDArray[np.int64] | None = None) -> Tensor:
    """The standardised rows of a part; with `features`, flattened and in that order of features."""
    # Made by NumPy, which asks for large pages: that alone is a quarter of the time.
    inputs = np.empty((len(part.rows), *part.x.shape[1:]), np.float32)
    for number, rows in enumerate(part.chunks()):
        into = inputs[number * CHUNK : (number + 1) * CHUNK]
        scale.apply(rows, into)
        if features is not None:
            flat = into.reshape(len(into), -1)
            flat[:] = flat[:, features]
    return torch.from_numpy(inputs if features is None else inputs.reshape(len(inputs), -1))


def _scale(parts: Parts, standardise: Standardise) -> Callable[[], Scale]:
    """Fitted when the first task is made; a wrong `standardise` is refused at once."""
    _axes(standardise, parts.train.x.ndim)
    return cache(partial(Scale.fit, parts.train, standardise))


def _all_inputs(parts: Parts, scale: Callable[[], Scale]) -> tuple[Tensor, Tensor, Tensor]:
    train, valid, test = (inputs_of(part, scale()) for part in parts.each)
    return train, valid, test


def _versus_rest(
    name: str, parts: Parts, inputs: Callable[[], tuple[Tensor, Tensor, Tensor]], code: int
) -> Task:
    train, valid, test = inputs()
    return Task(
        name,
        (train, parts.train.labels == code),
        (valid, parts.valid.labels == code),
        (test, parts.test.labels == code),
        kind=Kind.BINARY,
        outputs=1,
    )


def _group_task(
    name: str, parts: Parts, scale: Callable[[], Scale], group: NDArray[np.int64], kind: Kind
) -> Task:
    def rows(part: Part) -> tuple[Tensor, NDArray[Any]]:
        own = part.of_classes(group)
        membership = own.labels[:, None] == group
        return inputs_of(own, scale()), (
            membership if kind is Kind.BINARY else membership.argmax(axis=1)
        )

    train, valid, test = (rows(part) for part in parts.each)
    return Task(name, train, valid, test, kind=kind, outputs=len(group))


def _permuted_task(
    name: str, parts: Parts, scale: Callable[[], Scale], features: NDArray[np.int64]
) -> Task:
    train, valid, test = ((inputs_of(part, scale(), features), part.labels) for part in parts.each)
    return Task(name, train, valid, test, kind=Kind.CLASSES, outputs=len(parts.classes))


def _table(x: ArrayLike, y: ArrayLike) -> tuple[NDArray[Any], NDArray[Any]]:
    table, labels = np.asarray(x), np.asarray(y)
    if table.ndim < 2 or table.dtype.kind not in "biuf":
        raise TaskError(
            "inputs must be a numeric array with rows first and at least one feature axis, not "
            f"{table.dtype} of shape {table.shape}"
        )
    if labels.shape != table.shape[:1]:
        raise TaskError(
            f"{len(table)} rows of inputs but labels of shape {labels.shape}; give one label a row"
        )
    require_finite("inputs", table)
    return table, labels


def require_finite(what: str, table: NDArray[Any]) -> None:
    """Refuse NaN and infinity before a mean or a component spreads them over all rows."""
    if table.dtype.kind != "f" or np.isfinite(table).all():
        return
    place = tuple(int(i) for i in np.argwhere(~np.isfinite(table))[0])
    raise TaskError(
        f"{what} must be finite numbers, but the value at {place} is {table[place]}; leave out or "
        "fill in such rows first"
    )


def _encode(
    labels: NDArray[Any], classes: Sequence[str] | None
) -> tuple[NDArray[np.int64], tuple[str, ...]]:
    distinct, codes = np.unique(labels, return_inverse=True)
    names = tuple(str(label) for label in distinct) if classes is None else tuple(classes)
    if len(names) != len(distinct) or len(set(names)) != len(names):
        raise TaskError(
            f"{len(names)} class names for {len(distinct)} distinct labels; give one name for each "
            "label, in sorted order of the labels, and no name twice"
        )
    return codes.astype(np.int64), names


def _pools(
    count: int, sizes: Sizes, test: ArrayLike | None
) -> list[tuple[NDArray[np.bool_], tuple[float, ...]]]:
    """Which rows may be drawn from, and the sizes of the parts drawn from them."""
    if test is None:
        return [(np.ones(count, bool), sizes)]
    marks = np.asarray(test)
    if marks.shape != (count,) or marks.dtype != bool:
        raise TaskError(
            f"test must mark each of the {count} rows with True or False, not be an array of "
            f"{marks.dtype} of shape {marks.shape}"
        )
    return [(~marks, sizes[:2]), (marks, sizes[2:])]


def _check_sizes(sizes: Sizes) -> None:
    counts = all(isinstance(size, int | np.integer) and size > 0 for size in sizes)
    shares = all(0 < size < 1 for size in sizes) and sum(sizes) <= 1 + 1e-9
    if len(sizes) != 3 or not (counts or shares):
        raise TaskError(
            "sizes must be three whole numbers of rows a class, such as (30, 30, 30), or three "
            f"shares that sum to at most 1, such as (0.6, 0.2, 0.2), not {sizes!r}"
        )


def _cut(rows: NDArray[np.int64], sizes: tuple[float, ...], name: str) -> list[NDArray[np.int64]]:
    """Rows of one class in parts of the sizes asked."""
    if isinstance(sizes[0], int | np.integer):
        ends = np.cumsum(sizes)
    else:
        ends = np.floor(np.cumsum(sizes) * len(rows) + 1e-9).astype(np.int64)
    asked = " + ".join(str(size) for size in sizes)
    if ends[-1] > len(rows) or ends[0] == 0 or (np.diff(ends) == 0).any():
        raise TaskError(
            f"class {name!r} has {len(rows)} rows, too few for parts of {asked}; "
            "ask for fewer rows a class, or leave the class out"
        )
    return np.split(rows, ends)[:-1]


def _spread(
    codes: NDArray[np.int64], wanted: int, generator: np.random.Generator
) -> NDArray[np.int64]:
    """So many rows at even steps through the rows sorted by class: each class gives its share."""
    shuffled = generator.permutation(len(codes))
    by_class = shuffled[np.argsort(codes[shuffled], kind="stable")]
    steps: NDArray[np.int64] = np.arange(wanted) * len(codes) // wanted
    return np.asarray(by_class[steps])


def _ordered(count: int, seed: int, order: Order) -> NDArray[np.int64]:
    if order not in ("drawn", "given"):
        raise TaskError(f"order must be 'drawn' (from the seed) or 'given', not {order!r}")
    return generator_for("order", seed).permutation(count) if order == "drawn" else np.arange(count)


def _axes(over: Standardise, ndim: int) -> tuple[int, ...]:
    if over in (None, "whole", "range"):
        return tuple(range(ndim))
    if over == "features":
        return (0,)
    if over == "channels":
        return (0, *range(2, ndim))
    allowed = "'whole', 'features', 'channels', 'range' or None"
    raise TaskError(f"standardise must be {allowed}, not {over!r}")


def _listed(names: Sequence[str], most: int = 12) -> str:
    shown = ", ".join(repr(name) for name in names[:most])
    return shown if len(names) <= most else f"{shown} and {len(names) - most} more"
