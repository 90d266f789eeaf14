"""What the README shows runs as it stands there, and so do the examples in docstrings."""

import doctest
import re
from importlib import import_module
from pathlib import Path
from pkgutil import walk_packages

import pytest

import lifelong

README = Path(__file__).resolve().parent.parent / "README.md"


def test_the_example_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    blocks = re.findall(r"```python\n(.*?)```", README.read_text(), flags=re.DOTALL)
    assert blocks
    for block in blocks:
        seen: dict[str, object] = {}
        exec(block, seen)
        assert seen["learner"].tasks == ("first", "second", "third")  # type: ignore[attr-defined]
        assert seen["p"].shape == (5, 1)  # type: ignore[attr-defined]


def test_every_link_leads_somewhere() -> None:
    for page in [README, *README.parent.glob("docs/*.md"), README.parent / "CONTRIBUTING.md"]:
        for target in re.findall(r"\]\(([^)#:]+)\)", page.read_text()):
            assert (page.parent / target).exists(), f"{page.name} links to {target}"


def test_docstrings_run() -> None:
    modules = [import_module(m.name) for m in walk_packages(lifelong.__path__, "lifelong.")]
    results = [doctest.testmod(module) for module in modules]
    assert sum(result.attempted for result in results) > 0
    assert sum(result.failed for result in results) == 0
