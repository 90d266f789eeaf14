"""MNIST-Variation: the look-alike, and the files of 2007."""

import numpy as np
import pytest
import torch

from lifelong.tasks.datasets import DataError, load, variation
from lifelong.tasks.datasets.variation import (
    FILES_2007,
    look_alike,
    overlaid,
    photograph_patches,
    turned,
)
from lifelong.tasks.kinds import TaskError

SIZES = (20, 5, 15)


def digits(count=30):
    """Upright strokes, off the centre."""
    images = np.zeros((count, 28, 28), np.uint8)
    images[:, 4:12, 13:15] = 255
    return images


def test_the_look_alike_is_what_comes_without_the_files_of_2007(mnist_dir):
    stream = load("mnist-variation", seed=2, data_dir=mnist_dir, per_class=SIZES)
    assert "look-alike made from MNIST" in stream.source
    assert stream.look_alike
    assert stream.first(2).validated().look_alike
    assert "rotation-background" in stream.source
    assert "20 / 5 / 15 images a class" in stream.source
    task = next(iter(stream))
    assert (len(task.train), len(task.valid), len(task.test)) == (200, 50, 150)
    assert (task.train.y.sum(), task.valid.y.sum(), task.test.y.sum()) == SIZES
    assert abs(task.train.x.mean()) < 1e-5
    assert abs(task.train.x.std() - 1) < 1e-4


def test_same_seed_same_bytes_whatever_the_threads():
    threads = torch.get_num_threads()
    try:
        torch.set_num_threads(1)
        one = look_alike(digits(2500), "rotation-background", seed=5)
        torch.set_num_threads(2)
        two = look_alike(digits(2500), "rotation-background", seed=5)
    finally:
        torch.set_num_threads(threads)
    assert one.tobytes() == two.tobytes()
    assert one.tobytes() != look_alike(digits(2500), "rotation-background", seed=6).tobytes()


def test_quarter_turns_are_exact():
    images = np.random.default_rng(0).integers(0, 256, (4, 28, 28), dtype=np.uint8)
    result = turned(images, np.array([0, np.pi / 2, np.pi, 3 * np.pi / 2]))
    for image, got, quarters in zip(images, result, range(4), strict=True):
        np.testing.assert_array_equal(got, np.rot90(image, quarters))


def test_angles_fill_the_whole_circle():
    turned_strokes = look_alike(digits(2000), "rotation", seed=0).astype(float)
    centred = np.arange(28) - 13.5
    down = (turned_strokes.sum(2) * centred).sum(1)
    across = (turned_strokes.sum(1) * centred).sum(1)
    angles = np.arctan2(down, across)
    counts, _ = np.histogram(angles, bins=8, range=(-np.pi, np.pi))
    assert counts.min() > 180  # 250 expected in each eighth, with a deviation of 15


def test_the_digit_is_white_ink_before_the_background():
    ink = np.array([[0, 255, 128]], np.uint8)
    ground = np.array([[77, 77, 100]], np.uint8)
    assert overlaid(ink, ground).tolist() == [[77, 255, 128 + round(127 * 100 / 255)]]


def test_patches_are_cut_from_the_photographs_where_there_is_texture():
    patches = photograph_patches(500, np.random.default_rng(0))
    assert (patches.std(axis=(1, 2)) >= variation.TEXTURE - 1e-9).all()
    photographs = variation._photographs()
    for patch in patches[:3]:
        assert any(
            (np.lib.stride_tricks.sliding_window_view(grey, (28, 28)) == patch).all((2, 3)).any()
            for grey in photographs
        )
    assert len({patch.tobytes() for patch in patches}) > 490


def test_each_kind_does_what_it_says():
    plain = digits()
    kinds = {name: look_alike(plain, name, seed=0) for name in FILES_2007}
    ink = plain == 255
    assert (kinds["noise"][ink] == 255).all()
    assert abs(kinds["noise"][~ink].mean() - 127.5) < 3
    assert (kinds["background"][ink] == 255).all()
    assert (kinds["rotation"][:, 0, 0] == 0).all()
    # The same seed turns each digit alike with and without a background.
    rotated = kinds["rotation"] == 255
    assert rotated.any()
    assert (kinds["rotation-background"][rotated] == 255).all()


