"""REPRODUCTION.md: the findings, with the tables behind them."""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import final, get_args

import msgspec

from lifelong.reproduction.claims import FIGURE_3, VERDICTS, Evidence, Finding, Verdict
from lifelong.reproduction.measured import Row, plain, rows

_HEAD = """# Reproduction

Every number and every claim of the paper's experiments, beside our measurements. The command
`lifelong reproduce` makes this page and `results/summary.json` from the runs stored in
`results/runs`; do not edit them by hand. Claims that were not reproduced or not measured are listed
as such; an AUROC on data that only imitates the paper's is not comparable with the paper's.

Numbers are means over seeds with the standard error of the mean; differences are in points of AUROC
(100 times AUROC). [docs/experiments.md](docs/experiments.md) describes how runs are made and how
settings are chosen.
"""


@final
@dataclass(frozen=True)
class Chosen:
    """The tuned settings of a method on a data set, as text."""

    data: str
    method: str
    settings: str
    defaults: bool
    trials: int
    seeds: str
    tasks: int


def read_summary(text: bytes) -> list[Finding]:
    """Read what `write_summary` wrote."""
    return msgspec.json.decode(text, type=list[Finding])


def write_summary(findings: Sequence[Finding]) -> bytes:
    return msgspec.json.format(msgspec.json.encode(findings), indent=1) + b"\n"


def page(
    findings: Sequence[Finding],
    evidence: Mapping[str, Evidence],
    figures: Sequence[str],
    choices: Sequence[Chosen] = (),
) -> str:
    """The whole page."""
    parts = [
        _HEAD,
        _counted(findings),
        _at_a_glance(
            [each for each in evidence.values() if each.recipe in (*FIGURE_3, "permuted")]
        ),
        _order_in_words(findings),
        *(_section(data, own) for data, own in _by_data(findings).items()),
        _rules(),
        _settings(choices),
        _figures(figures),
        *(_table(each) for each in evidence.values() if each.measured),
    ]
    return "\n".join(part for part in parts if part)


def _counted(findings: Sequence[Finding]) -> str:
    counts = Counter(finding.verdict for finding in findings)
    order: tuple[Verdict, ...] = get_args(Verdict)
    told = ", ".join(f"{counts[verdict]} {verdict}" for verdict in order)
    return f"Of {len(findings)} claims and numbers: **{told}**.\n"


def _at_a_glance(evidence: Sequence[Evidence]) -> str:
    """The plain runs of every method of Figure 3 on every data set that has runs."""
    columns = {each.data: plain(each.measured) for each in evidence if each.measured}
    if not columns:
        return ""
    methods = dict.fromkeys(method for found in columns.values() for method in found)
    lines = [
        "## At a glance\n",
        "AUROC after the last task; in brackets the capacity (stored bytes over the base "
        "network's with a head for each task) and the number of seeds.\n",
        f"| | {' | '.join(columns)} |",
        "|---" * (len(columns) + 1) + "|",
        *(
            f"| {method} | {' | '.join(_glance(found.get(method)) for found in columns.values())} |"
            for method in methods
        ),
        "",
    ]
    return "\n".join(lines)


def _glance(row: Row | None) -> str:
    if row is None:
        return "–"
    return f"{row.auroc} ({row.capacity.value:.2f}; {len(row.runs)})"


def _order_in_words(findings: Sequence[Finding]) -> str:
    """The plain statement: does DEN ≥ Progressive > EWC > L2 hold?"""
    lines = ["## The order DEN ≥ Progressive > EWC > L2\n"]
    for data, own in _by_data(findings).items():
        steps = [finding for finding in own if finding.order]
        if not steps or any(step.verdict == "not measured" for step in steps):
            continue
        broken = [step for step in steps if step.verdict == "not reproduced"]
        names = "; ".join(_claim(step) for step in broken)
        lines.append(f"- {data}: " + (f"it does not hold: {names}." if broken else "it holds."))
    return "\n".join([*lines, ""]) if len(lines) > 1 else ""


