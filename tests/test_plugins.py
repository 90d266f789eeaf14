"""Doors: rows that other packages add, and the examples of CONTRIBUTING.md as such a package."""

import re
import tomllib
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import Any

import msgspec
import pytest

from lifelong.cli import main as cli
from lifelong.evaluation.metrics import METRICS
from lifelong.evaluation.runs import read_runs
from lifelong.experiments.engines import ENGINES
from lifelong.experiments.recipes import RECIPES
from lifelong.learners.registry import METHODS, load_model
from lifelong.looks import LOOKS, look
from lifelong.plugins import PluginError, Registry, did_you_mean
from lifelong.report.page import page
from lifelong.tasks.datasets import DATASETS, load

CONTRIBUTING = Path(__file__).resolve().parent.parent / "CONTRIBUTING.md"
TABLES: tuple[Registry[Any], ...] = (METHODS, DATASETS, METRICS, ENGINES, RECIPES)
PACKAGE = "my_package"
RECIPE_AND_ENGINE = """
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import replace

from lifelong.experiments.configuration import NetworkPlan
from lifelong.experiments.engines import Engine, Pool, outcome
from lifelong.experiments.recipes import DataPlan, Entry, SizedRecipe, rehearsal
from lifelong.training.budget import Budget


def clouds(size):
    return replace(
        rehearsal(size),
        name="clouds",
        data=DataPlan("blobs", 3),
        network=NetworkPlan((8, 4)),
        budget=Budget(steps=60, check_every=10, patience=2, learning_rate=0.01),
        entries=(Entry("DNN"), Entry("Replay")),
        seeds=(0,),
    )


@contextmanager
def here(resources):
    with ThreadPoolExecutor(1) as thread:
        yield Pool(lambda jobs: [thread.submit(outcome, job) for job in jobs], room=1)


CLOUDS = SizedRecipe("clouds", clouds)
HERE = Engine("here", "in this process", here)
"""


def _blocks(language):
    found = re.findall(rf"```{language}\n(.*?)```", CONTRIBUTING.read_text(), flags=re.DOTALL)
    return "\n\n".join(found)


def _install(site, code, entry_points):
    """What `pip install` leaves behind."""
    (site / f"{PACKAGE}.py").write_text(code)
    about = site / f"{PACKAGE}-1.0.dist-info"
    about.mkdir()
    (about / "METADATA").write_text("Metadata-Version: 2.1\nName: my-package\nVersion: 1.0\n")
    lines = [
        f"[{group}]\n" + "\n".join(f"{name} = {value}" for name, value in rows.items())
        for group, rows in entry_points.items()
    ]
    (about / "entry_points.txt").write_text("\n".join(lines))


@pytest.fixture
def site(tmp_path, monkeypatch):
    """A place to install packages in; afterwards every table is as it was."""
    place = tmp_path / "site"
    place.mkdir()
    monkeypatch.syspath_prepend(place)
    monkeypatch.delitem(import_module("sys").modules, PACKAGE, raising=False)
    for table in TABLES:
        monkeypatch.setattr(table, "_rows", dict(table._rows))
        monkeypatch.setattr(table, "_loaded", False)
    looks = dict(LOOKS)
    yield place
    LOOKS.clear()
    LOOKS.update(looks)
    import_module("sys").modules.pop(PACKAGE, None)


@pytest.fixture
def examples(site):
    """The examples of CONTRIBUTING.md, with a recipe and an engine, installed."""
    points = tomllib.loads(_blocks("toml"))["project"]["entry-points"]
    points["lifelong.recipes"] = {"clouds": f"{PACKAGE}:CLOUDS"}
    points["lifelong.engines"] = {"here": f"{PACKAGE}:HERE"}
    _install(site, _blocks("python") + RECIPE_AND_ENGINE, points)
    return site


def _json(capsys, *command):
    capsys.readouterr()
    cli.main([*command, "--json"])
    return msgspec.json.decode(capsys.readouterr().out)


@pytest.mark.parametrize("engine", ["here", "local"])
def test_the_examples_run_from_the_command_line_to_the_report(examples, tmp_path, capsys, engine):
    del examples
    out = tmp_path / "out"
    listed = _json(capsys, "list")
    for what, name in (
        ("methods", "Replay"),
        ("data", "blobs"),
        ("metrics", "brier"),
        ("recipes", "clouds"),
        ("engines", "here"),
    ):
        assert name in [row["name"] for row in listed[what]]
    made = _json(capsys, "run", "clouds", "--out", str(out), "--engine", engine, "--jobs", "1")
    assert (len(made["made"]), made["failed"]) == (2, {})
    rows = {
        row["method"]: row for row in _json(capsys, "table", "clouds", "--out", str(out))["rows"]
    }
    assert 0 < rows["Replay"]["brier"] < 0.2
    assert rows["Replay"]["auroc"] > 0.9
    cli.main(["table", "clouds", "--out", str(out)])
    assert "Brier score ↓" in capsys.readouterr().out
    cli.main(["figure", "clouds", "--out", str(out), "--formats", "csv"])
    assert ",Replay," in (out / "figures" / "clouds-small.csv").read_text()
    assert look("Replay").colour == "#117733"
    cli.main(["report", str(out / "runs"), "--out", str(tmp_path / "report.html")])
    assert "Brier score ↓" in (tmp_path / "report.html").read_text()
    model = next((out / "models").glob("*/replay-*"))
    assert load_model(model).method == "Replay"


