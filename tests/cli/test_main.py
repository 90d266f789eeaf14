"""The commands that show what is stored: `report` and `inspect`."""

import errno
import os
import re
import shlex
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path
from unittest.mock import MagicMock

import msgspec
import numpy as np
import pytest
import torch
from rich.console import Console
from torch import nn

from builders import learned, quick, small_mlp, stream_for, task_for
from lifelong import adapt, grow
from lifelong.cli import main as cli
from lifelong.evaluation.runs import Run, write_run
from lifelong.experiments import demo
from lifelong.learners.baselines import Joint, TrainingSettings
from lifelong.learners.den import DEN
from lifelong.report.inspection import show
from made_up import made_up


@pytest.fixture(scope="module")
def den():
    tasks = stream_for(small_mlp(), "one output", "classes", "subtasks")
    tasks[0].name = "[red]<i>"
    return learned(small_mlp(), tasks, quick())


@pytest.fixture(scope="module")
def model(den, tmp_path_factory):
    path = tmp_path_factory.mktemp("model")
    den.save(path)
    return path


def _refused(args, capsys, code=1):
    """The one line that is told."""
    with pytest.raises(SystemExit) as stop:
        cli.main(list(map(str, args)))
    printed = capsys.readouterr()
    assert stop.value.code == code
    assert printed.out == ""
    assert printed.err.startswith("lifelong: ")
    assert printed.err.count("\n") == 1
    return printed.err


def _lines(printed):
    """The cells of each line."""
    return [re.split(r"\s{2,}", line.strip()) for line in printed.splitlines()]


def test_report_of_files_and_directories(tmp_path, capsys):
    file = write_run(made_up(3, seed=7), tmp_path / "one")
    write_run(made_up(3, seed=8), tmp_path / "two" / "deep")
    out = tmp_path / "new" / "page.html"
    cli.main(["report", str(file), str(tmp_path / "two"), "--out", str(out)])
    assert capsys.readouterr().out == f"{out}\n"
    assert "7, 8" in out.read_text(encoding="utf-8")


