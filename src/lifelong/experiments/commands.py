"""The commands of the experiments: `run`, `list`, `table`, `tune`. Parsing and printing only."""

import os
import shlex
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal, TypeAlias

import msgspec
import tyro
from rich.console import Console
from rich.table import Table
from tyro.conf import Positional, arg

if TYPE_CHECKING:  # what takes torch is imported when it is needed: --help need not wait for it
    from lifelong.experiments.collect import Collected
    from lifelong.experiments.recipes import Recipe

Size: TypeAlias = Literal["small", "paper"]
RecipeName: TypeAlias = Annotated[str, Positional, arg(metavar="RECIPE")]
Seeds: TypeAlias = Annotated[tuple[str, ...], arg(metavar="0-4")]
Methods: TypeAlias = Annotated[tuple[str, ...], arg(metavar="METHOD")]
Parts: TypeAlias = Annotated[tuple[str, ...], arg(metavar="PART")]
Out: TypeAlias = Annotated[Path, arg(metavar="DIR")]
RESULTS = Path("results")
FORMATS = ("png", "svg", "pdf", "csv")


class Refusal(Exception):
    """What a user can mend: a message, and the exit code."""

    def __init__(self, message: str, code: int) -> None:
        super().__init__(message)
        self.code = code


def register(app: tyro.extras.SubcommandApp) -> None:
    """Add these commands to the command line."""
    app.command(name="run")(_run)
    app.command(name="list")(_list)
    app.command(name="table")(_table)
    app.command(name="figure")(_figure)
    app.command(name="tune")(_tune)
    app.command(name="data")(_data)
    app.command(name="reproduce")(_reproduce)


def _run(
    recipe: RecipeName,
    /,
    size: Size = "small",
    seeds: Seeds = (),
    methods: Methods = (),
    parts: Parts = (),
    jobs: Annotated[int | None, arg(metavar="N")] = None,
    out: Out = RESULTS,
    device: Annotated[str, arg(metavar="cpu|cuda")] = "cpu",
    json: bool = False,
) -> None:
    """Make the runs of an experiment and store them; `lifelong list` tells which there are.

    What is stored is never made again. Stop it with Ctrl-C, or kill it: the same command goes on
    where it was. A run that fails is recorded, and the others go on; the exit code is then 1.

    Args:
        recipe: Which experiment, such as figure3-variation.
        size: The paper's network and data, or a small one for two cores.
        seeds: Such as 0-4, or 0 2 5; those of the recipe unless given.
        methods: Only these.
        parts: Only these parts of a figure: "tasks" or "capacity".
        jobs: Runs at the same time, one thread each; as many as there are cores unless given.
        out: Directory to store them in.
        device: To train on.
        json: Print what became of the runs as JSON.
    """
    with _plainly():
        from lifelong.experiments.recipes import recipe as named
        from lifelong.experiments.run import jobs_of, run

        chosen = named(recipe, size)
        asked = _seeds(seeds) or chosen.seeds
        todo = jobs_of(
            chosen, seeds=asked, methods=methods, parts=parts, out=out, device=_device(device)
        )
        workers = _positive("--jobs", jobs) or os.cpu_count() or 1
        _require_data(chosen)
        console = Console(stderr=json)
        if chosen.reduced:
            console.print(f"Small: {chosen.reduced}.", markup=False, highlight=False)
        with _resumable():
            tally = run(todo, workers=workers, console=console)
        if json:
            _print_json(tally)
        else:
            console.print(
                f"{len(tally.made)} made, {len(tally.there)} there before, "
                f"{len(tally.failed)} failed, {len(tally.skipped)} left to another process; "
                f"in {out.resolve() / 'runs'}",
                highlight=False,
                soft_wrap=True,
            )
        if tally.failed:
            raise Refusal(
                f"{len(tally.failed)} of {len(todo)} runs failed; why is in {out / 'failed'}, and "
                "the same command tries them again",
                1,
            )


