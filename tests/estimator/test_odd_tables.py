"""Tables as people have them: codes that look like numbers, empty columns, changed parameters."""

import copy
import threading

import numpy as np
import pandas as pd
import pytest
import torch
from torch import nn

from lifelong import Budget, LifelongClassifier, LifelongRegressor, grow
from lifelong.estimator.work import learn_file, predict_file, score_file
from lifelong.tables.frames import TableError
from lifelong.tables.preparation import Known, number_of
from lifelong.tasks.kinds import TaskError
from lifelong.training.budget import SettingError

B = Budget(steps=60, check_every=20)
RNG = np.random.default_rng(0)
X = RNG.normal(size=(120, 3))
Y = np.where(X[:, 0] > 0, "yes", "no")


def learned(model, file, target="y", **parameters):
    given = (
        {"budget": Budget(steps=600, learning_rate=0.01), **parameters}
        if not model.exists()
        else {}
    )
    learn_file(model, file, target=target, task=None, regression=False, parameters=given)


def written(file, **columns):
    pd.DataFrame(columns).to_csv(file, index=False)
    return file


def accuracy(model, file, target="y"):
    return score_file(model, file, target=target, task=file.stem).scores["accuracy"]


def codes(values, rows=300):
    drawn = np.random.default_rng(1).choice(values, rows)
    return {"code": drawn, "y": np.where(drawn == values[0], "yes", "no")}


@pytest.mark.parametrize("form", ["{}", "00{}"])
def test_codes_of_digits_are_those_that_were_learned_beside_letters(tmp_path, form):
    digits = [form.format(n) for n in (7, 8)]
    march = written(tmp_path / "march.csv", **codes([*digits, "A1"]))
    april = written(tmp_path / "april.csv", **codes(digits[::-1]))  # which now say the opposite
    learned(tmp_path / "m", march)
    learned(tmp_path / "m", april)
    assert accuracy(tmp_path / "m", april) == accuracy(tmp_path / "m", march) == 1


def test_letters_among_number_codes_change_no_earlier_task(tmp_path):
    march = written(tmp_path / "march.csv", **codes(["7", "8"]))
    april = written(tmp_path / "april.csv", **codes(["7", "8", "A1"]))
    learned(tmp_path / "m", march, categorical=["code"])
    predict_file(tmp_path / "m", march, tmp_path / "before.csv", task="march")
    learned(tmp_path / "m", april)
    predict_file(tmp_path / "m", march, tmp_path / "after.csv", task="march")
    before, after = (pd.read_csv(tmp_path / f"{name}.csv") for name in ("before", "after"))
    pd.testing.assert_frame_equal(before, after, check_exact=True)
    assert accuracy(tmp_path / "m", april) == 1


def test_text_that_says_a_number_is_that_number():
    assert [number_of(v) for v in ("7", "7.50", "-0.5", "7.0", 7)] == [7, 7.5, -0.5, 7, 7]
    kept = ("007", "7a", "1e3", "", " 7", "٧", "nan", "+7", ".5", "7.")
    assert tuple(number_of(value) for value in kept) == kept
    known = Known({"7": 1, 7: 2, "x": 3})
    assert (known.get("7"), known.get(7), known.get("7.0"), known.get("y", 0)) == (1, 2, 2, 0)


def test_a_column_that_is_empty_at_first_becomes_numbers(tmp_path):
    b = X[:, 1]
    first = written(tmp_path / "first.csv", a=[None] * 120, b=b, y=np.where(b > 0, "p", "q"))
    second = written(tmp_path / "second.csv", a=X[:, 0], b=b, y=Y)
    learned(tmp_path / "m", first)
    learned(tmp_path / "m", second)
    assert accuracy(tmp_path / "m", second) > 0.85


@pytest.mark.parametrize("rows", [1, 3])
def test_rows_may_all_lack_a_number(rows):
    frame = pd.DataFrame({"age": X[:, 0], "town": ["Bern", "Chur"] * 60})
    model = LifelongClassifier(budget=B).fit(frame, Y)
    nothing = [{"age": None, "town": "Bern"}] * rows
    there = pd.DataFrame([*nothing, {"age": 1.0, "town": "Bern"}])
    assert np.allclose(
        model.predict_proba(pd.DataFrame(nothing)), model.predict_proba(there)[:rows], rtol=1e-5
    )


