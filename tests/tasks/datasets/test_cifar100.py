"""CIFAR-100 from small files in the binary version's format, and from the real ones."""

import hashlib
import io
import tarfile

import numpy as np
import pytest
import torch

from lifelong.tasks.datasets import DataError, cifar100, load
from lifelong.tasks.kinds import TaskError


def rows(each, classes=20):
    """Rows whose pixels are all their fine label, so that they can be traced."""
    fine = np.random.default_rng(each).permutation(np.arange(classes).repeat(each))
    table = np.empty((len(fine), 3074), np.uint8)
    table[:, 0], table[:, 1], table[:, 2:] = fine // 5, fine, fine[:, None]
    table[:, 2 + 1024 : 2 + 2048] += 100  # green
    return table


@pytest.fixture
def cifar_dir(tmp_path):
    directory = tmp_path / "cifar-100-binary"
    directory.mkdir()
    rows(10).tofile(directory / "train.bin")
    rows(3).tofile(directory / "test.bin")
    (directory / "fine_label_names.txt").write_text("\n".join(f"thing{i}" for i in range(100)))
    return tmp_path


@pytest.mark.parametrize("kind", ["binary", "classes"])
def test_groups_of_ten_classes(cifar_dir, kind):
    stream = load("cifar-100", seed=3, data_dir=cifar_dir, valid=40, kind=kind)
    assert stream.names == ("group 0", "group 1")
    for task in stream:
        assert (task.kind, task.outputs, task.shape) == (kind, 10, (3, 32, 32))
        assert (len(task.train), len(task.valid), len(task.test)) == (80, 20, 30)
        labels = task.train.y.argmax(1) if kind == "binary" else task.train.y
        names = [stream.outputs[task.name][label] for label in labels]
        red = task.train.x[:, 0, 0, 0].tolist()
        by_red = [name for _, name in sorted(zip(red, names, strict=True))]
        assert by_red == sorted(names, key=lambda name: int(name.removeprefix("thing")))


def test_halves_of_the_classes_do_not_depend_on_the_seed(tmp_path):
    directory = tmp_path / "cifar-100-binary"
    directory.mkdir()
    rows(4, classes=100).tofile(directory / "train.bin")
    rows(2, classes=100).tofile(directory / "test.bin")
    (directory / "fine_label_names.txt").write_text("\n".join(f"thing{i}" for i in range(100)))
    for half, first in (("first", 0), ("second", 50)):
        for seed in (0, 1):
            stream = load("cifar-100", seed, tmp_path, valid=50, half=half)
            named = {name for group in stream.outputs.values() for name in group}
            assert named == {f"thing{i}" for i in range(first, first + 50)}
            assert f"{half} half of the classes" in stream.source
    with pytest.raises(DataError, match="half must be 'first', 'second' or None, not 'third'"):
        load("cifar-100", 0, tmp_path, half="third")


def test_every_channel_is_standardised_over_the_training_rows(cifar_dir):
    stream = load("cifar-100", data_dir=cifar_dir, valid=40, group=20)
    inputs = next(iter(stream)).train.x
    assert torch.allclose(inputs.mean((0, 2, 3)), torch.zeros(3), atol=1e-5)
    assert torch.allclose(inputs.std((0, 2, 3)), torch.ones(3), atol=1e-3)


def test_decoding_copies_nothing(cifar_dir):
    images, labels = cifar100.read_bin(cifar_dir / "cifar-100-binary" / "train.bin")
    assert images.base is not None
    assert np.shares_memory(images, labels.base)
    assert (images[:, 0] == labels[:, None, None]).all()
    assert (images[:, 1] == labels[:, None, None] + 100).all()


def test_superclasses_are_the_publishers(cifar_dir):
    directory = cifar_dir / "cifar-100-binary"
    for name in ("train.bin", "test.bin"):
        rows = np.frombuffer((directory / name).read_bytes(), np.uint8).reshape(-1, 3074).copy()
        rows[:, 0] = rows[:, 1] % 4
        (directory / name).write_bytes(rows.tobytes())
    (directory / "coarse_label_names.txt").write_text("fish\nfowl\nfruit\nfurniture\n")
    stream = load("cifar-100", data_dir=cifar_dir, valid=40, superclasses=True, kind="classes")
    assert set(stream.names) == {"fish", "fowl", "fruit", "furniture"}
    for task in stream:
        place = ["fish", "fowl", "fruit", "furniture"].index(task.name)
        assert task.outputs == 5
        assert [int(name[5:]) % 4 for name in stream.outputs[task.name]] == [place] * 5
    (directory / "coarse_label_names.txt").write_text("fish\n")
    with pytest.raises(DataError, match="1 names, but there is an image of superclass 3"):
        load("cifar-100", data_dir=cifar_dir, valid=40, superclasses=True)


