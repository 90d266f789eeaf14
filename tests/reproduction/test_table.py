"""The table of a recipe's runs."""

import io

from known_runs import measured
from rich.console import Console

from lifelong.learners.registry import METHODS
from lifelong.reproduction.table import as_csv, as_records, as_table


def test_numbers_and_names_are_whole_in_a_terminal_of_80_columns():
    runs = [
        *(run for name in METHODS if name != "DEN" for run in measured(name, (0.8,))),
        *measured("DEN", (0.9012, 0.9034), lost=0.0123, capacity=1.345, seconds=12345.0),
        *measured("DNN-STL", (0.8,), label="DNN-STL, width × 0.25, 2 tasks and more", plain=False),
    ]
    text = io.StringIO()
    Console(file=text, width=80).print(as_table("A title", runs))
    for number in (
        "0.9023 ± 0.0011",
        "1.23",
        "1.345",
        "12345",
        "forgetting",
        "capacity",
        "stored bytes",
    ):
        assert number in text.getvalue()
    for name in METHODS:
        assert name in text.getvalue()
    assert max(map(len, text.getvalue().splitlines())) <= 80


def test_csv_and_records_say_the_same():
    runs = measured("DEN", (0.90, 0.92))
    record = as_records(runs)[0]
    assert record["auroc"] == 0.91
    names, values = (line.split(",") for line in as_csv(runs).splitlines())
    assert values[names.index("auroc")] == "0.91"
    assert values[names.index("method")] == record["method"] == "DEN"
