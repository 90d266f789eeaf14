"""What the command line shows of itself: help, version, suggestions, and tables of any width."""

import io
import re
import subprocess
import sys
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lifelong.cli import help as helping
from lifelong.cli import main as cli
from lifelong.plugins import did_you_mean
from lifelong.printing import Grid, Terminal
from lifelong.report.inspection import show
from made_up import made_up


def _helped(capsys, *arguments):
    with pytest.raises(SystemExit) as stop:
        cli.main([*arguments, "--help"])
    assert stop.value.code == 0
    return capsys.readouterr().out


@pytest.mark.parametrize("arguments", [["--help"], ["-h"]])
def test_one_line_per_command(capsys, arguments):
    cli.main(arguments)
    lines = capsys.readouterr().out.splitlines()
    assert max(map(len, lines)) <= 80
    for name, command in cli.COMMANDS.items():
        mine = [line for line in lines if line.startswith(f"  {name} ")]
        assert mine == [f"  {name:10} {helping.first_line(command)}"]
    grouped = [name for names in helping.GROUPS.values() for name in names]
    assert sorted(grouped) == sorted(cli.COMMANDS)


@pytest.mark.parametrize("command", cli.COMMANDS)
def test_help_has_no_empty_default_and_breaks_no_word(capsys, monkeypatch, command):
    monkeypatch.setenv("COLUMNS", "80")
    shown = _helped(capsys, command)
    assert max(map(len, shown.splitlines())) <= 80
    assert not re.search(r"\(default:\s*(None|False|)\s*\)", re.sub(r"\s+", " ", shown))
    told = set(re.findall(r"[\w'-]+", shown))
    # What a docstring calls a word stands in the help as one word.
    words = re.findall(r"[\w'-]+", (cli.COMMANDS[command].__doc__ or "").split("Args:")[0])
    assert set(words) <= told


@pytest.mark.parametrize("command", cli.COMMANDS)
@pytest.mark.parametrize("columns", [60, 84])
def test_paragraphs_of_help_are_filled(capsys, monkeypatch, command, columns):
    monkeypatch.setenv("COLUMNS", str(columns))
    shown = _helped(capsys, command)
    assert "\n\n\n" not in shown
    told = shown.split("\n options\n")[0].split("\n positional arguments\n")[0]
    for paragraph in told.split("\n\n"):
        for line, following in pairwise(paragraph.split("\n")):
            first = following.split()[0] if following.split() else ""
            assert not first or len(line) + 1 + len(first) > columns


def test_defaults_that_say_something_are_told(capsys):
    assert "(default: small)" in _helped(capsys, "run")
    assert "(default: 100-101)" in _helped(capsys, "tune")


@pytest.mark.parametrize(
    ("typo", "meant"),
    [("tabel", "table"), ("reprt", "report"), ("Inspect", "inspect"), ("repoduce", "reproduce")],
)
def test_typos_of_commands_get_a_suggestion(capsys, typo, meant):
    with pytest.raises(SystemExit) as stop:
        cli.main([typo, "x"])
    said = capsys.readouterr().err
    assert stop.value.code == 2
    assert said.startswith(f"lifelong: no command {typo!r}; did you mean {meant}? there are learn,")
    assert said.count("\n") == 1


@pytest.mark.parametrize("name", ["xyzzy", "q", "figures-of-speech"])
def test_no_suggestion_where_nothing_is_near(capsys, name):
    with pytest.raises(SystemExit):
        cli.main([name])
    assert f"no command {name!r}; there are" in capsys.readouterr().err
    assert did_you_mean(name, ["digits", "mnist"]) == ""


@pytest.mark.parametrize("arguments", [["--version"], ["--help"], ["run", "--help"]])
def test_parsing_needs_neither_torch_nor_numpy(arguments):
    code = (
        "import sys; from lifelong.cli import command\n"
        "try:\n    command()\nexcept SystemExit:\n    pass\n"
        "print(sorted({'torch', 'numpy', 'sklearn'} & set(sys.modules)))"
    )
    ran = subprocess.run(
        [sys.executable, "-c", code, *arguments], capture_output=True, text=True, check=True
    )
    assert ran.stdout.splitlines()[-1] == "[]"


def test_completion_of_a_shell_is_written(tmp_path):
    with pytest.raises(SystemExit) as stop:
        cli.main(["--tyro-write-completion", "bash", str(tmp_path / "lifelong")])
    assert stop.value.code in (None, 0)
    assert "reproduce" in (tmp_path / "lifelong").read_text()


# Tables.

_NUMBERS = st.lists(st.integers(0, 10**9).map(lambda n: f"{n:,}"), min_size=4, max_size=4)


def _printed(shown, width):
    text = io.StringIO()
    Terminal(file=text, width=width).print(shown)
    return text.getvalue()


@given(
    st.lists(st.tuples(st.text("ab ", max_size=60), _NUMBERS), min_size=1, max_size=5),
    st.integers(40, 200),
)
def test_a_number_is_never_cut(rows, width):
    columns = ("", "task", "one", "a longer heading", "three")
    lines = [(str(i), name, *numbers[:3]) for i, (name, numbers) in enumerate(rows)]
    printed = _printed(Grid(columns, lines, ("task",), "A title"), width)
    assert max(map(len, printed.splitlines())) <= width
    words = printed.split()
    for line in lines:
        assert all(words.count(number) >= 1 for number in line[2:])
    assert "a longer heading" in printed


@pytest.mark.parametrize("width", [40, 47, 60, 80, 132])
@pytest.mark.parametrize("tasks", [6, 40])
def test_inspect_never_cuts_a_number(width, tasks):
    run = made_up(tasks, patched=True, newcomers=900)
    wide, narrow = io.StringIO(), io.StringIO()
    show(run, Terminal(file=wide, width=400))
    show(run, Terminal(file=narrow, width=width))
    assert max(map(len, narrow.getvalue().splitlines())) <= width
    numbers = re.findall(r"(?<!\S)[\d.,%–]+(?!\S)", wide.getvalue())
    found = set(re.findall(r"(?<!\S)[\d.,%–]+(?!\S)", narrow.getvalue()))
    assert set(numbers) <= found


def test_a_pipe_has_no_width(monkeypatch):
    monkeypatch.delenv("COLUMNS", raising=False)
    text = io.StringIO()
    columns = ("task", *(f"column {n}" for n in range(60)))
    rows = [("a name of some length" * 5, *map(str, range(60)))]
    Terminal(file=text).print(Grid(columns, rows, ("task",)))
    assert "…" not in text.getvalue()
    assert any(" 59" in line for line in text.getvalue().splitlines())


def test_names_shrink_before_numbers():
    grid = Grid(("task", "number"), [("a rather long name of a task", "123456789")], ("task",))
    line = _printed(grid, 24).splitlines()[-1].split()
    assert line[-1] == "123456789"
    assert "…" in " ".join(line)
