"""The demo from end to end: what it stores and prints, and how the command fails."""

import re
from functools import partial

import msgspec
import pytest

from lifelong.cli import main as cli
from lifelong.evaluation.runs import read_runs
from lifelong.experiments import demo
from lifelong.tasks.datasets import load
from lifelong.tasks.streams import Stream
from lifelong.training.budget import Budget

NAMES = ("<script>", "$x_1$ & Co", "a task with a rather long name")
WIDTHS = (16, 8)
BUDGET = Budget(steps=20, check_every=10)


def _renamed(stream, names):
    def make(old, new):
        task = stream[old]
        task.name = new
        return task

    pairs = zip(stream.names, names, strict=False)
    return Stream({new: lambda o=old, n=new: make(o, n) for old, new in pairs}, source="<data>")


def _tiny(names, seed=0):
    stream = _renamed(load("digits"), names)
    return demo.run(stream, seed=seed, widths=WIDTHS, budget=BUDGET)


@pytest.fixture(scope="module")
def runs():
    return _tiny(NAMES)


def _of(runs, method):
    return next(run for run in runs if run.method == method)


def test_the_same_seed_gives_the_same_scores(runs):
    again = _tiny(NAMES[:2])
    whole, part = _of(runs, "DEN").results, _of(again, "DEN").results
    assert whole is not None
    assert part is not None
    assert (
        whole.matrix()[:2, :2][[0, 1, 1], [0, 0, 1]] == part.matrix()[[0, 1, 1], [0, 0, 1]]
    ).all()


def test_mtl_is_the_measure_of_capacity_and_forgets_nothing(runs):
    joint = _of(runs, "DNN-MTL")
    assert joint.summary.capacity == 1
    assert joint.summary.forgetting is None
    assert joint.results is None
    assert [len(scores) for scores in joint.scores.values()] == [3, 3]


def test_the_command_ends_in_a_table_and_the_place_of_the_report(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(demo, "run", partial(demo.run, widths=WIDTHS, budget=BUDGET))
    out = tmp_path / "[new]" / "place"
    cli.main(["demo", "--out", str(out), "--tasks", "2", "--seed", "3"])
    printed = capsys.readouterr().out
    for word in (*demo.SHOWN, "AUROC", "forgetting", "capacity", "seconds"):
        assert word in printed
    assert printed.splitlines()[-2:] == [
        f"Report   {out / 'report.html'}",
        f"Numbers  {out / '*.json'}",
    ]
    stored = read_runs([out])
    assert {(run.method, run.seed, len(run.tasks), run.data) for run in stored} == {
        (method, 3, 2, "digits") for method in demo.SHOWN
    }
    assert {run.command for run in stored} == {"lifelong demo --seed 3 --tasks 2"}
    plain = msgspec.json.decode((out / "den-seed-3.json").read_bytes())
    assert plain["matrix"]["meaning"].startswith("R[i, j]")


@pytest.mark.parametrize(
    ("args", "message"),
    [
        (["demo", "--tasks", "11"], "lifelong: --tasks must be 2 to 10, not 11\n"),
        (["demo", "--tasks", "1"], "lifelong: --tasks must be 2 to 10, not 1\n"),
        (["demo", "--seed", "-1"], "lifelong: --seed must be 0 or more, not -1\n"),
        (["demo", "--seed", "x"], "--seed"),
        (["dmeo"], "dmeo"),
        ([], "lifelong: say which command"),
    ],
)
def test_bad_usage_is_2(args, message, capsys):
    with pytest.raises(SystemExit) as stop:
        cli.main(args)
    assert stop.value.code == 2
    printed = capsys.readouterr()
    assert message in printed.err
    assert "Traceback" not in printed.err


def test_a_file_in_the_way_is_told_in_one_line_before_any_work(tmp_path, capsys):
    (tmp_path / "file").write_text("")
    for out in (tmp_path / "file", tmp_path / "file" / "under"):
        with pytest.raises(SystemExit) as stop:
            cli.main(["demo", "--out", str(out)])
        assert stop.value.code == 1
        printed = capsys.readouterr()
        assert printed.err.startswith("lifelong: ")
        assert str(out) in printed.err
        assert printed.err.count("\n") == 1
        assert printed.out == ""


def test_an_interrupt_is_told_in_one_line(tmp_path, monkeypatch, capsys):
    def interrupted(*_args, **_options):
        raise KeyboardInterrupt

    monkeypatch.setattr(demo, "run", interrupted)
    with pytest.raises(SystemExit) as stop:
        cli.main(["demo", "--out", str(tmp_path)])
    assert stop.value.code == 130
    assert capsys.readouterr().err == "lifelong: stopped; nothing was written\n"
    assert list(tmp_path.iterdir()) == []


def test_version_and_help(capsys):
    cli.main(["--version"])
    assert re.fullmatch(r"lifelong \d+\.\d+\.\d+\n", capsys.readouterr().out)
    cli.main(["--help"])
    assert "Learn the ten digits" in capsys.readouterr().out
    with pytest.raises(SystemExit) as stop:
        cli.main(["demo", "--help"])
    assert stop.value.code == 0
    assert "--tasks" in capsys.readouterr().out
