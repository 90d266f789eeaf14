"""Tables of features, and Animals with Attributes as both its versions are distributed."""

import numpy as np
import pytest
import torch
from sklearn.decomposition import PCA

from lifelong.tasks.datasets import DataError, awa, load
from lifelong.tasks.datasets.awa import _numbers
from lifelong.tasks.datasets.features import read_npz
from lifelong.tasks.kinds import TaskError


def table(classes=4, each=20, features=12):
    rng = np.random.default_rng(0)
    y = rng.permutation(np.arange(classes).repeat(each))
    return {"x": rng.normal(size=(len(y), features)) + y[:, None], "y": y}


def load_small(path, **options):
    return load(f"features:{path}", **({"per_class": (8, 4, 5)} | options))


def test_a_table_becomes_one_versus_rest_tasks(tmp_path):
    np.savez(tmp_path / "t.npz", **table())
    stream = load_small(tmp_path / "t.npz")
    assert sorted(stream.names) == ["0", "1", "2", "3"]
    task = next(iter(stream))
    assert (len(task.train), len(task.valid), len(task.test)) == (32, 16, 20)
    assert (task.train.y.sum(), task.valid.y.sum(), task.test.y.sum()) == (8, 4, 5)
    assert task.shape == (12,)
    assert abs(task.train.x.mean()) < 1e-5
    assert "t.npz" in stream.source


def test_a_path_is_also_looked_for_in_the_data_directory(tmp_path):
    (tmp_path / "sub").mkdir()
    np.savez(tmp_path / "sub" / "t.npz", **table())
    assert len(load_small("sub/t.npz", data_dir=tmp_path)) == 4


def test_components_are_those_of_the_training_rows_only(tmp_path):
    made = table(features=40)
    np.savez(tmp_path / "all.npz", **made)
    stream = load_small(tmp_path / "all.npz", dimensions=6)
    task = stream["2"]
    assert task.shape == (6,)
    plain = load_small(tmp_path / "all.npz", dimensions=40)["2"]
    reference = PCA(6, svd_solver="full").fit(plain.train.x.numpy())
    expected, got = reference.transform(plain.test.x.numpy()), task.test.x.numpy()
    # Equal up to one scale for all of them, since both are standardised as a whole.
    np.testing.assert_allclose(got / got.std(), expected / expected.std(), atol=1e-4)


def test_fewer_training_rows_than_dimensions_give_fewer_dimensions(tmp_path):
    np.savez(tmp_path / "t.npz", **table(classes=2, features=40))
    assert load_small(tmp_path / "t.npz", dimensions=30)["1"].shape == (16,)


def test_names_and_split_are_used_where_given(tmp_path):
    made = table()
    parting = np.random.default_rng(1).permutation(np.arange(len(made["y"])) % 2)
    made["x"][:, 0] = parting  # carried along, to be seen below
    names = ["ant", "bee", "cat", "dog"]
    np.savez(tmp_path / "t.npz", **made, split=parting, names=names)
    stream = load_small(tmp_path / "t.npz", per_class=(3, 2, 2))
    assert sorted(stream.names) == names
    task = stream["bee"]
    low, high = task.train.x[:, 0], task.test.x[:, 0]
    assert low.unique().numel() == high.unique().numel() == 1
    assert low[0] < high[0]


def test_a_class_with_too_few_rows_is_refused(tmp_path):
    np.savez(tmp_path / "t.npz", **table())
    with pytest.raises(TaskError, match="class '0' has 20 rows, too few for parts of 30"):
        load(f"features:{tmp_path / 't.npz'}")


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"y": None}, "no array y in it"),
        ({"x": None, "y": None}, "no array x and no y in it"),
        ({"x": np.zeros(80)}, r"x must be numbers of shape \(rows, features\)"),
        ({"y": np.zeros(79)}, r"not float64 of shape \(80, 12\) and y of shape \(79,\)"),
        ({"split": np.full(80, 2)}, r"split must be 0 .* or 1 .* values \[2\]"),
        ({"split": np.zeros(3)}, r"this one has shape \(3,\)"),
        ({"y": np.array([object()] * 80)}, "not a whole npz file of plain arrays"),
    ],
)
def test_wrong_tables_are_refused(tmp_path, changes, message):
    made = {name: array for name, array in (table() | changes).items() if array is not None}
    np.savez(tmp_path / "t.npz", **made)
    with pytest.raises(DataError, match=message):
        read_npz(tmp_path / "t.npz")


