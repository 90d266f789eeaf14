"""Commands that make stored runs: `run`, `tune` and `pack`."""

import os
import shlex
import sys
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from tyro.conf import Positional, arg

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
    two_columns,
    warn,
)
from lifelong.printing import Terminal

if TYPE_CHECKING:
    from lifelong.experiments.recipes import Recipe


def run_command(
    recipe: RecipeName,
    /,
    size: Size = "small",
    seeds: Seeds = (),
    methods: Methods = (),
    parts: Splits = (),
    out: Out = RESULTS,
    device: Annotated[str, arg(metavar="cpu|cuda")] = "cpu",
    where: On = HERE,
    json: bool = False,
) -> None:
    """Make the runs of a recipe and store them.

    `lifelong list` names the recipes. Stored runs are not repeated. After Ctrl-C or a kill, the
    same command resumes. A run that fails is recorded and the others continue; the exit code is
    then 1. Started by `torchrun --nproc-per-node N -m lifelong run ...`, N processes make each run
    together, on parts of its rows.

    Args:
        recipe: Name of the recipe, such as figure3-variation; or "family" for all that compare
            every method.
        size: The paper's network and data, or a small version for two cores.
        seeds: Such as 0-4, or 0 2 5; by default those of the recipe.
        methods: Only these methods.
        parts: Only these parts of a figure: "tasks" or "capacity".
        out: Directory to store the runs in, or an address such as s3://bucket/study.
        device: Device to train on.
        where: Where the runs are made.
        json: Print the outcome of the runs as JSON.
    """
    with plainly():
        from lifelong.experiments.recipes import recipes
        from lifelong.experiments.runner import jobs_of, run
        from lifelong.experiments.together import TOGETHER, leading, take_part

        several = recipes(recipe, size, methods)
        asked = seed_numbers(seeds)
        engine, resources = where.made()
        on = _device(device) if where.engine == "local" else device
        directory, store = at_hand(out, refresh=False)
        todo = [
            job
            for chosen in several
            for job in jobs_of(
                chosen,
                seeds=asked or chosen.seeds,
                methods=methods,
                parts=parts,
                out=directory,
                device=on,
                store=store,
            )
        ]
        together, first = _among_processes()
        if together and store:
            raise Refusal(
                f"--out {out} is an address; under torchrun give a directory that all see",
                2,
            )
        if not first:
            take_part(todo)
            return
        console = Terminal(stderr=json)
        for chosen in several:
            _require_data(chosen)
            which = f"{chosen.name}: " if len(several) > 1 else ""
            if chosen.reduced:
                console.print(f"Small: {which}{chosen.reduced}.", highlight=False)
        with resumable(), leading(todo) if together else nullcontext():
            place = TOGETHER if together else engine
            counts = run(todo, console=console, engine=place, resources=resources)
        if json:
            print_json(counts)
        else:
            console.print(
                f"{len(counts.made)} made, {len(counts.there)} there before, "
                f"{len(counts.failed)} failed, {len(counts.skipped)} left to another process; "
                f"in {store or directory.resolve()}/runs",
                highlight=False,
                soft_wrap=True,
            )
        if counts.failed:
            raise Refusal(
                f"{len(counts.failed)} of {len(todo)} runs failed; why is in "
                f"{directory / 'failed'}, and the same command tries them again",
                1,
            )


