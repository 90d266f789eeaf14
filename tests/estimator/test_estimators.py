"""Tables in, a model that grows, answers out; nothing forgotten; columns saved with the model."""

import json
import shutil

import msgspec
import numpy as np
import pandas
import polars
import pyarrow
import pytest
import sklearn
from hypothesis import given
from hypothesis import settings as runs
from hypothesis import strategies as st
from sklearn.base import clone
from sklearn.metrics import accuracy_score
from sklearn.model_selection import GridSearchCV, cross_val_score
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from builders import quick, small_mlp, task_for
from lifelong import DEN, Budget, LifelongClassifier, LifelongRegressor, convnet, mlp
from lifelong.estimator.rows import by_size, part, repeated
from lifelong.learners.registry import METHODS, MethodError
from lifelong.persistence.manifest import MANIFEST, ModelFileError
from lifelong.tables.frames import TableError
from lifelong.tasks.kinds import TaskError
from lifelong.training.budget import SettingError

BUDGET = Budget(steps=120, learning_rate=0.02, check_every=20, batch_size=32, patience=2)


def classifier(**changes):
    return LifelongClassifier(**{"network": (12, 8), "budget": BUDGET, **changes})


def regressor(**changes):
    return LifelongRegressor(**{"network": (12, 8), "budget": BUDGET, **changes})


def table(seed=0, rows=150, towns=("Aarau", "Bern"), classes=("no", "yes")):
    generator = np.random.default_rng(seed)
    frame = pandas.DataFrame(
        {
            "income": generator.normal(50_000, 9_000, rows),
            "town": generator.choice(towns, rows),
            "member": generator.random(rows) < 0.5,
            "age": np.where(generator.random(rows) < 0.2, np.nan, generator.normal(40, 9, rows)),
        }
    )
    score = (frame.income - 50_000) / 9_000 + 2 * (frame.town == towns[0]) + seed % 2
    edges = np.quantile(score, np.linspace(0, 1, len(classes) + 1)[1:-1])
    return frame, pandas.Series(np.array(classes)[np.searchsorted(edges, score)])


@pytest.fixture(scope="module")
def taught():
    """Three tasks: two classes, three classes of numbers and a new town, two classes again."""
    estimator = classifier()
    estimator.fit(*table(0), task="march")
    estimator.partial_fit(*table(1, towns=("Chur", "Bern"), classes=(1, 2, 5)), task="april")
    return estimator.partial_fit(*table(2, classes=("maybe", "yes")), task="may")


def test_text_booleans_and_missing_values_are_learned(taught):
    for name, seed in (("march", 0), ("may", 2)):
        x, y = table(seed, classes=taught.task_classes_[name])
        assert taught.score(x, y, task=name) > 0.8
    assert taught.tasks == ("march", "april", "may")
    assert taught.task_classes_["april"].tolist() == [1, 2, 5]
    assert taught.classes_.tolist() == [1, 2, 5, "maybe", "no", "yes"]
    assert taught.feature_names_in_.tolist() == ["income", "town", "member", "age"]


def test_two_classes_have_two_columns_and_the_largest_is_predicted(taught):
    x, _ = table(5)
    for name in taught.tasks:
        p, classes = taught.predict_proba(x, task=name), taught.task_classes_[name]
        assert p.shape == (len(x), len(classes))
        np.testing.assert_allclose(p.sum(axis=1), 1)
        assert (classes[p.argmax(axis=1)] == taught.predict(x, task=name)).all()
        np.testing.assert_allclose(np.log(p), taught.predict_log_proba(x, task=name))
    assert taught.decision_function(x, task="march").shape == (len(x),)
    assert taught.decision_function(x, task="april").shape == (len(x), 3)


def test_what_was_learned_answers_bit_equal_after_later_tasks():
    estimator = classifier()
    x, _ = table(9, towns=("Aarau", "Chur", "Genf"))
    x.loc[0, "town"] = None
    before = {}
    for number, towns in enumerate([("Aarau", "Bern"), ("Chur", "Bern"), ("Genf", "Chur")]):
        estimator.partial_fit(*table(number, towns=towns), task=f"t{number}")
        before[f"t{number}"] = estimator.predict_proba(x, task=f"t{number}")
        for name, told in before.items():
            np.testing.assert_array_equal(estimator.predict_proba(x, task=name), told)


