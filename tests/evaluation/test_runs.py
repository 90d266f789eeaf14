"""A run as plain data: from a learner, from a model, to a file and back."""

import os
import warnings
from pathlib import Path
from typing import Any

import msgspec
import pytest

from builders import quick, small_mlp, stream_for
from lifelong.evaluation import runs
from lifelong.evaluation.measure import RunMetadata, measure, model_run
from lifelong.evaluation.runs import Run, RunError, read_runs, write_run
from lifelong.learners.baselines import Joint, Single, TrainingSettings
from lifelong.learners.den import DEN
from lifelong.networks.sequential import mlp
from lifelong.persistence.manifest import ModelFileError
from lifelong.tasks.kinds import TaskError
from lifelong.tasks.streams import Stream

TASKS = stream_for(small_mlp(), "one output", "classes", "subtasks")


def _stream(tasks=TASKS):
    return Stream({task.name: lambda t=task: t for task in tasks}, source="made up")


@pytest.fixture(scope="module")
def den():
    return DEN(small_mlp(), quick(), seed=5)


@pytest.fixture(scope="module")
def run(den):
    return measure(den, _stream(), RunMetadata("none", "grows", "do it"))


def test_a_run_holds_what_the_learner_has(den, run):
    assert (run.method, run.seed, run.tasks) == ("DEN", 5, den.tasks)
    assert (run.data, run.source, run.about, run.command) == ("none", "made up", "grows", "do it")
    assert run.inputs == (6,)
    assert run.widths == {"hidden1": 10, "hidden2": 7}
    assert run.records == den.records
    assert run.settings["sigma"] == den.settings.sigma
    assert run.summary.parameters == den.capacity().parameters
    assert run.summary.nonzero == den.capacity().nonzero
    assert run.summary.bytes == den.capacity().bytes
    assert run.summary.capacity == den.relative_capacity()
    assert {group: list(born) for group, born in run.born.items()} == {
        group: born.tolist() for group, born in den.network.born.items()
    }


def test_a_run_has_the_name_and_the_base_network_that_it_is_given():
    stream = Stream({TASKS[0].name: lambda: TASKS[0]}, source="made up", look_alike=True)
    half = mlp(6, [5, 3])
    named = RunMetadata(method="DEN in disguise", base=half)
    run = measure(DEN(small_mlp(), quick()), stream, named)
    assert (run.method, run.look_alike) == ("DEN in disguise", True)
    assert run.summary.capacity == run.summary.parameters / half.layout.parameters([1])
    assert Run.from_json(run.to_json()).look_alike


@pytest.fixture(scope="module")
def overwriting():
    """A learner whose tasks overwrite single weights, and its run."""
    learner = DEN(small_mlp(), quick(split="weights", keep=0.2, initial_width=1.0), seed=5)
    return learner, measure(learner, _stream(), RunMetadata("none"))


def test_a_run_tells_the_entries_that_tasks_found_and_overwrote(overwriting):
    learner, run = overwriting
    assert any(record.changed for record in run.records)
    for number, known in enumerate(learner.network.tasks, 1):
        changed = {name: len(patch) for name, patch in known.patches.items()}
        assert run.records[number - 1].changed == changed
        for name, patch in known.patches.items():
            patch.require_within(run.entries[name][number - 1])
    assert run.entries.keys() == learner.network.shared.keys()
    assert run.summary.bytes == learner.capacity().bytes != 4 * run.summary.parameters
    assert Run.from_json(run.to_json()).to_json() == run.to_json()


def test_heritage_that_cannot_be_is_refused(overwriting):
    _, run = overwriting
    tensor = next(iter(run.records[1].changed))
    for change, message in (
        ({"parent": 2}, "'task 2' started from task 2"),
        ({"parent": -1}, "Expected `int` >= 0 - at .*parent"),
        ({"parent": 3, "number": 9}, "'task 2' started from task 3"),
        ({"changed": {tensor: 10**6}}, "overwrote 1,000,000 entries of"),
        ({"changed": {tensor: -1}}, "Expected `int` >= 0 - at .*changed"),
        ({"changed": {"another": 1}}, "overwrote 1 entries of another"),
    ):
        records = msgspec.json.decode(run.to_json())["records"]
        records[1].update(change)
        with pytest.raises(RunError, match=message):
            Run.from_json(_changed(run, records=records))


def test_runs_of_earlier_releases_store_four_bytes_per_value(run):
    plain = msgspec.json.decode(run.to_json())
    del plain["summary"]["bytes"], plain["entries"]
    old = Run.from_json(msgspec.json.encode(plain))
    assert old.summary.bytes == 4 * old.summary.parameters
    assert old.entries == {}


