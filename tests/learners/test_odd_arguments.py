"""What a new user gives by mistake: taken where it is clear, else refused with what to do."""

import warnings

import numpy as np
import pandas
import polars
import pyarrow
import pytest
import torch

from builders import contents, inputs_for, learned, quick, same, small_mlp, task_for
from lifelong import DEN, Budget, Settings, Task, TaskError, convnet, mlp
from lifelong.networks.layout import NetworkError
from lifelong.persistence.manifest import ModelFileError
from lifelong.tasks.streams import Stream
from lifelong.tasks.task import UnscaledWarning
from lifelong.training.budget import SettingError

X = np.random.default_rng(0).normal(size=(12, 6))
Y = np.arange(12) % 2


def small_task(x=X, y=Y, **options):
    return Task("t", (x, y), (X, Y if np.isin(y, (0, 1)).all() else y), **options)


@pytest.fixture(scope="module")
def learner():
    return learned(small_mlp(), [task_for(small_mlp())], quick())


@pytest.fixture(scope="module")
def name(learner):
    return learner.tasks[0]


def test_one_row_is_told_from_many(learner, name):
    with pytest.raises(TaskError, match=r"shape \(6,\), not \(6,\); give one row as x\[None\]"):
        learner.predict_proba(X[0], task=name)


def test_classes_from_1_are_k_classes_and_keep_their_numbers(tmp_path):
    y = 1 + np.arange(12) % 3
    task = small_task(y=y)
    assert (task.outputs, task.first) == (3, 1)
    assert task.train.y.tolist() == (y - 1).tolist()
    learner = DEN(small_mlp(), quick())
    learner.learn(task)
    assert learner.predict_proba(X, task="t").shape == (12, 3)
    told = learner.predict(X, task="t")
    assert set(told.tolist()) <= {1, 2, 3}
    learner.save(tmp_path)
    assert torch.equal(DEN.load(tmp_path).predict(X, task="t"), told)


def test_classes_from_1_with_a_number_of_outputs():
    y = 1 + np.arange(12) % 3
    assert (small_task(y=y, outputs=3).first, small_task(y=y, outputs=4).first) == (1, 0)


def test_measurements_as_classes_are_refused():
    with pytest.raises(
        TaskError, match=r"0\.5 is among them; if they are measurements, pass kind='"
    ):
        small_task(y=Y + 0.5)
    with pytest.raises(TaskError, match="if they are measurements, pass kind='regression'; else"):
        small_task(y=np.stack([Y + 0.25, X[:, 0]], 1))


def test_soft_labels_are_refused():
    with pytest.raises(TaskError, match=r"soft labels are not taken: .* y\.argmax\(axis=1\)"):
        small_task(y=np.stack([Y * 0.6 + 0.2, 0.8 - Y * 0.6], 1))


def test_numbers_of_numpy_are_taken_and_can_be_saved(tmp_path):
    budget = Budget(steps=np.int64(5), batch_size=np.int32(4), learning_rate=np.float32(0.5))
    assert (type(budget.steps), type(budget.learning_rate)) == (int, float)
    settings = Settings(k=np.array([2, 3]), mu=np.float64(0.1), budget=budget)
    learner = DEN(mlp(np.int64(6), np.array([4, 3])), settings, seed=np.int64(3))
    assert learner.settings.k == (2, 3)
    assert learner.seed == 3
    learner.save(tmp_path)
    assert DEN.load(tmp_path).settings.budget == budget
    assert convnet((np.int64(1), 4, 4), np.array([2]), [np.int8(3)], kernel=np.int64(3)) == convnet(
        (1, 4, 4), [2], [3], kernel=3
    )


def test_a_single_width_is_refused():
    with pytest.raises(NetworkError, match=r"widths must be a list of .* such as \[64\], not 64"):
        mlp(20, 64)
    with pytest.raises(NetworkError, match="widths must be one or more whole numbers above 0"):
        mlp(20, [64, 2.5])


@pytest.mark.parametrize("units", [2**40, 2**62])
def test_a_network_that_no_machine_holds_is_refused(units):
    with pytest.raises(NetworkError, match=r"has [\d,]+ weights; at most 17,179,869,184 .* nar"):
        DEN(mlp(6, [units]))


