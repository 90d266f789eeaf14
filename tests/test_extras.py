"""The core works without the extras, and every area names the extra that it lacks."""

import json
import os
import re
import subprocess
import sys
import tomllib
from itertools import chain
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from lifelong.extras import MissingExtraError, require_extra

ROOT = Path(__file__).resolve().parent.parent
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
EXTRAS = PROJECT["optional-dependencies"]
IMPORTED = {
    "scikit-learn": "sklearn",
    "pillow": "PIL",
    "vl-convert-python": "vl_convert",
    "prometheus-client": "prometheus_client",
    "mlflow-skinny": "mlflow",
}  # where the name of the import is another one
LARGE = {"wandb", "mlflow", "ray"}  # the first two are tested with stand-ins, CI installs ray
LEARN_AND_SAVE = """
import torch
from lifelong import DEN, Budget, Settings, Task, mlp
x = torch.randn(60, 4)
y = (x[:, 0] > 0).long()
learner = DEN(mlp(4, [6]), Settings(budget=Budget(steps=20)), progress=True)
for name in ("first", "second"):
    learner.learn(Task(name, train=(x, y), valid=(x, y)))
learner.save(sys.argv[1])
again = DEN.load(sys.argv[1])
assert torch.equal(again.predict_proba(x, task="first"), learner.predict_proba(x, task="first"))
"""
ENGINE = "from lifelong.experiments.engines import LOCAL, RAY, SLURM, Resources; "
NEEDS = [
    ("import lifelong.report.page", "altair", "report"),
    ("import lifelong.report.page", "jinja2", "report"),
    ("import lifelong.report.page", "vl_convert", "report"),
    ("import lifelong.report.inspection", "sklearn", "report"),
    ("import lifelong.reproduction.figures", "matplotlib", "experiments"),
    ("import lifelong.experiments.recipes", "matplotlib", "experiments"),
    ("import lifelong.evaluation.evaluate", "sklearn", "evaluation"),
    ("from lifelong.tasks.datasets import load; load('digits')", "sklearn", "data"),
    (
        "from lifelong.tasks.datasets.variation import _photographs; _photographs()",
        "PIL",
        "data",
    ),
    ("from lifelong.tasks.datasets import load; load('mnist', 0, sys.argv[1])", "pooch", "data"),
    ("from lifelong import LifelongClassifier", "narwhals", "tables"),
    ("import lifelong.tables.files", "pyarrow", "tables"),
    ("import lifelong.experiments.studies", "optuna", "tune"),
    (f"{ENGINE}LOCAL.start(Resources()).__enter__()", "loky", "experiments"),
    (f"{ENGINE}RAY.start(Resources()).__enter__()", "ray", "ray"),
    (f"{ENGINE}SLURM.start(Resources()).__enter__()", "submitit", "slurm"),
    (
        "from lifelong.watching.trackers import TensorBoard; TensorBoard(sys.argv[1])",
        "tensorboardX",
        "tensorboard",
    ),
    ("import lifelong.deployment.hub", "huggingface_hub", "hub"),
    ("import lifelong.deployment.serving", "uvicorn", "serve"),
    ("from lifelong.watching.trackers import MLflow; MLflow()", "mlflow", "mlflow"),
    (
        "from lifelong.watching.trackers import WeightsAndBiases as W; W(None)",
        "wandb",
        "wandb",
    ),
    (
        "from lifelong.evaluation.results import ResultMatrix as R;"
        "R.of(['a'], {'auroc': [[1.0]]}).to_frame()",
        "pandas",
        "frames",
    ),
]


def ran(code, without, *arguments):
    """Run this where none of these packages can be imported."""
    blocked = f"import sys; sys.modules.update(dict.fromkeys({without!r}))\n"
    command = [sys.executable, "-c", blocked + code, *arguments]
    one_thread = {**os.environ, "OMP_NUM_THREADS": "1"}
    return subprocess.run(command, capture_output=True, text=True, check=False, env=one_thread)