def test_other_settings_leave_what_was_learned(den, run):
    assert run.tasks == den.tasks
    other = den.with_settings(quick(shrink=0.5))
    assert (other.settings.shrink, den.settings.shrink) == (0.5, quick().shrink)
    assert other.network is den.network
    assert (other.records, other.seed) == (den.records, den.seed)


def test_used_units_are_those_of_the_sharing(den, run):
    for group, used in den.sharing().used.items():
        for row, units in zip(used, run.used[group], strict=True):
            assert list(units) == [unit for unit, uses in enumerate(row.tolist()) if uses]
    assert any(units for used in run.used.values() for units in used)


def test_scores_at_the_end_are_the_last_row_of_the_matrix(run):
    results = run.results
    assert results is not None
    for measure_, scores in run.scores.items():
        assert list(scores) == results.matrix(measure_)[-1].tolist()
    assert run.summary.auroc == pytest.approx(results.average("auroc"))
    assert run.summary.forgetting == results.forgetting()
    assert run.summary.seconds == pytest.approx(results.seconds.sum())


def test_what_is_learned_at_once_has_scores_but_no_matrix():
    watched: list[tuple[str, str, int]] = []
    joint = Joint(small_mlp(), TrainingSettings(budget=quick().budget))
    run = measure(
        joint, _stream(), RunMetadata("none"), progress=lambda *step: watched.append(step)
    )
    assert run.results is None
    assert run.summary.forgetting is None
    assert run.summary.capacity == 1
    assert [len(scores) for scores in run.scores.values()] == [3, 3]
    assert len(run.records) == 1
    assert run.used == {}
    assert watched == [("DNN-MTL", "all tasks", 0), ("DNN-MTL", "done", 3)]


def test_networks_apart_share_no_units_and_progress_is_told():
    watched: list[tuple[str, str, int]] = []
    single = Single(small_mlp(), TrainingSettings(budget=quick().budget))
    run = measure(
        single, _stream(), RunMetadata("none"), progress=lambda *step: watched.append(step)
    )
    assert run.born == run.used == {}
    names = [*run.tasks, "done"]
    assert watched == [("DNN-STL", name, done) for done, name in enumerate(names)]


def test_tasks_without_test_rows_are_refused_before_learning():
    task = stream_for(small_mlp(), "one output")[0]
    task.test = None
    for learner in (Joint(small_mlp()), Single(small_mlp())):
        with pytest.raises(TaskError, match="no test rows"):
            measure(learner, _stream([task]), RunMetadata("none"))
        assert learner.tasks == ()


def test_warnings_are_stored_and_still_given():
    def make():
        warnings.warn("the data is a look-alike", UserWarning, stacklevel=2)
        return TASKS[0]

    stream = Stream({TASKS[0].name: make}, source="made up")
    single = Single(small_mlp(), TrainingSettings(budget=quick().budget))
    with warnings.catch_warnings(record=True) as given:
        warnings.simplefilter("always")
        run = measure(single, stream, RunMetadata("none"))
    assert run.warnings == ("the data is a look-alike",)
    assert [str(each.message) for each in given] == ["the data is a look-alike"]


def test_a_run_comes_back_from_its_file(run, tmp_path):
    file = write_run(run, tmp_path / "new" / "place")
    assert file.name == "den-seed-5.json"
    (again,) = read_runs([file])
    assert again.to_json() == run.to_json()
    assert again.results == run.results
    assert msgspec.json.decode(file.read_bytes())["matrix"]["meaning"].startswith("R[i, j]")


def test_a_directory_gives_its_runs_and_only_those(run, tmp_path):
    write_run(run, tmp_path / "a")
    write_run(msgspec.structs.replace(run, seed=6), tmp_path / "b")
    for name, text in {"other.json": '{"x": 1}', "list.json": "[]", "bad.json": "{"}.items():
        (tmp_path / name).write_text(text)
    assert [each.seed for each in read_runs([tmp_path])] == [5, 6]


def _changed(run, **changes):
    plain = msgspec.json.decode(run.to_json())
    return msgspec.json.encode({**plain, **changes})


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"format": "another"}, "its format is 'another', not 'lifelong run'"),
        ({"version": 9}, "format version 9, but this release reads 1; a newer release reads it"),
        ({"version": 0}, "make it anew"),
        ({"seed": "five"}, r"Expected `int`, got `str` - at `\$.seed`"),
        ({"tasks": ["a", "b", "c"]}, "are not those of its matrix"),
        ({"tasks": [], "matrix": None}, "are not those of its matrix"),
        ({"scores": {"auroc": [1.0]}}, "1 scores of auroc for 3 tasks"),
        ({"born": {"hidden1": [1, 4]}}, "births of hidden1 are not tasks"),
        ({"used": {"hidden1": [[0], [1], [999]]}}, "units that hidden1 does not have"),
        ({"entries": {"x": [1, 2]}}, "x has not some number of entries for each task"),
        ({"entries": {"x": [1, -2, 3]}}, "x has not some number of entries for each task"),
        ({"matrix": {"meaning": ""}}, "not the JSON of a run"),
    ],
)
def test_what_does_not_fit_is_refused(run, changes, message):
    with pytest.raises(RunError, match=message):
        Run.from_json(_changed(run, **changes))


