"""The figure of each recipe, and its files."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from matplotlib.figure import Figure

from lifelong.reproduction import dots, figure3, figure4, figure5, frontier, style, table
from lifelong.reproduction.claims import FIGURE_3, Evidence
from lifelong.reproduction.measured import Measured, look_alike
from lifelong.reproduction.series import Series, as_csv

TITLES = {
    "figure3-variation": "MNIST-Variation",
    "figure3-cifar100": "CIFAR-100",
    "figure3-awa": "AWA",
    "figure3-animals50": "50 animals",
    "figure4": "MNIST-Variation",
    "figure5": "MNIST-Variation",
    "permuted": "Permuted MNIST",
    "methods-variation": "MNIST-Variation",
    "family-variation": "MNIST-Variation",
    "family-cifar100": "CIFAR-100",
    "family-animals50": "50 animals",
    "family-permuted": "Permuted MNIST",
    "family-split": "Split MNIST",
    "modules-cifar100": "CIFAR-100, residual network",
    "modules-lines": "Lines of source, transformer",
    "modules-frozen": "CIFAR-100 behind a frozen trunk",
    "ablation-variation": "Parts of DEN, MNIST-Variation",
    "rehearsal": "digits",
}
WITH_TITLE = {
    "figure4": (figure4.draw, figure4.series),
    "figure5": (figure5.draw, figure5.series),
    "methods-variation": (dots.draw, dots.series),
    "ablation-variation": (dots.draw, dots.series),
}


def write_figure(
    recipe: str, size: str, measured: Sequence[Measured], directory: Path, formats: Sequence[str]
) -> list[Path]:
    """Write the figure in each format; the CSV has the points, and for Figure 4 its table."""
    name = recipe if size == "paper" else f"{recipe}-{size}"
    figure, drawn = _figure(recipe, size, measured)
    files = style.save(figure, directory, name, [each for each in formats if each != "csv"])
    if "csv" in formats:
        files.append(_write(directory / f"{name}.csv", as_csv(drawn)))
        if recipe == "figure4":
            files.append(_write(directory / f"{name}-table.csv", table.as_csv(measured)))
    return files


def write_family(
    name: str,
    size: str,
    by_recipe: Mapping[str, Sequence[Measured]],
    directory: Path,
    formats: Sequence[str],
) -> list[Path]:
    """AUROC over bytes, with one panel per data set that has runs."""
    shown = {_title(recipe, size, runs): runs for recipe, runs in by_recipe.items() if runs}
    pictures = [each for each in formats if each != "csv"]
    named = name if size == "paper" else f"{name}-{size}"
    files = style.save(frontier.draw(shown), directory, named, pictures)
    if "csv" in formats:
        drawn = [
            replace(each, panel=title)
            for title, runs in shown.items()
            for each in frontier.series(runs)
        ]
        files.append(_write(directory / f"{named}.csv", as_csv(drawn)))
    return files


def write_combined(
    evidence: Iterable[Evidence], directory: Path, formats: Sequence[str]
) -> list[Path]:
    """Figure 3 as in the paper, with one column per data set that has runs."""
    columns = {
        _title(each.recipe, each.size, each.measured): each.measured
        for each in evidence
        if each.recipe in FIGURE_3 and each.measured
    }
    if len(columns) < 2:
        return []
    pictures = [each for each in formats if each != "csv"]
    return style.save(figure3.draw(columns), directory, "figure3", pictures)


def _figure(
    recipe: str, size: str, measured: Sequence[Measured]
) -> tuple[Figure, tuple[Series, ...]]:
    title = _title(recipe, size, measured)
    if recipe in WITH_TITLE:
        draw, series = WITH_TITLE[recipe]
        return draw(measured, title), series(measured)
    if recipe.startswith("family-"):
        return frontier.draw({title: measured}), frontier.series(measured)
    return figure3.draw({title: measured}), figure3.series(measured)


def _title(recipe: str, size: str, measured: Sequence[Measured]) -> str:
    small = "" if size == "paper" else f", {size}"
    return TITLES.get(recipe, recipe) + small + (", look-alike" if look_alike(measured) else "")


def _write(file: Path, text: str) -> Path:
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(text, encoding="utf-8")
    return file
