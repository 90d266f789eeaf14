"""Tasks: what is read off the data, what is refused, and rows of every origin."""

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from builders import random
from lifelong.tasks.examples import DatasetExamples, TensorExamples, to_device
from lifelong.tasks.kinds import Kind, TaskError
from lifelong.tasks.task import Task

X = np.random.default_rng(0).normal(size=(6, 3))
Y = np.array([0, 1, 0, 1, 1, 0])


def task(x=X, y=Y, valid=None, **more):
    return Task("t", (x, y), (x, y) if valid is None else valid, **more)


@pytest.mark.parametrize(
    ("labels", "kind", "outputs"),
    [
        ([0, 1, 0, 1, 1, 0], "binary", 1),
        ([[0], [1], [0], [1], [1], [0]], "binary", 1),
        ([[0, 1], [1, 0], [0, 1], [1, 1], [1, 0], [0, 0]], "binary", 2),
        ([0, 1, 2, 1, 1, 0], "classes", 3),
        ([True, False, True, True, False, True], "binary", 1),
        ([0.0, 1.0, 2.0, 1.0, 1.0, 0.0], "classes", 3),
    ],
)
def test_the_kind_and_the_outputs_are_read_off_the_labels(labels, kind, outputs):
    made = task(y=np.array(labels))
    assert (made.kind, made.outputs) == (kind, outputs)
    expected = torch.as_tensor(labels)
    if kind == "binary":
        assert torch.equal(made.train.y, expected.reshape(6, outputs).float())
    else:
        assert torch.equal(made.train.y, expected.long())


def test_what_is_given_goes_before_what_is_read_off():
    made = task(kind="classes", outputs=5)
    assert (made.kind, made.outputs, made.train.y.dtype) == (Kind.CLASSES, 5, torch.long)
    assert made.shape == (3,)
    assert made.test is None
    assert repr(made) == "Task('t', classes, outputs=5, shape=(3,))"


def test_labels_of_a_regression_are_numbers_in_columns():
    made = task(y=Y * 2.5, kind="regression")
    assert (made.kind, made.outputs) == (Kind.REGRESSION, 1)
    assert torch.equal(made.train.y, torch.tensor(Y * 2.5, dtype=torch.float32)[:, None])
    assert Kind.MEDIAN_REGRESSION.is_regression
    assert not Kind.CLASSES.is_regression


def test_arrays_tensors_and_lists_make_the_same_task():
    for x, y in ((X, Y), (torch.tensor(X), torch.tensor(Y)), (X.tolist(), Y.tolist())):
        made = Task("t", (x, y), (x, y), (x, y))
        for rows in (made.train, made.valid, made.test):
            assert torch.equal(rows.x, torch.tensor(X, dtype=torch.float32))
            assert torch.equal(rows.y, torch.tensor(Y, dtype=torch.float32)[:, None])