def test_columns_named_by_numbers_are_found_by_name():
    frame = pd.DataFrame({2019: X[:, 0], 2020: X[:, 1]})
    model = LifelongClassifier(budget=B).fit(frame, Y)
    assert np.array_equal(model.predict_proba(frame[[2020, 2019]]), model.predict_proba(frame))
    with pytest.raises(TableError, match="columns are missing: '2019'; columns are new: '2055'"):
        model.predict(frame.rename(columns={2019: 2055}))
    numbered = pd.DataFrame(X)
    model = LifelongClassifier(budget=B).fit(numbered, Y)
    assert np.array_equal(model.predict_proba(numbered[[2, 0, 1]]), model.predict_proba(X))


def test_parameters_that_change_between_tasks_take_effect_or_are_refused(tmp_path):
    model = LifelongRegressor(budget=Budget(steps=50, check_every=10)).fit(X, X[:, 0])
    model.save(tmp_path)
    model.set_params(budget=Budget(steps=100, check_every=10, patience=50))
    model.partial_fit(X, X[:, 1])
    assert max(stage.steps for stage in model.learner_.records[-1].stages) == 100
    model.save(tmp_path)
    again = LifelongRegressor.load(tmp_path).set_params(method="DNN-EWC")
    with pytest.raises(
        SettingError, match=r"method was 'DEN' .* cannot become 'DNN-EWC'; use `fit`"
    ):
        again.partial_fit(X, X[:, 2])
    assert again.tasks == ("task 1", "task 2")


def test_a_loss_that_changes_between_tasks_can_be_loaded(tmp_path):
    model = LifelongRegressor(budget=B).fit(X, X[:, 0])
    model.set_params(loss="absolute_error").partial_fit(X, X[:, 1])
    model.save(tmp_path)
    again = LifelongRegressor.load(tmp_path)
    for task in model.tasks:
        assert np.array_equal(again.predict(X, task=task), model.predict(X, task=task))


def test_a_grown_module_is_saved_with_its_columns(tmp_path):
    module = nn.Sequential(nn.Linear(3, 16), nn.ReLU(), nn.Linear(16, 2))
    network = grow(module, torch.randn(3, 3), head="2")
    model = LifelongClassifier(network=network, budget=B).fit(X, Y)
    model.save(tmp_path)
    again = LifelongClassifier.load(tmp_path)
    assert np.array_equal(again.predict_proba(X), model.predict_proba(X))
    again.partial_fit(X, np.where(X[:, 1] > 0, "p", "q"))


def test_a_copy_learns_for_itself(tmp_path):
    model = LifelongClassifier(budget=B).fit(X, Y, task="a")
    other = copy.copy(model).partial_fit(X + 5, Y, task="b")
    assert (model.tasks, model.learner_.tasks) == (("a",), ("a",))
    model.partial_fit(X - 5, Y, task="b")
    model.save(tmp_path)
    assert LifelongClassifier.load(tmp_path).tasks == other.tasks == ("a", "b")


def test_parameters_of_numpy_are_saved(tmp_path):
    given = {
        "ramps": np.int64(4),
        "max_categories": np.int64(9),
        "random_state": np.int64(3),
        "validation_share": np.float64(0.3),
        "progress": np.bool_(False),
        "categorical": np.array(["x0"]),
    }
    model = LifelongClassifier(budget=B, **given).fit(np.round(X), Y)
    model.save(tmp_path)
    again = LifelongClassifier.load(tmp_path)
    assert np.array_equal(again.predict_proba(np.round(X)), model.predict_proba(np.round(X)))


def test_tasks_of_text_and_of_number_classes_answer_together():
    model = LifelongClassifier(budget=B).fit(X, Y, task="a")
    model.partial_fit(X + 9, (X[:, 0] > 0).astype(int), task="b")
    assert model.classes_.tolist() == [0, 1, "no", "yes"]
    shares = model.predict_proba(np.concatenate([X, X + 9]))
    assert np.allclose(shares.sum(axis=1), 1)
    assert (shares[:120, 2:].sum(axis=1) > 0.5).mean() > 0.9
    assert (shares[120:, :2].sum(axis=1) > 0.5).mean() > 0.9


