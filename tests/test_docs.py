"""Every example of the README and the docs runs, and prints what stands below it."""

import doctest
import re
from contextlib import redirect_stdout, suppress
from functools import cache
from importlib import import_module
from importlib.util import module_from_spec, spec_from_file_location
from io import StringIO
from pathlib import Path
from pkgutil import walk_packages

import pytest
from sybil import Sybil
from sybil.evaluators.python import PythonEvaluator
from sybil.parsers.markdown import CodeBlockParser

import lifelong
from lifelong.cli.main import main as command_line
from lifelong.evaluation.metrics import METRICS
from lifelong.learners.registry import METHODS

ROOT = Path(__file__).resolve().parent.parent
PAGES = [ROOT / "README.md", *sorted(ROOT.glob("docs/*.md"))]
LINKED = [*PAGES, *(ROOT / f"{name}.md" for name in ("CHANGELOG", "CONTRIBUTING", "SECURITY"))]
PRINTED = "printed by the block before"
# Caught on the way, so that no caller sees them.
INNER = {"Mismatch", "Refusal", "UsageError", "RefusedError", "TensorFileError", "LimitError"}


class Python(CodeBlockParser):
    """A block of Python: run after those before it on its page."""

    language = "python"

    def evaluate(self, example):
        with redirect_stdout(StringIO()) as printed:
            PythonEvaluator()(example)
        example.namespace[PRINTED] = printed.getvalue()


class Output(CodeBlockParser):
    """What the block of Python before it prints."""

    language = "output"

    def evaluate(self, example):
        printed = example.namespace.pop(PRINTED, "nothing, as no block of Python is before it")
        assert printed == example.parsed, f"{example.path}, line {example.line}"


SYBIL = Sybil([Python(), Output()], path=str(ROOT), patterns=["*.md"])


@pytest.fixture
def elsewhere(tmp_path, monkeypatch):
    """A directory to write in; what the examples register is gone afterwards."""
    monkeypatch.chdir(tmp_path)
    for table in (METHODS, METRICS):
        monkeypatch.setattr(table, "_rows", dict(table._rows))


def examples(page):
    return list(SYBIL.parse(page).examples())


@pytest.mark.usefixtures("elsewhere")
@pytest.mark.parametrize("page", [page for page in PAGES if examples(page)], ids=lambda p: p.stem)
def test_the_examples_run_and_print_what_is_shown(page):
    for example in examples(page):
        example.evaluate()


def test_an_output_that_is_not_printed_fails(tmp_path):
    page = tmp_path / "page.md"
    page.write_text("```python\nprint(1)\n```\n```output\n2\n```\n")
    ran, shown = Sybil([Python(), Output()], path=str(tmp_path), patterns=["*.md"]).parse(page)
    ran.evaluate()
    with pytest.raises(AssertionError, match=r"page\.md, line 4"):
        shown.evaluate()


@pytest.mark.parametrize("page", LINKED, ids=lambda p: p.stem)
def test_every_link_leads_somewhere(page):
    made = "tutorials/"  # by `make docs`, which checks the links to it
    text = re.sub(r"```.*?```", "", page.read_text(), flags=re.DOTALL)
    for target in re.findall(r"\]\((?!https?:)([^)#\s]+)", text):
        assert target.startswith(made) or (page.parent / target).exists(), target


def test_the_tables_of_results_are_those_of_the_stored_runs():
    """If not: `make pictures`."""
    spec = spec_from_file_location("results", ROOT / "docs" / "pictures" / "results.py")
    results = module_from_spec(spec)
    spec.loader.exec_module(results)
    for page, shown in results.pages().items():
        text = page.read_text(encoding="utf-8")
        assert results.with_table(text, *shown) == text, page.name


@cache
def help_of(*command):
    with redirect_stdout(StringIO()) as printed, suppress(SystemExit):
        command_line([*command, "--help"])
    assert printed.getvalue(), f"lifelong has no command {command}"
    return printed.getvalue()


def test_the_page_of_the_command_line_has_every_command():
    listed = r"^[ │•]*([a-z]+) {2,}[A-Z]"  # a command and the line about it
    commands = re.findall(listed, help_of(), flags=re.MULTILINE)
    shown = re.findall(r"<!-- help (\w+) -->", (ROOT / "docs" / "cli.md").read_text())
    assert sorted(shown) == sorted(commands)


def commands(page):
    """Commands of ours on a page, in blocks and within lines, as (command, what follows)."""
    text = page.read_text()
    blocks = re.findall(r"```\w*\n(.*?)```", text, flags=re.DOTALL)
    lines = [line.partition("#")[0] for block in blocks for line in block.splitlines()]
    found = (
        re.match(r"lifelong ([a-z]+)(.*)", line)
        for line in [*lines, *re.findall(r"`([^`]+)`", text)]
    )
    return [each.groups() for each in found if each]


@pytest.mark.parametrize("page", [p for p in LINKED if commands(p)], ids=lambda p: p.stem)
def test_commands_in_the_docs_take_their_options(page):
    for command, rest in commands(page):
        for option in re.findall(r"(?<!\S)--[a-z][\w-]*", rest):
            assert option in help_of(command), f"lifelong {command} {option}"


def test_the_page_of_errors_has_every_error():
    names = [m.name for m in walk_packages(lifelong.__path__, "lifelong.")]
    found = {
        each.__name__
        for module in map(import_module, names)
        for each in vars(module).values()
        if isinstance(each, type)
        and issubclass(each, Exception)
        and each.__module__ == module.__name__
        and not each.__name__.startswith("_")
    }
    page = (ROOT / "docs" / "errors.md").read_text()
    shown = re.findall(r"^\| `lifelong\.([\w.]+)` \|", page, flags=re.MULTILINE)
    for name in shown:
        home, _, error = f"lifelong.{name}".rpartition(".")
        assert issubclass(getattr(import_module(home), error), Exception)
    assert found - INNER == {name.rpartition(".")[2] for name in shown}


def test_docstrings_run():
    modules = [import_module(m.name) for m in walk_packages(lifelong.__path__, "lifelong.")]
    results = [doctest.testmod(module) for module in modules]
    assert sum(result.attempted for result in results) > 0
    assert sum(result.failed for result in results) == 0
