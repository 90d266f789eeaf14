"""Streams: what is drawn is drawn from the seed, each row goes to one split, tasks come lazily."""

import gc
import weakref

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from lifelong.tasks.datasets import load
from lifelong.tasks.examples import DatasetExamples
from lifelong.tasks.kinds import Kind, TaskError
from lifelong.tasks.scaling import Scale, inputs_of
from lifelong.tasks.splits import Subset, consecutive, hold_out, split_table
from lifelong.tasks.streams import Stream, class_groups, one_versus_rest, permutations
from lifelong.tasks.task import Task


def table(classes=4, rows=12, features=5):
    """Rows that carry their own number in the first feature, so that they can be traced."""
    y = np.arange(classes).repeat(rows)
    x = np.random.default_rng(0).normal(size=(classes * rows, features))
    x[:, 0] = np.arange(len(x))
    return x, y


def same(a, b):
    pairs = zip((a.train, a.valid, a.test), (b.train, b.valid, b.test), strict=True)
    return all(torch.equal(p.x, q.x) and torch.equal(p.y, q.y) for p, q in pairs)


@settings(max_examples=40, deadline=None)
@given(
    classes=st.integers(2, 5),
    sizes=st.tuples(st.integers(1, 4), st.integers(1, 4), st.integers(1, 4)),
    spare=st.integers(0, 3),
    seed=st.integers(0, 2**32),
)
def test_split_gives_every_class_the_rows_asked_and_no_row_twice(classes, sizes, spare, seed):
    x, y = table(classes, sum(sizes) + spare)
    splits = split_table(x, y, sizes, seed=seed)
    for part, size in zip(splits.each, sizes, strict=True):
        assert np.bincount(part.labels, minlength=classes).tolist() == [size] * classes
    rows = np.concatenate([part.rows for part in splits.each])
    assert len(set(rows.tolist())) == len(rows) == classes * sum(sizes)


@given(valid=st.integers(1, 39), seed=st.integers(0, 1000))
@settings(max_examples=40, deadline=None)
def test_hold_out_parts_the_training_rows_by_class_shares(valid, seed):
    y = np.array([0] * 10 + [1] * 30)
    x = np.arange(40.0)[:, None]
    splits = hold_out((x, y), (x[:4], y[-4:]), valid=valid, seed=seed)
    assert sorted([*splits.train.rows, *splits.valid.rows]) == list(range(40))
    assert len(splits.valid.rows) == valid
    assert abs((splits.valid.labels == 0).sum() - valid / 4) < 1
    assert splits.test.rows.tolist() == [0, 1, 2, 3]


def test_split_by_shares_uses_each_row_once():
    x, y = table(rows=10)
    splits = split_table(x, y, (0.6, 0.2, 0.2), seed=0)
    assert [len(part.rows) for part in splits.each] == [24, 8, 8]
    assert sorted(np.concatenate([part.rows for part in splits.each])) == list(range(40))


def test_test_rows_come_only_from_the_rows_marked():
    x, y = table()
    marked = np.arange(len(x)) % 3 == 0
    splits = split_table(x, y, (5, 2, 3), seed=1, test=marked)
    assert marked[splits.test.rows].all()
    assert not marked[splits.train.rows].any()
    assert not marked[splits.valid.rows].any()
    assert np.bincount(splits.test.labels).tolist() == [3] * 4


def test_same_seed_same_bytes_another_seed_another_split():
    x, y = table()

    def first(seed):
        return next(iter(one_versus_rest(split_table(x, y, (6, 3, 3), seed=seed), seed=seed)))

    assert same(first(3), first(3))
    assert first(3).train.x.numpy().tobytes() != first(4).train.x.numpy().tobytes()


def test_global_random_state_is_neither_read_nor_changed():
    x, y = table()

    def everything():
        splits = split_table(x, y, (6, 3, 3), seed=0)
        streams = (
            one_versus_rest(splits, seed=0),
            class_groups(splits, 2, seed=0),
            permutations(splits, 2, seed=0),
        )
        return b"".join(t.train.x.numpy().tobytes() for stream in streams for t in stream)

    state, numpy_state = torch.get_rng_state(), np.random.get_state()  # noqa: NPY002
    first = everything()
    assert torch.equal(torch.get_rng_state(), state)
    assert (np.random.get_state()[1] == numpy_state[1]).all()  # noqa: NPY002
    torch.rand(1)
    np.random.random()  # noqa: NPY002
    assert everything() == first


