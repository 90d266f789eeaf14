"""A recipe's runs as a table: for the terminal, as CSV, and as records."""

import csv
import io
from collections.abc import Sequence
from typing import Any, Literal

from lifelong.evaluation.metrics import heading
from lifelong.evaluation.runs import measures
from lifelong.printing import Grid
from lifelong.reproduction.measured import Mean, Measured, Row, difference, plain, rows

# Numbers that older stored runs do not have.
_SINCE = ("learning_bytes", "prediction_seconds")


def as_table(title: str, measured: Sequence[Measured], against: str = "") -> Grid:
    """AUROC (R2 of regressions) with its standard error over seeds; forgetting in points of it.

    With `against` the differences from that method, in points.
    """
    metrics, other = _metrics(measured), _other(measured, against)
    compared = any(each.published is not None for each in measured)
    columns = ["method", *map(heading, metrics), "forgetting", "capacity", "seconds", "seeds"]
    columns += ["published accuracy", "verdict"] if compared else []
    columns += [f"against {against}"] if other is not None else []
    lines = [
        (
            row.label,
            *_cells(row, metrics),
            *(_compared(row) if compared else ()),
            *_apart(row, other),
        )
        for row in rows(measured)
    ]
    caption = "±: standard error over seeds; capacity: stored bytes over the base network's"
    return Grid(columns, lines, ("method", "verdict"), title, caption)


def as_text(
    title: str,
    measured: Sequence[Measured],
    form: Literal["markdown", "latex"],
    against: str = "",
) -> str:
    """The table with bytes, for a page or a paper."""
    other, metrics = _other(measured, against), _metrics(measured)
    head = ["method", *map(heading, metrics), *_SIZES]
    head += [f"against {against}"] if other is not None else []
    lines = [
        [row.label, *_whole_cells(row, metrics), *_apart(row, other)] for row in rows(measured)
    ]
    return _as_markdown(title, head, lines) if form == "markdown" else _as_latex(title, head, lines)


_SIZES = ("forgetting", "bytes", "kept to learn", "seconds", "s / 1,000 rows", "seeds")


def _whole_cells(row: Row, metrics: Sequence[str]) -> list[str]:
    numbers = _numbers(row, metrics)

    def number(name: str, text: str, factor: float = 1.0) -> str:
        found = numbers[name]
        return "–" if found is None else format(factor * found.value, text)

    return [
        *("–" if numbers[name] is None else str(numbers[name]) for name in metrics),
        number("forgetting", ".2f", 100),
        number("bytes", ",.0f"),
        number("learning_bytes", ",.0f"),
        number("seconds", ".0f"),
        number("prediction_seconds", ".4f"),
        f"{len(row.runs)}",
    ]


def _as_markdown(title: str, head: Sequence[str], lines: Sequence[Sequence[str]]) -> str:
    rule = ["---", *["---:"] * (len(head) - 1)]
    table = ["| " + " | ".join(line) + " |" for line in (head, rule, *lines)]
    return "\n".join([f"**{title}**", "", *table])


def _as_latex(title: str, head: Sequence[str], lines: Sequence[Sequence[str]]) -> str:
    """With the rules of the package booktabs."""

    def line(cells: Sequence[str]) -> str:
        return " & ".join(map(_in_latex, cells)) + r" \\"

    return "\n".join(
        [
            r"\begin{table}",
            rf"\caption{{{_in_latex(title)}}}",
            rf"\begin{{tabular}}{{l{'r' * (len(head) - 1)}}}",
            r"\toprule",
            line(head),
            r"\midrule",
            *map(line, lines),
            r"\bottomrule",
            r"\end{tabular}",
            r"\end{table}",
        ]
    )


_LATEX = {**{sign: f"\\{sign}" for sign in "&%$#_{}"}, "±": r"$\pm$", "×": r"$\times$", "–": "--"}
_LATEX |= {"\\": r"\textbackslash{}", "~": r"\textasciitilde{}", "^": r"\textasciicircum{}"}


def _in_latex(text: str) -> str:
    return "".join(_LATEX.get(sign, sign) for sign in text)


def _other(measured: Sequence[Measured], against: str) -> Row | None:
    """The plain runs of the method that others are compared with; None if none are."""
    return plain(measured).get(against) if against else None


def _apart(row: Row, other: Row | None) -> tuple[str, ...]:
    if other is None:
        return ()
    found = None if row == other else difference(row, other)
    return ("–" if found is None else str(found),)


def _compared(row: Row) -> tuple[str, str]:
    return ("–" if row.published is None else str(row.published)), row.verdict


def as_records(measured: Sequence[Measured], against: str = "") -> list[dict[str, Any]]:
    """One record per method, with unrounded numbers."""
    compared = any(each.published is not None for each in measured)
    other = _other(measured, against)
    records = []
    for row in rows(measured):
        record = _record(row, _metrics(measured), compared)
        if other is not None:
            found = difference(row, other)
            record["against"] = against
            record["difference"] = None if found is None else found.value
            record["p"] = None if found is None else found.p
        records.append(record)
    return records


def as_csv(measured: Sequence[Measured], against: str = "") -> str:
    """The records as CSV, one per line."""
    records = as_records(measured, against)
    text = io.StringIO()
    writer = csv.DictWriter(text, list(records[0]) if records else ["method"], lineterminator="\n")
    writer.writeheader()
    writer.writerows(records)
    return text.getvalue()


def _record(row: Row, metrics: Sequence[str], compared: bool) -> dict[str, Any]:
    record: dict[str, Any] = {"method": row.method, "label": row.label, "part": row.part}
    for name, found in _numbers(row, metrics).items():
        record[name] = None if found is None else found.value
        record[f"{name}_stderr"] = None if found is None else found.error
    if compared:
        for name in ("accuracy", "error", "capacity", "source"):
            record[f"published_{name}"] = getattr(row.published, name, None)
        record["verdict"] = row.verdict
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
        for name in ("capacity", "bytes", "parameters", "nonzero", "seconds", *_SINCE)
    }
    return {**scores, "forgetting": row.forgetting, **sizes}