@pytest.mark.parametrize("make", [polars.DataFrame, pyarrow.Table.from_pandas])
def test_other_libraries_give_the_same_answers(taught, make):
    x, _ = table(4)
    again = make(x)
    np.testing.assert_array_equal(
        taught.predict_proba(again, task="march"), taught.predict_proba(x, task="march")
    )
    turned = x[x.columns[::-1]]
    np.testing.assert_array_equal(
        taught.predict_proba(turned, task="march"), taught.predict_proba(x, task="march")
    )


def test_columns_that_are_missing_or_new_are_listed(taught):
    x, y = table(4)
    with pytest.raises(
        TableError, match="columns are missing: 'age'; columns are new: 'agee'; giv"
    ):
        taught.predict(x.rename(columns={"age": "agee"}), task="march")
    with pytest.raises(TableError, match="columns are new: 'label'; leave the new ones out"):
        taught.partial_fit(x.assign(label=1), y)
    assert taught.tasks == ("march", "april", "may")


def test_saved_and_loaded_it_answers_and_goes_on_the_same(taught, tmp_path):
    taught.save(tmp_path)
    loaded = LifelongClassifier.load(tmp_path)
    x, _ = table(7)
    for name in taught.tasks:
        np.testing.assert_array_equal(
            loaded.predict_proba(x, task=name), taught.predict_proba(x, task=name)
        )
        assert loaded.predict(x, task=name).tolist() == taught.predict(x, task=name).tolist()
    assert loaded.get_params() == taught.get_params()
    np.testing.assert_array_equal(loaded.find_task(x)[1], taught.find_task(x)[1])
    loaded.partial_fit(*table(3), task="june")
    loaded.save(tmp_path)
    assert LifelongClassifier.load(tmp_path).tasks == ("march", "april", "may", "june")
    assert b"pickle" not in b"".join(file.read_bytes() for file in tmp_path.iterdir())


def test_a_learner_keeps_what_is_attached_to_a_model(taught, tmp_path):
    taught.save(tmp_path)
    learner = DEN.load(tmp_path)
    learner.save(tmp_path)
    assert LifelongClassifier.load(tmp_path).tasks == taught.tasks
    inputs = taught.preparation_.inputs
    learner.learn(task_for(mlp(inputs, [4]), name="without columns"))
    learner.save(tmp_path)
    with pytest.raises(ModelFileError, match="of 3 tasks, but the model has learned 4"):
        LifelongClassifier.load(tmp_path)


def test_what_is_no_model_of_an_estimator_is_refused(tmp_path, taught):
    learner = DEN(small_mlp(), quick())
    learner.save(tmp_path / "plain")
    with pytest.raises(
        ModelFileError, match=r"a model without columns, .*; load it with DEN\.load"
    ):
        LifelongClassifier.load(tmp_path / "plain")
    taught.save(tmp_path / "tables")
    with pytest.raises(ModelFileError, match="it is a classifier, not a regressor"):
        LifelongRegressor.load(tmp_path / "tables")


DAMAGES = {
    "no columns": lambda facts: facts["preparation"]["columns"].clear(),
    "another width": lambda facts: facts["preparation"]["columns"].pop(),
    "one class": lambda facts: facts["tasks"][0].update(classes=["yes"]),
    "the same class": lambda facts: facts["tasks"][0].update(classes=["yes", "yes"]),
    "three classes": lambda facts: facts["tasks"][0].update(classes=["a", "b", "c"]),
    "text and numbers": lambda facts: facts["tasks"][0].update(classes=["a", 1]),
    "no classes": lambda facts: facts["tasks"][0].update(classes=None),
    "spread": lambda facts: facts["tasks"][0].update(spread=0.0),
    "version": lambda facts: facts.update(version=9),
    "temperature": lambda facts: facts.update(temperature=-1.0),
    "parameter": lambda facts: facts["parameters"].update(whatever=1),
    "unnamed": lambda facts: facts["parameters"].update(unnamed="guess"),
    "member": lambda facts: facts.update(whatever=1),
}


@pytest.mark.parametrize("damage", DAMAGES)
def test_damaged_columns_are_refused(damage, taught, tmp_path):
    taught.save(tmp_path)
    learner = DEN.load(tmp_path)
    facts = msgspec.json.decode(msgspec.json.encode(learner.attached.facts))
    DAMAGES[damage](facts)
    object.__setattr__(learner.attached, "facts", facts)
    learner.save(tmp_path)
    with pytest.raises(ModelFileError, match="what it knows of columns is damaged"):
        LifelongClassifier.load(tmp_path)