def test_one_versus_rest_asks_of_each_class_in_a_drawn_order():
    x, y = table()
    splits = split_table(x, y, (6, 3, 3), seed=0, classes=["a", "b", "c", "d"])
    stream = one_versus_rest(splits, seed=0, standardise=None, prefix="animal ")
    assert sorted(stream.names) == ["animal a", "animal b", "animal c", "animal d"]
    assert stream.outputs["animal c"] == ("c",)
    for task in stream:
        code = "abcd".index(task.name[-1])
        assert (task.kind, task.outputs, len(task.train)) == (Kind.BINARY, 1, 24)
        truth = torch.from_numpy(y[task.train.x[:, 0].long().numpy()] == code)
        assert torch.equal(task.train.y[:, 0].bool(), truth)


def test_orders_are_drawn_from_the_seed_or_as_given():
    x, y = table(classes=8)
    splits = split_table(x, y, (6, 3, 3), seed=0)
    orders = {one_versus_rest(splits, seed=seed).names for seed in range(5)}
    assert len(orders) > 1
    assert one_versus_rest(splits, seed=3).names == one_versus_rest(splits, seed=3).names
    assert one_versus_rest(splits, seed=3, order="given").names == tuple("01234567")


def test_tasks_of_one_versus_rest_share_their_inputs():
    x, y = table()
    tasks = list(one_versus_rest(split_table(x, y, (6, 3, 3), seed=0), seed=0))
    assert len({task.train.x.data_ptr() for task in tasks}) == 1
    assert len({task.test.x.data_ptr() for task in tasks}) == 1


@pytest.mark.parametrize("kind", ["binary", "classes"])
def test_class_groups_hold_only_their_own_classes(kind):
    x, y = table(classes=6)
    stream = class_groups(
        split_table(x, y, (6, 3, 3), seed=0), 3, seed=0, kind=kind, standardise=None
    )
    assert stream.names == ("group 0", "group 1")
    seen = set()
    for task in stream:
        assert (len(task.train), len(task.valid), len(task.test)) == (18, 9, 9)
        own = stream.outputs[task.name]
        true = [str(y[int(row)]) for row in task.train.x[:, 0]]
        told = task.train.y.argmax(1) if kind == "binary" else task.train.y
        assert [own[int(code)] for code in told] == true
        assert kind == "classes" or (task.train.y.sum(1) == 1).all()
        seen |= set(own)
    assert seen == set("012345")


def test_permutations_reorder_the_features_the_same_way_in_every_split():
    x, y = table()
    splits = split_table(x, y, (6, 3, 3), seed=0)
    tasks = list(permutations(splits, 3, seed=0, standardise=None, keep_first=True))
    plain = tasks[0]
    assert torch.equal(plain.train.x, torch.from_numpy(x[splits.train.rows]).float())
    for task in tasks[1:]:
        order = [
            int((plain.train.x == column[:, None]).all(0).nonzero()) for column in task.train.x.T
        ]
        assert sorted(order) == list(range(5))
        assert torch.equal(task.test.x, plain.test.x[:, order])
        assert torch.equal(task.valid.x, plain.valid.x[:, order])
        assert torch.equal(task.train.y, plain.train.y)
    assert not torch.equal(tasks[1].train.x, tasks[2].train.x)


def test_permutations_flatten_images():
    x, y = table(features=6)
    images = x.reshape(-1, 2, 3)
    task = next(iter(permutations(split_table(images, y, (6, 3, 3), seed=0), 1, seed=0)))
    assert task.shape == (6,)


def test_a_stream_can_be_iterated_again_and_makes_equal_tasks():
    x, y = table()
    splits = split_table(x, y, (6, 3, 3), seed=0)
    stream = permutations(splits, 3, seed=0, source="made up")
    assert all(same(a, b) for a, b in zip(stream, stream, strict=True))
    assert len(stream) == 3
    assert stream.first(2).names == stream.names[:2]
    assert stream.first(2).source == stream.source == "made up"
    assert same(stream["permutation 1"], list(stream)[1])


def test_one_tasks_data_is_in_memory_at_a_time():
    x, y = table()
    stream = permutations(split_table(x, y, (6, 3, 3), seed=0), 4, seed=0)
    alive: list[weakref.ref[torch.Tensor]] = []
    for task in stream:
        alive.append(weakref.ref(task.train.x))
        del task
        gc.collect()
        assert [ref() for ref in alive] == [None] * len(alive)
    assert len(alive) == 4


