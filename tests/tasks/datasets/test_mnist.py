"""MNIST and its permutations, from small files and from the real ones."""

import gzip
import hashlib

import numpy as np
import pytest
import torch
from small_files import idx

from lifelong.tasks.datasets import DataError, load, mnist
from lifelong.tasks.kinds import TaskError


def test_small_files_become_ten_tasks(mnist_dir):
    stream = load("mnist", seed=1, data_dir=mnist_dir, valid=50)
    assert sorted(stream.names) == [f"digit {digit}" for digit in range(10)]
    assert stream.source.startswith("files in the place of MNIST's (not the published train-images")
    for task in stream:
        assert (len(task.train), len(task.valid), len(task.test)) == (350, 50, 200)
        assert (task.train.y.sum(), task.valid.y.sum(), task.test.y.sum()) == (35, 5, 20)
        assert task.shape == (784,)
    assert abs(task.train.x.mean()) < 1e-5
    assert abs(task.train.x.std() - 1) < 1e-3


def test_only_files_with_the_published_hashes_are_original(mnist_dir, monkeypatch):
    contents = {
        path.stem: hashlib.sha256(gzip.decompress(path.read_bytes())).hexdigest()
        for path in (mnist_dir / "mnist").iterdir()
    }
    monkeypatch.setattr(mnist, "CONTENTS", contents)
    assert mnist.source(mnist_dir) == "MNIST, original files"
    stream = load("permuted-mnist", data_dir=mnist_dir, valid=50)
    assert stream.source == "MNIST, original files, pixels permuted"
    labels = mnist_dir / "mnist" / "t10k-labels-idx1-ubyte.gz"
    changed = bytearray(gzip.decompress(labels.read_bytes()))
    changed[-1] = (changed[-1] + 1) % 10
    labels.write_bytes(gzip.compress(bytes(changed)))
    assert "not the published t10k-labels" in mnist.source(mnist_dir)


def test_pixels_stay_with_their_labels(mnist_dir):
    stream = load("permuted-mnist", data_dir=mnist_dir, valid=50, tasks=1, keep_first=True)
    task = next(iter(stream))
    marks = task.test.x[:, 0]  # the files' images carry their label in the first pixel
    ranks = marks.unique(sorted=True)
    assert torch.equal(ranks[task.test.y], marks)


def test_unpacked_files_are_read_too(mnist_dir):
    before = next(iter(load("mnist", data_dir=mnist_dir, valid=50)))
    for path in (mnist_dir / "mnist").iterdir():
        path.with_suffix("").write_bytes(gzip.decompress(path.read_bytes()))
        path.unlink()
    after = next(iter(load("mnist", data_dir=mnist_dir, valid=50)))
    assert torch.equal(before.train.x, after.train.x)


def test_permuted_tasks_are_all_ten_digits_under_softmax(mnist_dir):
    stream = load("permuted-mnist", data_dir=mnist_dir, valid=50)
    assert len(stream) == 10
    first, second = list(stream)[:2]
    assert (first.kind, first.outputs) == ("classes", 10)
    assert torch.equal(first.train.y, second.train.y)
    assert not torch.equal(first.train.x, second.train.x)
    assert torch.equal(first.train.x.sort(1).values, second.train.x.sort(1).values)


def test_padding_is_black_and_around_the_image(mnist_dir):
    options = {"valid": 50, "tasks": 1, "keep_first": True, "standardise": "range"}
    plain = next(iter(load("permuted-mnist", data_dir=mnist_dir, **options)))
    padded = next(iter(load("permuted-mnist", data_dir=mnist_dir, padding=2, **options)))
    assert padded.shape == (32 * 32,)
    image = padded.train.x.reshape(-1, 32, 32)
    assert torch.equal(image[:, 2:-2, 2:-2].flatten(1), plain.train.x)
    assert image.count_nonzero() == image[:, 2:-2, 2:-2].count_nonzero()
    with pytest.raises(DataError, match="padding must be 0 or more pixels, not -1"):
        load("permuted-mnist", data_dir=mnist_dir, padding=-1)


@pytest.mark.parametrize(("scenario", "outputs"), [("task", 2), ("domain", 2), ("class", 10)])
def test_split_mnist_asks_for_one_of_a_pair_or_for_one_of_all(mnist_dir, scenario, outputs):
    stream = load("split-mnist", data_dir=mnist_dir, valid=50, scenario=scenario)
    assert (len(stream), stream.scenario) == (5, scenario)
    assert stream.first(2).scenario == stream.validated().scenario == scenario
    for number, task in enumerate(stream):
        pair = [str(2 * number), str(2 * number + 1)]
        assert (task.kind, task.outputs) == ("classes", outputs)
        named = stream.outputs[task.name]
        found = {named[label] for label in task.train.y.tolist()}
        assert found == set(pair)
        if scenario != "class":
            assert set(task.train.y.tolist()) == {0, 1}
            assert list(named) == pair