def bad(value, place=(2, 1)):
    x = X.copy()
    x[place] = value
    return x


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: Task("", (X, Y), (X, Y)), "name must be a string that is not empty, not ''"),
        (lambda: Task(3, (X, Y), (X, Y)), "name must be a string that is not empty, not 3"),
        (lambda: task(bad(np.nan)), r"'t', train: .* finite .* at \(2, 1\) is nan \(1 such"),
        (lambda: task(bad(-np.inf)), r"finite .* at \(2, 1\) is -inf"),
        (lambda: task(bad(1e300)), r"finite in float32, .* at \(2, 1\) is 1e\+300"),
        (lambda: task(valid=(bad(np.nan), Y)), r"'t', valid: .* at \(2, 1\) is nan"),
        (lambda: task(X[:0], Y[:0], valid=(X, Y)), "'t', train: no rows"),
        (lambda: task(valid=(X[:0], Y[:0])), "'t', valid: no rows"),
        (lambda: Task("t", (X, Y), (X, Y), (X[:0], Y[:0])), "'t', test: no rows"),
        (
            lambda: task(valid=(X[:, :2], Y)),
            r"'t', valid: inputs of shape \(2,\), but the training inputs have \(3,\)",
        ),
        (lambda: task(X, Y[:5]), r"'t', train: 6 rows of inputs but labels of shape \(5,\)"),
        (lambda: task(X, np.array(1)), r"6 rows of inputs but labels of shape \(\)"),
        (lambda: task(X[:, 0]), r"at least one feature axis, not torch.float64 of shape \(6,\)"),
        (lambda: task(X + 1j), "must be real arrays .* not a complex tensor"),
        (lambda: task(np.array([["a"] * 3] * 6)), "'t', train: .* must be numeric arrays"),
        (lambda: task(y=Y * 0), "'t', train: every label of output 0 is 0"),
        (lambda: task(y=Y * 0 + 1), "every label of output 0 is 1; .* both 0 and 1"),
        (lambda: task(y=np.stack([Y, Y * 0], 1)), "every label of output 1 is 0"),
        (lambda: task(y=Y * 2, kind="binary"), "must be 0 or 1, but 2 is among them; recode"),
        (lambda: task(y=Y[:, None] * 2), "must be 0 or 1, but 2 is among them"),
        (lambda: task(y=Y * 0.5, kind="binary"), "must be 0 or 1, but 0.5 is among them"),
        (lambda: task(y=np.where(Y, 1, np.nan)[:, None]), "must be 0 or 1, but nan"),
        (lambda: task(outputs=2), "1 label columns for 2 binary outputs"),
        (lambda: task(y=Y * 3 - 1), "whole numbers from 0 to 2, but -1 is among them"),
        (lambda: task(y=Y * 2.5), "whole numbers from 0 to 2, but 2.5 is among them"),
        (lambda: task(y=Y * 3, outputs=3), "whole numbers from 0 to 2, but 3 is among them"),
        (lambda: task(y=Y + 1, valid=(X, Y + 2)), "'t', valid: .* 1 to 2, but 3 is among them"),
        (lambda: task(y=Y[:, None], kind="classes"), r"one column of numbers, not shape \(6, 1\)"),
        (lambda: task(kind="ordinal"), "'classes', 'regression', 'median regression', not 'ord"),
        (
            lambda: task(y=np.where(Y, np.nan, 1.0), kind="regression"),
            r"labels of a regression must be finite in float32, but the value at \(\d, 0\) is nan",
        ),
        (
            lambda: task(y=Y, kind="regression", outputs=2),
            "1 label columns for 2 outputs; give one column of numbers for each output",
        ),
        (lambda: task(outputs=0), "outputs must be a whole number from 1 to 16,777,216, not 0"),
        (
            lambda: task(outputs=-2, kind="classes"),
            "outputs must be a whole number from 1 to 16,777,216, not -2",
        ),
    ],
)
def test_bad_data_is_refused_with_what_came_and_what_is_allowed(make, message):
    with pytest.raises(TaskError, match=message):
        make()


@pytest.mark.parametrize("value", [np.nan, np.inf, -1.0])
def test_class_labels_that_tell_no_number_of_classes_are_refused_as_labels(value):
    labels = np.where(Y, 2.0, value) if value != -1 else np.full(6, value)
    with pytest.raises(TaskError, match="class labels must be"):
        task(y=labels)