def test_absent_files_come_from_the_publishers_archive(cifar_dir, site, tmp_path, monkeypatch):
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w:gz") as archive:
        archive.add(cifar_dir / "cifar-100-binary", "cifar-100-binary")
    (site.root / "c.tar.gz").write_bytes(buffer.getvalue())
    digest = hashlib.md5(buffer.getvalue()).hexdigest()
    monkeypatch.setattr(
        cifar100, "ARCHIVE", cifar100.Remote(f"{site.url}/c.tar.gz", f"md5:{digest}")
    )
    home = tmp_path / "empty" / "cifar-100-binary"
    fetched = load("cifar-100", data_dir=tmp_path / "empty", valid=40)
    brought = load("cifar-100", data_dir=cifar_dir, valid=40)
    assert torch.equal(next(iter(fetched)).train.x, next(iter(brought)).train.x)
    notes = "c.tar.gz.sha256"
    kept = {path.name for path in home.iterdir()}
    assert kept == {"train.bin", "test.bin", "fine_label_names.txt", notes}
    assert fetched.source == "CIFAR-100, original files"
    assert brought.source == "CIFAR-100, files not checked against the publisher's"


def test_only_what_came_out_of_the_archive_is_original(cifar_dir):
    home = cifar_dir / "cifar-100-binary"
    names = ("train.bin", "test.bin", "fine_label_names.txt")
    digests = {name: hashlib.sha256((home / name).read_bytes()).hexdigest() for name in names}
    notes = home / "cifar-100-binary.tar.gz.sha256"
    notes.write_text("".join(f"{digest}  {name}\n" for name, digest in digests.items()))
    assert load("cifar-100", data_dir=cifar_dir, valid=40).source == "CIFAR-100, original files"
    rows = bytearray((home / "test.bin").read_bytes())
    rows[-1] ^= 1
    (home / "test.bin").write_bytes(rows)
    assert "not checked" in load("cifar-100", data_dir=cifar_dir, valid=40).source
    notes.write_bytes(b"\xff\x00 not a list of hashes")
    assert "not checked" in load("cifar-100", data_dir=cifar_dir, valid=40).source


def test_wrong_files_are_refused(cifar_dir):
    path = cifar_dir / "cifar-100-binary" / "train.bin"
    content = path.read_bytes()
    path.write_bytes(content[:-1])
    with pytest.raises(DataError, match="a row is 3,074 bytes, but 614,799 bytes are not a whole"):
        load("cifar-100", data_dir=cifar_dir)
    path.write_bytes(b"")
    with pytest.raises(DataError, match="but 0 bytes are not a whole number of rows"):
        load("cifar-100", data_dir=cifar_dir)
    path.write_bytes(bytes([0, 100]) + content[2:])
    with pytest.raises(DataError, match="fine labels must be from 0 to 99, but row 0 has 100"):
        load("cifar-100", data_dir=cifar_dir)
    path.write_bytes(content)
    (cifar_dir / "cifar-100-binary" / "fine_label_names.txt").write_text("only one\n")
    with pytest.raises(DataError, match="2 names, but there is an image of class 19"):
        load("cifar-100", data_dir=cifar_dir)


def test_a_group_size_that_does_not_divide_is_refused(cifar_dir):
    with pytest.raises(TaskError, match="20 classes cannot be parted into groups of 7"):
        load("cifar-100", data_dir=cifar_dir, valid=40, group=7)


def test_the_real_files(real_data):
    directory = real_data / "cifar-100-binary"
    if not directory.is_dir():
        pytest.skip("no CIFAR-100 files in $LIFELONG_DATA/cifar-100-binary")
    for name, each in (("train.bin", 500), ("test.bin", 100)):
        images, labels = cifar100.read_bin(directory / name)
        assert images.shape == (100 * each, 3, 32, 32)
        assert np.bincount(labels).tolist() == [each] * 100
    names = cifar100.read_names(directory / "fine_label_names.txt")
    assert (len(names), names[0], names[-1]) == (100, "apple", "worm")
    splits = cifar100.hold_out(
        cifar100.read_bin(directory / "test.bin"),
        cifar100.read_bin(directory / "test.bin"),
        valid=1000,
        seed=0,
    )
    assert np.bincount(splits.valid.labels).tolist() == [10] * 100
