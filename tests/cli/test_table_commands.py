"""Own data on the command line: learn, predict, score and compare."""

import json
import tracemalloc

import numpy as np
import pandas
import polars
import pyarrow
import pytest
from pyarrow import feather
from sklearn.metrics import accuracy_score, r2_score, roc_auc_score

from lifelong.cli.main import main
from lifelong.estimator import LifelongClassifier, LifelongRegressor
from lifelong.estimator.work import learn_file, load, predict_file, score_file
from lifelong.tables.files import FORMATS, batches, sample
from lifelong.tables.frames import TableError, read_table
from lifelong.training.budget import Budget

QUICK = {
    "network": (8, 4),
    "budget": Budget(steps=60, learning_rate=0.02, check_every=20, batch_size=32),
}


def frame(seed, rows=120):
    generator = np.random.default_rng(seed)
    made = pandas.DataFrame(
        {
            "income": generator.normal(50_000, 9_000, rows),
            "town": generator.choice(["Aarau", "Bern"], rows),
            "age": np.where(generator.random(rows) < 0.2, np.nan, generator.normal(40, 9, rows)),
        }
    )
    return made.assign(label=np.where(made.income > 50_000, "yes", "no"))


@pytest.fixture
def files(tmp_path):
    for number, name in enumerate(("march", "april", "test")):
        frame(number).to_csv(tmp_path / f"{name}.csv", index=False)
    return tmp_path


@pytest.fixture
def model(files):
    for name in ("march", "april"):
        learn_file(
            files / "model",
            files / f"{name}.csv",
            target="label",
            task=None,
            regression=False,
            parameters=QUICK if name == "march" else {},
        )
    return files / "model"


def run(*given):
    main([str(each) for each in given])


def refused(*given):
    with pytest.raises(SystemExit) as stopped:
        run(*given)
    return stopped.value.code


def test_learn_makes_a_model_and_then_adds_a_task(files, capsys):
    model = files / "model"
    options = ("--target", "label", "--network", "6", "4", "--seed", "3", "--steps", "60")
    run("learn", model, files / "march.csv", *options)
    assert "march: learned from 120 rows" in capsys.readouterr().out
    run("learn", model, files / "april.csv", "--target", "label", "--task", "spring", "--json")
    told = json.loads(capsys.readouterr().out)
    assert (told["task"], told["rows"], told["record"]["number"]) == ("spring", 120, 2)
    loaded = load(model)
    assert loaded.tasks == ("march", "spring")
    assert (loaded.network, loaded.random_state) == ((6, 4), 3)
    assert not (files / "model.learning").exists()
    assert refused("learn", model, files / "test.csv", "--target", "label", "--seed", "4") == 1
    assert "is there already, so that random_state cannot be chosen" in capsys.readouterr().err


def test_predict_writes_the_rows_with_their_answers(model, files, capsys):
    run("predict", model, files / "test.csv", "--task", "march", "--out", files / "out.csv")
    assert "columns that the model does not use: label" in capsys.readouterr().err
    written = pandas.read_csv(files / "out.csv")
    estimator, rows = LifelongClassifier.load(model), frame(2)
    x = rows.drop(columns="label")
    assert written.prediction.tolist() == estimator.predict(x, task="march").tolist()
    np.testing.assert_allclose(
        written[["p(no)", "p(yes)"]], estimator.predict_proba(x, task="march"), atol=1e-6
    )
    assert written.income.tolist() == pytest.approx(rows.income.tolist())
    run("predict", model, files / "test.csv", "--out", files / "found.parquet", "--json")
    told = json.loads(capsys.readouterr().out)
    assert sum(told["tasks"].values()) == 120
    found = polars.read_parquet(files / "found.parquet")
    assert set(found["task"]) <= {"march", "april"}
    assert found["sure"].is_between(0, 1).all()


def test_score_is_that_of_scikit_learn(model, files, capsys):
    run("score", model, files / "test.csv", "--target", "label", "--task", "march", "--json")
    told = json.loads(capsys.readouterr().out)
    rows = frame(2)
    estimator, x = LifelongClassifier.load(model), rows.drop(columns="label")
    p = estimator.predict_proba(x, task="march")[:, 1]
    assert told["scores"]["auroc"] == pytest.approx(roc_auc_score(rows.label == "yes", p), abs=1e-3)
    right = accuracy_score(rows.label, estimator.predict(x, task="march"))
    assert told["scores"]["accuracy"] == pytest.approx(right)
    assert np.trace(told["confusion"]) == round(right * 120)
    run("score", model, files / "test.csv", "--target", "label")
    assert "120 rows: auroc" in capsys.readouterr().out


