"""What README and docs show of the stored runs: five tables, and the plot of AUROC over bytes.

python docs/pictures/results.py
"""

from collections.abc import Mapping, Sequence
from pathlib import Path

import matplotlib
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import FixedLocator, NullLocator

from lifelong.experiments.collect import collect
from lifelong.experiments.recipes import CAPACITY, FAMILY, recipe
from lifelong.looks import look
from lifelong.reproduction.measured import Measured, Row, difference, plain, rows
from lifelong.reproduction.style import mark

HERE = Path(__file__).resolve().parent
ROOT = HERE.parent.parent
LOOK = {
    "font.size": 9,
    "font.family": "DejaVu Sans",
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.grid": True,
    "axes.axisbelow": True,
    "grid.color": "#e4e4e4",
    "svg.hashsalt": "lifelong",
    "savefig.facecolor": "white",
}
DATA = {
    "rotated digits on photographs": ("figure3-variation", "paper"),
    "CIFAR-100, small network": ("figure3-cifar100", "small"),
    "50 animals": ("figure3-animals50", "paper"),
    "Permuted MNIST": ("permuted", "paper"),
}
FAMILIES = {
    "rotated digits on photographs": ("family-variation", "paper"),
    "CIFAR-100, small network": ("family-cifar100", "small"),
    "50 animals": ("family-animals50", "paper"),
    "Permuted MNIST": ("family-permuted", "paper"),
    "Split MNIST": ("family-split", "paper"),
}
MODULES = {
    "residual network": ("modules-cifar100", "paper"),
    "transformer": ("modules-lines", "paper"),
    "behind a frozen trunk": ("modules-frozen", "paper"),
}
METHODS = {
    "DEN-auto": "**DEN-auto** (overwrites weights)",
    "DEN": "**DEN** (copies units, as in the paper)",
    "DNN-STL": "a network per task (DNN-STL)",
    "DNN-MTL": "all tasks at once (DNN-MTL)",
    "DNN-Progressive": "progressive networks",
    "DNN-EWC": "EWC",
    "DNN-L2": "L2",
    "DNN": "fine-tuning (DNN)",
}
# With modules, also what a method scores with more bytes: by label.
WITH_MORE = {
    "DEN-auto": METHODS["DEN-auto"],
    "DEN-auto, price = 0.03": "**DEN-auto** at a price of 0.03",
    **METHODS,
    "DNN-Progressive, width = 1.0": "progressive networks, whole columns",
}
CHECKS = (
    *("published-split", "published-split-fisher", "published-permuted"),
    *("published-subnetworks", "published-superclasses"),
)
ABLATION = ("ablation-variation", "paper")
Found = Mapping[str, Mapping[str, Row]]


def stored(places: Mapping[str, tuple[str, str]] = DATA) -> Found:
    """Per data set, the runs of each method on all tasks and the base network."""
    return {title: plain(_measured(*place)) for title, place in places.items()}


def stored_on_modules() -> Found:
    """Per module the same, and by its label what has more bytes."""
    measured = {title: _measured(*place) for title, place in MODULES.items()}
    return {
        title: plain(runs) | {row.label: row for row in rows(runs) if row.part == CAPACITY}
        for title, runs in measured.items()
    }


def _measured(name: str, size: str) -> Sequence[Measured]:
    chosen = recipe(name, size)
    return collect(chosen, ROOT / "results", seeds=chosen.seeds).measured


def table(runs: Found, names: Mapping[str, str] = METHODS) -> str:
    """One line per method: AUROC, and in brackets capacity and seeds."""
    lines = [
        f"| AUROC (capacity; seeds) | {' | '.join(runs)} |",
        "|---" * (len(runs) + 1) + "|",
        *(
            f"| {name} | {' | '.join(_cell(found.get(method)) for found in runs.values())} |"
            for method, name in names.items()
            if any(method in found for found in runs.values())
        ),
    ]
    return "\n".join(lines)


def _cell(row: Row | None) -> str:
    if row is None:
        return "–"
    return f"{_score(row.auroc.value)} ({row.capacity.value:.2g}; {len(row.runs)})"


def _score(auroc: float) -> str:
    """Where nearly all rows are in order, the fourth decimal tells methods apart."""
    return f"{auroc:.4f}" if auroc > 0.98 else f"{auroc:.3f}"


