"""Packed runs: found like files, the same bytes for the same runs, and damage is named."""

import lzma
import re
import shlex
import shutil
from functools import partial
from pathlib import Path

import msgspec
import pytest
from tiny import configuration, job, tiny_recipe

from lifelong.cli import main as cli
from lifelong.experiments import pack as packing
from lifelong.experiments import stored
from lifelong.experiments.collect import collect
from lifelong.experiments.pack import carried_over, pack, unpack
from lifelong.experiments.perform import perform
from lifelong.experiments.reproduce import reproduce
from lifelong.experiments.stored import Experiment, RunPaths, StoredRun, find, read_pack
from lifelong.persistence.files import directory_lock

PROJECT = Path(__file__).resolve().parents[2]
OLD = {
    "max_new_units": "limit",
    "initial_width": "start",
    "distillation": "teaching",
    "batch_size": "batch",
}
METHODS = ("DNN-STL", "DNN", "DEN")


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    out = tmp_path_factory.mktemp("out")
    for method in METHODS:
        perform(job(out, method))
    return out


@pytest.fixture
def out(made, tmp_path):
    """Three runs, a file each."""
    shutil.copytree(made / "runs", tmp_path / "out" / "runs")
    return tmp_path / "out"


def _file(out):
    return RunPaths(out).pack("digits")


def _lines(out):
    return lzma.decompress(_file(out).read_bytes()).splitlines()


def test_packed_runs_are_found_as_they_were_and_not_made_again(out):
    places = RunPaths(out)
    before = [find(places, configuration(method)) for method in METHODS]
    made = pack(out)
    assert (made.runs, made.left_out) == ({_file(out): 3}, ())
    assert not list(out.rglob("*.json"))
    assert [find(places, configuration(method)) for method in METHODS] == before
    assert find(places, configuration("DNN", seed=1)) is None
    assert perform(job(out, "DNN")) == before[1]
    found = collect(tiny_recipe(*METHODS), out, seeds=(0,))
    assert [one.run for one in found.measured] == [one.run for one in before if one is not None]
    assert (found.missing, found.damaged) == ((), ())


def test_the_same_runs_are_the_same_bytes_however_they_were_packed(out):
    pack(out)
    first = _file(out).read_bytes()
    pack(out)
    assert _file(out).read_bytes() == first
    runs = list(read_pack(_file(out)).runs.values())
    assert stored.packed(reversed(runs)) == first
    assert unpack(out).runs == {_file(out): 3}
    assert not _file(out).exists()
    pack(out, out)
    assert _file(out).read_bytes() == first


def test_a_file_goes_before_a_packed_run(out):
    pack(out)
    places, asked = RunPaths(out), configuration("DNN")
    packed = find(places, asked)
    assert packed is not None
    newer = StoredRun(packed.experiment, msgspec.structs.replace(packed.run, command="again"))
    places.run(asked).write_bytes(stored.to_json(newer))
    assert find(places, asked) == newer
    pack(out)
    assert find(places, asked) == newer
    assert len(_lines(out)) == 3


@pytest.mark.parametrize(
    ("damage", "said"),
    [
        (lambda line: line[:100], "not a stored run"),
        (lambda line: line.replace(b'"seed":0', b'"seed":7'), "its checksum differs"),
        (lambda line: b"\xff" + line, "not a stored run"),
    ],
)
def test_a_damaged_line_is_named_and_left_out_and_kept_aside(out, damage, said, capsys):
    pack(out)
    first, second, third = _lines(out)
    damaged = b"\n".join([first, damage(second), third]) + b"\n"
    _file(out).write_bytes(lzma.compress(damaged))
    found = collect(tiny_recipe(*METHODS), out, seeds=(0,))
    assert len(found.measured) == 2
    assert len(found.missing) == 1
    (line,) = found.damaged
    assert line.startswith(f"{_file(out)}, line 2: {said}")
    content = _file(out).read_bytes()
    with pytest.raises(SystemExit, match="1"):
        cli.main(shlex.split(f"pack --out {out}"))
    assert "line 2" in capsys.readouterr().err
    assert read_pack(_file(out)).damaged == ()
    assert len(read_pack(_file(out)).runs) == 2
    assert _file(out).with_name(f"{_file(out).name}.damaged").read_bytes() == content