def test_a_changed_byte_of_the_columns_is_noticed(taught, tmp_path):
    taught.save(tmp_path)
    manifest = tmp_path / MANIFEST
    manifest.write_bytes(manifest.read_bytes().replace(b'"Aarau"', b'"Aarbu"'))
    with pytest.raises(ModelFileError, match="checksum differs"):
        LifelongClassifier.load(tmp_path)
    shutil.rmtree(tmp_path)


def test_fit_forgets_and_a_failed_fit_leaves_later_ones_alone(taught):
    estimator = clone(taught)
    assert estimator.tasks == ()
    estimator.fit(*table(0)).fit(*table(1), task="only")
    assert estimator.tasks == ("only",)
    with pytest.raises(TaskError, match="a task named 'only' was learned already"):
        estimator.partial_fit(*table(2), task="only")
    assert estimator.tasks == ("only",)


def test_a_fit_that_fails_leaves_what_was_there(taught):
    x, _ = table(0)
    told = taught.predict(x, task="march").tolist()
    with pytest.raises(TableError, match="one class"):
        taught.fit(x, ["same"] * len(x))
    assert taught.tasks == ("march", "april", "may")
    assert taught.predict(x, task="march").tolist() == told


def test_rows_without_a_task_get_the_one_that_is_found():
    generator = np.random.default_rng(0)
    estimator = classifier()
    rows = {}
    for name, shift in (("a", 0.0), ("b", 40.0), ("c", -40.0)):
        x = generator.normal(size=(120, 3)) * 3 + shift
        rows[name] = x, np.where(x[:, 0] > shift, f"{name}+", f"{name}-")
        estimator.partial_fit(*rows[name], task=name)
    x = np.concatenate([each[0] for each in rows.values()])
    y = np.concatenate([each[1] for each in rows.values()])
    names, sure = estimator.find_task(x)
    assert (names == np.repeat(["a", "b", "c"], 120)).mean() > 0.98
    assert ((sure > 0.3) & (sure <= 1)).all()
    assert estimator.score(x, y) > 0.75
    p = estimator.predict_proba(x)
    assert p.shape == (360, 6)
    np.testing.assert_allclose(p.sum(axis=1), 1)
    assert (estimator.classes_[p.argmax(axis=1)] == estimator.predict(x)).all()
    with pytest.raises(TableError, match="tasks of different classes; name one of them by task="):
        estimator.decision_function(x)
    last = estimator.set_params(unnamed="last").predict(x)
    assert set(last) <= {"c+", "c-"}


def test_an_unknown_task_is_named(taught):
    with pytest.raises(
        TaskError, match="no task named 'june' was learned; learned so far: 'march',"
    ):
        taught.predict(table(1)[0], task="june")


def test_task_is_routed_as_metadata(taught):
    x, y = table(0)
    with sklearn.config_context(enable_metadata_routing=True):
        routed = clone(taught).set_fit_request(task=True).set_score_request(task=True)
        scores = cross_val_score(routed, x, y, cv=2, params={"task": "march"})
    assert scores.mean() > 0.7


def test_in_a_pipeline_and_a_search():
    generator = np.random.default_rng(1)
    x = generator.normal(size=(90, 4))
    y = np.where(x[:, 0] + x[:, 1] > 0, "up", "down")
    pipeline = make_pipeline(StandardScaler(), classifier())
    assert cross_val_score(pipeline, x, y, cv=2).mean() > 0.8
    search = GridSearchCV(
        classifier(), {"network": [(4,), (12, 8)], "method": ["DEN", "DNN-STL"]}, cv=2
    )
    assert search.fit(x, y).best_score_ > 0.8


@pytest.mark.parametrize("name", ["DNN-EWC", "DNN-Progressive", "IMM-mode"])
def test_any_method_that_learns_in_turn_will_do(name, tmp_path):
    estimator = classifier(method=name).fit(*table(0))
    estimator.partial_fit(*table(1))
    estimator.save(tmp_path)
    x, _ = table(3)
    assert (
        LifelongClassifier.load(tmp_path).predict(x, task="task 1").tolist()
        == estimator.predict(x, task="task 1").tolist()
    )


@pytest.mark.parametrize("name", ["DNN-MTL", "DEN-Finetune"])
def test_methods_that_need_all_rows_are_refused(name):
    assert name in METHODS
    with pytest.raises(
        SettingError, match=f"{name} needs the rows of all tasks at once, and an est"
    ):
        classifier(method=name).fit(*table(0))


