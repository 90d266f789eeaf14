import re
from importlib import import_module
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
PAGE = (ROOT / "docs" / "paper-map.md").read_text()
ROWS = re.findall(r"^\| (.+?) \| `([\w.]+)` \| `([\w/.]+)` \|$", PAGE, flags=re.MULTILINE)


def resolve(dotted: str) -> object:
    """The module, class, function or method of that name."""
    parts = dotted.split(".")
    for cut in range(len(parts), 0, -1):
        try:
            found: object = import_module(".".join(parts[:cut]))
        except ModuleNotFoundError:
            continue
        for name in parts[cut:]:
            found = getattr(found, name)
        return found
    raise ModuleNotFoundError(dotted)


def test_every_equation_and_algorithm_has_a_row() -> None:
    named = " ".join(paper for paper, _, _ in ROWS)
    for part in [f"Equation {n}" for n in range(1, 7)] + [f"Algorithm {n}" for n in range(1, 5)]:
        assert part in named


@pytest.mark.parametrize(("paper", "code", "test"), ROWS, ids=[row[0] for row in ROWS])
def test_a_row_names_code_and_a_test_that_exist(paper: str, code: str, test: str) -> None:
    assert resolve(code) is not None, paper
    assert "def test_" in (ROOT / test).read_text(), paper