def test_damaged_and_absent_npz_files_are_refused(tmp_path):
    path = tmp_path / "t.npz"
    np.savez(path, **table())
    whole = path.read_bytes()
    for content in (whole[: len(whole) // 2], b"not a zip", b""):
        path.write_bytes(content)
        with pytest.raises(DataError, match="not a whole npz file"):
            load_small(path)
    damaged = bytearray(whole)
    damaged[300] ^= 0xFF
    path.write_bytes(bytes(damaged))
    with pytest.raises(DataError, match="not a whole npz file"):
        load_small(path)
    with path.open("wb") as file:
        np.save(file, np.zeros(3))
    with pytest.raises(DataError, match="not a whole npz file"):
        load_small(path)
    with pytest.raises(DataError, match=r"no file nowhere.npz nor .*nowhere.npz"):
        load_small("nowhere.npz", data_dir=tmp_path)
    path.write_bytes(whole)
    with pytest.raises(DataError, match="dimensions must be at least 1, not 0"):
        load_small(path, dimensions=0)


def test_features_that_are_not_finite_are_refused(tmp_path):
    made = table()
    made["x"][:, 5] = np.nan
    np.savez(tmp_path / "t.npz", **made)
    with pytest.raises(TaskError, match=r"features must be finite .* at \(0, 5\) is nan"):
        load_small(tmp_path / "t.npz")


def write_awa2(home, made):
    folder = home / "Animals_with_Attributes2" / "Features" / "ResNet101"
    folder.mkdir(parents=True)
    np.savetxt(folder / "AwA2-features.txt", made["x"], fmt="%.6f")
    np.savetxt(folder / "AwA2-labels.txt", made["y"] + 1, fmt="%d")
    lines = [f"{number:8d}\tanimal+{number}" for number in range(1, 5)]
    (home / "Animals_with_Attributes2" / "classes.txt").write_text("\n".join(lines))


def write_awa(home, made):
    for number, (row, label) in enumerate(zip(made["x"], made["y"], strict=True)):
        folder = home / "Animals_with_Attributes" / "Features" / "decaf" / f"animal+{label + 1}"
        folder.mkdir(parents=True, exist_ok=True)
        (folder / f"decaf_{number:04d}.txt").write_text("\n".join(f"{v:.6f}" for v in row))


@pytest.mark.parametrize(("write", "what"), [(write_awa, "DECAF"), (write_awa2, "ResNet-101")])
def test_awa_as_distributed(tmp_path, write, what):
    made = table()
    write(tmp_path, made)
    stream = load("awa", data_dir=tmp_path, per_class=(8, 4, 5))
    assert sorted(stream.names) == [f"animal+{n}" for n in range(1, 5)]
    assert what in stream.source
    assert "not checked against the publisher's" in stream.source
    # Standardised as a whole, so up to one scale and one shift the rows are those of the table.
    task = stream["animal+3"]
    label_of = {
        tuple(np.argsort(row)): label for row, label in zip(made["x"], made["y"], strict=True)
    }
    truth = [label_of[tuple(np.argsort(row))] == 2 for row in task.test.x.numpy()]
    assert task.test.y[:, 0].tolist() == truth


def test_awa_is_preferred_and_a_version_can_be_asked(tmp_path):
    write_awa(tmp_path, table())
    write_awa2(tmp_path, table())
    small = {"data_dir": tmp_path, "per_class": (8, 4, 5)}
    assert "DECAF" in load("awa", **small).source
    assert "ResNet-101" in load("awa", version="awa2", **small).source
    with pytest.raises(DataError, match="version must be 'awa', 'awa2' or None, not 'awa3'"):
        load("awa", version="awa3", **small)


def test_wrong_awa_files_are_refused(tmp_path):
    small = {"data_dir": tmp_path, "per_class": (8, 4, 5)}
    with pytest.raises(DataError, match=r"awa needs AwA's DECAF features in .*'digits' needs no"):
        load("awa", version="awa", **small)
    write_awa(tmp_path, table())
    for path in (tmp_path / awa.DECAF / "animal+2").iterdir():
        path.write_text("1.0 2.0")
    with pytest.raises(DataError, match=r"(2 features where others have 12|12 .* have 2)"):
        load("awa", version="awa", **small)
    for path in (tmp_path / awa.DECAF / "animal+2").iterdir():
        path.write_text("1.0 none")
    with pytest.raises(DataError, match="holds something that is no number"):
        load("awa", version="awa", **small)


def test_wrong_awa2_files_are_refused(tmp_path):
    small = {"data_dir": tmp_path, "per_class": (8, 4, 5)}
    write_awa2(tmp_path, table())
    home = tmp_path / "Animals_with_Attributes2"
    features = (home / awa.FEATURES).read_text()
    (home / awa.FEATURES).write_text(features[: len(features) // 2])
    with pytest.raises(DataError, match=r"has 4\d lines for 80 labels; one of the two is cut off"):
        load("awa", **small)
    (home / awa.FEATURES).write_text(features)
    (home / "classes.txt").write_text("1\tant\n2\tbee\n")
    with pytest.raises(DataError, match="label 3 has no name in"):
        load("awa", **small)
    (home / "classes.txt").write_text("ant\nbee\n")
    with pytest.raises(DataError, match="every line must hold a number and a name"):
        load("awa", **small)


def test_the_real_animals50(real_data):
    if not (real_data / "animals50" / "features.npz").is_file():
        pytest.skip("no file $LIFELONG_DATA/animals50/features.npz")
    stream = load("features:animals50/features.npz", data_dir=real_data)
    assert len(stream) == 50
    task = next(iter(stream))
    assert (len(task.train), len(task.valid), len(task.test)) == (1500, 1500, 1500)
    assert task.shape == (500,)
    assert torch.isfinite(task.train.x).all()


def test_a_number_beyond_float32_is_refused(tmp_path):
    path = tmp_path / "1.txt"
    for word in ("1e300", "nan", "-inf"):
        with pytest.raises(DataError, match="not finite in float32"):
            _numbers(path, ["1.5", word])