def test_wrong_parameters_are_refused():
    x, y = table(0)
    for changes, error, message in [
        ({"method": "DEM"}, MethodError, "no method 'DEM'; did you mean"),
        ({"settings": {"muu": 1}}, SettingError, "DEN has no setting 'muu'"),
        ({"validation_share": 1.0}, SettingError, "validation_share must be above 0 and below 1"),
        ({"unnamed": "guess"}, SettingError, "unnamed must be 'find' or 'last', not 'guess'"),
        ({"max_categories": 0}, SettingError, "max_categories must be a whole number above 0"),
        ({"categorical": "town"}, SettingError, r"must be a list of columns, such as \['town'\]"),
        ({"class_weight": 1.5}, SettingError, "class_weight must be None, 'balanced', or a number"),
        ({"class_weight": {"yes": -1}}, SettingError, "class_weight must be None, 'balanced', or"),
        (
            {"class_weight": {"yes": 0, "no": 0}},
            TableError,
            "class_weight leaves no row any weight",
        ),
        ({"method": 5}, SettingError, "method must be the name of a method, such as 'DEN', not 5"),
        ({"settings": 3}, SettingError, "settings must be a mapping of names to values, not 3"),
        ({"budget": 5}, SettingError, "budget must be a Budget, not 5"),
        ({"categorical": [["town"]]}, SettingError, "categorical must be a list of columns"),
        ({"class_weight": {"never": 2}}, TableError, "class_weight names 'never', but the classes"),
        ({"network": mlp(3, [4])}, SettingError, r"inputs of shape \(3,\), but the columns make"),
    ]:
        with pytest.raises(error, match=message):
            classifier(**changes).fit(x, y)
    with pytest.raises(SettingError, match="loss must be one of 'squared_error', 'absolute_error'"):
        regressor(loss="huber").fit(np.ones((9, 1)), np.arange(9))


def test_one_class_is_refused():
    x, _ = table(0)
    with pytest.raises(
        TableError, match="two classes or more to tell apart, but there is one class"
    ):
        classifier().fit(x, ["same"] * len(x))


def test_an_architecture_of_images(tmp_path):
    generator = np.random.default_rng(3)
    x = generator.normal(size=(60, 36))
    y = x[:, :18].mean(axis=1) > x[:, 18:].mean(axis=1)
    estimator = classifier(network=convnet((1, 6, 6), [3], [5], kernel=3)).fit(x, y)
    assert estimator.predict(x).dtype == bool
    estimator.save(tmp_path)
    assert LifelongClassifier.load(tmp_path).network == estimator.network


def test_class_weights_move_the_decision():
    generator = np.random.default_rng(0)
    x = generator.normal(size=(300, 2))
    y = (x[:, 0] + generator.normal(size=300) > 1.2).astype(int)
    plain, balanced, given_ = (
        classifier(class_weight=weight).fit(x, y).predict(x).mean()
        for weight in (None, "balanced", {0: 1.0, 1: 30.0})
    )
    assert plain < balanced < given_


def test_rows_of_weight_zero_are_not_seen():
    x, y = table(0)
    spoiled = pandas.concat([x, x.assign(town="Nowhere")], ignore_index=True)
    labels = pandas.concat([y, y.map({"no": "other", "yes": "other"})], ignore_index=True)
    weights = np.repeat([1.0, 0.0], len(x))
    estimator = classifier().fit(spoiled, labels, weights)
    assert estimator.classes_.tolist() == ["no", "yes"]
    np.testing.assert_array_equal(
        estimator.predict_proba(x), classifier().fit(x, y).predict_proba(x)
    )


@given(st.lists(st.integers(0, 4), min_size=1, max_size=30).filter(any), st.integers(0, 99))
def test_whole_weights_repeat_rows_exactly(weights, seed):
    weights = np.array(weights, float)
    there = weights[weights > 0]
    rows = repeated(there, np.zeros(len(there)), np.random.default_rng(seed))
    assert (np.bincount(rows, minlength=len(there)) == there).all()


