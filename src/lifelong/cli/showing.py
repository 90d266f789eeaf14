"""Commands that show stored runs: `table`, `figure` and `reproduce`."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

from tyro.conf import arg

from lifelong.cli.common import (
    HERE,
    RESULTS,
    Methods,
    On,
    Out,
    RecipeName,
    Refusal,
    Seeds,
    Size,
    Splits,
    at_hand,
    plainly,
    print_json,
    say,
    seed_numbers,
    warn,
)
from lifelong.cli.making import resumable
from lifelong.printing import Terminal

if TYPE_CHECKING:
    from lifelong.experiments.collect import Collected
    from lifelong.experiments.recipes import Recipe

FORMATS = ("png", "svg", "pdf", "csv")


def table_command(
    recipe: RecipeName,
    /,
    size: Size = "small",
    seeds: Seeds = (),
    methods: Methods = (),
    parts: Splits = (),
    out: Out = RESULTS,
    against: Annotated[str, arg(metavar="METHOD")] = "",
    csv: Annotated[Path | None, arg(metavar="FILE")] = None,
    markdown: bool = False,
    latex: bool = False,
    json: bool = False,
) -> None:
    """Print the stored runs of a recipe as a table of means over seeds.

    AUROC has its standard error, forgetting is in points of AUROC, and capacity is the stored bytes
    over those of the base network with a head for each task; CSV and JSON have bytes and values.

    Args:
        recipe: Name of the recipe.
        size: Size of the recipe.
        seeds: Only these seeds; by default those of the recipe.
        methods: Only these methods.
        parts: Only these parts of a figure.
        out: Directory in which `lifelong run` stored the runs.
        against: A method; the difference of each other one's AUROC from it is shown in points,
            with its p-value by a t-test that is paired over seeds.
        csv: Also write the table to this CSV file.
        markdown: Print it as Markdown, with bytes.
        latex: Print it as LaTeX, with bytes.
        json: Print the table as JSON.
    """
    if markdown + latex + json > 1:
        raise Refusal("a table is printed in one format: --markdown, --latex or --json", 2)
    with plainly():
        from lifelong.experiments.collect import collect
        from lifelong.experiments.recipes import recipes
        from lifelong.learners.registry import method as method_named
        from lifelong.reproduction.table import as_csv, as_records, as_table, as_text

        several, (directory, _) = recipes(recipe, size, methods), at_hand(out)
        if csv is not None and len(several) > 1:
            raise Refusal(f"--csv takes a single recipe, such as {several[0].name}", 2)
        other = method_named(against).name if against else ""
        found_any = False
        printed: list[object] = []
        for chosen in several:
            asked = seed_numbers(seeds) or chosen.seeds
            found = collect(chosen, directory, seeds=asked, methods=methods, parts=parts)
            if len(several) == 1:
                _require_some(found, chosen, directory)
            elif not found.measured:
                continue
            found_any = True
            if csv is not None:
                csv.parent.mkdir(parents=True, exist_ok=True)
                csv.write_text(as_csv(found.measured, other), encoding="utf-8")
            if json:
                printed.append(
                    {
                        "recipe": chosen.name,
                        "size": chosen.size,
                        "rows": as_records(found.measured, other),
                        "missing": found.missing,
                        "damaged": found.damaged,
                    }
                )
                continue
            if markdown or latex:
                form: Literal["markdown", "latex"] = "latex" if latex else "markdown"
                for line in as_text(chosen.title, found.measured, form, other).splitlines():
                    say(line)
            else:
                Terminal().print(as_table(chosen.title, found.measured, other))
            _tell_what_is_not_there(found)
        if not found_any:
            raise Refusal(f"no stored run of {recipe} at size {size} in {out}/runs", 1)
        if json:
            print_json(printed[0] if len(several) == 1 else printed)


def figure_command(
    recipe: RecipeName,
    /,
    size: Size = "small",
    seeds: Seeds = (),
    methods: Methods = (),
    out: Out = RESULTS,
    to: Annotated[Path | None, arg(metavar="DIR")] = None,
    formats: Annotated[tuple[str, ...], arg(metavar="png|svg|pdf|csv")] = FORMATS,
) -> None:
    """Draw the figure of a recipe from its stored runs.

    It shows means and standard errors over seeds.

    Args:
        recipe: Name of the recipe.
        size: Size of the recipe.
        seeds: Only these seeds; by default those of the recipe.
        methods: Only these methods.
        out: Directory in which `lifelong run` stored the runs.
        to: Directory for the figure; by default OUT/figures.
        formats: Any of png, svg, pdf and csv (the points of the figure).
    """
    with plainly():
        from lifelong.experiments.collect import collect
        from lifelong.experiments.recipes import recipes
        from lifelong.reproduction.figures import write_family, write_figure

        unknown = [name for name in formats if name not in FORMATS]
        if unknown:
            raise Refusal(f"--formats are of {', '.join(FORMATS)}, not {unknown[0]!r}", 2)
        several, (directory, _) = recipes(recipe, size, methods), at_hand(out)
        place = to or directory / "figures"
        by_recipe = {}
        for chosen in several:
            asked = seed_numbers(seeds) or chosen.seeds
            found = collect(chosen, directory, seeds=asked, methods=methods)
            if len(several) == 1:
                _require_some(found, chosen, directory)
            _tell_what_is_not_there(found, most=0)
            by_recipe[chosen.name] = found.measured
        if len(several) == 1:
            files = write_figure(several[0].name, size, found.measured, place, formats)
        elif any(by_recipe.values()):
            files = write_family(recipe, size, by_recipe, place, formats)
        else:
            raise Refusal(f"no stored run of {recipe} at size {size} in {out}/runs", 1)
        for file in files:
            say(file)


def reproduce_command(
    out: Out = RESULTS,
    to: Annotated[Path, arg(metavar="FILE")] = Path("REPRODUCTION.md"),
    make: Annotated[Size | None, arg(metavar="small|paper")] = None,
    where: On = HERE,
    json: bool = False,
) -> None:
    """Make figures and REPRODUCTION.md from all stored runs.

    Also makes summary.json. Each claim of the paper gets a verdict; a claim without runs is
    "not measured".

    Args:
        out: Directory in which `lifelong run` stored the runs; summary and figures go there too.
            Of an address, they go to the copy of its runs on this machine.
        to: File for the page.
        make: First make the runs of this size that are missing, of all recipes whose data is there.
        where: Where the runs are made.
        json: Print the summary as JSON.
    """
    with plainly():
        from lifelong.experiments.reproduce import jobs, reproduce
        from lifelong.experiments.runner import run

        directory, store = at_hand(out)
        if make is not None:
            engine, resources = where.made()
            todo, absent = jobs(make, directory, store)
            for name in absent:
                warn(f"not made: {name}, whose data is not there (`lifelong data`)")
            with resumable():
                run(todo, console=Terminal(stderr=True), engine=engine, resources=resources)
        made = reproduce(directory, to)
        for line in made.damaged:
            warn(f"damaged, left out: {line}")
        if json:
            print_json(made.findings)
            return
        for file in made.files:
            say(file)


def _require_some(found: "Collected", recipe: "Recipe", out: Path) -> None:
    if not found.measured:
        _tell_what_is_not_there(found, most=0)
        raise Refusal(
            f"no stored run of {recipe.name} at size {recipe.size} in {out / 'runs'}; make some "
            f"with `lifelong run {recipe.name} --size {recipe.size}`, or say where they are with "
            "--out",
            1,
        )


def _tell_what_is_not_there(found: "Collected", most: int = 5) -> None:
    for line in found.damaged:
        warn(f"damaged, left out: {line}")
    for line in found.missing[:most]:
        warn(f"not there: {line}")
    if len(found.missing) > most > 0:
        warn(f"not there: {len(found.missing) - most} more")
