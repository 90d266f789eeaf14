"""Commands that list and check what is available: `list` and `data`."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal, get_args

from rich.box import SIMPLE_HEAD
from rich.table import Table
from tyro.conf import Positional, arg

from lifelong.cli.common import RESULTS, Refusal, Size, plainly, print_json, say, two_columns
from lifelong.printing import Terminal

if TYPE_CHECKING:
    from lifelong.experiments.durations import Durations, Expected
    from lifelong.experiments.recipes import Recipe


def list_command(
    what: Annotated[Literal["everything", "methods"], Positional, arg(metavar="methods")] = (
        "everything"
    ),
    /,
    json: bool = False,
) -> None:
    """List recipes, methods, data sets, metrics and engines.

    Of a recipe its data, and how long it took where runs of it are stored; of a data set whether
    its files are there.

    Args:
        what: "methods" lists for each method what it is chosen by: whether it forgets, needs the
            task's name, keeps data or grows, what it stores per task, and where it comes from.
        json: Print the lists as JSON.
    """
    if what == "methods":
        _list_methods(json)
        return
    with plainly():
        from lifelong.evaluation.metrics import METRICS
        from lifelong.experiments.durations import Durations
        from lifelong.experiments.engines import ENGINES
        from lifelong.experiments.recipes import RECIPES
        from lifelong.learners.registry import METHODS
        from lifelong.tasks.datasets import DATASETS, files_present
        from lifelong.tasks.datasets.files import data_directory

        recipes = [named("paper") for named in RECIPES.values()]
        stored = Durations(Path(RESULTS))
        took = {
            name: {size: _took(stored, named(size)) for size in get_args(Size)}
            for name, named in RECIPES.items()
        }
        sets = [*DATASETS, *sorted({r.data.name for r in recipes} - DATASETS.keys())]
        there = {name: files_present(name) for name in sets}
        about = {name: DATASETS[name].about if name in DATASETS else "" for name in sets}
        if json:
            print_json(
                {
                    "recipes": [
                        {
                            "name": r.name,
                            "title": r.title,
                            "data": r.data.name,
                            "parts": r.parts,
                            "seconds": {
                                size: each.seconds if each.known == each.runs else None
                                for size, each in took[r.name].items()
                            },
                        }
                        for r in recipes
                    ],
                    "methods": [
                        {"name": m.name, "about": m.about, "citation": m.citation}
                        for m in METHODS.values()
                    ],
                    "data": [
                        {"name": n, "about": about[n], "files": found} for n, found in there.items()
                    ],
                    "metrics": [{"name": m.name, "label": m.label} for m in METRICS.values()],
                    "engines": [{"name": e.name, "about": e.about} for e in ENGINES.values()],
                }
            )
            return
        console = Terminal()
        console.print(
            two_columns(
                f"Recipes; learning on one core, by the runs in {RESULTS}",
                {r.name: f"{r.title} ({r.data.name}; {_in_words(took[r.name])})" for r in recipes},
            ),
            two_columns("Methods", {m.name: m.about for m in METHODS.values()}),
            two_columns(
                f"Data sets; files in {data_directory()}",
                {
                    name: f"{'there' if found else 'not there':11}{about[name]}".rstrip()
                    for name, found in there.items()
                },
            ),
            two_columns("Metrics", {m.name: m.heading for m in METRICS.values()}),
            two_columns("Engines", {e.name: e.about for e in ENGINES.values()}),
        )


def _took(stored: "Durations", recipe: "Recipe") -> "Expected":
    """What all runs of a recipe take together."""
    return stored.expected(
        recipe.configuration(entry, seed) for entry in recipe.entries for seed in recipe.seeds
    )


def _in_words(took: "dict[str, Expected]") -> str:
    known = {size: each for size, each in took.items() if each.known}
    return ", ".join(f"{size}: {each}" for size, each in known.items()) or "not timed yet"


def _list_methods(json: bool) -> None:
    with plainly():
        from lifelong.learners.registry import TRAITS, traits

        if json:
            print_json([dict(zip(TRAITS, row, strict=True)) for row in traits()])
            return
        shown = Table(title="Methods", title_justify="left", box=SIMPLE_HEAD, pad_edge=False)
        for column in TRAITS:
            shown.add_column(column, overflow="fold")
        for row in traits():
            shown.add_row(*row)
        Terminal().print(shown)


def data_command(
    action: Annotated[Literal["get", "check"], Positional, arg(metavar="get|check")],
    name: Annotated[str, Positional, arg(metavar="NAME")],
    /,
    data_dir: Annotated[Path | None, arg(metavar="DIR")] = None,
    json: bool = False,
) -> None:
    """Download or check the files of a data set.

    `lifelong list` names the data sets. Files are in --data-dir, else in $LIFELONG_DATA, else
    in the platform's cache directory.

    Args:
        action: "get" downloads missing files from their publisher, verifies the published hash and
            then checks all files; "check" downloads nothing.
        name: The data set, such as mnist or features:PATH.npz.
        data_dir: Directory of data files.
        json: Print the result as JSON.
    """
    with plainly(data_option="--data-dir"):
        from lifelong.tasks.datasets import files_present, load
        from lifelong.tasks.datasets.files import data_directory

        place = data_directory(data_dir)
        if action == "check" and not files_present(name, data_dir):
            raise Refusal(
                f"the files of {name} are not in {place}; `lifelong data get {name}` gets them "
                "where they are published, docs/data.md says which go where",
                1,
            )
        stream = load(name, 0, data_dir)
        first = next(iter(stream))
        rows = {part: len(getattr(first, part)) for part in ("train", "valid", "test")}
        if json:
            print_json({"name": name, "source": stream.source, "tasks": stream.names, **rows})
            return
        say(f"{name} is there: {stream.source}")
        say(f"{len(stream)} tasks; {first.name}: " + ", ".join(f"{n} {p}" for p, n in rows.items()))
