"""A task with its training, validation and test rows.

A task has one or more *outputs*. Under `Kind.BINARY` each output is a separate binary problem (the
paper's subtasks); under `Kind.CLASSES` the outputs are the classes of one softmax; under
`Kind.REGRESSION` and `Kind.MEDIAN_REGRESSION` each output is a number.
"""

import math
import warnings
from collections.abc import Callable
from typing import Any, Literal, TypeAlias, final

import numpy as np
import torch
from torch import Tensor
from torch.utils.data import DataLoader, Dataset, IterableDataset, TensorDataset, default_collate

from lifelong.tasks.examples import DatasetExamples, Examples, MappedExamples, TensorExamples
from lifelong.tasks.kinds import (
    Array,
    Kind,
    TaskError,
    checked_kind,
    checked_labels,
    checked_outputs,
    comparable,
    finite_float32,
    plain_tensor,
)

LOOKED_AT = 10_000  # rows, for the scales of the columns


APART = 1000.0  # scales that differ by more than this factor


class UnscaledWarning(UserWarning):
    """Columns of inputs whose scales differ so much that learning suffers."""


Rows: TypeAlias = "Examples | Dataset[Any] | DataLoader[Any] | tuple[Array, Array]"


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
        self.kind = checked_kind(name, kind) if kind is not None else _infer_kind(first)
        if outputs is None:
            self.outputs = _infer_outputs(name, self.kind, first)
        else:
            self.outputs = checked_outputs(f"task {name!r}", outputs)
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
        labels = checked_labels(where, rows.y, self.kind, self.outputs, self.first)
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
    labels = comparable(plain_tensor(where, y))
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
    return TensorExamples(finite_float32(where, inputs), labels.to(inputs.device))


def _infer_kind(rows: Examples) -> Kind:
    if not isinstance(rows, TensorExamples | MappedExamples):  # refused by the constructor already
        raise TaskError("the kind of a task can only be read off arrays")
    only_zero_and_one = bool(((rows.y == 0) | (rows.y == 1)).all())
    return Kind.BINARY if rows.y.ndim == 2 or only_zero_and_one else Kind.CLASSES


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