def test_scenarios_of_other_streams_and_what_they_cannot_be(mnist_dir):
    assert load("mnist", data_dir=mnist_dir, valid=50).scenario == "task"
    assert load("permuted-mnist", data_dir=mnist_dir, valid=50).scenario == "domain"
    with pytest.raises(TaskError, match="scenario must be 'task', 'domain' or 'class', not 'all'"):
        load("split-mnist", data_dir=mnist_dir, valid=50, scenario="all")


def test_absent_files_are_downloaded_and_verified(mnist_dir, site, tmp_path, monkeypatch):
    hashes = {}
    for path in (mnist_dir / "mnist").iterdir():
        (site.root / path.name).write_bytes(path.read_bytes())
        hashes[path.stem] = hashlib.sha256(path.read_bytes()).hexdigest()
    monkeypatch.setattr(mnist, "MIRROR", f"{site.url}/")
    with pytest.raises(DataError, match="published hash sha256:440fcabf"):
        load("mnist", data_dir=tmp_path / "empty")
    monkeypatch.setattr(mnist, "FILES", {name: hashes[name] for name in mnist.FILES})
    got = next(iter(load("mnist", data_dir=tmp_path / "empty", valid=50)))
    there = next(iter(load("mnist", data_dir=mnist_dir, valid=50)))
    assert torch.equal(got.train.x, there.train.x)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (idx(np.zeros((3, 28, 28)))[:-1], r"announces shape \(3, 28, 28\), that is 2,368 bytes"),
        (idx(np.zeros((3, 28, 28))) + b"\0", "but there are at least 2,369; the file is cut off"),
        (idx(np.zeros((3, 28))), "starts with 00000803, this one with 00000802"),
        (b"PK\x03\x04 a zip file", "starts with 00000803, this one with 504b0304"),
        (idx(np.zeros((3, 28, 28)))[:9], "cut off or damaged"),
        (b"", "this one with nothing"),
    ],
)
def test_wrong_idx_files_are_refused(tmp_path, content, message):
    path = tmp_path / "images"
    path.write_bytes(content)
    with pytest.raises(DataError, match=message):
        mnist.read_idx(path, 3)


@pytest.mark.parametrize("keep", [0.5, 0.0])
def test_a_cut_off_gzip_file_is_refused(mnist_dir, keep):
    path = mnist_dir / "mnist" / "train-images-idx3-ubyte.gz"
    content = path.read_bytes()
    path.write_bytes(content[: int(len(content) * keep)] or b"not gzip")
    with pytest.raises(DataError, match="not a whole gzip file"):
        load("mnist", data_dir=mnist_dir)


def test_images_and_labels_must_be_equally_many(mnist_dir):
    labels = gzip.compress(idx(np.zeros(399)))
    (mnist_dir / "mnist" / "train-labels-idx1-ubyte.gz").write_bytes(labels)
    with pytest.raises(DataError, match=r"holds 400 images but .* 399 labels"):
        load("mnist", data_dir=mnist_dir)


def test_the_real_files(real_mnist):
    (images, labels), (test_images, test_labels) = mnist.read_mnist(real_mnist)
    assert images.shape == (60_000, 28, 28)
    assert test_images.shape == (10_000, 28, 28)
    assert np.bincount(test_labels).tolist() == [
        980,
        1135,
        1032,
        1010,
        982,
        892,
        958,
        1028,
        974,
        1009,
    ]
    # The files as published, unpacked: the 16 or 8 bytes of the header, then these.
    assert labels[:10].tolist() == [5, 0, 4, 1, 9, 2, 1, 3, 1, 4]
    task = next(iter(load("permuted-mnist", data_dir=real_mnist)))
    assert (len(task.train), len(task.valid), len(task.test)) == (55_000, 5_000, 10_000)


def test_a_permuted_stream_holds_one_copy_of_mnist(real_mnist):
    stream = load("permuted-mnist", data_dir=real_mnist)
    held = {id(part.x): part.x.nbytes for part in _parts_of(stream)}
    assert sum(held.values()) == 70_000 * 784


def _parts_of(stream):
    """The parts that the makers of a stream hold on to."""
    for make in stream._makers.values():
        for argument in make.args:
            yield from getattr(argument, "each", ())
