"""The table of a recipe's runs."""

import io
from dataclasses import replace

import msgspec
import pytest
from known_runs import measured
from rich.console import Console

from lifelong.learners.registry import METHODS
from lifelong.reproduction.measured import Published, difference, rows
from lifelong.reproduction.table import as_csv, as_records, as_table, as_text


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


def test_a_published_figure_is_judged_by_two_standard_errors():
    def judged(published, *accuracies):
        runs = [
            replace(one, published=published, run=with_accuracy(one.run, accuracy))
            for one, accuracy in zip(measured("DNN", accuracies), accuracies, strict=True)
        ]
        return rows(runs)[0].verdict

    assert judged(Published(0.90), 0.89, 0.90, 0.91, 0.92) == "agrees"
    assert judged(Published(0.80), 0.89, 0.90, 0.91) == "+10.00 points, 17.3 standard errors"
    assert judged(Published(0.80, 0.05), 0.89, 0.90, 0.91) == "agrees"
    assert judged(Published(0.80), 0.79) == "not judged: one seed, -1.00 points"
    assert judged(None, 0.79, 0.80) == ""


def with_accuracy(run, accuracy):
    summary = msgspec.structs.replace(run.summary, accuracy=accuracy)
    return msgspec.structs.replace(run, summary=summary)


def test_a_difference_is_paired_over_seeds():
    ours, theirs = (
        rows(measured(name, scores))[0]
        for name, scores in (("DEN", (0.90, 0.80, 0.70)), ("DNN", (0.89, 0.78, 0.69)))
    )
    found = difference(ours, theirs)
    assert found.value == pytest.approx(0.04 / 3)
    # By hand: mean 0.01333, deviation 0.00577, t = 4 with 2 degrees of freedom.
    assert found.p == pytest.approx(0.0572, abs=1e-4)
    assert str(found) == "+1.33 (p = 0.057)"
    single = rows(measured("DNN", (0.5,)))[0]
    assert difference(ours, single).p is None
    assert difference(ours, ours).p is None


def test_tables_for_pages_and_papers():
    runs = [*measured("DEN", (0.90, 0.92)), *measured("DNN", (0.81, 0.80), label="DNN_x & 5%")]
    page = as_text("A title", runs, "markdown", "DEN").splitlines()
    assert page[0] == "**A title**"
    assert page[2].startswith("| method | AUROC |")
    assert page[2].endswith("| seeds | against DEN |")
    assert page[4].startswith("| DEN | 0.9100 ± 0.0100 |")
    assert page[5].endswith("| 2 | -10.50 (p = 0.09) |")
    assert {line.count("|") for line in page[2:]} == {page[2].count("|")}
    paper = as_text("A title", runs, "latex")
    assert r"DNN\_x \& 5\% & 0.8050 $\pm$ 0.0050 &" in paper
    body = [line for line in paper.splitlines() if line.endswith(r"\\")]
    assert len(body) == 3
    columns = len(paper.partition("tabular}{")[2].partition("}")[0])
    assert {line.replace(r"\&", "").count("&") for line in body} == {columns - 1}
