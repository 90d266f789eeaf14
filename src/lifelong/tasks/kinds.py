"""Kinds of tasks, and what arrays of inputs and labels must be for them."""

import operator
from enum import StrEnum
from typing import Any, TypeAlias

import numpy as np
import torch
from torch import Tensor

Array: TypeAlias = Any  # whatever `torch.as_tensor` takes: a NumPy array, a tensor, nested lists


MOST_OUTPUTS = 2**24  # a head of so many, on 100 units, takes 7 GB


_ALIGNED = 64  # bytes: what torch allocates begins at a multiple of them
_PAGED = 2**25  # bytes from which on malloc always asks the system for pages of their own

# Types that torch compares and sorts; labels of others, such as uint16, are converted first.
_COMPARABLE = {
    *(torch.bool, torch.uint8, torch.int8, torch.int16, torch.int32, torch.int64),
    *(torch.float16, torch.bfloat16, torch.float32, torch.float64),
}


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


def checked_kind(name: str, kind: Kind | str) -> Kind:
    try:
        return Kind(kind)
    except ValueError:
        allowed = ", ".join(repr(k.value) for k in Kind)
        raise TaskError(f"task {name!r}: kind must be one of {allowed}, not {kind!r}") from None


def checked_outputs(where: str, outputs: int) -> int:
    try:
        number = 0 if isinstance(outputs, bool) else operator.index(outputs)
    except TypeError:
        number = 0
    if not 1 <= number <= MOST_OUTPUTS:
        raise TaskError(
            f"{where}: outputs must be a whole number from 1 to {MOST_OUTPUTS:,}, not {outputs!r}"
        )
    return number


def plain_tensor(where: str, given: Array) -> Tensor:
    """A tensor of real numbers; what cannot be one is refused."""
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


def comparable(labels: Tensor) -> Tensor:
    return labels if labels.dtype in _COMPARABLE else labels.to(torch.float64)


def finite_float32(where: str, inputs: Tensor, what: str = "inputs") -> Tensor:
    single = inputs.to(torch.float32)
    bad = ~torch.isfinite(single)
    if bad.any():
        place = tuple(int(i) for i in bad.nonzero()[0])
        raise TaskError(
            f"{where}: {what} must be finite in float32, but the value at {place} is "
            f"{inputs[place].item()} ({int(bad.sum())} such values); clean or rescale them first"
        )
    return aligned(single)


def aligned(tensor: Tensor) -> Tensor:
    """The same numbers where arithmetic finds them aligned, as in what torch allocates.

    How a product rounds may depend on it, and what NumPy allocates lies at another place in each
    process: a learning that goes on after a kill would end with other numbers. Large blocks come
    from the system page by page, so that they always lie alike, and are not copied.
    """
    misplaced = tensor.data_ptr() % _ALIGNED and tensor.nbytes < _PAGED
    return tensor.clone() if misplaced else tensor


def checked_labels(where: str, y: Tensor, kind: Kind, outputs: int, first: int = 0) -> Tensor:
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
        return finite_float32(where, columns, "labels of a regression")
    odd = columns[(columns != 0) & (columns != 1)]
    if len(odd):
        raise TaskError(
            f"{where}: binary labels must be 0 or 1, but {odd[0].item()} is among them; "
            + _advice(columns, odd)
        )
    return columns.float()


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


def _advice(columns: Tensor, odd: Tensor) -> str:
    """What to do about labels that are not 0 or 1."""
    shares = columns.shape[1] > 1 and bool(((columns >= 0) & (columns <= 1)).all())
    if shares and torch.allclose(columns.sum(dim=1).double(), torch.ones(1).double(), atol=1e-3):
        return "soft labels are not taken: give the most probable class, y.argmax(axis=1)"
    if bool((odd != odd.round()).any()) and not shares:
        return "if they are measurements, pass kind='regression'; else recode them"
    return "recode them, or pass kind='classes'"


def no_labels(kind: Kind, outputs: int) -> Tensor:
    """The labels of no row."""
    one_column = kind is Kind.CLASSES
    return torch.zeros(0, dtype=torch.long) if one_column else torch.zeros(0, outputs)