def tune_command(
    methods: Annotated[tuple[str, ...], Positional, arg(metavar="METHOD...|all")],
    /,
    data: Annotated[str, arg(metavar="NAME")],
    size: Size = "paper",
    trials: Annotated[int, arg(metavar="N")] = 12,
    seeds: Annotated[tuple[str, ...], arg(metavar="100-101")] = ("100-101",),
    tasks: Annotated[int, arg(metavar="N")] = 4,
    out: Out = f"{RESULTS}/tuning",
    also: Annotated[tuple[str, ...], arg(metavar="NAME=VALUE,...")] = (),
    storage: Annotated[str, arg(metavar="FILE|ADDRESS")] = "",
    choices: Annotated[Path | None, arg(metavar="DIR")] = None,
    where: On = HERE,
    json: bool = False,
) -> None:
    """Tune the settings of methods on validation data, for the recipes.

    Every method gets the same number of trials, the first with its defaults, on the first tasks of
    its stream, on seeds that are not reported. After Ctrl-C the same command resumes.

    Args:
        methods: One or several methods, or all that the recipes run on this data.
        data: The data set, such as mnist-variation.
        size: Size of the recipes' networks.
        trials: Number of trials per method.
        seeds: 100 or more, such as 100-101.
        tasks: Number of tasks, from the first of the stream.
        out: Directory to store the trials in, or an address such as s3://bucket/study.
        also: Settings to try after the defaults, such as mu=0.03 mu=0.01,strength=10; they count
            among the trials.
        storage: Share the trials with other processes that give the same: a file, or a database
            such as postgresql://host/name.
        where: Where the runs are made.
        choices: Directory for the chosen settings; by default the package's own.
        json: Print the chosen settings as JSON.
    """
    with plainly():
        from lifelong.experiments.choices import DIRECTORY, write_choices
        from lifelong.experiments.tuning import Tuning, tune

        engine, resources = where.made()
        directory, store = at_hand(out, refresh=False)
        numbers = seed_numbers(seeds)
        guesses = tuple(_pairs(each) for each in also)
        tuning = Tuning(data, size, trials, numbers, tasks, directory, store, storage, guesses)
        words = f"--data {data} --size {size} --trials {trials} --seeds {' '.join(seeds)}"
        words += f" --also {' '.join(also)}" if also else ""
        with resumable():
            chosen = tune(
                methods,
                tuning,
                console=Terminal(stderr=json),
                command=lambda method: f"lifelong tune {method} {words} --tasks {tasks}",
                engine=engine,
                resources=resources,
            )
        file = write_choices(data, chosen, choices or DIRECTORY)
        if json:
            print_json(chosen)
            return
        console = Terminal()
        console.print(two_columns("Chosen", {m: _in_words(c.settings) for m, c in chosen.items()}))
        console.print(f"in {file}", highlight=False, soft_wrap=True)


def _pairs(given: str) -> dict[str, float]:
    """Settings from `mu=0.03,strength=10`."""
    try:
        pairs = [each.split("=") for each in given.split(",")]
        return {name.strip(): float(value) for name, value in pairs}
    except ValueError:
        raise Refusal(f"--also takes NAME=VALUE pairs such as mu=0.03, not {given!r}", 2) from None


def pack_command(
    out: Out = RESULTS,
    source: Annotated[str | None, arg(name="from", metavar="DIR")] = None,
    unpack: bool = False,
) -> None:
    """Pack finished runs into one compressed file per data set, for git.

    All commands read packed runs. The exit code is 1 if damaged runs were left out.

    Args:
        out: Directory in which `lifelong run` stored the runs.
        source: Another such directory, or an address, whose runs to add; it is only read. Settings
            of version 0.1 get their current names.
        unpack: Instead turn each packed run into a file, for `lifelong report`.
    """
    if unpack and source is not None:
        raise Refusal("--unpack takes no --from: pack what is there into --out first", 2)
    with plainly():
        from lifelong.experiments import pack

        directory, store = at_hand(out)
        if store:
            raise Refusal(f"runs are packed in a directory; take them there with --from {out}", 2)
        others = None if source is None else at_hand(source)[0]
        made = pack.unpack(directory) if unpack else pack.pack(directory, others)
        for line in made.left_out:
            warn(f"left out: {line}")
        if not made.runs:
            raise Refusal(
                f"no stored run in {source or out}/runs; make some with `lifelong run`, or "
                "say where they are with --out or --from",
                1,
            )
        for file, count in made.runs.items():
            say(f"{file}: {count} runs")
        if made.left_out:
            raise Refusal(f"{len(made.left_out)} left out, named above", 1)


@contextmanager
def resumable() -> Iterator[None]:
    """On Ctrl-C, print how to resume."""
    try:
        yield
    except KeyboardInterrupt:
        again = shlex.join(["lifelong", *sys.argv[1:]])
        raise Refusal(
            f"stopped; what is stored stays, and the same command goes on: {again}", 130
        ) from None


def _among_processes() -> tuple[bool, bool]:
    """Whether torchrun started this process with others, and whether it is the first of them."""
    several = int(os.environ.get("WORLD_SIZE", "1")) > 1 and "MASTER_ADDR" in os.environ
    return several, not several or os.environ.get("RANK") == "0"


def _device(name: str) -> str:
    import torch

    try:
        torch.empty(0, device=name)
    except (RuntimeError, AssertionError) as error:
        reason = str(error).splitlines()[0]
        raise Refusal(f"--device {name} cannot be used here: {reason}", 2) from error
    return name


def _require_data(recipe: "Recipe") -> None:
    """Download missing data, or say where to put it, once rather than in every run."""
    from lifelong.tasks.datasets import files_present, load

    if not files_present(recipe.data.name):
        load(recipe.data.name, recipe.seeds[0], None, **recipe.data.options)


def _in_words(settings: dict[str, object]) -> str:
    return ", ".join(f"{name} = {value}" for name, value in settings.items())
