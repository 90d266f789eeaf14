"""Data sets by name."""

import pytest

from lifelong.tasks.datasets import DataError, load, names


def test_digits_need_no_files(monkeypatch, tmp_path):
    monkeypatch.setenv("LIFELONG_DATA", str(tmp_path / "nowhere"))
    stream = load("digits", seed=1)
    assert sorted(stream.names) == [f"digit {digit}" for digit in range(10)]
    for task in stream:
        rows = len(task.train) + len(task.valid) + len(task.test)
        assert rows == 1797
        assert abs(len(task.train) / rows - 0.6) < 0.01
    assert not (tmp_path / "nowhere").exists()


def test_digits_in_groups():
    stream = load("digits", group=2, kind="classes")
    assert len(stream) == 5
    task = next(iter(stream))
    assert (task.kind, task.outputs, task.shape) == ("classes", 2, (64,))


@pytest.mark.parametrize(
    ("given", "near"),
    [("minst", "mnist"), ("cifar100", "cifar-100"), ("MNIST-variations", "mnist-variation")],
)
def test_an_unknown_data_set_suggests_the_nearest(given, near):
    with pytest.raises(DataError, match=f"no data set '{given}'; did you mean {near}"):
        load(given)


def test_a_name_like_none_gets_the_list():
    with pytest.raises(DataError, match=r"no data set 'zzz'; there are digits, mnist, "):
        load("zzz")
    assert "features:PATH.npz" in names()


def test_an_unknown_option_is_refused_with_those_there_are():
    with pytest.raises(DataError, match="no option 'gruop'; did you mean group"):
        load("digits", gruop=2)
    with pytest.raises(DataError, match="its options are per_class, dimensions, order"):
        load("features:x.npz", path="y")
