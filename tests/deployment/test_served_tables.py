"""Estimators of tables as ONNX files: columns in, labels as they were in the data out."""

import json

import numpy as np
import onnx
import onnxruntime
import pandas as pd
import pytest

from lifelong import Budget, LifelongClassifier, LifelongRegressor
from lifelong.cli.main import main
from lifelong.deployment import tables
from lifelong.deployment.export import export
from lifelong.deployment.facts import ExportError
from lifelong.tasks.kinds import TaskError

ROWS = 90


def table(seed=0):
    generator = np.random.default_rng(seed)
    kind = generator.choice(["new", "old", "used"], ROWS).astype(object)
    kind[::9] = None
    size = generator.normal(size=ROWS) * 1000 + 20_000_000  # float32 would round it
    size[::11] = np.nan
    return pd.DataFrame(
        {
            "size": size,
            "kind": kind,
            "code": generator.choice([3, 5, 11], ROWS),
            "flag": generator.random(ROWS) > 0.5,
        }
    )


def labels(frame, what):
    score = (frame["size"].fillna(2e7) - 2e7) / 1000 + (frame["kind"] == "new")
    if what == "numbers":
        return score * 7 + 100
    if what == "three":
        return np.where(score > 0.5, "high", np.where(score > -0.5, "middle", "low"))
    return {"text": np.where(score > 0.3, "yes", "no"), "bool": score > 0.3}.get(
        what, np.where(score > 0.3, 7, 2)
    )


def learned(what="text", frame=table, **options):
    front = LifelongRegressor if what == "numbers" else LifelongClassifier
    estimator = front(network=(8,), budget=Budget(steps=30), **options)
    for number, task in enumerate(["march", "april"]):
        given = frame(number)
        if number and "kind" in given:
            given.loc[:20, "kind"] = "broken"  # a category that march does not know
        estimator.partial_fit(given, labels(table(number), what), task=task)
    return estimator


def fed(frame):
    return {
        name: (
            column.fillna("") if column.dtype == object or name == "kind" else column.astype(float)
        )
        .to_numpy(object if name == "kind" else float)
        .reshape(-1, 1)
        for name, column in frame.items()
    }


def run(file, given):
    session = onnxruntime.InferenceSession(file, providers=["CPUExecutionProvider"])
    names = [output.name for output in session.get_outputs()]
    return dict(zip(names, session.run(None, given), strict=True))


@pytest.mark.parametrize("what", ["text", "bool", "whole", "three"])
@pytest.mark.parametrize("task", ["march", "april"])
def test_columns_in_and_labels_out(what, task, tmp_path):
    estimator = learned(what, categorical=["code"])
    made = export(estimator, tmp_path / "x.onnx", task=task)
    assert made.difference <= 1e-5
    frame = table(5)
    frame.loc[:3, "kind"] = "broken"
    frame.loc[4:6, "kind"] = "never seen"
    frame.loc[7:9, "code"] = 99
    found = run(made.file, fed(frame))
    expected = estimator.predict_proba(frame, task=task)
    np.testing.assert_allclose(found["probabilities"], expected, atol=1e-5)
    assert found["labels"].tolist() == estimator.predict(frame, task=task).tolist()


def test_a_regressor_predicts_in_the_unit_of_its_labels(tmp_path):
    estimator = learned("numbers")
    made = export(estimator, tmp_path / "x.onnx", task="april")
    frame = table(5)
    found = run(made.file, fed(frame))["numbers"]
    np.testing.assert_allclose(found, estimator.predict(frame, task="april"), rtol=1e-5)


@pytest.mark.parametrize("method", ["DEN", "DNN-Progressive"])
def test_a_table_of_numbers_is_one_input(method, tmp_path):
    def numbers(seed):
        return table(seed)[["size", "code", "flag"]].to_numpy(float)

    estimator = learned(frame=numbers, method=method)
    made = export(estimator, tmp_path / "x.onnx", task="april")
    found = run(made.file, {"inputs": numbers(5)})
    expected = estimator.predict_proba(numbers(5), task="april")
    np.testing.assert_allclose(found["probabilities"], expected, atol=1e-5)


def test_the_file_says_what_its_columns_and_classes_are(tmp_path):
    made = export(learned("three"), tmp_path / "x.onnx", task="march")
    facts = {one.key: one.value for one in onnx.load(made.file).metadata_props}
    kinds = {"size": "number", "kind": "text", "code": "number", "flag": "number"}
    assert json.loads(facts["columns"]) == kinds
    assert json.loads(facts["classes"]) == ["high", "low", "middle"]
    assert facts["task"] == "march"
    assert json.loads(facts["preparation"])["named"]


@pytest.mark.parametrize("format", ["torch", "state-dict"])
def test_other_formats_hold_the_network_alone(format, tmp_path):
    made = export(learned(), tmp_path / "x", task="march", format=format)
    assert made.difference <= 1e-5


def test_columns_may_have_the_names_of_what_is_inside(tmp_path):
    names = {"size": "one", "kind": "classes", "code": "far", "flag": "cast1"}

    def renamed(seed):
        return table(seed).rename(columns=names)

    estimator = learned(frame=renamed)
    made = export(estimator, tmp_path / "x.onnx", task="march")
    given = {names[name]: column for name, column in fed(table(5)).items()}
    expected = estimator.predict(renamed(5), task="march").tolist()
    assert run(made.file, given)["labels"].tolist() == expected


@pytest.mark.parametrize("name", ["labels", "hidden1.weight", "/medians"])
def test_a_column_that_has_a_name_of_the_file_is_refused(name, tmp_path):
    estimator = learned(frame=lambda seed: table(seed).rename(columns={"size": name}))
    with pytest.raises(ExportError, match=f"a column cannot be named {name} in an ONNX file"):
        export(estimator, tmp_path / "x", task="march")


def test_what_cannot_be_exported_is_refused(tmp_path, monkeypatch):
    def mixed(seed):
        frame = table(seed)
        frame["kind"] = frame["kind"].where(frame["code"] > 3, 1)
        return frame

    with pytest.raises(ExportError, match="column 'kind' holds text and numbers"):
        export(learned(frame=mixed), tmp_path / "x", task="march")
    with pytest.raises(TaskError, match="no task named 'may'"):
        export(learned(), tmp_path / "x", task="may")
    right = tables.prepared_inputs
    monkeypatch.setattr(tables, "prepared_inputs", lambda graph, known, _: right(graph, known, 1))
    with pytest.raises(ExportError, match=r"differs from the learner|labels that are not"):
        export(learned(), tmp_path / "x", task="april")
    assert not list(tmp_path.iterdir())


def test_the_command_exports_a_saved_estimator_with_its_columns(tmp_path, capsys):
    estimator = learned()
    estimator.save(tmp_path / "model")
    out = tmp_path / "x.onnx"
    main(["export", str(tmp_path / "model"), "--task", "april", "--out", str(out), "--json"])
    assert json.loads(capsys.readouterr().out)["task"] == "april"
    found = run(out, fed(table(5)))
    assert found["labels"].tolist() == estimator.predict(table(5), task="april").tolist()
