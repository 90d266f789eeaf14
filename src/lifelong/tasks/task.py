"""A task with its training, validation and test rows.

A task has one or more *outputs*. Under `Kind.BINARY` each output is a separate binary problem (the
paper's subtasks); under `Kind.CLASSES` the outputs are the classes of one softmax; under
`Kind.REGRESSION` and `Kind.MEDIAN_REGRESSION` each output is a number.
"""

import math
import mmap
import operator
import warnings
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Any, Literal, Protocol, TypeAlias, final

import numpy as np
import torch
from torch import Tensor
from torch.utils.data import DataLoader, Dataset, IterableDataset, TensorDataset, default_collate

from lifelong.tasks.shards import Shard

Array: TypeAlias = Any  # whatever `torch.as_tensor` takes: a NumPy array, a tensor, nested lists


MOST_OUTPUTS = 2**24  # a head of so many, on 100 units, takes 7 GB
# Types that torch compares and sorts; labels of others, such as uint16, are converted first.
_COMPARABLE = {
    *(torch.bool, torch.uint8, torch.int8, torch.int16, torch.int32, torch.int64),
    *(torch.float16, torch.bfloat16, torch.float32, torch.float64),
}


LOOKED_AT = 10_000  # rows, for the scales of the columns
APART = 1000.0  # scales that differ by more than this factor


class UnscaledWarning(UserWarning):
    """Columns of inputs whose scales differ so much that learning suffers."""


class TaskError(ValueError):
    """Data that cannot make a task; the message says what came, what is allowed and what to do."""


class Kind(StrEnum):
    """What the outputs of a task mean."""

    BINARY = "binary"
    CLASSES = "classes"
    REGRESSION = "regression"  # numbers, by squared error: predicts the mean
    MEDIAN_REGRESSION = "median regression"  # numbers, by absolute error: predicts the median

    @property
    def is_regression(self) -> bool:
        return self in (Kind.REGRESSION, Kind.MEDIAN_REGRESSION)


class Examples(Protocol):
    """Labelled rows in batches of (inputs, labels); `shape` is that of one input.

    With a generator the rows are shuffled, without one they come in the order stored. The length is
    that of all rows; one of several processes gets those rows of each batch that it has.
    """

    def __len__(self) -> int: ...

    @property
    def shape(self) -> tuple[int, ...]: ...

    def batches(
        self, size: int, generator: torch.Generator | None = None
    ) -> Iterator[tuple[Tensor, Tensor]]: ...


@final
@dataclass(frozen=True, eq=False)
class TensorExamples:
    """Examples in memory, indexed directly: six times as fast as a DataLoader.

    With a shard they are the rows that this process has.
    """

    x: Tensor
    y: Tensor
    shard: Shard | None = None

    def __len__(self) -> int:
        return len(self.x) if self.shard is None else len(self.shard.whole)

    @property
    def shape(self) -> tuple[int, ...]:
        return tuple(self.x.shape[1:])

    def batches(
        self, size: int, generator: torch.Generator | None = None
    ) -> Iterator[tuple[Tensor, Tensor]]:
        yield from in_batches((self.x, self.y), size, generator, self.shard)

    def with_labels(self, y: Tensor) -> "TensorExamples":
        return replace(self, y=y)

    def first(self, count: int) -> Tensor:
        return self.x[:count]

    def part(self, rank: int, count: int) -> "TensorExamples":
        shard = Shard(rank, count, self)
        return TensorExamples(self.x[shard.rows], self.y[shard.rows], shard)


Rows: TypeAlias = "Examples | Dataset[Any] | DataLoader[Any] | tuple[Array, Array]"


def in_batches(
    columns: Sequence[Tensor],
    size: int,
    generator: torch.Generator | None,
    shard: Shard | None = None,
) -> Iterator[Any]:
    """Batches of the same rows of each column, shuffled if a generator is given."""
    if generator is None:
        yield from zip(*(column.split(size) for column in columns), strict=True)
        return
    for chosen in _shuffled(columns[0], size, generator, shard):
        # Three times as fast as `column[chosen]`, with the same result.
        yield tuple(column.index_select(0, chosen) for column in columns)