def test_labels_of_digits_are_those_that_were_learned_beside_letters(tmp_path):
    march = written(tmp_path / "march.csv", a=X[:, 0], y=np.resize(["1", "2", "x"], 120))
    april = written(tmp_path / "april.csv", a=X[:, 0], y=np.where(X[:, 0] > 0, "1", "2"))
    learned(tmp_path / "m", march)
    score_file(tmp_path / "m", april, target="y", task="march")
    learned(tmp_path / "m", april)
    assert score_file(tmp_path / "m", april, target="y", task=None).classes == ("1", "2", "x")
    assert accuracy(tmp_path / "m", april) > 0.8
    with pytest.raises(TaskError, match="no task named 'nope' was learned"):
        score_file(tmp_path / "m", april, target="y", task="nope")


def test_columns_that_the_model_learned_from_stay_beside_its_answers(tmp_path):
    file = written(tmp_path / "jobs.csv", prediction=X[:, 0], old=X[:, 1], y=Y)
    learned(tmp_path / "m", file)
    predict_file(tmp_path / "m", file, tmp_path / "out.csv", task="jobs")
    out = pd.read_csv(tmp_path / "out.csv")
    assert np.allclose(out["prediction"], X[:, 0])
    assert (out["prediction (answer)"] == Y).mean() > 0.8


def test_predictions_are_of_before_or_after_while_another_thread_learns():
    model = LifelongClassifier(budget=Budget(steps=20)).fit(X, Y, task="0")
    wrong, going = [], threading.Event()

    def predict():
        while not going.is_set():
            try:
                model.predict_proba(X)
                model.find_task(X)
            except Exception as error:
                wrong.append(error)

    thread = threading.Thread(target=predict)
    thread.start()
    try:
        for number in range(1, 6):
            model.partial_fit(X + 9 * number, Y, task=str(number))
    finally:
        going.set()
        thread.join()
    assert not wrong


def test_lists_of_numbers_and_text_are_read_column_by_column():
    town = np.resize(["Bern", "Chur"], 120)
    rows = [[number, word] for number, word in zip(X[:, 0].tolist(), town, strict=True)]
    model = LifelongClassifier(budget=B).fit(rows, Y)
    assert [type(column).__name__ for column in model.preparation_.columns] == [
        "Number",
        "Category",
    ]


def test_what_cannot_be_read_is_refused_by_name(tmp_path):
    model = LifelongClassifier(budget=B)
    ids = pd.DataFrame({"id": np.resize([2**60, 2**60 + 1], 120)})
    with pytest.raises(TableError, match="'id': is one of categories, but holds numbers above 2"):
        LifelongClassifier(budget=B, categorical=["id"]).fit(ids, Y)
    with pytest.raises(TableError, match="mixes text and numbers"):
        model.fit(X, np.array(["a", 1] * 60, dtype=object))
    with pytest.raises(TableError, match="give both as text or both as numbers"):
        model.partial_fit(X, (X[:, 0] > 0).astype(int), classes=["0", "1"])
    assert model.partial_fit(
        X, (X[:, 0] > 0).astype(int), classes=[0, 1, 2.5]
    ).classes_.tolist() == [0, 1, 2.5]
    with pytest.raises(TableError, match="too large to be scaled"):
        LifelongRegressor(budget=B).fit(X, X[:, 0] * 1e200)
    with pytest.raises(TableError, match="holds bytes"):
        model.fit(pd.DataFrame({"a": [b"x", b"y"] * 60}), Y)
    twice = tmp_path / "twice.csv"
    twice.write_text("a,y,y\n1,p,p\n2,q,q\n")
    with pytest.raises(TableError, match="more than one column 'y'"):
        learned(tmp_path / "m", twice)
    latin = tmp_path / "latin.csv"
    latin.write_bytes("a,y\n1,Zürich\n2,Bern\n".encode("latin-1"))
    with pytest.raises(TableError, match="column 'y' is not UTF-8; save the file as UTF-8"):
        learned(tmp_path / "m", latin)
    assert not (tmp_path / "m").exists()