def _list(json: bool = False) -> None:
    """Tell which recipes, methods and data sets there are, and whether their files are.

    Args:
        json: As JSON.
    """
    with _plainly():
        from lifelong.data import names
        from lifelong.data.files import data_directory
        from lifelong.data.presence import files_present
        from lifelong.experiments.recipes import RECIPES
        from lifelong.methods import METHODS

        recipes = [named("paper") for named in RECIPES.values()]
        sets = [name for name in names() if not name.startswith("features:")]
        sets += sorted({r.data.name for r in recipes if r.data.name not in sets})
        there = {name: files_present(name) for name in sets}
        if json:
            _print_json(
                {
                    "recipes": [
                        {"name": r.name, "title": r.title, "data": r.data.name, "parts": r.parts}
                        for r in recipes
                    ],
                    "methods": [
                        {"name": m.name, "about": m.about, "citation": m.citation}
                        for m in METHODS.values()
                    ],
                    "data": [{"name": n, "files": found} for n, found in there.items()],
                }
            )
            return
        console = Console()
        console.print(
            _two_columns("Recipes", {r.name: r.title for r in recipes}),
            _two_columns("Methods", {m.name: m.about for m in METHODS.values()}),
            _two_columns(
                f"Data sets; files in {data_directory()}",
                {name: "there" if found else "not there" for name, found in there.items()},
            ),
        )


def _table(
    recipe: RecipeName,
    /,
    size: Size = "small",
    seeds: Seeds = (),
    methods: Methods = (),
    parts: Parts = (),
    out: Out = RESULTS,
    csv: Annotated[Path | None, arg(metavar="FILE")] = None,
    json: bool = False,
) -> None:
    """Show the stored runs of an experiment as a table: means over seeds.

    AUROC with its standard error; forgetting in points of AUROC; capacity as parameters over those
    of DNN-MTL on the base network.

    Args:
        recipe: Which experiment.
        size: Of which size.
        seeds: Only of these; those of the recipe unless given.
        methods: Only of these.
        parts: Only of these parts of a figure.
        out: Directory in which `lifelong run` stored the runs.
        csv: Also write it to this file.
        json: Print it as JSON.
    """
    with _plainly():
        from lifelong.experiments.collect import collect
        from lifelong.experiments.recipes import recipe as named
        from lifelong.paper.table import as_csv, as_records, as_table

        chosen = named(recipe, size)
        found = collect(
            chosen, out, seeds=_seeds(seeds) or chosen.seeds, methods=methods, parts=parts
        )
        _require_some(found, chosen, out)
        if csv is not None:
            csv.parent.mkdir(parents=True, exist_ok=True)
            csv.write_text(as_csv(found.measured), encoding="utf-8")
        if json:
            _print_json(
                {
                    "recipe": chosen.name,
                    "size": chosen.size,
                    "rows": as_records(found.measured),
                    "missing": found.missing,
                    "damaged": found.damaged,
                }
            )
            return
        Console().print(as_table(chosen.title, found.measured))
        _tell_what_is_not_there(found)


def _figure(
    recipe: RecipeName,
    /,
    size: Size = "small",
    seeds: Seeds = (),
    methods: Methods = (),
    out: Out = RESULTS,
    to: Annotated[Path | None, arg(metavar="DIR")] = None,
    formats: Annotated[tuple[str, ...], arg(metavar="png|svg|pdf|csv")] = FORMATS,
) -> None:
    """Draw the figure of an experiment from its stored runs: means and standard errors over seeds.

    Args:
        recipe: Which experiment.
        size: Of which size.
        seeds: Only of these; those of the recipe unless given.
        methods: Only of these.
        out: Directory in which `lifelong run` stored the runs.
        to: Directory to draw into; figures in that directory unless given.
        formats: Which of png, svg, pdf and csv, the numbers that are drawn.
    """
    with _plainly():
        from lifelong.experiments.collect import collect
        from lifelong.experiments.recipes import recipe as named
        from lifelong.paper.figures import write_figure

        unknown = [name for name in formats if name not in FORMATS]
        if unknown:
            raise Refusal(f"--formats are of {', '.join(FORMATS)}, not {unknown[0]!r}", 2)
        chosen = named(recipe, size)
        found = collect(chosen, out, seeds=_seeds(seeds) or chosen.seeds, methods=methods)
        _require_some(found, chosen, out)
        _tell_what_is_not_there(found, most=0)
        place = to or out / "figures"
        for file in write_figure(chosen.name, chosen.size, found.measured, place, formats):
            print(file)


