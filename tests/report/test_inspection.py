"""What `inspect` prints about the weights and units that tasks change and select."""

import io

import msgspec

from lifelong.printing import Terminal
from lifelong.report.inspection import show
from made_up import made_up


def _printed(run):
    text = io.StringIO()
    show(run, Terminal(file=text, width=80))
    return text.getvalue()


def _lines(printed, title):
    """The cells of a table, without the numbers and names of the tasks."""
    block = printed[printed.index(title) :].split("─\n", 1)[1].split("\n\n", 1)[0]
    return [line.split()[3:] for line in block.splitlines() if line.strip()]


def test_weights_that_a_task_overwrites_and_where_it_starts_from():
    lines = _lines(_printed(made_up(3, patched=True)), "Weights of each layer")
    # Task n overwrites n of the 200 entries of hidden1; task 2 starts from the untrained network.
    assert lines == [["0", "0.5%"], ["0", "1.0%"], ["2", "1.5%"]]


def test_shares_of_units_that_a_task_selects():
    run = made_up(3)
    lines = _lines(_printed(run), "Selected units")
    wanted = [
        [f"{at.selected / before.groups[group].units:.0%}" for group, at in record.groups.items()]
        for before, record in zip(run.records[:-1], run.records[1:], strict=True)
    ]
    assert lines == wanted


def test_without_patches_there_is_no_table_of_them_and_one_task_selects_nothing():
    assert "overwrites" not in _printed(made_up(3))
    assert "Selected units" not in _printed(made_up(1))
    untold = msgspec.structs.replace(made_up(3, patched=True), entries={})
    assert _lines(_printed(untold), "Weights of each layer") == [["0"], ["0"], ["2"]]


def test_the_head_tells_bytes_and_values():
    run = made_up(3)
    assert f"{4 * run.summary.parameters:,} bytes stored" in _printed(run).replace("\n", " ")