@pytest.mark.parametrize(
    ("over", "axes"), [("whole", (0, 1, 2)), ("features", (0,)), ("channels", (0, 2))]
)
def test_training_inputs_are_standardised_by_their_own_statistics(over, axes):
    rng = np.random.default_rng(0)
    x = rng.normal(1000.0, 3.0, size=(3000, 2, 4)) * np.array([1, 5])[:, None]
    part = Subset(x, np.zeros(3000, int), rng.permutation(3000)[:2500])
    inputs = inputs_of(part, Scale.fit(part, over)).double().numpy()
    np.testing.assert_allclose(inputs.mean(axis=axes), 0, atol=2e-4)
    np.testing.assert_allclose(inputs.std(axis=axes), 1, atol=2e-4)


def test_statistics_come_from_training_rows_only():
    x, y = table()
    splits = split_table(x, y, (6, 3, 3), seed=0)
    changed = x.copy()
    changed[np.concatenate([splits.valid.rows, splits.test.rows])] *= 100
    plain = next(iter(one_versus_rest(splits, seed=0)))
    after = next(iter(one_versus_rest(split_table(changed, y, (6, 3, 3), seed=0), seed=0)))
    assert torch.equal(plain.train.x, after.train.x)
    assert not torch.equal(plain.test.x, after.test.x)


def test_a_large_mean_does_not_drown_what_varies():
    x, y = table()
    plain = next(iter(one_versus_rest(split_table(x, y, (6, 3, 3), seed=0), seed=0)))
    far = next(iter(one_versus_rest(split_table(x + 1e9, y, (6, 3, 3), seed=0), seed=0)))
    assert torch.allclose(plain.test.x, far.test.x, atol=1e-5)


@pytest.mark.parametrize("value", [0.0, 0.1, 7.0, -1e9 / 3])
def test_a_feature_that_never_varies_becomes_zero(value):
    x, y = table()
    x[:, 2] = value
    task = next(iter(one_versus_rest(split_table(x, y, (6, 3, 3), seed=0), seed=0)))
    assert task.train.x[:, 2].abs().max() < 1e-6


def test_whole_numbers_are_standardised_without_overflow():
    x = np.array([[0, 255], [255, 0], [0, 0], [255, 255]] * 6, np.uint8)
    y = np.arange(2).repeat(12)
    task = next(
        iter(one_versus_rest(split_table(x, y, (4, 4, 4), seed=0), seed=0, standardise="whole"))
    )
    assert task.train.x.min() < -0.5
    assert task.train.x.max() > 0.5


def test_consecutive_keeps_labels_and_order():
    x, y = table()
    drawn = split_table(x, y, (6, 3, 3), seed=0)
    made = consecutive(x[np.concatenate([part.rows for part in drawn.each])], drawn)
    for old, new in zip(drawn.each, made.each, strict=True):
        assert (old.labels == new.labels).all()
        assert (old.x[old.rows] == new.x[new.rows]).all()


def test_a_dataset_serves_the_same_rows_as_tensors_and_leaves_the_global_state():
    x, y = torch.randn(10, 3, generator=torch.Generator().manual_seed(0)), torch.arange(10) % 2
    rows = DatasetExamples(torch.utils.data.TensorDataset(x, y), "binary", 1)
    state = torch.get_rng_state()
    inputs, labels = (torch.cat(column) for column in zip(*rows.batches(4), strict=True))
    assert torch.equal(inputs, x)
    assert torch.equal(labels, y[:, None].float())
    assert (len(rows), rows.shape) == (10, (3,))
    drawn = [
        torch.cat([b for b, _ in rows.batches(4, torch.Generator().manual_seed(5))])
        for _ in range(2)
    ]
    assert torch.equal(drawn[0], drawn[1])
    assert not torch.equal(drawn[0], x)
    assert torch.equal(drawn[0].sort(0).values, x.sort(0).values)
    assert torch.equal(torch.get_rng_state(), state)
    task = Task("big", rows, rows, rows, kind="binary", outputs=1)
    assert task.shape == (3,)


def test_a_dataset_is_anything_with_a_length_and_items():
    class Squares:
        def __len__(self):
            return 5

        def __getitem__(self, i):
            if i >= 5:
                raise IndexError(i)
            return np.float32([i, i * i]), i

    batches = list(DatasetExamples(Squares(), "classes", 5).batches(2))
    assert torch.cat([y for _, y in batches]).tolist() == [0, 1, 2, 3, 4]
    with pytest.raises(TaskError, match="whole numbers from 0 to 3, but 4"):
        list(DatasetExamples(Squares(), "classes", 4).batches(2))