def test_a_name_is_no_network():
    with pytest.raises(NetworkError, match=r"made by mlp, .* mlp\(784, \[312, 128\]\), not 'mlp'"):
        DEN("mlp")


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is such a device here")
def test_a_device_that_is_not_there_is_refused(tmp_path):
    with pytest.raises(SettingError, match=r"device 'cuda' cannot be used here: .*; use 'cpu'"):
        DEN(small_mlp(), device="cuda")
    DEN(small_mlp()).save(tmp_path)
    with pytest.raises(SettingError, match="device 'cuda' cannot be used here"):
        DEN.load(tmp_path, device="cuda")
    with pytest.raises(SettingError, match="device 'gpu' cannot be used here"):
        DEN(small_mlp(), device="gpu")


def test_a_directory_that_is_no_model_is_told(tmp_path):
    with pytest.raises(ModelFileError, match=r"not a saved model: it has no manifest\.json; give"):
        DEN.load(tmp_path)


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ("text", "numeric arrays, not a str"),
        (None, "numeric arrays, not None"),
        (np.array([["a"] * 6]), "numeric arrays, not an array of <U1.*LifelongClassifier takes te"),
        ([["a"] * 6], "numeric arrays, not a list"),
        (pandas.DataFrame(X), "arrays, not a DataFrame, whose columns have names: lifelong.Lifelo"),
        (polars.DataFrame(X), "arrays, not a DataFrame, whose columns have names"),
        (pyarrow.table({"a": [1.0]}), "arrays, not a Table, whose columns have names"),
    ],
    ids=["str", "None", "array of text", "list of text", "pandas", "polars", "Arrow"],
)
def test_what_is_no_array_of_numbers_is_refused(learner, name, given, message):
    with pytest.raises(TaskError, match=message):
        learner.predict_proba(given, task=name)
    with pytest.raises(TaskError, match=message):
        Task("t", (given, Y), (X, Y))


def test_a_third_item_is_refused():
    with pytest.raises(
        TaskError, match=r"train: must be a pair .* tuple of 3; .* as sample_weight"
    ):
        Task("t", (X, Y, Y), (X, Y))


def test_a_stream_of_a_list_is_refused():
    with pytest.raises(TaskError, match=r"by the tasks' names, not a list of tasks; give \{task\."):
        Stream([small_task()], source="made up")
    with pytest.raises(TaskError, match="not a dict of tasks"):
        Stream({"t": small_task()}, source="made up")


@pytest.mark.parametrize("series", [pandas.Series, polars.Series, pyarrow.array])
def test_a_column_is_taken_in_its_order_whatever_its_index(series):
    y = series(Y)
    if series is pandas.Series:
        y.index = range(100, 112)
    assert torch.equal(small_task(y=y).train.y, small_task().train.y)


def test_inputs_that_carry_gradients_are_detached(learner, name):
    x = torch.tensor(X, dtype=torch.float32, requires_grad=True)
    assert not learner.predict_proba(x, task=name).requires_grad
    task = small_task(x=x * 2)
    assert not task.train.x.requires_grad
    DEN(small_mlp(), quick()).learn(task)


def test_under_inference_mode_it_learns_the_same():
    plain = learned(small_mlp(), [small_task()], quick())
    with torch.inference_mode():
        x = torch.tensor(X) * 1.0
        again = learned(small_mlp(), [small_task(x=x)], quick())
        told = again.predict_proba(x, task="t")
        assert torch.is_inference_mode_enabled()
    assert same(contents(again), contents(plain))
    assert told.dtype == torch.float32
    assert torch.equal(told.clone(), plain.predict_proba(X, task="t"))
    again.learn(Task("next", (X, 1 - Y), (X, 1 - Y)))


def test_arrays_that_cannot_be_written_are_taken_without_a_warning(learner, name):
    x = inputs_for(small_mlp(), 12).numpy()
    fixed = x.copy()
    fixed.flags.writeable = False
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert torch.equal(
            learner.predict_proba(fixed, task=name), learner.predict_proba(x, task=name)
        )
        small_task(x=fixed)


def test_unscaled_inputs_warn_and_name_the_columns():
    x = X * np.array([1, 1, 50_000, 1, 0.01, 1])
    with pytest.warns(
        UnscaledWarning, match=r"of column 2 is .*e\+04, that of column 4 0\.0.*stand"
    ):
        small_task(x=x)


def test_a_column_that_is_seldom_lit_or_never_varies_is_not_unscaled():
    x = np.repeat(X, 2000, axis=0)[:9999]
    x[:, 0], x[:, 1] = 0, 7
    x[0, 0] = 1
    y = np.arange(len(x)) % 2
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        Task("t", (x, y), (X, Y))
