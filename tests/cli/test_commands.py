"""The commands: what they print, and how they refuse."""

import re
import shlex

import msgspec
import pytest

from lifelong.cli import main as cli
from lifelong.experiments.perform import Job, perform
from lifelong.experiments.recipes import recipe
from lifelong.experiments.stored import RunPaths
from lifelong.tasks.datasets import mnist


@pytest.fixture(scope="module")
def out(tmp_path_factory):
    """Three methods of the rehearsal, two seeds."""
    place = tmp_path_factory.mktemp("results")
    chosen = recipe("rehearsal", "small")
    for entry in chosen.chosen(["DNN-STL", "DEN"], ["tasks"]):
        for seed in chosen.seeds:
            perform(Job(chosen.configuration(entry, seed), place))
    return place


def _refused(capsys, command):
    with pytest.raises(SystemExit) as stopped:
        cli.main(shlex.split(command))
    said = capsys.readouterr()
    assert "Traceback" not in said.err
    return int(str(stopped.value.code)), said.err


@pytest.mark.parametrize(
    ("command", "code", "words"),
    [
        ("run figure3-variaton", 2, "did you mean figure3-variation?"),
        ("run figure4 --methods DEN-Dynamc", 2, "did you mean DEN-Dynamic?"),
        ("run figure4 --parts capcity", 2, "recipe figure4 has no part 'capcity'"),
        ("run rehearsal --engine locl", 2, "no engine 'locl'; did you mean local?"),
        ("run rehearsal --seeds zero", 2, "whole numbers and ranges, such as 0-4, not 'zero'"),
        ("run rehearsal --seeds 3-", 2, "not '3-'"),
        ("run rehearsal --jobs 0", 2, "--jobs must be 1 or more, not 0"),
        ("run rehearsal --gpus -1", 2, "--gpus must be 0 or more, not -1"),
        (
            "run rehearsal --memory lots",
            2,
            "--memory takes bytes, or such as 500M or 4G, not 'lots'",
        ),
        ("run rehearsal --engine slurm --address auto", 2, "takes --address slurm, local, debug"),
        ("run rehearsal --out nowhere://x", 1, "nowhere://x: no such store can be reached"),
        ("pack --out file:///x", 2, "take them there with --from file:///x"),
        ("tune DEN --data digits --storage no://x", 2, "--storage no://x cannot be used"),
        ("run rehearsal --device warp", 2, "--device warp cannot be used here"),
        ("run rehearsal --size huge", 2, "huge"),
        ("table rehearsal --out nowhere", 1, "make some with `lifelong run rehearsal"),
        ("figure rehearsal --out nowhere", 1, "no stored run of rehearsal"),
        ("figure rehearsal --formats gif", 2, "--formats are of png, svg, pdf, csv, not 'gif'"),
        ("tune DEN --data digits --seeds 0-4", 2, "seeds must be 100 or more"),
        ("tune DEN --data digts", 2, "did you mean digits?"),
        ("data check mnst", 1, "did you mean mnist?"),
        ("data check features:nothing.npz", 1, "are not in"),
    ],
)
def test_a_users_mistake_is_told_plainly(capsys, command, code, words):
    stopped, said = _refused(capsys, command)
    assert stopped == code
    assert words in said


def test_list_for_people_and_for_programs(capsys, monkeypatch, tmp_path):
    monkeypatch.setenv("LIFELONG_DATA", str(tmp_path))
    cli.main(["list"])
    shown = capsys.readouterr().out
    assert "figure3-variation" in shown
    assert "DNN-Progressive" in shown
    cli.main(["list", "--json"])
    listed = msgspec.json.decode(capsys.readouterr().out)
    there = {each["name"]: each["files"] for each in listed["data"]}
    assert there["digits"] is True
    assert there["cifar-100"] is False


@pytest.mark.parametrize(
    ("command", "offered"),
    [("data get mnist", True), ("run permuted --methods DNN --seeds 0", False)],
)
def test_without_the_network_only_what_the_command_takes_is_offered(
    capsys, monkeypatch, tmp_path, command, offered
):
    monkeypatch.setenv("LIFELONG_DATA", str(tmp_path / "none"))
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")
    monkeypatch.setattr(mnist, "MIRROR", "http://127.0.0.1:9/")
    code, said = _refused(capsys, f"{command}" + ("" if offered else f" --out {tmp_path}"))
    assert code == 1
    assert ("--data-dir" in said) == offered
    assert "$LIFELONG_DATA" in said
    assert "data_dir=" not in said
    assert "the server cannot be reached from here" in said
    for noise in ("urllib3", "HTTPConnectionPool", "Max retries", "Downloading data"):
        assert noise not in said