def test_report_of_a_model(model, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    cli.main(["report", str(model)])
    text = (tmp_path / "report.html").read_text(encoding="utf-8")
    assert "nothing here is scored" in text
    assert "[red]&lt;i&gt;" in text
    assert "Who shares what?" in text


def test_report_compares_two_directories(tmp_path, capsys):
    write_run(made_up(3, seed=7), tmp_path / "before")
    write_run(made_up(3, seed=7, sigma=0.2), tmp_path / "after")
    out = tmp_path / "page.html"
    pair = [str(tmp_path / "before"), str(tmp_path / "after")]
    cli.main(["report", "--compare", *pair, "--out", str(out)])
    text = out.read_text(encoding="utf-8")
    assert "DEN (before)" in text
    assert "sigma is 0.05 in the first and 0.2 in the second" in text
    capsys.readouterr()
    assert "--compare and nothing else" in _refused(
        ["report", pair[0], "--compare", *pair], capsys, 2
    )


def test_report_refuses_in_a_line(model, tmp_path, capsys):
    run = write_run(made_up(2), tmp_path / "runs")
    other = write_run(made_up(3, seed=1), tmp_path / "others")
    wrong = tmp_path / "wrong.json"
    wrong.write_text("{}")
    (tmp_path / "empty").mkdir()
    assert "No such file" in _refused(["report", tmp_path / "nowhere"], capsys)
    assert "wrong.json: not the JSON of a run" in _refused(["report", wrong], capsys)
    assert "no stored run in this directory" in _refused(["report", tmp_path / "empty"], capsys)
    assert "different tasks" in _refused(["report", run, other], capsys)
    assert "two runs of DEN with seed 0" in _refused(["report", run, run], capsys)
    assert "give it alone" in _refused(["report", model, run], capsys, 2)
    assert "at least one stored run" in _refused(["report"], capsys, 2)
    assert not Path("report.html").exists()


def test_inspect_tells_tasks_layers_births_and_sharing(den, model, capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", "200")
    cli.main(["inspect", str(model)])
    printed = capsys.readouterr().out
    size = den.capacity()
    assert f"{size.bytes:,} bytes stored" in printed
    assert f"in {size.parameters:,} values" in printed
    cells = {line[1]: [line[0], *line[2:]] for line in _lines(printed) if len(line) > 5}
    record, sharing = den.records[1], den.sharing()
    assert "[red]<i>" in cells
    assert cells["task 2"][:5] == [
        "2",
        *(
            str(sum(getattr(at, event) for at in record.groups.values()))
            for event in ("selected", "added", "dropped", "split")
        ),
    ]
    assert cells["task 2"][5] == str(sum(int(used[1].sum()) for used in sharing.used.values()))
    for group, born in den.network.born.items():
        births = [str(int((born == number).sum())) for number in (1, 2, 3)]
        base = den.network.architecture.layout.groups[group]
        assert [group, str(base), str(len(born)), *births] in _lines(printed)
    common = [f"{share:.2f}" for share in sharing.overlap()[2, :2]]
    assert ["3", "task 3", *common] in _lines(printed)


def test_inspect_tells_what_of_a_module_grows_and_what_does_not(capsys, tmp_path):
    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.up, self.norm, self.fc = nn.Linear(6, 5), nn.LayerNorm(5), nn.Linear(5, 3)
            self.more, self.down = nn.Linear(5, 4), nn.Linear(4, 5)

        def forward(self, x):
            x = self.up(x)
            return self.fc(x + self.down(torch.relu(self.more(self.norm(x)))))

    task = task_for(small_mlp(), "classes")
    grown = DEN(grow(Net(), task.train.x), quick())
    adapted = DEN(adapt(Net(), task.train.x), quick(split="weights"))
    for name, learner in {"grown": grown, "adapted": adapted}.items():
        learner.learn(task)
        learner.save(tmp_path / name)
    cli.main(["inspect", str(tmp_path / "grown")])
    printed = capsys.readouterr().out
    assert "bytes stored" in printed
    assert "Net: groups of units that grow: 1" in printed
    assert "more: 4 units, in more.weight, more.bias, down.weight" in printed
    assert "layer normalisation over it" in printed
    cli.main(["inspect", str(tmp_path / "adapted")])
    printed = capsys.readouterr().out
    assert "Net: no units grow; numbers that tasks may patch: 70 in weights" in printed
    assert "tasks learned: 1; load(..., module=Net(...)) tells more" in printed


def test_inspect_many_tasks_sums_up(capsys):
    run = made_up(40)
    show(run, Console(width=200))
    printed = capsys.readouterr().out
    assert "2–30" in printed
    assert "most with" in printed
    births = next(line for line in _lines(printed) if line[0] == "hidden1")
    assert sum(map(int, births[3:])) == int(births[2]) == len(run.born["hidden1"])


def test_inspect_as_json_is_a_run(model, capsys):
    cli.main(["inspect", str(model), "--json"])
    printed = capsys.readouterr().out
    assert Run.from_json(printed).scores == {}
    assert msgspec.json.decode(printed)["method"] == "DEN"


def test_a_model_of_another_method_is_told_too(tmp_path, capsys):
    joint = Joint(small_mlp(), TrainingSettings(budget=quick().budget))
    joint.learn_together(stream_for(small_mlp(), "one output", "classes"))
    joint.save(tmp_path)
    cli.main(["inspect", str(tmp_path)])
    printed = capsys.readouterr().out
    assert "DNN-MTL, seed 0: 2 tasks" in printed
    assert "introduced" not in printed
    cli.main(["report", str(tmp_path), "--out", str(tmp_path / "page.html")])
    assert "2 tasks, all at once" in (tmp_path / "page.html").read_text(encoding="utf-8")


def test_inspect_refuses_in_a_line(tmp_path, capsys):
    assert "not a saved model: it has no manifest.json" in _refused(["inspect", tmp_path], capsys)
    DEN(small_mlp()).save(tmp_path)
    assert "has learned no task yet" in _refused(["inspect", tmp_path], capsys)
    manifest = tmp_path / "manifest.json"
    manifest.write_text(manifest.read_text().replace('"DEN"', '"XYZ"'))
    assert "holds a XYZ, which this release does not know" in _refused(
        ["inspect", tmp_path], capsys
    )
    manifest.write_text("{")
    assert "not a manifest" in _refused(["inspect", tmp_path], capsys)


HOSTILE = "\x1b]0;owned\x07\x1b[2J\x9b1mé"


def _safe(text):
    return text.replace("\n", "").isprintable()


def test_names_do_not_command_the_terminal(tmp_path, capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", "200")
    tasks = stream_for(small_mlp(), "one output", "classes")
    tasks[0].name = HOSTILE
    learned(small_mlp(), tasks, quick()).save(tmp_path / "model")
    cli.main(["inspect", str(tmp_path / "model")])
    shown = capsys.readouterr().out
    assert r"\x1b]0;owned\x07\x1b[2J\x9b1mé" in shown
    assert _safe(shown)
    cli.main(["inspect", str(tmp_path / "model"), "--json"])
    assert _safe(capsys.readouterr().out)
    manifest = tmp_path / "model" / "manifest.json"
    manifest.write_text(manifest.read_text().replace('"DEN"', r'"\u001b[2J"'))
    assert _safe(_refused(["inspect", tmp_path / "model"], capsys))
    assert _safe(_refused(["report", tmp_path / HOSTILE], capsys))


def test_class_names_of_data_do_not_command_the_terminal(tmp_path, capsys):
    generator = np.random.default_rng(0)
    file = tmp_path / "some.npz"
    y = np.arange(600) % 3
    np.savez(
        file,
        x=generator.normal(size=(600, 4)),
        y=y,
        names=np.array([HOSTILE + each for each in "abc"]),
    )
    cli.main(["data", "check", f"features:{file}"])
    assert _safe(capsys.readouterr().out)


def _shell(line, *arguments, **environment):
    """What a shell sees of the command; `lifelong` in the line is the command."""
    call = f"{shlex.quote(sys.executable)} -c 'from lifelong.cli import command; command()'"
    return subprocess.run(
        ["sh", "-c", line.replace("lifelong", call, 1), "sh", *map(str, arguments)],
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, **environment},
    )


def test_a_closed_output_is_told(model):
    for line in ('lifelong inspect --json "$1" >&-', 'lifelong inspect "$1" >&-'):
        ran = _shell(line, model)
        assert ran.returncode == 1
        assert ran.stderr.startswith("lifelong: the standard output is closed")
        assert ran.stderr.count("\n") == 1
    assert _shell('lifelong inspect "$1" >&- 2>&-', model).returncode == 1


def test_an_output_in_ascii_is_written(model, tmp_path):
    odd = tmp_path / "é"
    shutil.copytree(model, odd)
    ran = _shell('lifelong inspect "$1"', odd, PYTHONIOENCODING="ascii")
    assert (ran.returncode, ran.stderr) == (0, "")
    assert "seed 0: 3 tasks" in ran.stdout
    ran = _shell('lifelong report "$1" --out "$1/page.html"', odd, PYTHONIOENCODING="ascii")
    assert (ran.returncode, ran.stderr) == (0, "")
    assert ran.stdout.endswith("\\xe9/page.html\n")


@pytest.mark.parametrize("seconds", [0.1, 0.3, 0.6, 1.0])
def test_ctrl_c_while_it_starts_gives_no_traceback(seconds):
    code = "from lifelong.cli import command; print('begun', flush=True); command()"
    child = subprocess.Popen(
        [sys.executable, "-c", code, "list"], stdout=subprocess.PIPE, stderr=subprocess.PIPE
    )
    assert child.stdout is not None
    child.stdout.readline()
    time.sleep(seconds)
    child.send_signal(signal.SIGINT)
    _, told = child.communicate(timeout=60)
    assert b"Traceback" not in told
    assert child.returncode in (0, 130, -signal.SIGINT)


def test_under_torchrun_runs_are_stored_in_a_directory(capsys, monkeypatch):
    for name, value in {"RANK": "0", "WORLD_SIZE": "2", "MASTER_ADDR": "127.0.0.1"}.items():
        monkeypatch.setenv(name, value)
    said = _refused(["run", "rehearsal", "--out", "memory://study"], capsys, 2)
    assert "under torchrun give a directory" in said


def test_a_ctrl_c_that_python_drops_is_sent_again():
    code = """if True:
        import signal, time, weakref
        from lifelong.cli import heed_dropped_interrupts
        signal.signal(signal.SIGINT, signal.default_int_handler)  # a background job ignores it
        class Thing: pass
        heed_dropped_interrupts()
        thing = Thing()
        watch = weakref.ref(thing, lambda _: signal.raise_signal(signal.SIGINT))
        try:
            del thing
            time.sleep(60)
        except KeyboardInterrupt:
            print("stopped")
    """
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=30)
    assert (ran.stdout, ran.stderr) == ("stopped\n", "")


def test_seeds_have_a_limit(capsys):
    for seeds in ("0-999999999", "0-9,5-9999999"):
        said = _refused(["run", "rehearsal", "--seeds", seeds], capsys, 2)
        assert "10,000 seeds at the most" in said
    assert "less than 2**64" in _refused(["run", "rehearsal", "--seeds", "9" * 5000], capsys, 2)


class _Full:
    """A disk that takes half of a page."""

    def __init__(self, monkeypatch):
        written = Path.open

        def opened(path, mode="r", *rest, **named):
            stream = written(path, mode, *rest, **named)
            if path.suffix == ".json" or not set(mode) & {"w", "x"}:
                return stream
            write = stream.write

            def half(content):
                write(content[: len(content) // 2])
                raise OSError(errno.ENOSPC, "No space left on device")

            full = MagicMock(wraps=stream)
            full.write = half
            full.__enter__.return_value = full
            full.__exit__.side_effect = lambda *_: stream.close()
            return full

        monkeypatch.setattr(Path, "open", opened)


def test_a_report_survives_a_full_disk(tmp_path, capsys, monkeypatch):
    run = made_up(2)
    file = write_run(run, tmp_path / "runs")
    out = tmp_path / "report.html"
    out.write_text("that of before")
    (tmp_path / "demo").mkdir()
    with monkeypatch.context() as full:
        _Full(full)
        assert "No space left" in _refused(["report", file, "--out", out], capsys)
        assert "No space left" in _refused(["report", file, "--out", tmp_path / "new"], capsys)
        with pytest.raises(OSError, match="No space left"):
            demo.write([run], tmp_path / "demo")
    assert out.read_text() == "that of before"
    assert {each.name for each in tmp_path.iterdir()} == {"runs", "report.html", "demo"}
    assert [each.suffix for each in (tmp_path / "demo").iterdir()] == [".json"]
    cli.main(["report", str(file), "--out", str(out)])
    assert out.read_text(encoding="utf-8").endswith("</html>")


def test_a_report_replaces_neither_devices_nor_links(tmp_path):
    file = write_run(made_up(2), tmp_path / "runs")
    pipe, link, page = tmp_path / "pipe", tmp_path / "link", tmp_path / "page.html"
    os.mkfifo(pipe)
    with (tmp_path / "piped").open("wb") as piped, subprocess.Popen(["cat", pipe], stdout=piped):
        cli.main(["report", str(file), "--out", str(pipe)])
    assert pipe.is_fifo()
    page.write_text("old")
    link.symlink_to(page)
    cli.main(["report", str(file), "--out", str(link)])
    assert link.is_symlink()
    assert page.read_bytes() == (tmp_path / "piped").read_bytes()


def test_nothing_is_imported_before_ctrl_c_is_heeded():
    code = """if True:
        import importlib, signal, sys
        sys.path.insert(0, sys.argv[1])
        before = set(sys.modules)
        import lifelong.cli
        print(*(name for name in sys.modules if name not in before))
    """
    source = str(Path(cli.__file__).parents[2])
    command = [sys.executable, "-S", "-c", code, source]
    ran = subprocess.run(command, capture_output=True, text=True, timeout=30)
    assert (ran.stdout, ran.stderr) == ("lifelong lifelong.cli\n", "")