def test_numbers_are_learned_and_scored(files, capsys):
    for number, name in enumerate(("march", "april")):
        rows = frame(number)
        rows.assign(label=1e6 + rows.income * (number + 1)).to_csv(
            files / f"{name}.csv", index=False
        )
    learn_file(
        files / "model",
        files / "march.csv",
        target="label",
        task=None,
        regression=True,
        parameters=QUICK,
    )
    scored = score_file(files / "model", files / "march.csv", target="label", task="march")
    rows = pandas.read_csv(files / "march.csv")
    told = LifelongRegressor.load(files / "model").predict(rows.drop(columns="label"))
    assert scored.scores["r2"] == pytest.approx(r2_score(rows.label, told), rel=1e-6)
    assert scored.scores["rmse"] == pytest.approx(np.sqrt(np.mean((rows.label - told) ** 2)))
    assert refused("learn", files / "model", files / "april.csv", "--target", "label") == 1
    assert "learns a regression; use it so" in capsys.readouterr().err
    assert refused("learn", files / "other", files / "april.csv", "--target", "label") == 2
    assert (
        "holds measurements, not classes; learn them with --regression" in capsys.readouterr().err
    )


@pytest.mark.parametrize(
    ("given", "message"),
    [
        (("score", "model", "test.csv", "--target", "lable"), "no column 'lable'; its columns are"),
        (("score", "model", "test.xlsx", "--target", "label"), "give a file named .csv, .tsv"),
        (("score", "model", "none.csv", "--target", "label"), "No such file"),
        (("score", "none", "test.csv", "--target", "label"), "not a saved model"),
        (("score", "model", "test.csv", "--target", "town"), "the label 'Aarau' is not a class"),
        (("predict", "model", "test.csv", "--out", "out.txt"), "written to .csv or .parquet files"),
        (("predict", "model", "short.csv", "--out", "o.csv"), "columns are missing: 'age'"),
        (("predict", "model", "text.csv", "--out", "o.csv"), "'age' was learned as numbers, but"),
        (
            ("predict", "model", "test.csv", "--out", "o.csv", "--task", "may"),
            "no task named 'may'",
        ),
        (("learn", "m", "test.csv", "--target", "label", "--method", "DEM"), "no method 'DEM'"),
        (("learn", "m", "test.csv", "--target", "label", "--most-rows", "0"), "must be 1 or more"),
        (("learn", "m", "empty.csv", "--target", "label"), "is empty; its first line must name"),
        (("compare", "test.csv", "--target", "label", "--task-column", "x"), "no column 'x'"),
        (("data", "check", "table"), "needs the options path, target and task_column"),
    ],
)
def test_mistakes_are_told_in_a_line(given, message, model, files, capsys, monkeypatch):
    monkeypatch.chdir(files)
    frame(3).drop(columns="age").to_csv("short.csv", index=False)
    frame(3).assign(age="old").to_csv("text.csv", index=False)
    (files / "empty.csv").write_text("")
    assert refused(*given) in (1, 2)
    told = capsys.readouterr().err
    assert message in told
    assert len(told.splitlines()) == 1
    assert not (files / "o.csv").exists()
    assert model.is_dir()


@pytest.mark.parametrize("form", FORMATS)
def test_every_format_is_read_as_the_same_table(form, tmp_path):
    rows, file = frame(1), tmp_path / f"rows{form}"
    whole = pyarrow.Table.from_pandas(rows)
    if form in (".csv", ".tsv"):
        rows.to_csv(file, index=False, sep="\t" if form == ".tsv" else ",")
    elif form == ".parquet":
        polars.from_pandas(rows).write_parquet(file)
    elif form == ".npz":
        np.savez(
            file,
            **{
                name: rows[name].to_numpy().astype(str if name in ("town", "label") else float)
                for name in rows
            },
        )
    elif form == ".feather":
        feather.write_feather(whole, str(file))
    else:
        with (
            pyarrow.OSFile(str(file), "wb") as sink,
            pyarrow.ipc.new_stream(sink, whole.schema) as writer,
        ):
            writer.write_table(whole)
    table = read_table(pyarrow.concat_tables(list(batches(file))))
    expected = read_table(rows)
    assert table.names == expected.names
    for name in expected.names:
        np.testing.assert_array_equal(table.columns[name], expected.columns[name])


def test_later_rows_may_widen_a_column(tmp_path, monkeypatch):
    monkeypatch.setattr("lifelong.tables.files.BLOCK", 64)
    file = tmp_path / "rows.csv"
    lines = [f"{n},{n},{n}" for n in range(40)] + ["1.5,late,3"] + ["2,3,4"] * 40
    file.write_text("\n".join(["number,word,whole", *lines]))
    table = pyarrow.concat_tables(list(batches(file)))
    assert [str(kind) for kind in table.schema.types] == ["double", "string", "int64"]
    assert table["word"][40].as_py() == "late"