def test_a_pack_that_is_cut_off_is_named(out):
    pack(out)
    _file(out).write_bytes(_file(out).read_bytes()[:-20])
    (line,) = collect(tiny_recipe(*METHODS), out, seeds=(0,)).damaged
    assert line.startswith(f"{_file(out)}: not a pack of runs")


def test_nobody_packs_while_another_does(out, monkeypatch):
    monkeypatch.setattr(packing, "directory_lock", partial(directory_lock, patience=0.0))
    with directory_lock(out), pytest.raises(OSError, match="another process is writing there"):
        pack(out)
    assert len(list(out.rglob("*.json"))) == 3


def test_a_damaged_file_stays_where_it_is(out):
    file = RunPaths(out).run(configuration("DNN"))
    file.write_bytes(file.read_bytes()[:50])
    made = pack(out)
    assert made.runs == {_file(out): 2}
    assert made.left_out[0].startswith(f"{file}: not a stored run")
    assert file.exists()


def _with_old_names(settings):
    return {
        OLD.get(name, name): _with_old_names(value) if name == "budget" else value
        for name, value in settings.items()
    }


def _of_version_0_1(now):
    settings = _with_old_names(now.run.settings)
    asked = msgspec.structs.replace(now.experiment.configuration, settings=settings)
    run = msgspec.structs.replace(now.run, settings=settings, source="a look-alike of digits")
    return StoredRun(Experiment(asked.key, asked), run)


def test_runs_of_version_0_1_come_under_the_new_names(out, tmp_path):
    now = find(RunPaths(out), configuration("DEN"))
    assert now is not None
    old, elsewhere = _of_version_0_1(now), tmp_path / "elsewhere"
    assert "limit" in old.run.settings
    assert old.experiment.key != now.experiment.key
    file = RunPaths(elsewhere).run(old.experiment.configuration)
    file.parent.mkdir(parents=True)
    file.write_bytes(stored.to_json(old))
    here = tmp_path / "here"
    assert pack(here, elsewhere).runs == {_file(here): 1}
    assert file.exists()
    found = find(RunPaths(here), configuration("DEN"))
    assert found is not None
    assert found.experiment == now.experiment
    assert found.run.look_alike
    assert (found.run.settings, found.run.scores) == (now.run.settings, now.run.scores)


def test_a_packed_run_gets_the_settings_that_a_budget_has_now(out, tmp_path):
    now = find(RunPaths(out), configuration("DNN"))
    settings = now.experiment.configuration.settings
    new = {"epochs", "optimizer", "momentum", "weight_decay"}
    older = {**settings, "budget": {n: v for n, v in settings["budget"].items() if n not in new}}
    before = msgspec.structs.replace(now.experiment.configuration, settings=older)
    run = msgspec.structs.replace(now.run, settings=older)
    file = _file(tmp_path)
    file.parent.mkdir(parents=True)
    file.write_bytes(stored.packed([StoredRun(Experiment(before.key, before, "cpu"), run)]))
    assert find(RunPaths(tmp_path), configuration("DNN")) is None
    pack(tmp_path)
    assert find(RunPaths(tmp_path), configuration("DNN")) == now


def test_a_run_of_today_is_not_changed_by_carrying_it_over(out):
    now = find(RunPaths(out), configuration("DEN"))
    assert now is not None
    assert carried_over(now) == now


@pytest.mark.parametrize(
    ("options", "code", "words"),
    [
        ("", 1, "no stored run in .*runs; make some with `lifelong run`"),
        ("--unpack --from .", 2, "--unpack takes no --from"),
    ],
)
def test_a_users_mistake_is_told_plainly(tmp_path, capsys, options, code, words):
    with pytest.raises(SystemExit) as stopped:
        cli.main(shlex.split(f"pack --out {tmp_path} {options}"))
    assert stopped.value.code == code
    assert re.search(words, capsys.readouterr().err)


def test_what_is_published_comes_from_the_packs(tmp_path):
    """The page and the summary in git are what the packs in git say."""
    shutil.copytree(PROJECT / "results" / "runs", tmp_path / "results" / "runs")
    made = reproduce(tmp_path / "results", tmp_path / "REPRODUCTION.md")
    assert made.damaged == []
    for name in ("REPRODUCTION.md", "results/summary.json"):
        assert (tmp_path / name).read_bytes() == (PROJECT / name).read_bytes()
    drawn = {file.name for file in (tmp_path / "results" / "figures").iterdir()}
    assert drawn <= {file.name for file in (PROJECT / "results" / "figures").iterdir()}