def test_a_class_with_too_few_images_is_refused(mnist_dir):
    with pytest.raises(TaskError, match="class '0' has 60 rows, too few for parts of 1000"):
        load("mnist-variation", data_dir=mnist_dir)


def test_an_unknown_kind_is_refused(mnist_dir):
    with pytest.raises(
        DataError, match=r"variation must be one of 'rotation-background', .* 'tilt'"
    ):
        load("mnist-variation", data_dir=mnist_dir, variation="tilt")


def write_amat(path, rows, *, columns=785):
    rng = np.random.default_rng(rows)
    table = np.zeros((rows, columns))
    table[:, :-1] = rng.uniform(size=(rows, columns - 1)).round(4)
    table[:, -1] = np.arange(rows) % 10
    path.parent.mkdir(parents=True, exist_ok=True)
    np.savetxt(path, table, fmt="%.6g")
    return table


@pytest.mark.parametrize("kind", list(FILES_2007))
def test_the_files_of_2007_are_used_where_they_are_present(tmp_path, kind):
    train_name, test_name = FILES_2007[kind]
    train = write_amat(tmp_path / "mnist-variation" / train_name, 60)
    test = write_amat(tmp_path / "mnist-variation" / test_name, 90)
    stream = load("mnist-variation", data_dir=tmp_path, variation=kind, per_class=(8, 2, 5))
    assert ", files of 2007" in stream.source
    assert not stream.look_alike
    task = stream["digit 3"]
    assert (len(task.train), len(task.valid), len(task.test)) == (80, 20, 50)
    pool = np.concatenate([train, test])
    inputs = torch.cat([task.train.x, task.valid.x, task.test.x]).numpy()
    labels = torch.cat([task.train.y, task.valid.y, task.test.y]).numpy()[:, 0]
    # Standardising keeps the order of the values: match rows by where their extremes are.
    places = {(row[:-1].argmax(), row[:-1].argmin()): row[-1] for row in pool}
    truth = [places[(row.argmax(), row.argmin())] for row in inputs]
    assert ((np.array(truth) == 3) == labels).all()


def test_without_sizes_the_files_of_2007_give_what_the_rarest_digit_has():
    assert variation._affordable(np.arange(10).repeat(6200)) == (1000, 200, 5000)
    labels = np.concatenate([np.arange(10).repeat(6000), np.arange(9).repeat(200)])
    assert variation._affordable(labels) == (1000, 200, 4800)


def test_wrong_amat_files_are_refused(tmp_path):
    path = tmp_path / "x.amat"
    write_amat(path, 5)
    path.write_text(path.read_text()[:-40])
    with pytest.raises(DataError, match=r"784 numbers and a label .* cut off"):
        variation.read_amat(path)
    write_amat(path, 5, columns=100)
    with pytest.raises(DataError, match="that is 785, but the lines hold 100"):
        variation.read_amat(path)
    path.write_text("hello world\n")
    with pytest.raises(DataError, match="784 numbers and a label"):
        variation.read_amat(path)
    path.write_text(" ".join(["0.5"] * 785))
    with pytest.raises(DataError, match="must be a digit from 0 to 9"):
        variation.read_amat(path)
    path.write_text("")
    with pytest.raises(DataError, match="784 numbers and a label"):
        variation.read_amat(path)


def test_half_of_the_files_of_2007_is_refused(tmp_path):
    write_amat(tmp_path / "mnist-variation" / FILES_2007["noise"][0], 10)
    with pytest.raises(DataError, match=r"mnist_background_random_train.amat is in .* put both"):
        load("mnist-variation", data_dir=tmp_path, variation="noise")


def test_the_real_look_alike(real_mnist):
    stream = load("mnist-variation", data_dir=real_mnist, per_class=(100, 20, 50))
    task = next(iter(stream))
    assert (len(task.train), len(task.valid), len(task.test)) == (1000, 200, 500)
