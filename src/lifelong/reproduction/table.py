"""A recipe's runs as a table: for the terminal, as CSV, and as records."""

import csv
import io
from collections.abc import Sequence
from typing import Any

from rich.box import SIMPLE_HEAD
from rich.table import Table

from lifelong.evaluation.metrics import heading
from lifelong.evaluation.runs import measures
from lifelong.reproduction.measured import Mean, Measured, Row, rows


def as_table(title: str, measured: Sequence[Measured]) -> Table:
    """AUROC (R2 of regressions) with its standard error over seeds; forgetting in points of it.

    In a narrow terminal names wrap; numbers are never cut.
    """
    shown = Table(
        title=title,
        title_justify="left",
        caption="capacity: stored bytes over the base network's",
        caption_justify="left",
        box=SIMPLE_HEAD,
        padding=0,
        pad_edge=False,
    )
    shown.add_column("method", overflow="fold")
    metrics = _metrics(measured)
    for column in (*map(heading, metrics), "forgetting", "capacity", "seconds", "seeds"):
        shown.add_column(column, justify="right", no_wrap=True)
    for row in rows(measured):
        shown.add_row(row.label, *_cells(row, metrics))
    return shown


def as_records(measured: Sequence[Measured]) -> list[dict[str, Any]]:
    """One record per method, with unrounded numbers."""
    return [_record(row, _metrics(measured)) for row in rows(measured)]


def as_csv(measured: Sequence[Measured]) -> str:
    """The records as CSV, one per line."""
    records = as_records(measured)
    text = io.StringIO()
    writer = csv.DictWriter(text, list(records[0]) if records else ["method"], lineterminator="\n")
    writer.writeheader()
    writer.writerows(records)
    return text.getvalue()


def _record(row: Row, metrics: Sequence[str]) -> dict[str, Any]:
    record: dict[str, Any] = {"method": row.method, "label": row.label, "part": row.part}
    for name, found in _numbers(row, metrics).items():
        record[name] = None if found is None else found.value
        record[f"{name}_stderr"] = None if found is None else found.error
    return {**record, "seeds": [run.seed for run in row.runs]}


def _metrics(measured: Sequence[Measured]) -> tuple[str, ...]:
    return measures(each.run for each in measured)


def _cells(row: Row, metrics: Sequence[str]) -> list[str]:
    numbers = _numbers(row, metrics)
    lost, seconds = numbers["forgetting"], numbers["seconds"]
    return [
        *(_score(name, numbers[name]) for name in metrics),
        "–" if lost is None else f"{100 * lost.value:.2f}",
        f"{row.capacity.value:.3f}",
        "–" if seconds is None else f"{seconds.value:.0f}",
        f"{len(row.runs)}",
    ]


def _score(name: str, found: Mean | None) -> str:
    """AUROC and R2 with their standard error, others without, since a terminal is narrow."""
    if found is None:
        return "–"
    return str(found) if name in ("auroc", "r2") else f"{found.value:.4f}"


def _numbers(row: Row, metrics: Sequence[str]) -> dict[str, Mean | None]:
    scores = {name: row.mean(lambda run, name=name: run.average(name)) for name in metrics}  # type: ignore[misc]
    sizes = {
        name: row.mean(lambda run, name=name: getattr(run.summary, name))  # type: ignore[misc]
        for name in ("capacity", "bytes", "parameters", "nonzero", "seconds")
    }
    return {**scores, "forgetting": row.forgetting, **sizes}