def test_a_method_runs_in_a_recipe_that_does_not_have_it(examples, tmp_path, capsys):
    del examples
    asked = ("rehearsal", "--methods", "replay", "--seeds", "0", "--out", str(tmp_path))
    assert _json(capsys, "run", *asked, "--engine", "here")["failed"] == {}
    (row,) = _json(capsys, "table", *asked)["rows"]
    assert (row["method"], row["part"]) == ("Replay", "tasks")


def test_an_example_method_is_tuned(examples, tmp_path, capsys):
    del examples
    places = ("--out", str(tmp_path / "trials"), "--choices", str(tmp_path / "chosen"))
    how = ("--data", "blobs", "--size", "small", "--trials", "2", "--seeds", "100", "--tasks", "2")
    chosen = _json(capsys, "tune", "Replay", *how, *places, "--engine", "here")
    assert 0.005 <= chosen["Replay"]["settings"]["mu"] <= 0.5
    assert len(chosen["Replay"]["trials"]) == 2


def test_replay_forgets_less_than_fine_tuning(examples, tmp_path, capsys):
    del examples
    asked = ("rehearsal", "--methods", "Replay", "DNN", "--parts", "tasks", "--seeds", "0")
    _json(capsys, "run", *asked, "--out", str(tmp_path), "--engine", "here")
    rows = _json(capsys, "table", *asked, "--out", str(tmp_path))["rows"]
    lost = {row["method"]: row["forgetting"] for row in rows}
    assert lost["Replay"] < lost["DNN"]


def test_replay_goes_on_from_a_saved_model(examples, tmp_path):
    del examples
    from lifelong import Budget, mlp

    stream = load("blobs", classes=3)
    first, second, _ = stream
    budget = Budget(steps=20, check_every=10, patience=1)
    learner = METHODS["Replay"].make(mlp(4, [8]), budget=budget)
    learner.learn(first)
    learner.save(tmp_path / "model")
    again = load_model(tmp_path / "model")
    for each in (learner, again):
        each.learn(second)
    x = first.test.x  # type: ignore[union-attr]
    told = [each.predict_proba(x, task=first.name) for each in (learner, again)]
    assert told[0].equal(told[1])


def test_a_data_set_takes_its_options(examples):
    del examples
    assert len(load("blobs", classes=5)) == 5
    assert load("BLOBS").source == "clouds of points"


def _without(run, measure):
    scores = {name: values for name, values in run.scores.items() if name != measure}
    assert run.results is not None
    matrices = {n: r for n, r in run.results.scores.items() if n != measure}
    from lifelong.evaluation.results import ResultMatrix

    results = ResultMatrix.of(run.tasks, matrices, capacity=run.results.capacity)
    return msgspec.structs.replace(run, scores=scores, matrix=msgspec.Raw(results.to_json()))


def test_runs_with_and_without_a_metric_show_together(examples, tmp_path, capsys):
    del examples
    _json(capsys, "run", "clouds", "--out", str(tmp_path), "--engine", "here")
    old, new = read_runs([tmp_path / "runs"])
    old = _without(old, "brier")
    text = page([old, new])
    assert "Brier score ↓" in text
    assert (old.average("brier"), new.average("brier") is None) == (None, False)
    METRICS._rows.pop("brier")  # the package is gone, its numbers are not
    assert ">brier<" in page([new])


@pytest.mark.parametrize(
    ("code", "words"),
    [
        ("import nothing_of_the_kind", "No module named 'nothing_of_the_kind'"),
        ("REPLAY = 3", "a method must be a Method, not a int"),
        ("", "has no attribute 'REPLAY'"),
    ],
)
def test_a_broken_package_is_named(site, capsys, code, words):
    _install(site, code, {"lifelong.methods": {"replay": f"{PACKAGE}:REPLAY"}})
    for _ in range(2):  # whoever asks again is told again
        with pytest.raises(SystemExit) as stopped:
            cli.main(["list"])
        said = capsys.readouterr().err
        assert stopped.value.code == 1
        assert "the package my-package adds the method 'replay' (my_package:REPLAY)" in said
        assert words in said
        assert "repair or uninstall that package" in said


def test_registered_in_code_and_by_an_entry_point_it_is_there_once(site):
    code = _blocks("python") + "\nfrom lifelong.learners.registry import register_method\n"
    points = {"lifelong.methods": {"replay": f"{PACKAGE}:REPLAY"}}
    _install(site, code + "register_method(REPLAY)\n", points)
    assert list(METHODS).count("Replay") == 1


@dataclass(frozen=True)
class _Row:
    name: str


def test_a_name_is_taken_once_in_whatever_case():
    table = Registry("thing", _Row, KeyError, [_Row("One")])
    with pytest.raises(PluginError, match=r"a thing named 'One' already; give this one another"):
        table.add(_Row("one"))
    with pytest.raises(KeyError, match=r"no thing 'on'; did you mean One\? there are One"):
        table.named("on")
    assert table.group == "lifelong.things"


def test_a_hint_only_where_a_name_is_near():
    assert did_you_mean("DEN-dynamc", ["DEN", "DEN-Dynamic"]) == "did you mean DEN-Dynamic? "
    assert did_you_mean("xyz", ["DEN"]) == ""