@pytest.mark.parametrize("text", [b"", b"{}", b"[1]", b"\xff", b"null"])
def test_what_is_no_run_is_refused(text):
    with pytest.raises(RunError, match="not the JSON of a run"):
        Run.from_json(text)


def test_a_file_that_is_no_run_is_named(tmp_path):
    (tmp_path / "x.json").write_text("{}")
    with pytest.raises(RunError, match=r"x\.json: not the JSON of a run"):
        read_runs([tmp_path / "x.json"])
    with pytest.raises(RunError, match="no stored run in this directory"):
        read_runs([tmp_path])


def test_a_saved_model_tells_all_but_scores(den, run, tmp_path):
    den.save(tmp_path)
    told = model_run(tmp_path)
    for field in ("method", "tasks", "widths", "inputs", "seed", "records", "born", "used"):
        assert getattr(told, field) == getattr(run, field), field
    assert told.settings.keys() == run.settings.keys()
    assert told.summary.parameters == run.summary.parameters
    assert told.summary.capacity == run.summary.capacity
    assert (told.scores, told.results, told.summary.auroc) == ({}, None, None)
    assert Run.from_json(told.to_json()).to_json() == told.to_json()


def test_a_model_that_has_learned_nothing_has_nothing_to_tell(tmp_path):
    DEN(small_mlp()).save(tmp_path)
    with pytest.raises(TaskError, match="has learned no task yet"):
        model_run(tmp_path)
    with pytest.raises(ModelFileError, match="not a saved model"):
        model_run(tmp_path / "nowhere")


def _deep(depth):
    nested: dict[str, Any] = {}
    for _ in range(depth):
        nested = {"a": nested}
    return nested


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"widths": {"hidden1": 10**400}}, "widths"),
        ({"inputs": [-1]}, "Expected `int` >= 0 - at .*inputs"),
        ({"widths": {}}, "units of hidden1, whose width or births it does not tell"),
        ({"scores": {"new": [1.0, 1.0, 1.0]}}, "scores of new, which its matrix does not have"),
        ({"settings": {"sigma": {}}}, "sigma is {}, not a number from 0"),
        ({"settings": _deep(50)}, "settings are nested more than 10 deep"),
        ({"tasks": ["a"] * 5000, "matrix": None}, "5,000 tasks and .* units, but 2,000 tasks"),
    ],
)
def test_what_a_report_cannot_show_is_refused(run, changes, message):
    with pytest.raises(RunError, match=message):
        Run.from_json(_changed(run, **changes))


def test_records_without_their_groups_are_refused(run):
    records = msgspec.json.decode(run.to_json())["records"]
    records[1]["groups"] = {}
    with pytest.raises(RunError, match="record of 'task 2' lacks a group"):
        Run.from_json(_changed(run, records=records))


@pytest.mark.parametrize("number", [10**400, 2**60, -1])
def test_records_of_numbers_that_no_network_has_are_refused(run, number):
    for change in ("selected", "units", "split"):
        records = msgspec.json.decode(run.to_json())["records"]
        next(iter(records[1]["groups"].values()))[change] = number
        with pytest.raises(RunError, match=f"records.*{change}"):
            Run.from_json(_changed(run, records=records))


def test_a_file_nested_without_end_is_refused(run, tmp_path):
    deep = b"[" * 100_000 + b"]" * 100_000
    for key in (b"settings", b"matrix", b"unknown"):
        text = _changed(run)[:-1] + b',"' + key + b'":' + deep + b"}"
        with pytest.raises(RunError, match="nested too deep"):
            Run.from_json(text)
    (tmp_path / "x.json").write_bytes(deep)
    with pytest.raises(RunError, match="no stored run in this directory"):
        read_runs([tmp_path])


def test_only_ordinary_files_of_some_size_are_read(run, tmp_path, monkeypatch):
    file = write_run(run, tmp_path)
    os.mkfifo(tmp_path / "pipe.json")
    (tmp_path / "directory.json").mkdir()
    assert len(read_runs([tmp_path])) == 1
    for odd in (tmp_path / "pipe.json", Path("/dev/zero")):
        with pytest.raises(RunError, match="not an ordinary file"):
            read_runs([odd])
    monkeypatch.setattr(runs, "MOST_BYTES", 1000)
    with pytest.raises(RunError, match="more than 1,000 bytes"):
        read_runs([file])
