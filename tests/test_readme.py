"""The examples in the README, in the docs and in docstrings run as they are written."""

import doctest
import re
from importlib import import_module
from pathlib import Path
from pkgutil import walk_packages

import pytest

import lifelong

README = Path(__file__).resolve().parent.parent / "README.md"
DOCS = sorted(README.parent.glob("docs/*.md"))


def examples(page):
    return re.findall(r"```python\n(.*?)```", page.read_text(), flags=re.DOTALL)


@pytest.mark.parametrize("page", [page for page in DOCS if examples(page)], ids=lambda p: p.stem)
def test_the_examples_of_the_docs_run(page, tmp_path, monkeypatch, capsys):
    """One after the other, each with what those before it made; and print what the page shows."""
    monkeypatch.chdir(tmp_path)
    shown = r"```python\n(.*?)```(?:\n```output\n(.*?)```)?"
    made: dict[str, object] = {}
    for example, output in re.findall(shown, page.read_text(), flags=re.DOTALL):
        exec(example, made)
        printed = capsys.readouterr().out
        assert not output or printed == output


def test_the_first_example_runs(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    seen = {}
    exec(examples(README)[0], seen)
    assert seen["learner"].tasks == ("first", "second", "third")
    assert seen["p"].shape == (5, 1)


def test_a_table_becomes_a_model_and_an_onnx_file(tmp_path, monkeypatch):
    pytest.importorskip("pandas")
    pytest.importorskip("onnxruntime")
    monkeypatch.chdir(tmp_path)
    lines = [f"{n % 7},{'ab'[n % 2]},{'no' if n % 7 < 4 else 'yes'}" for n in range(140)]
    Path("march.csv").write_text("\n".join(["age,town,label", *lines]))
    (example,) = examples(README)[1:]
    seen = {}
    exec(example, seen)
    assert seen["model"].tasks == ("march",)
    assert Path("march.onnx").stat().st_size > 0
    assert Path("model/manifest.json").exists()


def test_every_link_leads_somewhere():
    for page in [README, *DOCS, README.parent / "CONTRIBUTING.md"]:
        for target in re.findall(r"\]\(([^)#:]+)\)", page.read_text()):
            assert (page.parent / target).exists(), f"{page.name} links to {target}"


def test_docstrings_run():
    modules = [import_module(m.name) for m in walk_packages(lifelong.__path__, "lifelong.")]
    results = [doctest.testmod(module) for module in modules]
    assert sum(result.attempted for result in results) > 0
    assert sum(result.failed for result in results) == 0
