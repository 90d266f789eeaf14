import ast
import re
from functools import cache
from importlib import import_module
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
PAGE = (ROOT / "docs" / "paper-map.md").read_text()
TABLE = [line for line in PAGE.splitlines() if line.startswith("| ")][1:]
ROWS = re.findall(r"^\| (.+?) \| `([\w.]+)` \| `([\w/.:]+)` \|$", PAGE, flags=re.MULTILINE)


def resolve(dotted):
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


@cache
def parsed(file):
    return ast.parse((ROOT / file).read_text())


def source_of(node_id):
    """The test of that node id, decorators included."""
    file, *names = node_id.split("::")
    found: ast.AST = parsed(file)
    for name in names:
        inner = [each for each in ast.iter_child_nodes(found) if getattr(each, "name", "") == name]
        assert len(inner) == 1, f"{node_id}: {len(inner)} tests have this name"
        (found,) = inner
    assert isinstance(found, ast.FunctionDef), f"{node_id} names no test"
    return ast.unparse(found)


def test_every_equation_and_algorithm_has_a_row():
    assert len(ROWS) == len(TABLE)
    named = " ".join(paper for paper, _, _ in ROWS)
    for part in [f"Equation {n}" for n in range(1, 7)] + [f"Algorithm {n}" for n in range(1, 5)]:
        assert part in named


@pytest.mark.parametrize(("paper", "code", "test"), ROWS, ids=[row[0] for row in ROWS])
def test_a_row_names_code_and_a_test_that_always_runs(paper, code, test):
    assert resolve(code) is not None, paper
    assert re.search(r"/test_\w+\.py::(Test\w+::)?test_\w+$", test), f"{paper}: {test}"
    assert not re.search("skip|xfail", source_of(test)), f"{paper}: {test} may not run"
