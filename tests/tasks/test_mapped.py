"""Tasks in memory-mapped arrays: the same as in memory, without being there."""

import mmap
from pathlib import Path

import numpy as np
import pytest
import torch

from builders import contents, quick, random, same, small_mlp, task_for
from lifelong.learners.den import DEN, retrain
from lifelong.tables.frames import TableError
from lifelong.tables.mapped import map_rows
from lifelong.tasks import examples as tasks
from lifelong.tasks.examples import MappedExamples
from lifelong.tasks.kinds import Kind, TaskError
from lifelong.tasks.task import Task

RESIDENT = "Rss:"


def mapped(directory, task, dtype=np.float32, mode="r"):
    """The same task, from files."""
    parts = []
    for name in ("train", "valid"):
        part = getattr(task, name)
        np.save(directory / f"{name}.npy", part.x.numpy().astype(dtype))
        parts.append((np.load(directory / f"{name}.npy", mmap_mode=mode), part.y.numpy()))
    return Task(task.name, *parts, kind=task.kind, outputs=task.outputs)


@pytest.mark.parametrize("kind", ["one output", "subtasks", "classes", "regression"])
def test_what_is_learned_is_the_same_as_from_memory(tmp_path, kind):
    architecture = small_mlp()
    first = task_for(architecture, kind)
    learners = [DEN(architecture, quick(), seed=1) for _ in range(2)]
    from_file = mapped(tmp_path, first)
    assert isinstance(from_file.train, MappedExamples)
    assert (from_file.kind, from_file.outputs) == (first.kind, first.outputs)
    for learner, task in zip(learners, (first, from_file), strict=True):
        learner.learn(task)
    assert same(*map(contents, learners))  # to the bit


def test_a_second_task_selects_and_grows_as_from_memory(tmp_path, monkeypatch):
    """Also where the features of Equation 3 are never held together."""
    monkeypatch.setattr(retrain, "KEEP", 0)
    monkeypatch.setattr(retrain, "CHUNK", 7)
    architecture = small_mlp()
    first, second = task_for(architecture), task_for(architecture, "subtasks", 3)
    records = []
    for task in (second, mapped(tmp_path, second)):
        learner = DEN(architecture, quick(sigma=0.001), seed=1)
        learner.learn(first)
        records.append(learner.learn(task))
    kept, read = records
    assert kept.groups.keys() == read.groups.keys()
    for group, events in kept.groups.items():
        other = read.groups[group]
        assert (events.selected, events.added, events.split) == (
            other.selected,
            other.added,
            other.split,
        )
    assert [s.loss for s in kept.stages] == pytest.approx([s.loss for s in read.stages], rel=1e-4)


@pytest.mark.parametrize("dtype", [np.float64, np.float16, np.int16, ">f4"])
def test_numbers_of_any_type_are_read(tmp_path, dtype):
    task = task_for(small_mlp())
    read = mapped(tmp_path, task, dtype)
    expected = torch.from_numpy(task.train.x.numpy().astype(dtype).astype(np.float32))
    assert torch.equal(torch.cat([x for x, _ in read.train.batches(7)]), expected)
    x, _ = next(read.train.batches(7, random(0)))
    assert x.dtype is torch.float32


def test_bad_numbers_are_found_when_they_are_read(tmp_path):
    np.save(tmp_path / "x.npy", np.array([[0.0, 1.0], [np.nan, 2.0]] * 4, np.float32))
    pair = (np.load(tmp_path / "x.npy", mmap_mode="r"), np.array([0, 1] * 4))
    with pytest.raises(TaskError, match="finite in float32"):
        list(Task("bad", pair, pair).train.batches(4))


def test_labels_are_checked_as_those_in_memory(tmp_path):
    np.save(tmp_path / "x.npy", np.zeros((4, 2), np.float32))
    x = np.load(tmp_path / "x.npy", mmap_mode="r")
    with pytest.raises(TaskError, match="4 rows of inputs but labels of shape"):
        Task("short", (x, np.zeros(3)), (x, np.zeros(4)))
    with pytest.raises(TaskError, match="every label of output 0 is 1"):
        Task("constant", (x, np.ones(4)), (x, np.ones(4)), kind=Kind.BINARY)