def _claim(finding: Finding) -> str:
    said = finding.claim.removeprefix("order: ").removesuffix(" (points of AUROC)")
    far_from = "not clearly" if (finding.ours or 0.0) > 0 else "not"
    return f"{far_from} that {said} ({_ours(finding)} points)"


def _by_data(findings: Iterable[Finding]) -> dict[str, list[Finding]]:
    grouped: dict[str, list[Finding]] = {}
    for finding in findings:
        grouped.setdefault(finding.data, []).append(finding)
    return grouped


def _section(data: str, findings: Sequence[Finding]) -> str:
    lines = [
        f"## {data}\n",
        "| claim | paper | ours | seeds | verdict |",
        "|---|---|---|---|---|",
        *(
            f"| {one.claim} | {one.paper} | {_ours(one)} | {one.seeds or '–'} | {_bold(one)} |"
            for one in findings
        ),
        "",
        *(f"`{command}`\n" for command in dict.fromkeys(one.command for one in findings)),
    ]
    return "\n".join(lines)


def _ours(finding: Finding) -> str:
    if finding.ours is None:
        return "–"
    error = "" if finding.stderr is None else f" ± {finding.stderr:.{finding.decimals}f}"
    return f"{finding.ours:.{finding.decimals}f}{error}"


def _bold(finding: Finding) -> str:
    return f"**{finding.verdict}**" if finding.verdict == "not reproduced" else finding.verdict


def _rules() -> str:
    rules = "\n".join(f"- {kind}: {rule}." for kind, rule in VERDICTS.items())
    return f"## How verdicts are made\n\n{rules}\n"


def _settings(choices: Sequence[Chosen]) -> str:
    if not choices:
        return "## Settings\n\nNo settings were tuned: every method has its defaults.\n"
    lines = [
        "## Settings\n",
        "Chosen by AUROC on validation rows of the first tasks, on seeds that are not reported. "
        "All other settings, and methods that are not listed, have their defaults.\n",
        "| data | method | chosen | defaults were best | trials | seeds | tasks |",
        "|---|---|---|---|---|---|---|",
        *(
            f"| {one.data} | {one.method} | {one.settings} | {'yes' if one.defaults else 'no'} "
            f"| {one.trials} | {one.seeds} | {one.tasks} |"
            for one in choices
        ),
        "",
    ]
    return "\n".join(lines)


def _figures(figures: Sequence[str]) -> str:
    if not figures:
        return ""
    shown = "\n\n".join(f"![{Path(file).stem}]({file})" for file in figures)
    key = (
        "Filled marks are means over seeds, hollow ones single seeds; bands are one standard "
        "error to each side, bars as the figure says. The tables below have the number of seeds "
        "of each."
    )
    return f"## Figures\n\n{key}\n\n{shown}\n"


def _table(evidence: Evidence) -> str:
    found = rows(evidence.measured)
    lines = [
        f"## {evidence.recipe}: all runs\n",
        f"{found[0].runs[0].source}. Size: {evidence.size}.\n",
        "| method | AUROC | forgetting, points | bytes / base's | values | seconds | seeds |",
        "|---|---|---|---|---|---|---|",
        *(_line(row) for row in found),
        "",
    ]
    return "\n".join(lines)


def _line(row: Row) -> str:
    lost, seconds = row.forgetting, row.mean(lambda run: run.summary.seconds)
    values = row.mean(lambda run: run.summary.parameters)
    cells = (
        row.label,
        str(row.auroc),
        "–" if lost is None else f"{100 * lost.value:.2f}",
        f"{row.capacity.value:.3f}",
        "–" if values is None else f"{values.value:,.0f}",
        "–" if seconds is None else f"{seconds.value:.0f}",
        f"{len(row.runs)}",
    )
    return "| " + " | ".join(cells) + " |"