def _tune(
    methods: Annotated[tuple[str, ...], Positional, arg(metavar="METHOD...|all")],
    /,
    data: Annotated[str, arg(metavar="NAME")],
    size: Size = "paper",
    trials: Annotated[int, arg(metavar="N")] = 12,
    seeds: Annotated[tuple[str, ...], arg(metavar="100-101")] = ("100-101",),
    tasks: Annotated[int, arg(metavar="N")] = 4,
    jobs: Annotated[int | None, arg(metavar="N")] = None,
    out: Out = RESULTS / "tuning",
    choices: Annotated[Path | None, arg(metavar="DIR")] = None,
    json: bool = False,
) -> None:
    """Choose the settings of methods on validation data; the recipes use what was chosen.

    Every method gets as many trials, the first with its defaults, on the first tasks of its stream,
    on seeds that are not reported. Stop it with Ctrl-C: the same command goes on where it was.

    Args:
        methods: One or several, or all that the recipes run on this data.
        data: The data set, such as mnist-variation.
        size: Of the recipes' networks.
        trials: For each method.
        seeds: 100 or more, such as 100-101.
        tasks: How many of the stream's, from the first.
        jobs: Runs at the same time, one thread each; as many as there are cores unless given.
        out: Directory to store the trials in.
        choices: Directory to write what was chosen to; the package's own unless given.
        json: Print what was chosen as JSON.
    """
    with _plainly():
        from lifelong.experiments.tune import Tuning, tune
        from lifelong.experiments.tuned import DIRECTORY, write_choices

        tuning = Tuning(data, size, trials, _seeds(seeds), tasks, out)
        words = f"--data {data} --size {size} --trials {trials} --seeds {' '.join(seeds)}"
        workers = _positive("--jobs", jobs) or os.cpu_count() or 1
        with _resumable():
            chosen = tune(
                methods,
                tuning,
                workers=workers,
                console=Console(stderr=json),
                command=lambda method: f"lifelong tune {method} {words} --tasks {tasks}",
            )
        file = write_choices(data, chosen, choices or DIRECTORY)
        if json:
            _print_json(chosen)
            return
        console = Console()
        console.print(_two_columns("Chosen", {m: _in_words(c.settings) for m, c in chosen.items()}))
        console.print(f"in {file}", highlight=False, soft_wrap=True)


def _data(
    action: Annotated[Literal["get", "check"], Positional, arg(metavar="get|check")],
    name: Annotated[str, Positional, arg(metavar="NAME")],
    /,
    data_dir: Annotated[Path | None, arg(metavar="DIR")] = None,
    json: bool = False,
) -> None:
    """Get the files of a data set, or check those that are there; `lifelong list` names them.

    Files are in --data-dir, else in $LIFELONG_DATA, else in the platform's cache directory.

    Args:
        action: "get" downloads what is not there, from its publisher and checked against the
            published hash, and then checks; "check" downloads nothing.
        name: The data set, such as mnist or features:PATH.npz.
        data_dir: Directory of data files.
        json: Print what was found as JSON.
    """
    with _plainly():
        from lifelong.data import load
        from lifelong.data.files import data_directory
        from lifelong.data.presence import files_present

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
            _print_json({"name": name, "source": stream.source, "tasks": stream.names, **rows})
            return
        print(f"{name} is there: {stream.source}")
        print(
            f"{len(stream)} tasks; {first.name}: " + ", ".join(f"{n} {p}" for p, n in rows.items())
        )