def test_list_tells_a_recipes_data_and_duration(capsys, monkeypatch, out):
    monkeypatch.chdir(out.parent)
    monkeypatch.setattr("lifelong.cli.catalogue.RESULTS", out)
    cli.main(["list"])
    words = " ".join(capsys.readouterr().out.split())
    assert re.search(r"\(digits; small: \d+.* (s|min|h) for \d+ of \d+ runs\)", words)
    cli.main(["list", "--json"])
    listed = msgspec.json.decode(capsys.readouterr().out)["recipes"]
    assert {each["seconds"]["paper"] for each in listed} == {None}


def test_a_table_of_stored_runs(capsys, out, tmp_path):
    csv = tmp_path / "new" / "table.csv"
    cli.main(["table", "rehearsal", "--out", str(out), "--json", "--csv", str(csv)])
    table = msgspec.json.decode(capsys.readouterr().out)
    assert [row["method"] for row in table["rows"]] == ["DNN-STL", "DEN"]
    assert table["rows"][0]["seeds"] == [0, 1]
    assert any("DNN-EWC, seed 0" in line for line in table["missing"])
    assert len(csv.read_text().splitlines()) == 3
    cli.main(["table", "rehearsal", "--out", str(out)])
    shown = capsys.readouterr()
    assert f"{table['rows'][1]['auroc']:.4f} ±" in shown.out
    assert "not there: digits DNN-MTL, seed 0" in shown.err


def test_runs_at_an_address_are_shown_and_packed(capsys, out, tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    address = out.resolve().as_uri()
    cli.main(["table", "rehearsal", "--out", address, "--json"])
    there = capsys.readouterr().out
    cli.main(["table", "rehearsal", "--out", str(out), "--json"])
    assert there == capsys.readouterr().out
    cli.main(["pack", "--from", address, "--out", str(tmp_path / "packed")])
    made = len(list((out / "runs").rglob("*.json")))
    assert f"digits.jsonl.xz: {made} runs" in capsys.readouterr().out


def test_a_figure_in_every_format(out, tmp_path):
    cli.main(["figure", "rehearsal", "--out", str(out), "--to", str(tmp_path)])
    assert {file.name for file in tmp_path.iterdir()} == {
        f"rehearsal-small.{ending}" for ending in ("png", "svg", "pdf", "csv")
    }


def test_damaged_runs_are_named_and_left_out_of_tables(capsys, tmp_path):
    chosen = recipe("rehearsal", "small")
    entry = chosen.chosen(["DNN"], ["tasks"])[0]
    for seed in (0, 1):
        perform(Job(chosen.configuration(entry, seed), tmp_path))
    file = RunPaths(tmp_path).run(chosen.configuration(entry, 1))
    file.write_text("{")
    cli.main(["table", "rehearsal", "--out", str(tmp_path), "--json"])
    table = msgspec.json.decode(capsys.readouterr().out)
    assert table["rows"][0]["seeds"] == [0]
    assert len(table["damaged"]) == 1
    assert str(file) in table["damaged"][0]
    assert file.read_text() == "{"


def test_data_that_is_there_is_described(capsys):
    cli.main(["data", "get", "digits", "--json"])
    found = msgspec.json.decode(capsys.readouterr().out)
    assert (found["name"], len(found["tasks"])) == ("digits", 10)
    cli.main(["data", "check", "digits"])
    assert "digits is there" in capsys.readouterr().out


def test_list_methods_says_what_a_method_is_chosen_by(capsys):
    cli.main(["list", "methods", "--json"])
    listed = {row["method"]: row for row in msgspec.json.decode(capsys.readouterr().out)}
    assert listed["WSN"] == {
        "method": "WSN",
        "forgets": "no",
        "needs the task's name": "yes",
        "keeps data": "no",
        "grows": "no",
        "stored per task": "1 bit per weight, biases and head",
        "from": "Kang et al., ICML 2022",
        "checked against": "",
    }
    assert listed["ER"]["keeps data"] == "yes"
    assert listed["DNN-EWC"]["needs the task's name"] == "no"
    assert listed["LoRA"]["grows"] == "yes"
    cli.main(["list", "methods"])
    shown = capsys.readouterr().out
    assert "WSN" in shown
    assert "needs" in shown