@given(st.integers(1, 20), st.integers(1, 25), st.integers(0, 99))
def test_batches_hold_every_row_once_in_an_order_drawn_from_the_generator(rows, size, seed):
    held = TensorExamples(torch.arange(rows).float()[:, None], torch.arange(rows))
    for generator in (None, random(seed)):
        batches = list(held.batches(size, generator))
        assert [len(x) for x, _ in batches[:-1]] == [size] * (rows // size - (rows % size == 0))
        x, y = (torch.cat(part) for part in zip(*batches, strict=True))
        assert torch.equal(x[:, 0].long(), y)
        assert sorted(y.tolist()) == list(range(rows))
        assert generator is not None or y.tolist() == list(range(rows))
    again = [torch.cat([y for _, y in held.batches(size, random(seed))]) for _ in range(2)]
    assert torch.equal(*again)


class Pairs(torch.utils.data.Dataset):
    def __init__(self, x, y):
        self.x, self.y = x, y

    def __len__(self):
        return len(self.x)

    def __getitem__(self, row):
        return self.x[row], self.y[row]


@pytest.mark.parametrize(("kind", "outputs"), [("binary", 1), ("classes", 2)])
def test_rows_of_a_dataset_are_the_rows_of_its_arrays(kind, outputs):
    read = DatasetExamples(Pairs(X, Y), kind, outputs)
    held = task(kind=kind, outputs=outputs).train
    assert (len(read), read.shape) == (6, (3,))
    for size in (2, 4, 100):
        for (x1, y1), (x2, y2) in zip(read.batches(size), held.batches(size), strict=True):
            assert torch.equal(x1, x2)
            assert torch.equal(y1, y2)
    one, two = (torch.cat([x for x, _ in read.batches(4, random(s))]) for s in (1, 2))
    assert not torch.equal(one, two)
    assert torch.equal(one.sort(dim=0).values, two.sort(dim=0).values)
    made = Task("t", read, read, kind=kind, outputs=outputs)
    assert made.train is read


def test_rows_of_a_dataset_leave_the_global_random_state_alone():
    state = torch.get_rng_state()
    for generator in (None, random(0)):
        list(DatasetExamples(Pairs(X, Y), "binary", 1).batches(2, generator))
    assert torch.equal(state, torch.get_rng_state())


@pytest.mark.parametrize(
    ("x", "y", "message"),
    [
        (X, Y * 2, "a batch of a dataset: binary labels must be 0 or 1, but 2"),
        (bad(np.nan), Y, "a batch of a dataset: inputs must be finite"),
    ],
)
def test_rows_of_a_dataset_are_checked_as_they_are_read(x, y, message):
    with pytest.raises(TaskError, match=message):
        list(DatasetExamples(Pairs(x, y), "binary", 1).batches(10))


def test_rows_of_a_dataset_need_their_kind():
    rows = DatasetExamples(Pairs(X, Y), "binary", 1)
    for given_ in ({}, {"kind": "binary"}, {"outputs": 1}):
        with pytest.raises(TaskError, match="give kind='binary', 'classes' or 'regression', and"):
            Task("t", rows, rows, **given_)
    empty = DatasetExamples(Pairs(X[:0], Y[:0]), "binary", 1)
    with pytest.raises(TaskError, match="train: no rows"):
        Task("t", empty, empty, kind="binary", outputs=1)
    with pytest.raises(TaskError, match="kind must be one of"):
        DatasetExamples(Pairs(X, Y), "other", 1)


def test_prepared_rows_are_cut_to_their_columns():
    columns = torch.tensor([2, 0])
    held = task().train
    for rows in (held, DatasetExamples(Pairs(X, Y), "binary", 1)):
        cut = to_device(rows, torch.device("cpu"), columns)
        assert (len(cut), cut.shape) == (6, (2,))
        x, y = next(iter(cut.batches(6)))
        assert torch.equal(x, held.x[:, [2, 0]])
        assert torch.equal(y, held.y)
        whole = to_device(rows, torch.device("cpu"))
        assert whole.shape == (3,)
        assert torch.equal(next(iter(whole.batches(6)))[0], held.x)


@pytest.mark.parametrize("dtype", [np.uint16, np.uint32, np.uint64, ">i4", ">f8", np.int8])
@pytest.mark.parametrize("kind", ["binary", "classes"])
def test_labels_of_every_type_of_number_are_taken(dtype, kind):
    plain, odd = task(kind=kind, outputs=None), task(y=Y.astype(dtype), kind=kind)
    assert (odd.kind, odd.outputs) == (plain.kind, plain.outputs)
    assert torch.equal(odd.train.y, plain.train.y)
    classes = task(y=(Y * 2).astype(dtype))
    assert (classes.kind, classes.outputs) == (Kind.CLASSES, 3)


@pytest.mark.parametrize("x", [X[::-1, ::-1], X.astype(">f8")[:, ::-1], X.astype(">f4")])
def test_arrays_that_torch_does_not_take_are_copied(x):
    made = task(x=x, y=Y[::-1])
    assert torch.equal(made.train.x, torch.tensor(x.tolist(), dtype=torch.float32))
    assert made.train.y[:, 0].tolist() == Y[::-1].tolist()


T = torch.tensor(X)
ODD = {
    "sparse": lambda t: t.to_sparse(),
    "meta": lambda t: t.to("meta"),
    "complex": lambda t: t.to(torch.complex64),
    "quantised": lambda t: torch.quantize_per_tensor(t.float(), 0.1, 0, torch.quint8),
    "nested": lambda t: torch.nested.nested_tensor(list(t)),
}


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("kind", ODD)
def test_tensors_of_other_kinds_are_refused(kind):
    odd = ODD[kind]
    with pytest.raises(TaskError, match=f"'t', train: .* not a {kind} tensor"):
        task(x=odd(T))
    with pytest.raises(TaskError, match=f"'t', train: .* not a {kind} tensor"):
        task(y=odd(torch.tensor(Y)[:, None]))


@pytest.mark.parametrize("label", [1e30, 2**62, 10**6, 1000])
def test_labels_that_would_make_far_too_many_outputs_are_refused(label):
    labels = [0, 1, 2, label, 1, 2]
    with pytest.raises(TaskError, match=r"'t': a label of \d+ in 6 rows .* give outputs="):
        task(y=labels)


def test_many_outputs_can_be_asked_for():
    assert task(y=[0, 1, 2, 1000, 1, 2], outputs=1001).outputs == 1001
    assert task(y=[0, 1, 2, 999, 1, 2]).outputs == 1000
    assert type(task(outputs=np.int64(1)).outputs) is int


@pytest.mark.parametrize("outputs", ["2", True, 1.0, 2**62, 10**30, None])
def test_outputs_are_a_whole_number(outputs):
    if outputs is not None:
        with pytest.raises(TaskError, match="outputs must be a whole number from 1"):
            task(outputs=outputs, kind="classes")
    with pytest.raises(TaskError, match="outputs must be a whole number from 1"):
        DatasetExamples([(X[0], 1)], "classes", outputs)


def test_a_tensor_dataset_is_its_arrays():
    whole = torch.utils.data.TensorDataset(torch.as_tensor(X), torch.as_tensor(Y))
    for given_ in (whole, torch.utils.data.DataLoader(whole, batch_size=2)):
        made = Task("t", given_, given_)
        assert isinstance(made.train, TensorExamples)
        assert torch.equal(made.train.x, task().train.x)
        assert made.kind is Kind.BINARY


def test_a_dataset_or_a_loader_of_one_makes_a_task():
    pairs = Pairs(X, Y)
    loader = torch.utils.data.DataLoader(pairs, batch_size=5, shuffle=True)
    for given_ in (pairs, loader):
        made = Task("t", given_, given_, kind="classes", outputs=2)
        assert isinstance(made.train, DatasetExamples)
        for (x1, y1), (x2, y2) in zip(
            made.train.batches(4), DatasetExamples(pairs, "classes", 2).batches(4), strict=True
        ):
            assert torch.equal(x1, x2)
            assert torch.equal(y1, y2)
    with pytest.raises(TaskError, match="give kind='binary', 'classes' or 'regression', and"):
        Task("t", pairs, pairs)


def test_rows_that_can_be_read_only_once_are_refused():
    class Flow(torch.utils.data.IterableDataset):
        def __iter__(self):
            return iter(())

    for given_ in (Flow(), torch.utils.data.DataLoader(Flow()), iter(())):
        with pytest.raises(TaskError, match="a torch Dataset with __len__ and __getitem__"):
            Task("t", given_, given_, kind="classes", outputs=2)


def test_augmentations_follow_the_generator_and_leave_the_global_state_alone():
    class Noisy(Pairs):
        def __getitem__(self, row):
            return self.x[row] + torch.rand(3), self.y[row]

    rows = DatasetExamples(Noisy(torch.as_tensor(X), Y), "binary", 1)
    state = torch.get_rng_state()

    def read(generator):
        return torch.cat([x for x, _ in rows.batches(4, generator)])

    assert torch.equal(read(random(1)), read(random(1)))
    assert not torch.equal(read(random(1)).sort(0).values, read(random(2)).sort(0).values)
    assert torch.equal(read(None), read(None))
    assert torch.equal(torch.get_rng_state(), state)