def _reproduce(
    out: Out = RESULTS,
    to: Annotated[Path, arg(metavar="FILE")] = Path("REPRODUCTION.md"),
    json: bool = False,
) -> None:
    """Make figures, summary.json and REPRODUCTION.md from the stored runs of all recipes.

    Each claim of the paper gets a verdict; what was not run is said to be not measured.

    Args:
        out: Directory in which `lifelong run` stored the runs; summary and figures go there too.
        to: File for the page.
        json: Print the summary as JSON.
    """
    with _plainly():
        from lifelong.experiments.reproduce import reproduce

        made = reproduce(out, to)
        for line in made.damaged:
            print(f"lifelong: damaged, left out: {line}", file=sys.stderr)
        if json:
            _print_json(made.findings)
            return
        for file in made.files:
            print(file)


def _in_words(settings: dict[str, object]) -> str:
    return ", ".join(f"{name} = {value}" for name, value in settings.items())


@contextmanager
def _resumable() -> Iterator[None]:
    """Tell who stops it how to go on."""
    try:
        yield
    except KeyboardInterrupt:
        again = shlex.join(["lifelong", *sys.argv[1:]])
        raise Refusal(
            f"stopped; what is stored stays, and the same command goes on: {again}", 130
        ) from None


@contextmanager
def _plainly() -> Iterator[None]:
    """Errors that a user can mend, as a message and an exit code."""
    from lifelong.data import DataError
    from lifelong.experiments.recipes import RecipeError
    from lifelong.experiments.stored import StoredError
    from lifelong.experiments.tune import TuningError
    from lifelong.methods import MethodError
    from lifelong.solve import SettingError

    try:
        yield
    except (RecipeError, MethodError, TuningError) as error:
        raise Refusal(str(error), 2) from error
    except (DataError, StoredError, SettingError) as error:
        raise Refusal(str(error), 1) from error


def _seeds(given: Sequence[str]) -> tuple[int, ...]:
    """`0-4` is 0 1 2 3 4; several may be given."""
    seeds: list[int] = []
    for text in (part for each in given for part in each.split(",")):
        first, _, last = text.partition("-")
        if not (first.isdecimal() and (last.isdecimal() or not _)):
            raise Refusal(f"--seeds takes whole numbers and ranges, such as 0-4, not {text!r}", 2)
        seeds += range(int(first), int(last or first) + 1)
    return tuple(dict.fromkeys(seeds))


def _device(name: str) -> str:
    import torch

    try:
        torch.empty(0, device=name)
    except (RuntimeError, AssertionError) as error:
        reason = str(error).splitlines()[0]
        raise Refusal(f"--device {name} cannot be used here: {reason}", 2) from error
    return name


def _positive(option: str, number: int | None) -> int | None:
    if number is not None and number < 1:
        raise Refusal(f"{option} must be 1 or more, not {number}", 2)
    return number


def _require_data(recipe: "Recipe") -> None:
    """Fetch what is not there, or say where to put it, once and not in every run."""
    from lifelong.data import load
    from lifelong.data.presence import files_present

    if not files_present(recipe.data.name):
        load(recipe.data.name, recipe.seeds[0], None, **recipe.data.options)


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
        print(f"lifelong: damaged, left out: {line}", file=sys.stderr)
    for line in found.missing[:most]:
        print(f"lifelong: not there: {line}", file=sys.stderr)
    if len(found.missing) > most > 0:
        print(f"lifelong: not there: {len(found.missing) - most} more", file=sys.stderr)


def _two_columns(title: str, rows: dict[str, str]) -> Table:
    shown = Table(title=title, title_justify="left", show_header=False, box=None)
    shown.add_column(no_wrap=True)
    shown.add_column()
    for name, about in rows.items():
        shown.add_row(name, about)
    return shown


def _print_json(value: object) -> None:
    sys.stdout.write(msgspec.json.format(msgspec.json.encode(value), indent=1).decode() + "\n")
