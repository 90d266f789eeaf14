"""Lines of the standard library: no files, one task per package."""

import pytest
import torch

from lifelong.tasks.datasets import DataError, load, source_lines
from lifelong.tasks.datasets.source_lines import LENGTH, PACKAGES, PADDING, WORDS, numbers


@pytest.fixture(scope="module")
def stream():
    return load("source-lines", seed=3, per_class=(30, 10, 20))


def test_one_task_per_package_over_the_same_lines(stream):
    assert sorted(stream.names) == sorted(PACKAGES)
    assert "standard library of Python 3." in stream.source
    one, other = stream[PACKAGES[0]], stream[PACKAGES[1]]
    assert (len(one.train), len(one.valid), len(one.test)) == (300, 100, 200)
    assert one.shape == (LENGTH,)
    assert torch.equal(one.train.x, other.train.x)
    assert int(one.train.y.sum()) == int(other.train.y.sum()) == 30
    assert not bool((one.train.y * other.train.y).any())


def test_tokens_are_whole_numbers_and_no_line_is_there_twice(stream):
    task = next(iter(stream))
    x = torch.cat([task.train.x, task.valid.x, task.test.x])
    assert bool((x == x.round()).all())
    assert int(x.min()) >= 0
    assert int(x.max()) < WORDS
    assert len(x.unique(dim=0)) == len(x)
    padding = (x == PADDING).int()
    assert bool((padding.diff(dim=1) >= 0).all())  # nothing comes after padding


def test_the_seed_decides_rows_and_order(stream):
    again = load("source-lines", seed=3, per_class=(30, 10, 20))
    other = load("source-lines", seed=4, per_class=(30, 10, 20))
    assert stream.names == again.names != other.names
    first = PACKAGES[0]
    assert torch.equal(stream[first].train.x, again[first].train.x)
    assert not torch.equal(stream[first].train.x, other[first].train.x)


def test_tokens_are_the_same_in_every_process():
    assert numbers(["def", "x", "(", ")"])[:5] == (870, 601, 968, 269, PADDING)
    assert len(numbers(["a"] * 40)) == LENGTH


def test_a_python_without_source_is_refused(monkeypatch, tmp_path):
    monkeypatch.setattr(source_lines.sysconfig, "get_paths", lambda: {"stdlib": str(tmp_path)})
    with pytest.raises(DataError, match="needs a Python with the source of its standard library"):
        load("source-lines")