def _shuffled(
    column: Tensor, size: int, generator: torch.Generator, shard: Shard | None
) -> Iterator[Tensor]:
    if shard is None:
        yield from torch.randperm(len(column), generator=generator).to(column.device).split(size)
        return
    numbers, by_batch = shard.drawn(size, generator)
    yield from (numbers // shard.count).to(column.device).split(by_batch)


@final
class DatasetExamples:
    """Examples that do not fit in memory: a torch `Dataset` of (input, label), by a DataLoader.

    Anything with `__len__` and `__getitem__` will do. Labels must fit the kind: 0 or 1 per binary
    output, or one class number. They are checked as they are read. Augmentations that draw from
    PyTorch's global state are seeded, so that a learner's seed decides them too.
    """

    def __init__(
        self,
        dataset: "Dataset[Any]",
        kind: Kind | str,
        outputs: int,
        *,
        workers: int = 0,
        collate: Callable[[list[Any]], Any] | None = None,
        shard: Shard | None = None,
    ) -> None:
        self._dataset: Any = dataset  # torch's Dataset type has no __len__
        self._kind = _kind("rows of a dataset", kind)
        self._outputs = _checked_outputs("rows of a dataset", outputs)
        self._workers, self._collate, self.shard = workers, collate, shard

    def __len__(self) -> int:
        return len(self._dataset)

    @property
    def shape(self) -> tuple[int, ...]:
        return tuple(torch.as_tensor(self._dataset[0][0]).shape) if len(self) else ()

    def batches(
        self, size: int, generator: torch.Generator | None = None
    ) -> Iterator[tuple[Tensor, Tensor]]:
        numbers, by_batch = (self.shard or Shard(0, 1, self)).drawn(size, generator)
        batches = [part.tolist() for part in numbers.split(by_batch)]
        # Without a generator of its own a DataLoader would draw from the global one.
        own = torch.Generator()
        if generator is not None:
            own.set_state(generator.get_state())
        loader: DataLoader[Any] = DataLoader(
            self._dataset,
            batch_sampler=[batch for batch in batches if batch],
            generator=own,
            num_workers=self._workers,
            collate_fn=self._collate,
        )
        read = _seeded(loader, own, 0 if self.shard is None else self.shard.rank)
        for batch in batches:
            yield self._checked(*next(read)) if batch else self._nothing()

    def part(self, rank: int, count: int) -> "DatasetExamples":
        shard = Shard(rank, count, self)
        given = (self._dataset, self._kind, self._outputs)
        return DatasetExamples(*given, workers=self._workers, collate=self._collate, shard=shard)

    def _checked(self, x: Any, y: Any) -> tuple[Tensor, Tensor]:
        where = "a batch of a dataset"
        inputs, labels = plain_tensor(where, x), _comparable(plain_tensor(where, y))
        return _finite_float32(where, inputs), _labels(where, labels, self._kind, self._outputs)

    def _nothing(self) -> tuple[Tensor, Tensor]:
        """A batch of which this process has no row."""
        return torch.zeros(0, *self.shape), no_labels(self._kind, self._outputs)


def no_labels(kind: Kind, outputs: int) -> Tensor:
    """The labels of no row."""
    one_column = kind is Kind.CLASSES
    return torch.zeros(0, dtype=torch.long) if one_column else torch.zeros(0, outputs)


def _seeded(loader: "DataLoader[Any]", generator: torch.Generator, rank: int) -> Iterator[Any]:
    """The batches of a loader. The global state is seeded while one is made, and then restored.

    The seeds follow from the generator and from the process.
    """
    first = int(torch.randint(2**62, (), generator=generator)) + 2**40 * rank
    batches, number = iter(loader), 0
    while True:
        with torch.random.fork_rng(devices=[]):
            torch.default_generator.manual_seed(first + number)
            batch = next(batches, None)
        if batch is None:
            return
        number += 1
        yield batch


@final
class MappedExamples:
    """Examples whose inputs are a memory-mapped array: only batches are in memory.

    What was read is given back to the system again and again, so that a process does not hold the
    file; the system may keep it for who reads next. Labels are in memory. Inputs are checked as
    they are read.
    """

    def __init__(self, x: "np.memmap[Any, Any]", y: Tensor, shard: Shard | None = None) -> None:
        self._x, self.y, self.shard = x, y, shard
        self._touched = 0  # bytes of the file that were mapped since they were given back

    def __len__(self) -> int:
        return len(self._x)

    @property
    def shape(self) -> tuple[int, ...]:
        return tuple(self._x.shape[1:])

    def part(self, rank: int, count: int) -> "MappedExamples":
        return MappedExamples(self._x, self.y, Shard(rank, count, self))

    def with_labels(self, y: Tensor) -> "MappedExamples":
        return MappedExamples(self._x, y, self.shard)

    def batches(
        self, size: int, generator: torch.Generator | None = None
    ) -> Iterator[tuple[Tensor, Tensor]]:
        numbers, by_batch = (self.shard or Shard(0, 1, self)).drawn(size, generator)
        for chosen in numbers.split(by_batch):
            yield self._read(chosen.numpy()), self.y[chosen]

    def first(self, count: int) -> Tensor:
        """Some of the first inputs: no more than take a few megabytes."""
        few = max(2, _FEW_BYTES // max(1, self._x[:1].nbytes))
        return self._read(np.arange(min(count, few, len(self))))

    def _read(self, chosen: "np.ndarray[Any, Any]") -> Tensor:
        rows = torch.from_numpy(np.asarray(self._x[chosen], dtype=_native_type(self._x.dtype)))
        self._touched += len(chosen) * max(_AROUND, self._x[:1].nbytes)
        if self._touched > _HELD:
            _give_back(self._x)
            self._touched = 0
        return _finite_float32("a batch of a memory-mapped array", rows)


_AROUND = 2**16  # bytes that Linux maps when one of them is read
_FEW_BYTES = 2**22
_HELD = 2**26  # bytes that may be mapped before they are given back


def _native_type(dtype: "np.dtype[Any]") -> "np.dtype[Any]":
    return dtype.newbyteorder("=")


def _give_back(array: "np.ndarray[Any, Any]") -> None:
    """Drop the pages of a mapped file from this process; the file's content is not touched."""
    under: Any = array
    while isinstance(under, np.ndarray):
        if getattr(under, "mode", "r") == "c":  # changes that only this process has
            return
        under = under.base
    if isinstance(under, mmap.mmap) and hasattr(mmap, "MADV_DONTNEED"):
        under.madvise(mmap.MADV_DONTNEED)


@final
class Task:
    """A named prediction problem.

    `train`, `valid` and `test` are pairs (inputs, labels) of arrays, a torch `Dataset` or
    `DataLoader` of such pairs, or `Examples`. Inputs in a memory-mapped array (`np.memmap`, or
    `np.load` with a `mmap_mode`) stay there and are read batch by batch.
    Labels of a binary task are 0 or 1, one column per output; labels of classes are whole numbers
    from 0; those of a regression are numbers, one column per output, best scaled to about 1. The
    kind and the number of outputs are inferred from training labels in arrays unless they are
    given: two-dimensional labels, or labels that are all 0 or 1, make a binary task. A regression
    has to be asked for.
    Classes that are numbered from 1 keep their numbers: `first` is 1 then, and 0 otherwise.

    `class_weights` multiply the loss of each row of a class, or of the positives of each binary
    output; "balanced" gives all classes of the training labels the same influence. `loss` is a
    function of outputs (before sigmoid or softmax) and labels in place of the kind's own; it
    returns the mean over rows.
    """

    def __init__(
        self,
        name: str,
        train: "Rows",
        valid: "Rows",
        test: "Rows | None" = None,
        *,
        kind: Kind | str | None = None,
        outputs: int | None = None,
        class_weights: "Array | Literal['balanced'] | None" = None,
        loss: Callable[[Tensor, Tensor], Tensor] | None = None,
    ) -> None:
        if not isinstance(name, str) or not name:
            raise TaskError(f"a task's name must be a string that is not empty, not {name!r}")
        self.name = name
        with torch.inference_mode(False):  # whose tensors could not be trained on
            self._make(train, valid, test, kind, outputs)
            self.class_weights = None if class_weights is None else self._weights(class_weights)
        if loss is not None:
            self._refuse_loss(loss)
        self.loss = loss

    def _make(
        self,
        train: "Rows",
        valid: "Rows",
        test: "Rows | None",
        kind: Kind | str | None,
        outputs: int | None,
    ) -> None:
        name = self.name
        train, valid, test = (_arrays_of(given) for given in (train, valid, test))
        if not isinstance(train, tuple) and (kind is None or outputs is None):
            raise TaskError(
                f"task {name!r}: rows that are not arrays do not tell the kind of their labels; "
                "give kind='binary', 'classes' or 'regression', and outputs=..."
            )
        splits = {"train": train, "valid": valid} | ({} if test is None else {"test": test})
        rows = {
            split: _as_rows(name, split, given)
            if isinstance(given, tuple)
            else _as_examples(f"task {name!r}, {split}", given, kind, outputs)
            for split, given in splits.items()
        }
        first = rows["train"]
        self.kind = _kind(name, kind) if kind is not None else _infer_kind(first)
        if outputs is None:
            self.outputs = _infer_outputs(name, self.kind, first)
        else:
            self.outputs = _checked_outputs(f"task {name!r}", outputs)
        self.first = _first_class(self.kind, first, outputs)
        if self.first and outputs is None:
            self.outputs -= self.first
        checked = {split: self._check(split, given, first.shape) for split, given in rows.items()}
        self.train = checked["train"]
        self.valid = checked["valid"]
        self.test = checked.get("test")

    @property
    def shape(self) -> tuple[int, ...]:
        """Shape of one input."""
        return self.train.shape

    def __repr__(self) -> str:
        weighted = "" if self.class_weights is None else f", weights={self.class_weights.tolist()}"
        own = "" if self.loss is None else f", loss={_name_of(self.loss)}"
        about = f"{self.kind}, outputs={self.outputs}, shape={self.shape}{weighted}{own}"
        return f"Task({self.name!r}, {about})"

    def _weights(self, given: "Array | Literal['balanced']") -> Tensor:
        where = f"task {self.name!r}"
        if self.kind.is_regression:
            raise TaskError(f"{where}: a regression has no classes that class_weights could be for")
        if isinstance(given, str) and given == "balanced":
            return self._balanced(where)
        each = "class" if self.kind is Kind.CLASSES else "binary output, for its positives"
        allowed = f"'balanced' or {self.outputs} positive numbers, one per {each}"
        try:
            weights = torch.as_tensor(given, dtype=torch.float32).detach().cpu()
        except (TypeError, ValueError, RuntimeError):
            weights = torch.empty(0)
        right = weights.shape == (self.outputs,) and bool((weights > 0).all())
        if not right or not bool(torch.isfinite(weights).all()):
            raise TaskError(f"{where}: class_weights must be {allowed}, not {given!r}")
        return weights

    def _refuse_loss(self, loss: Callable[[Tensor, Tensor], Tensor]) -> None:
        """By what it makes of a few rows."""
        must = f"task {self.name!r}: loss must be a function of outputs and labels"
        if not callable(loss) or self.class_weights is not None:
            raise TaskError(f"{must}, and without class_weights, which it can have inside")
        _, y = next(iter(self.train.batches(4)))
        try:
            found = loss(torch.zeros(len(y), self.outputs, device=y.device), y)
            mean = isinstance(found, Tensor) and found.ndim == 0 and bool(found.isfinite())
        except Exception as error:  # whatever the function raises
            raise TaskError(f"{must}; on {len(y)} rows it ended in {error!r}") from error
        if not mean:
            raise TaskError(f"{must} that returns one finite number, not {found!r}")

    def _balanced(self, where: str) -> Tensor:
        if not isinstance(self.train, TensorExamples):
            raise TaskError(
                f"{where}: class_weights='balanced' counts labels in arrays; give numbers for rows "
                "of a dataset"
            )
        y, rows = self.train.y.cpu(), len(self.train)
        if self.kind is Kind.BINARY:
            positives = y.sum(dim=0)
            return (rows - positives) / positives
        counts = torch.bincount(y, minlength=self.outputs)
        return rows / (self.outputs * counts.clamp_min(1))

    def _check(self, split: str, rows: Examples, shape: tuple[int, ...]) -> Examples:
        where = f"task {self.name!r}, {split}"
        if len(rows) == 0:
            raise TaskError(f"{where}: no rows; every split that is given needs at least one")
        if rows.shape != shape:
            raise TaskError(
                f"{where}: inputs of shape {rows.shape}, but the training inputs have {shape}"
            )
        if not isinstance(rows, TensorExamples | MappedExamples):
            return rows
        labels = _labels(where, rows.y, self.kind, self.outputs, self.first)
        if split == "train":
            _warn_unscaled(where, rows.first(LOOKED_AT))
            if self.kind is Kind.BINARY:
                _refuse_one_class(where, labels)
        return rows.with_labels(labels)


def _name_of(function: Callable[..., Any]) -> str:
    kind = type(function)
    return str(getattr(function, "__qualname__", f"{kind.__module__}.{kind.__qualname__}"))


def _arrays_of(given: Any) -> Any:
    """The arrays of a `TensorDataset`, also inside of a loader; anything else as it is."""
    whole = given.dataset if isinstance(given, DataLoader) else given
    plain = not isinstance(given, DataLoader) or given.collate_fn is default_collate
    return tuple(whole.tensors) if isinstance(whole, TensorDataset) and plain else given


def _as_examples(where: str, given: Any, kind: Any, outputs: Any) -> Examples:
    """Rows of a dataset or loader, of which only the size of batches and the order are ours."""
    if hasattr(given, "batches"):
        examples: Examples = given
        return examples
    workers, collate, whole = 0, None, given
    if isinstance(given, DataLoader):
        workers, collate, whole = given.num_workers, given.collate_fn, given.dataset
    if isinstance(whole, IterableDataset) or not all(
        hasattr(whole, name) for name in ("__len__", "__getitem__")
    ):
        raise TaskError(
            f"{where}: rows must be two arrays, a torch Dataset with __len__ and __getitem__, "
            f"or a DataLoader of one, since they are read many times; not a {type(whole).__name__}"
        )
    return DatasetExamples(whole, kind, outputs, workers=workers, collate=collate)


def _labels(where: str, y: Tensor, kind: Kind, outputs: int, first: int = 0) -> Tensor:
    """Checked labels in the form that the loss takes: float columns, or class numbers."""
    if kind is Kind.CLASSES:
        return _class_labels(where, y, outputs, first)
    columns = y.reshape(len(y), -1)
    if columns.shape[1] != outputs:
        what, each = ("", "numbers") if kind.is_regression else ("binary ", "0 and 1")
        raise TaskError(
            f"{where}: {columns.shape[1]} label columns for {outputs} {what}outputs; "
            f"give one column of {each} for each output"
        )
    if kind.is_regression:
        return _finite_float32(where, columns, "labels of a regression")
    odd = columns[(columns != 0) & (columns != 1)]
    if len(odd):
        raise TaskError(
            f"{where}: binary labels must be 0 or 1, but {odd[0].item()} is among them; "
            + _advice(columns, odd)
        )
    return columns.float()


def _advice(columns: Tensor, odd: Tensor) -> str:
    """What to do about labels that are not 0 or 1."""
    shares = columns.shape[1] > 1 and bool(((columns >= 0) & (columns <= 1)).all())
    if shares and torch.allclose(columns.sum(dim=1).double(), torch.ones(1).double(), atol=1e-3):
        return "soft labels are not taken: give the most probable class, y.argmax(axis=1)"
    if bool((odd != odd.round()).any()) and not shares:
        return "if they are measurements, pass kind='regression'; else recode them"
    return "recode them, or pass kind='classes'"


def _as_rows(name: str, split: str, given: tuple[Array, ...]) -> "TensorExamples | MappedExamples":
    where = f"task {name!r}, {split}"
    if len(given) != 2:
        raise TaskError(
            f"{where}: must be a pair (inputs, labels), not a tuple of {len(given)}; weights of "
            "rows are taken by lifelong.LifelongClassifier, as sample_weight"
        )
    x, y = given
    mapped = isinstance(x, np.memmap) and x.ndim >= 2 and x.dtype.kind in "fiub"
    inputs = x if mapped else plain_tensor(where, x)
    labels = _comparable(plain_tensor(where, y))
    if inputs.ndim < 2:
        raise TaskError(
            f"{where}: inputs must be an array with rows first and at least one feature axis, "
            f"not {inputs.dtype} of shape {tuple(inputs.shape)}"
        )
    if labels.ndim == 0 or len(inputs) != len(labels):
        raise TaskError(
            f"{where}: {len(inputs)} rows of inputs but labels of shape {tuple(labels.shape)}; "
            "there must be one label, or one row of labels, for each row"
        )
    if mapped:
        return MappedExamples(x, labels)
    return TensorExamples(_finite_float32(where, inputs), labels.to(inputs.device))


def plain_tensor(where: str, given: Array) -> Tensor:
    """A tensor of real numbers, one after the other in memory; what cannot be one is refused."""
    try:
        tensor = given if isinstance(given, Tensor) else torch.as_tensor(_array(where, given))
    except (TypeError, ValueError, RuntimeError, OverflowError) as error:
        if isinstance(error, TaskError):
            raise
        raise TaskError(
            f"{where}: inputs and labels must be numeric arrays, not {_described(given)}: {error}; "
            "lifelong.LifelongClassifier takes text and missing values too"
        ) from error
    odd = _oddity(tensor)
    if odd:
        raise TaskError(
            f"{where}: inputs and labels must be real arrays with all their numbers in memory, "
            f"not {odd} tensor of type {tensor.dtype}; convert it first"
        )
    return tensor.clone() if tensor.is_inference() else tensor.detach()


def _array(where: str, given: Array) -> Array:
    """What torch can take: a table is refused, a column of one is taken in its order."""
    if isinstance(given, np.ndarray):
        return _native(given)
    if hasattr(given, "columns") or hasattr(given, "column_names"):
        raise TaskError(
            f"{where}: inputs and labels must be arrays, not {_described(given)}, whose columns "
            "have names: lifelong.LifelongClassifier takes it as it is; or give its numbers, by "
            ".to_numpy()"
        )
    # By torch, the items of a column would be looked up by its index, which need not be 0, 1, 2, …
    return _native(np.asarray(given)) if hasattr(given, "to_numpy") else given


def _described(given: object) -> str:
    if isinstance(given, np.ndarray):
        return f"an array of {given.dtype}"
    return "None" if given is None else f"a {type(given).__name__}"


def _native(array: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    """Torch takes neither steps backwards nor the byte order of another machine, and warns of
    arrays that must not be written: copy those.
    """
    swapped = not array.dtype.isnative
    ordered = array.astype(array.dtype.newbyteorder("=")) if swapped else array
    copied = any(step < 0 for step in ordered.strides) or not ordered.flags.writeable
    return ordered.copy() if copied else ordered


def _oddity(tensor: Tensor) -> str:
    kinds = {
        "a nested": tensor.is_nested,
        "a quantised": tensor.is_quantized,
        "a sparse": not tensor.is_nested and tensor.layout is not torch.strided,
        "a meta": tensor.is_meta,
        "a complex": tensor.is_complex(),
    }
    return next((kind for kind, is_it in kinds.items() if is_it), "")


def _comparable(labels: Tensor) -> Tensor:
    return labels if labels.dtype in _COMPARABLE else labels.to(torch.float64)


def _finite_float32(where: str, inputs: Tensor, what: str = "inputs") -> Tensor:
    single = inputs.to(torch.float32)
    bad = ~torch.isfinite(single)
    if bad.any():
        place = tuple(int(i) for i in bad.nonzero()[0])
        raise TaskError(
            f"{where}: {what} must be finite in float32, but the value at {place} is "
            f"{inputs[place].item()} ({int(bad.sum())} such values); clean or rescale them first"
        )
    return single


def _kind(name: str, kind: Kind | str) -> Kind:
    try:
        return Kind(kind)
    except ValueError:
        allowed = ", ".join(repr(k.value) for k in Kind)
        raise TaskError(f"task {name!r}: kind must be one of {allowed}, not {kind!r}") from None


def _infer_kind(rows: Examples) -> Kind:
    if not isinstance(rows, TensorExamples | MappedExamples):  # refused by the constructor already
        raise TaskError("the kind of a task can only be read off arrays")
    only_zero_and_one = bool(((rows.y == 0) | (rows.y == 1)).all())
    return Kind.BINARY if rows.y.ndim == 2 or only_zero_and_one else Kind.CLASSES


def _checked_outputs(where: str, outputs: int) -> int:
    try:
        number = 0 if isinstance(outputs, bool) else operator.index(outputs)
    except TypeError:
        number = 0
    if not 1 <= number <= MOST_OUTPUTS:
        raise TaskError(
            f"{where}: outputs must be a whole number from 1 to {MOST_OUTPUTS:,}, not {outputs!r}"
        )
    return number


def _infer_outputs(name: str, kind: Kind, rows: Examples) -> int:
    if not isinstance(rows, TensorExamples | MappedExamples) or len(rows) == 0:
        return 1
    if kind is not Kind.CLASSES:
        return rows.y.reshape(len(rows), -1).shape[1]
    largest = float(rows.y.max())
    if not 0 <= largest < math.inf:
        raise TaskError(f"class labels must be whole numbers from 0, but {largest} is among them")
    if largest >= max(1000, 10 * len(rows)):
        raise TaskError(
            f"task {name!r}: a label of {largest:.0f} in {len(rows)} rows would make as many "
            "outputs; number the classes from 0 without gaps, or give outputs=... if it is meant"
        )
    return int(largest) + 1


def _first_class(kind: Kind, rows: Examples, outputs: int | None) -> int:
    """1 for classes that are numbered from 1, as K classes and not as K + 1; else 0."""
    if kind is not Kind.CLASSES or not isinstance(rows, TensorExamples | MappedExamples):
        return 0
    if rows.y.ndim != 1:
        return 0
    if len(rows) == 0 or float(rows.y.min()) != 1:
        return 0
    return int(outputs is None or float(rows.y.max()) == outputs)


def _class_labels(where: str, y: Tensor, outputs: int, first: int) -> Tensor:
    if y.ndim != 1:
        raise TaskError(
            f"{where}: class labels must be one column of numbers, not shape {tuple(y.shape)}"
        )
    broken = y != y.round() if y.is_floating_point() else torch.zeros_like(y, dtype=torch.bool)
    odd = y[(y < first) | (y >= outputs + first) | broken]
    if len(odd):
        hint = "; if they are measurements, pass kind='regression'" if bool(broken.any()) else ""
        raise TaskError(
            f"{where}: class labels must be whole numbers from {first} to {outputs + first - 1}, "
            f"but {odd[0].item()} is among them{hint}"
        )
    return y.long() - first if first else y.long()


def _warn_unscaled(where: str, x: Tensor) -> None:
    """By standard deviations, and by ranges too: a pixel that is seldom lit is not unscaled."""
    sample = x[:LOOKED_AT]
    if x.ndim != 2 or x.shape[1] < 2 or len(sample) < 2:
        return
    deviation, span = sample.std(dim=0), sample.amax(dim=0) - sample.amin(dim=0)
    for spread in (deviation, span):
        # A column that never varies has no scale, nor has one of rounding errors only.
        spread[spread <= 1e-6] = spread.max()
    if not all(float(s.max()) > APART * float(s.min()) for s in (deviation, span)):
        return
    widest, narrowest = int(deviation.argmax()), int(deviation.argmin())
    warnings.warn(
        f"{where}: the standard deviation of column {widest} is {float(deviation[widest]):.3g}, "
        f"that of column {narrowest} {float(deviation[narrowest]):.3g}: scales this far apart are "
        "learned badly; standardise the columns, or use lifelong.LifelongClassifier, which does",
        UnscaledWarning,
        stacklevel=5,
    )


def _refuse_one_class(where: str, labels: Tensor) -> None:
    for column, values in enumerate(labels.T):
        if len(values) and bool((values == values[0]).all()):
            raise TaskError(
                f"{where}: every label of output {column} is {int(values[0])}; "
                "a binary output needs examples of both 0 and 1 to learn from"
            )


@final
@dataclass(frozen=True, eq=False)
class _OnDevice:
    """Moves rows to a device and selects columns, batch by batch."""

    rows: Examples
    device: torch.device
    columns: Tensor | None

    def __len__(self) -> int:
        return len(self.rows)

    @property
    def shape(self) -> tuple[int, ...]:
        first = self.rows.shape[0] if self.columns is None else len(self.columns)
        return (first, *self.rows.shape[1:])

    def batches(
        self, size: int, generator: torch.Generator | None = None
    ) -> Iterator[tuple[Tensor, Tensor]]:
        for x, y in self.rows.batches(size, generator):
            x, y = x.to(self.device), y.to(self.device)
            yield (x if self.columns is None else x.index_select(1, self.columns)), y


def to_device(rows: Examples, device: torch.device, columns: Tensor | None = None) -> Examples:
    """Rows on a device, with only the features or channels `columns` if they are given."""
    columns = None if columns is None else columns.to(device)  # units are selected on the CPU
    if not isinstance(rows, TensorExamples):
        return _OnDevice(rows, device, columns)
    x, y = rows.x.to(device), rows.y.to(device)
    if columns is None or columns.tolist() == list(range(x.shape[1])):
        return replace(rows, x=x, y=y)
    return replace(rows, x=x.index_select(1, columns), y=y)


@final
@dataclass(frozen=True, eq=False)
class _PartOfBatches:
    """Rows that only come in batches: one of several processes reads all and takes its part."""

    rows: Examples
    rank: int
    count: int

    def __len__(self) -> int:
        return len(self.rows)

    @property
    def shape(self) -> tuple[int, ...]:
        return self.rows.shape

    def batches(
        self, size: int, generator: torch.Generator | None = None
    ) -> Iterator[tuple[Tensor, Tensor]]:
        left = len(self.rows)
        for x, y in self.rows.batches(size, generator):
            if len(y) != min(size, left):
                raise TaskError(
                    f"batches({size}) gave {len(y)} rows with {left} left; several processes need "
                    "batches of the size that is asked for, the last one the rest"
                )
            left -= len(y)
            yield x[self.rank :: self.count], y[self.rank :: self.count]


def part_of(rows: Examples, rank: int, count: int) -> Examples:
    """The rows that one of several processes has."""
    if isinstance(rows, TensorExamples | DatasetExamples | MappedExamples):
        return rows.part(rank, count)
    return _PartOfBatches(rows, rank, count)


def whole_of(rows: Examples) -> Examples:
    """All rows, where one of several processes was given its part; on the same device."""
    if isinstance(rows, _OnDevice):
        return replace(rows, rows=whole_of(rows.rows))
    if isinstance(rows, _PartOfBatches):
        return rows.rows
    shard: Shard | None = getattr(rows, "shard", None)
    if shard is None:
        return rows
    whole: Examples = shard.whole
    return to_device(whole, rows.x.device) if isinstance(rows, TensorExamples) else whole