def bad(**changes):
    x, y = table()
    arguments = {"x": x, "y": y, "sizes": (6, 3, 3), "seed": 0} | changes
    return split_table(**arguments)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"sizes": (8, 4, 4)}, r"class '0' has 12 rows, too few for parts of 8 \+ 4 \+ 4"),
        ({"sizes": (0.5, 0.4, 0.3)}, "three shares that sum to at most 1"),
        ({"sizes": (1, 2)}, "three whole numbers of rows per class"),
        ({"sizes": (6, 0, 3)}, "three whole numbers of rows per class"),
        ({"sizes": (0.97, 0.01, 0.01)}, "has 12 rows, too few"),
        ({"y": [0, 1]}, r"48 rows of inputs but labels of shape \(2,\)"),
        ({"x": np.array(["a"] * 48)}, "inputs must be a numeric array with rows first"),
        (
            {"x": np.full((48, 2), np.inf)},
            r"must be finite numbers, but the value at \(0, 0\) is inf",
        ),
        ({"classes": ["a", "b"]}, "2 class names for 4 distinct labels"),
        ({"classes": ["a", "b", "b", "c"]}, "no name twice"),
        ({"test": [True]}, r"test must mark each of the 48 rows .* shape \(1,\)"),
        ({"seed": -1}, "a seed must be a whole number from 0, not -1"),
        ({"seed": 0.5}, "a seed must be a whole number from 0, not 0.5"),
    ],
)
def test_split_refuses(changes, message):
    with pytest.raises(TaskError, match=message):
        bad(**changes)


def test_other_refusals():
    x, y = table()
    splits = bad()
    with pytest.raises(TaskError, match=r"valid must be between 1 and 47, .* not 48"):
        hold_out((x, y), (x, y), valid=48, seed=0)
    with pytest.raises(TaskError, match="4 classes cannot be parted into groups of 3"):
        class_groups(splits, 3, seed=0)
    with pytest.raises(TaskError, match="kind must be one of 'binary', 'classes', not 'both'"):
        class_groups(splits, 2, seed=0, kind="both")
    with pytest.raises(TaskError, match="at least 1 task, not 0"):
        permutations(splits, 0, seed=0)
    with pytest.raises(TaskError, match=r"order must be 'drawn' .* not 'random'"):
        one_versus_rest(splits, seed=0, order="random")
    with pytest.raises(TaskError, match=r"standardise must be 'whole', .* not 'rows'"):
        one_versus_rest(splits, seed=0, standardise="rows")
    with pytest.raises(TaskError, match="at least one task"):
        Stream({}, source="")
    stream = one_versus_rest(splits, seed=0, order="given")
    with pytest.raises(TaskError, match="no task 'x' in this stream; its tasks are '0', '1'"):
        stream["x"]
    with pytest.raises(TaskError, match="1 to 4 tasks to take, not 5"):
        stream.first(5)


def test_a_validated_stream_is_tested_on_its_validation_rows():
    stream = load("digits", 0).first(2)
    for task, original in zip(stream.validated(), stream, strict=True):
        assert task.test is not None
        assert torch.equal(task.test.x, original.valid.x)
        assert torch.equal(task.train.x, original.train.x)
        assert (task.name, task.kind, task.outputs) == (
            original.name,
            original.kind,
            original.outputs,
        )


@pytest.mark.parametrize(("low", "high"), [(0, 255), (-3, 5), (7, 7)])
def test_by_range_the_inputs_go_from_zero_to_one(low, high):
    x = np.random.default_rng(0).uniform(low, high, (60, 4))
    x[0, 0], x[1, 1] = low, high
    y = np.arange(60) % 3
    splits = split_table(x, y, (0.6, 0.2, 0.2), seed=0)
    task = next(iter(permutations(splits, 1, seed=0, standardise="range")))
    train = splits.train.x[splits.train.rows]
    span = (train.max() - train.min()) or 1.0
    expected = (train - train.min()) / span
    assert torch.allclose(task.train.x.sort()[0], torch.tensor(expected).float().sort()[0])
    assert task.train.x.min() == 0
    assert task.train.x.max() == (1 if high > low else 0)


def test_groups_that_do_not_part_the_classes_and_binary_domains_are_refused():
    x, y = np.arange(24.0).reshape(12, 2), np.repeat(np.arange(4), 3)
    splits = split_table(x, y, (0.34, 0.33, 0.33), seed=0)
    with pytest.raises(TaskError, match="groups must part the 4 classes into groups of 2"):
        class_groups(splits, 2, seed=0, groups={"a": [0, 1], "b": [1, 2]})
    with pytest.raises(TaskError, match="the scenario 'domain' needs kind='classes'"):
        class_groups(splits, 2, seed=0, scenario="domain")
    made = class_groups(splits, 2, seed=0, order="given", groups={"a": [0, 3], "b": [2, 1]})
    assert made.names == ("a", "b")
    assert made.outputs["b"] == ("2", "1")