def test_of_a_large_file_rows_are_drawn_in_bounded_memory(tmp_path, monkeypatch):
    monkeypatch.setattr("lifelong.tables.files.BLOCK", 1 << 12)
    file = tmp_path / "rows.csv"
    file.write_text("n\n" + "\n".join(map(str, range(5000))))
    drawn, count = sample(file, 200, seed=0)
    assert (drawn.num_rows, count) == (200, 5000)
    assert 2000 < np.mean(drawn["n"].to_pylist()) < 3000
    assert len(set(drawn["n"].to_pylist())) == 200
    assert sample(file, 200, seed=0)[0].equals(drawn)
    assert sample(file, 5000, seed=0)[0].num_rows == 5000


def test_scoring_and_predicting_a_large_file_takes_no_more_memory(model, files, monkeypatch):
    monkeypatch.setattr("lifelong.tables.files.BLOCK", 1 << 14)
    small, large = files / "small.csv", files / "large.csv"
    frame(5, 800).to_csv(small, index=False)
    frame(5, 8000).to_csv(large, index=False)

    def peak(work):
        tracemalloc.start()
        work()
        used = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        return used

    def scoring(file):
        return peak(lambda: score_file(model, file, target="label", task="march"))

    def predicting(file):
        return peak(lambda: predict_file(model, file, files / "o.csv", task=None))

    for work in (scoring, predicting):
        work(small)  # what is imported at first is not counted
        assert work(large) < 1.2 * work(small) + 200_000


def test_booleans_and_dates_of_a_csv_file_are_numbers_when_it_is_scored_too(files):
    rows = frame(1).assign(member=lambda f: f.income > 50_000, since="2026-01-31")
    rows.loc[::2, "since"] = "2025-06-01"
    rows.to_csv(files / "rows.csv", index=False)
    learn_file(
        files / "model",
        files / "rows.csv",
        target="label",
        task="t",
        regression=False,
        parameters=QUICK,
    )
    names = [type(column).__name__ for column in load(files / "model").preparation_.columns]
    assert names == ["Number", "Category", "Number", "Number", "Number"]
    scored = score_file(files / "model", files / "rows.csv", target="label", task="t")
    dated = rows.assign(since=pandas.to_datetime(rows.since))
    own = load(files / "model").score(dated.drop(columns="label"), rows.label, task="t")
    assert scored.scores["accuracy"] == pytest.approx(own)


def test_answers_of_an_earlier_prediction_are_replaced(model, files):
    predict_file(model, files / "test.csv", files / "out.csv", task="march")
    predict_file(model, files / "out.csv", files / "again.csv", task="march")
    assert (files / "again.csv").read_bytes() == (files / "out.csv").read_bytes()


def test_a_killed_learning_resumes(files, monkeypatch):
    given = {"target": "label", "task": None, "regression": False, "parameters": QUICK}
    learn_file(files / "whole", files / "march.csv", **given)
    monkeypatch.setattr("lifelong.persistence.checkpoint.APART", 0)
    with monkeypatch.context() as killed:
        killed.setattr(
            LifelongClassifier, "save", lambda *_: (_ for _ in ()).throw(KeyboardInterrupt)
        )
        with pytest.raises(KeyboardInterrupt):
            learn_file(files / "model", files / "march.csv", **given)
    assert any((files / "model.learning").glob("training-*"))
    learn_file(files / "model", files / "march.csv", **given)
    assert not (files / "model.learning").exists()
    x = frame(2).drop(columns="label")
    np.testing.assert_array_equal(
        load(files / "model").predict_proba(x), load(files / "whole").predict_proba(x)
    )


def test_a_failed_prediction_leaves_no_file(model, files):
    frame(3).assign(age="old").to_csv(files / "text.csv", index=False)
    with pytest.raises(TableError):
        predict_file(model, files / "text.csv", files / "o.csv", task="march")
    assert sorted(files.glob("*o.csv*")) == []


def test_compare_makes_runs_once_and_a_report(files, capsys, monkeypatch):
    monkeypatch.chdir(files)
    months = [frame(n).assign(month=f"month {n}") for n in (1, 2)]
    pandas.concat(months).to_csv("all.csv", index=False)
    given = ("compare", "all.csv", "--target", "label", "--task-column", "month", "--network", "6")
    given += ("--methods", "DNN-STL,DNN", "--steps", "20", "--jobs", "1")
    run(*given, "--report", "report.html")
    captured = capsys.readouterr()
    assert "all.csv: label by month" in captured.out
    assert "DNN-STL" in captured.out
    assert "2 tasks" in (files / "report.html").read_text()
    run(*given, "--json")
    captured = capsys.readouterr()
    assert "2 of 2 runs are there already" in captured.err
    rows = json.loads(captured.out)["rows"]
    assert [row["method"] for row in rows] == ["DNN-STL", "DNN"]
    assert 0 <= rows[0]["auroc"] <= 1
