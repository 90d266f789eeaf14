"""Labelled rows in batches: in memory, mapped, of a `Dataset`; on a device; a part of them."""

import mmap
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any, Protocol, final

import numpy as np
import torch
from torch import Tensor
from torch.utils.data import DataLoader, Dataset

from lifelong.tasks.kinds import (
    Kind,
    TaskError,
    checked_kind,
    checked_labels,
    checked_outputs,
    comparable,
    finite_float32,
    no_labels,
    plain_tensor,
)
from lifelong.tasks.shards import Shard


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
        self._kind = checked_kind("rows of a dataset", kind)
        self._outputs = checked_outputs("rows of a dataset", outputs)
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
        inputs, labels = plain_tensor(where, x), comparable(plain_tensor(where, y))
        return finite_float32(where, inputs), checked_labels(
            where, labels, self._kind, self._outputs
        )

    def _nothing(self) -> tuple[Tensor, Tensor]:
        """A batch of which this process has no row."""
        return torch.zeros(0, *self.shape), no_labels(self._kind, self._outputs)


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
        """Copies of these rows, neighbours together and few at once: what surrounds a row may be
        mapped with it.
        """
        row = max(1, self._x[:1].nbytes)
        touched = _AROUND * len(np.unique(chosen * row // _AROUND)) + row
        places = np.array_split(np.argsort(chosen), max(1, min(len(chosen), touched // _HELD)))
        rows = np.empty((len(chosen), *self.shape), _native_type(self._x.dtype))
        for part in places:
            rows[part] = self._x[chosen[part]]
            self._touched += touched // len(places)
            if self._touched > _HELD:
                _give_back(self._x)
                self._touched = 0
        return finite_float32("a batch of a memory-mapped array", torch.from_numpy(rows))


_AROUND = 2**21  # bytes that Linux may map when one of them is read: a huge page
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
@dataclass(frozen=True, eq=False)
class ChangedExamples:
    """Rows that are changed batch by batch, as they are read.

    `width` is the length of the first axis of an input afterwards, if the change is of that.
    """

    rows: Examples
    change: Callable[[Tensor, Tensor], tuple[Tensor, Tensor]]
    width: int | None = None

    def __len__(self) -> int:
        return len(self.rows)

    @property
    def shape(self) -> tuple[int, ...]:
        first, *others = self.rows.shape
        return (first if self.width is None else self.width, *others)

    def batches(
        self, size: int, generator: torch.Generator | None = None
    ) -> Iterator[tuple[Tensor, Tensor]]:
        for x, y in self.rows.batches(size, generator):
            yield self.change(x, y)


def relabelled(rows: Examples, labels: Callable[[Tensor, Tensor], Tensor]) -> Examples:
    """The rows with labels made of inputs and labels, once for all if the rows are in memory."""

    @torch.no_grad()
    def changed(x: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
        return x, labels(x, y)

    later = ChangedExamples(rows, changed)
    if not isinstance(rows, TensorExamples):
        return later
    return rows.with_labels(torch.cat([y for _, y in later.batches(4096)]))


def to_device(rows: Examples, device: torch.device, columns: Tensor | None = None) -> Examples:
    """Rows on a device, with only the features or channels `columns` if they are given."""
    chosen = None if columns is None else columns.to(device)  # units are selected on the CPU

    def moved(x: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
        x, y = x.to(device), y.to(device)
        return (x if chosen is None else x.index_select(1, chosen)), y

    if not isinstance(rows, TensorExamples):
        return ChangedExamples(rows, moved, None if chosen is None else len(chosen))
    if chosen is not None and chosen.tolist() == list(range(rows.x.shape[1])):
        chosen = None
    x, y = moved(rows.x, rows.y)
    return replace(rows, x=x, y=y)


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
    if isinstance(rows, ChangedExamples):
        return replace(rows, rows=whole_of(rows.rows))
    if isinstance(rows, _PartOfBatches):
        return rows.rows
    shard: Shard | None = getattr(rows, "shard", None)
    if shard is None:
        return rows
    whole: Examples = shard.whole
    return to_device(whole, rows.x.device) if isinstance(rows, TensorExamples) else whole
