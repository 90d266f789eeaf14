"""Make the published figures, summary and page from the stored runs."""

from dataclasses import dataclass
from pathlib import Path
from typing import final

from lifelong.experiments.choices import tuned
from lifelong.experiments.collect import Collected, collect
from lifelong.experiments.perform import Job
from lifelong.experiments.recipes import GROUPS, RECIPES, Recipe, Size, recipe
from lifelong.experiments.runner import jobs_of
from lifelong.reproduction.claims import Evidence, Finding, findings
from lifelong.reproduction.figures import TITLES, write_combined, write_figure
from lifelong.reproduction.measured import look_alike
from lifelong.reproduction.page import Chosen, page, read_summary, write_summary
from lifelong.tasks.datasets import files_present

SUMMARY = "summary.json"
# `lifelong table` shows them.
_NOT_ON_THE_PAGE = (
    "rehearsal",
    *("published-permuted", "published-split-fisher", "published-split"),
    *("published-subnetworks", "published-superclasses"),
    *GROUPS["family"],
    *GROUPS["modules"],
)
_FORMATS = ("png",)
_DATA = {
    "figure3-awa": "AWA",
    "figure3-animals50": "50 animals, in the place of AWA",
    "figure4": "MNIST-Variation: Figure 4",
    "figure5": "MNIST-Variation: Figure 5",
}


@final
@dataclass(frozen=True)
class Reproduced:
    """The findings, the files written, and the damaged files."""

    findings: list[Finding]
    files: list[Path]
    damaged: list[str]


def reproduce(out: Path, to: Path) -> Reproduced:
    """Write the figures into OUT/figures, the summary into OUT, and the page to the given file."""
    evidence: dict[str, Evidence] = {}
    damaged: list[str] = []
    figures: list[Path] = []
    for name in _on_the_page():
        chosen, found = _largest(name, out)
        damaged += [line for line in found.damaged if line not in damaged]
        evidence[name] = _evidence(chosen, found)
        if found.measured:
            figures += write_figure(name, chosen.size, found.measured, out / "figures", _FORMATS)
    figures += write_combined(evidence.values(), out / "figures", _FORMATS)
    summary = out / SUMMARY
    summary.parent.mkdir(parents=True, exist_ok=True)
    summary.write_bytes(write_summary(findings(evidence)))
    found_out = read_summary(summary.read_bytes())
    pictures = [str(_from(to.parent, file)) for file in figures]
    text = page(found_out, evidence, pictures, _choices())
    to.write_text(text, encoding="utf-8")
    return Reproduced(found_out, [summary, to, *figures], damaged)


def jobs(size: Size, out: Path, store: str = "") -> tuple[list[Job], list[str]]:
    """Every run that the page is made from; and the recipes whose data is not there."""
    chosen = [recipe(name, size) for name in _on_the_page()]
    there = [each for each in chosen if files_present(each.data.name)]
    made = [job for each in there for job in jobs_of(each, seeds=each.seeds, out=out, store=store)]
    return made, [each.name for each in chosen if each not in there]


def _on_the_page() -> list[str]:
    return [name for name in RECIPES if name not in _NOT_ON_THE_PAGE]


def _largest(name: str, out: Path) -> tuple[Recipe, Collected]:
    """The runs at the paper's size if there are any, otherwise those at the small size."""
    paper = recipe(name, "paper")
    found = collect(paper, out, seeds=paper.seeds)
    if found.measured:
        return paper, found
    small = recipe(name, "small")
    return small, collect(small, out, seeds=small.seeds)


def _evidence(chosen: Recipe, found: Collected) -> Evidence:
    title = _DATA.get(chosen.name) or TITLES.get(chosen.name, chosen.name)
    measured = bool(found.measured)
    size = chosen.size if measured else "paper"
    data = title if size == "paper" else f"{title}, at a small size"
    alike = " (look-alike)" if look_alike(found.measured) else ""
    command = f"lifelong run {chosen.name} --size {size}"
    return Evidence(chosen.name, size, data + alike, command, found.measured)


def _choices() -> list[Chosen]:
    """All tuned settings that the recipes of the paper use."""
    sets = dict.fromkeys(RECIPES[name]("paper").data.name for name in RECIPES)
    return [
        Chosen(
            data,
            method,
            ", ".join(f"{name} {value:g}" for name, value in choice.settings.items()),
            choice.trials[:1] != () and choice.settings == choice.trials[0].settings,
            len(choice.trials),
            ", ".join(map(str, choice.seeds)),
            choice.tasks,
        )
        for data in sets
        for method, choice in tuned(data).methods.items()
    ]


def _from(directory: Path, file: Path) -> Path:
    try:
        return file.resolve().relative_to(directory.resolve())
    except ValueError:
        return file