def table_of_bytes(runs: Found) -> str:
    """One line per method, the best on the first data set first: AUROC, and in brackets the bytes
    that predictions need, and seeds.
    """
    first = next(iter(runs.values()))
    there = [method for method in FAMILY if any(method in found for found in runs.values())]
    there.sort(key=lambda method: -first[method].auroc.value if method in first else 0.0)
    lines = [
        f"| method | {' | '.join(runs)} |",
        "|---" * (len(runs) + 1) + "|",
        *(
            f"| {method} | {' | '.join(_bytes(found.get(method)) for found in runs.values())} |"
            for method in there
        ),
    ]
    return "\n".join(lines)


def _bytes(row: Row | None) -> str:
    if row is None:
        return "–"
    size = sum(run.summary.bytes for run in row.runs) / len(row.runs)
    return f"{row.auroc.value:.4f} ({size:,.0f}; {len(row.runs)})"


def worth(measured: Sequence[Measured]) -> str:
    """One line per part of DEN: what is gained or lost with it, against DEN with the defaults."""
    den, *others = rows(measured)
    lines = [
        "| | AUROC | against DEN, points | capacity | seeds |",
        "|---|---|---|---|---|",
        *(
            f"| {row.label} | {row.auroc} | {difference(row, den) or '–'} "
            f"| {row.capacity.value:.2f} | {len(row.runs)} |"
            for row in (den, *others)
        ),
    ]
    return "\n".join(lines)


def checks() -> str:
    """One line per method with a published accuracy: both, what they store, and the verdict."""
    lines = [
        "| recipe, row | published | ours | capacity, published | ours | seeds | verdict |",
        "|---|---|---|---|---|---|---|",
    ]
    for name in CHECKS:
        judged = [row for row in rows(_measured(name, "paper")) if row.published is not None]
        lines += [f"| `{name}`, {row.label} | {_checked(row)} |" for row in judged]
    return "\n".join(lines)


def _checked(row: Row) -> str:
    published, ours = row.published, row.mean(lambda run: run.summary.accuracy)
    assert published is not None
    size = "–" if published.capacity is None else f"{published.capacity:.2f}"
    cells = (published, ours, size, f"{row.capacity.value:.2f}", len(row.runs), row.verdict)
    return " | ".join(map(str, cells))


def draw(runs: Found) -> Figure:
    """One panel per data set: what each method scores, over what it stores."""
    figure = Figure(figsize=(9.2, 3.1), layout="constrained")
    for axes, (title, found) in zip(figure.subplots(1, len(runs)), runs.items(), strict=True):
        _panel(axes, title, found)
    figure.axes[0].set_ylabel("AUROC after the last task")
    handles = [
        figure.axes[0].plot([], [], linestyle="none", label=method, **mark(method, hollow=False))[0]
        for method in METHODS
    ]
    figure.legend(handles=handles, loc="outside lower center", ncols=len(METHODS), frameon=False)
    return figure


def _panel(axes: Axes, title: str, runs: Mapping[str, Row]) -> None:
    for method in METHODS:
        if method in runs:
            row = runs[method]
            size = {"markersize": 9 if look(method).marker == "*" else 7}
            shown = mark(method, hollow=len(row.runs) == 1) | size
            axes.plot(row.capacity.value, row.auroc.value, **shown)
    axes.set_xscale("log")
    ticks = [tick for tick in (1, 2, 5, 10, 20, 50) if tick <= axes.get_xlim()[1]]
    axes.xaxis.set_major_locator(FixedLocator(ticks))
    axes.xaxis.set_minor_locator(NullLocator())
    axes.set_xticklabels([f"{tick}×" for tick in ticks])
    axes.set_title(title, fontsize=9)
    axes.set_xlabel("stored bytes")


def with_table(page: str, name: str, table: str) -> str:
    """The page, with this table between the comments of that name."""
    start, end = f"<!-- {name} -->", f"<!-- /{name} -->"
    before, _, rest = page.partition(start)
    _, _, after = rest.partition(end)
    return f"{before}{start}\n{table}\n{end}{after}"


def pages() -> dict[Path, tuple[str, str]]:
    """The pages with a table of stored runs: its name there, and its text."""
    return {
        ROOT / "README.md": ("results", table(stored())),
        ROOT / "docs" / "choosing.md": ("bytes", table_of_bytes(stored(FAMILIES))),
        ROOT / "docs" / "baselines.md": ("published", checks()),
        ROOT / "docs" / "modules.md": ("measured", table(stored_on_modules(), WITH_MORE)),
        ROOT / "docs" / "deviations.md": ("worth", worth(_measured(*ABLATION))),
    }


if __name__ == "__main__":
    for place, shown in pages().items():
        place.write_text(with_table(place.read_text("utf-8"), *shown), "utf-8")
    with matplotlib.rc_context(LOOK):
        draw(stored()).savefig(HERE / "results.svg", metadata={"Date": None})