@given(st.lists(st.floats(0.01, 3.0), min_size=2, max_size=40), st.integers(0, 99))
def test_other_weights_repeat_rows_as_nearly_as_can_be(weights, seed):
    weights = np.array(weights)
    rows = repeated(weights, np.arange(len(weights)), np.random.default_rng(seed))
    if len(rows) == len(weights):
        return  # all weigh the same
    counts = np.bincount(rows, minlength=len(weights))
    whole = np.allclose(weights, weights.round())
    expected = weights if whole else 4 * len(weights) * weights / weights.sum()
    assert (np.abs(counts - expected) < 1 + 1e-6).all()


@given(
    st.lists(st.integers(0, 4), min_size=1, max_size=80), st.floats(0.01, 0.9), st.integers(0, 9)
)
def test_validation_rows_are_drawn_by_class_and_every_class_is_trained_on(labels, share, seed):
    labels = np.array(labels)
    train, valid = part(labels, share, np.random.default_rng(seed))
    assert set(labels[train]) == set(labels)
    if set(train) & set(valid):
        assert len(train) == len(valid) == len(labels)
        return
    assert sorted([*train, *valid]) == list(range(len(labels)))
    for stratum in set(labels):
        count = (labels == stratum).sum()
        assert (labels[valid] == stratum).sum() == min(count - 1, round(share * count))


@given(st.lists(st.floats(-9, 9), min_size=1, max_size=200))
@runs(max_examples=30)
def test_strata_of_numbers_follow_their_size(numbers):
    numbers = np.array(numbers)
    strata = by_size(numbers)
    assert (np.diff(strata[np.argsort(numbers, kind="stable")]) >= 0).all()
    if len(numbers) >= 40:
        assert np.bincount(strata).min() >= 20


def test_rows_to_validate_on_can_be_given():
    x, y = table(0)
    estimator = classifier().fit(x, y, validation=table(1))
    assert estimator.score(*table(1)) > 0.6
    with pytest.raises(TableError, match="validation: columns are missing: 'town'"):
        classifier().fit(x, y, validation=(x.drop(columns="town"), y))


def test_classes_that_no_row_has_can_be_named():
    x, y = table(0)
    estimator = classifier().partial_fit(x, y, classes=["no", "perhaps", "yes"])
    assert estimator.predict_proba(x).shape == (len(x), 3)


def numbers(seed, rows=200):
    x, _ = table(seed, rows)
    return x, 1000 + x.income / 100 + 300 * (x.town == "Aarau")


@pytest.mark.parametrize("loss", ["squared_error", "absolute_error"])
def test_a_regressor_learns_tasks_in_the_unit_of_their_labels(loss, tmp_path):
    estimator = regressor(loss=loss, network=(24, 16))
    x, y = numbers(0)
    estimator.fit(x, y, task="first")
    told = estimator.predict(x, task="first")
    estimator.partial_fit(x, -50 * y, task="second")
    np.testing.assert_array_equal(estimator.predict(x, task="first"), told)
    assert estimator.score(x, y, task="first") > 0.8
    assert estimator.score(x, -50 * y, task="second") > 0.8
    estimator.save(tmp_path)
    loaded = LifelongRegressor.load(tmp_path)
    np.testing.assert_array_equal(
        loaded.predict(x, task="second"), estimator.predict(x, task="second")
    )


def test_a_regressor_refuses_text():
    x, y = table(0)
    with pytest.raises(
        TableError, match=r"must be numbers, but '(no|yes)' is among them; Lifelong"
    ):
        regressor().fit(x, y)


def test_rows_and_labels_must_be_as_many(taught):
    x, y = table(0)
    with pytest.raises(
        TableError, match="150 rows of X but 149 labels; there must be one for each"
    ):
        taught.partial_fit(x, y[:-1])
    with pytest.raises(TableError, match="sample_weight must be one weight per row"):
        classifier().fit(x, y, np.ones(3))


def test_what_was_learned_of_columns_is_plain_json(taught, tmp_path):
    taught.save(tmp_path)
    kept = json.loads((tmp_path / MANIFEST).read_text())["attached"]
    columns = {column["name"]: column for column in kept["preparation"]["columns"]}
    assert columns["town"]["values"] == ["Aarau", "Bern", "Chur"]
    assert columns["town"]["since"] == [1, 1, 2]
    assert [task["classes"] for task in kept["tasks"]][1] == [1, 2, 5]


def test_predictions_are_scored_as_scikit_learn_scores_them(taught):
    x, y = table(6)
    weights = np.linspace(0, 1, len(x))
    assert taught.score(x, y, weights, task="march") == pytest.approx(
        accuracy_score(y, taught.predict(x, task="march"), sample_weight=weights)
    )
