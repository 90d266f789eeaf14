"""The benchmarks can be imported, and a small one runs. No test asserts a time."""

from importlib import import_module
from pathlib import Path

import pytest

PLACE = Path(__file__).resolve().parent.parent / "benchmarks"
SPEED = (
    "steps",
    "heads",
    "prediction",
    "growth",
    "store",
    "sequence",
    "memory",
    "baselines",
    "modules",
    "family",
    "serving",
    "all",
    "tables",
    "finding",
    "parallel",
    "engines",
    "stored_runs",
)


@pytest.fixture(autouse=True)
def _on_the_path(monkeypatch):
    monkeypatch.syspath_prepend(PLACE)


@pytest.mark.parametrize("name", [*SPEED, "all"])
def test_a_benchmark_can_be_imported(name):
    import_module(name)


def test_the_monthly_tables_drift_and_repeat():
    tables = import_module("tables")
    (x, y, _, _), *_, (late, _, _, _) = tables.months(3, rows=300, test=10)
    again = tables.months(3, rows=300, test=10)[0]
    assert x.equals(again[0])
    assert (y == again[1]).all()
    assert x.isna().any().sum() == 3
    assert set(late["shop"]) - set(x["shop"])
    assert late["price"].mean() > x["price"].mean()


def test_finding_is_measured_on_a_small_stream():
    finding = import_module("finding")
    from lifelong import Budget
    from lifelong.tasks.datasets import load

    stream = load("digits", 0, group=2, kind="classes").first(2)
    told = finding.measure(stream, [8], 100, Budget(steps=20))
    assert set(told["right task"]) == {"probability", "energy", "features", "inputs"}
    assert told["right task"]["inputs"] > 0.8


def test_a_small_store_is_measured(tmp_path):
    told = import_module("stored_runs").measure(20, 5, tmp_path)
    assert told["runs"] == 20
    assert 0.5 < told["mean"] <= 1


def test_a_ratio_of_a_thing_to_itself_is_a_figure():
    side_by_side = import_module("side_by_side")
    measured = side_by_side.ratio(lambda: sum(range(1000)), lambda: sum(range(1000)), turns=3)
    found = side_by_side.figure("itself", measured, 1e9)
    assert found.holds
    assert found.ratio > 0


def test_a_stream_of_two_tasks_is_learned():
    growth = import_module("growth")
    after = growth.stream_of(growth.Stream(), 1, 2)
    assert [len(one.learner.tasks) for one in after] == [1, 2]
    assert all(one.units > 0 for one in after)