# One process imports torch, once; each example then runs in a fork of it that lacks a package.
IN_FORKS = """
import json, os, sys, tempfile, traceback
import torch, lifelong

def said(code, package, directory):
    read, write = os.pipe()
    if not os.fork():
        sys.modules[package] = None
        sys.argv[1:] = [directory]
        try:
            exec(code, {"sys": sys})
        except BaseException:
            os.write(write, traceback.format_exc().encode()[-4000:])
        os._exit(0)
    os.close(write)
    with os.fdopen(read) as pipe:
        return pipe.read()

needs, directory = json.loads(sys.argv[1]), sys.argv[2]
print(json.dumps([said(code, package, directory) for code, package, _ in needs]))
"""


@pytest.fixture(scope="module")
def said_without(tmp_path_factory):
    """What each of `NEEDS` says without its package; a fork starts from nothing but the core."""
    directory = tmp_path_factory.mktemp("empty")
    done = ran(IN_FORKS, [], json.dumps(NEEDS), str(directory))
    assert done.returncode == 0, done.stderr
    assert not list(directory.iterdir())
    return dict(zip(NEEDS, json.loads(done.stdout), strict=True))


def brought(extra):
    """Names under which what this extra installs is imported."""
    found: set[str] = set()
    for each in map(Requirement, EXTRAS[extra]):
        if each.name == "lifelong":
            found |= set().union(*map(brought, each.extras))
        else:
            found.add(IMPORTED.get(each.name, each.name))
    return found


def loaded_by(module, *unwanted):
    """Which of these an import brings into memory."""
    code = f"import {module}\nprint(*{{n.partition('.')[0] for n in sys.modules}})"
    done = ran(code, [])
    assert done.returncode == 0, done.stderr
    return set(unwanted) & set(done.stdout.split())


def test_learning_predicting_and_saving_need_no_extra(tmp_path):
    optional = brought("all")
    assert {"sklearn", "tyro", "altair", "matplotlib", "pooch", "optuna"} <= optional
    done = ran(LEARN_AND_SAVE, sorted(optional), str(tmp_path / "model"))
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("need", NEEDS, ids=lambda need: f"{need[1]} {need[2]}")
def test_an_area_names_the_extra_that_it_lacks(need, said_without):
    (_, package, extra), said = need, said_without[need]
    assert "MissingExtraError" in said
    assert package in said
    assert f"pip install 'lifelong[{extra}]'" in said
    assert package in brought(extra)


@pytest.mark.parametrize(
    ("package", "extra", "call"),
    [
        ("tyro", "cli", "from lifelong.cli import command; command()"),
        ("altair", "report", "from lifelong.cli.main import main; main(['report', '.'])"),
        ("matplotlib", "experiments", "from lifelong.cli.main import main; main(['list'])"),
    ],
)
def test_the_command_line_says_what_to_install(package, extra, call):
    done = ran(call, [package])
    assert done.returncode == 1
    assert re.fullmatch(rf"lifelong: this needs {package}, .+'lifelong\[{extra}\]'\n", done.stderr)


def test_the_error_names_all_that_is_missing():
    require_extra("json", extra="data")
    with pytest.raises(MissingExtraError, match=r"needs no_such and nor_this, .+lifelong\[data\]"):
        require_extra("json", "no_such", "nor_this", extra="data")


def test_importing_the_package_loads_nothing_heavy():
    assert not loaded_by("lifelong", "torch", "numpy", "matplotlib", "altair", "tyro", "rich")


@pytest.mark.parametrize("module", ["lifelong.evaluation.results", "lifelong.evaluation.runs"])
def test_reading_results_needs_no_torch(module):
    assert not loaded_by(module, "torch", "sklearn", "matplotlib", "altair", "tyro")


def test_the_lowest_versions_allowed_are_those_that_the_tests_run_with():
    lines = (ROOT / "constraints.txt").read_text().splitlines()
    pins = (line.split("==") for line in lines if not line.startswith("#"))
    pinned = {canonicalize_name(name): version for name, version in pins}
    asked = map(Requirement, chain(PROJECT["dependencies"], *EXTRAS.values()))
    for each in (each for each in asked if each.name != "lifelong"):
        lowest = next(s.version for s in each.specifier if s.operator == ">=")
        tested = ".".join(pinned[canonicalize_name(each.name)].split(".")[:2])
        assert lowest == tested, each


def test_dev_installs_every_extra():
    assert "lifelong[all,docs]" in EXTRAS["dev"]
    (every,) = EXTRAS["all"]
    assert Requirement(every).extras == set(EXTRAS) - {"all", "dev", "docs"} - LARGE