def test_pages_are_given_back(tmp_path, monkeypatch):
    """The process does not come to hold the file, though it reads all of it."""
    rows, columns = 4000, 2048  # 32 MB
    np.save(tmp_path / "x.npy", np.ones((rows, columns), np.float32))
    x = np.load(tmp_path / "x.npy", mmap_mode="r")
    examples = MappedExamples(x, torch.zeros(rows, 1))
    held = {}
    for limit in (2**40, 2**23):  # never, and often
        monkeypatch.setattr(tasks, "_HELD", limit)
        for _ in examples.batches(400, random(0)):
            held[limit] = max(held.get(limit, 0), _resident(tmp_path / "x.npy"))
    assert held[2**40] > 30 * 2**20
    assert held[2**23] < 12 * 2**20


def test_a_private_copy_is_not_given_back(tmp_path, monkeypatch):
    """Its changes would be lost."""
    monkeypatch.setattr(tasks, "_HELD", 1)
    np.save(tmp_path / "x.npy", np.zeros((100, 64), np.float32))
    x = np.load(tmp_path / "x.npy", mmap_mode="c")
    x[:] = 3
    examples = MappedExamples(x, torch.zeros(100, 1))
    read = torch.cat([batch for batch, _ in examples.batches(10)])
    again = torch.cat([batch for batch, _ in examples.batches(10)])
    assert bool((read == 3).all())
    assert torch.equal(read, again)
    assert isinstance(x.base, mmap.mmap)


def _resident(file):
    """Bytes of a file that this process has mapped and holds."""
    lines = Path("/proc/self/smaps").read_text().splitlines()
    at = next(number for number, line in enumerate(lines) if line.endswith(str(file)))
    line = next(line for line in lines[at:] if line.startswith(RESIDENT))
    return int(line.split()[1]) * 1024


class TestFilesOfColumns:
    @pytest.fixture
    def table(self):
        pa = pytest.importorskip("pyarrow")
        numbers = np.arange(60, dtype=np.float64).reshape(20, 3)
        return pa.table(
            {"a": numbers[:, 0], "y": numbers[:, 1] % 2, "b": numbers[:, 2].astype(np.int32)}
        )

    def test_shards_become_one_array_in_their_order(self, tmp_path, table):
        import pyarrow.feather
        import pyarrow.parquet

        pyarrow.parquet.write_table(table.slice(0, 12), tmp_path / "1.parquet", row_group_size=5)
        pyarrow.feather.write_feather(table.slice(12), tmp_path / "2.arrow")
        files = [tmp_path / "1.parquet", tmp_path / "2.arrow"]
        x, y = map_rows(files, tmp_path / "rows", labels=["y"])
        assert isinstance(x, np.memmap)
        assert np.array_equal(x, np.stack([table["a"], table["b"]], axis=1).astype(np.float32))
        assert np.array_equal(y, table["y"].to_numpy())
        task = Task("shards", (x, y), (x, y))
        assert isinstance(task.train, MappedExamples)
        assert task.shape == (2,)

    def test_what_is_no_number_is_refused(self, tmp_path, table):
        import pyarrow as pa
        import pyarrow.parquet

        def refused(other, match, labels=("y",)):
            pyarrow.parquet.write_table(other, tmp_path / "bad.parquet")
            with pytest.raises(TableError, match=match):
                map_rows([tmp_path / "bad.parquet"], tmp_path / "rows", labels=labels)
            assert not (tmp_path / "rows").exists()

        refused(table.append_column("c", pa.array(["x"] * 20)), "column 'c' holds string")
        refused(table.append_column("c", pa.array([None, *range(19)])), "missing values")
        refused(table, "has no column 'z'", labels=("z",))
        with pytest.raises(TableError, match="no rows"):
            map_rows([], tmp_path / "rows", labels=["y"])
