"""Commands for own data in files: `learn`, `predict`, `score` and `compare`."""

import shlex
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, TypeAlias

from rich.table import Table
from tyro.conf import Positional, arg

from lifelong.cli.common import (
    HERE,
    RESULTS,
    On,
    Out,
    Refusal,
    Seeds,
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
    from lifelong.estimator.work import Scored

Model: TypeAlias = Annotated[Path, Positional, arg(metavar="MODEL")]
File: TypeAlias = Annotated[Path, Positional, arg(metavar="FILE")]
Column: TypeAlias = Annotated[str, arg(metavar="COLUMN")]
Columns: TypeAlias = Annotated[tuple[str, ...], arg(metavar="COLUMN...")]
TaskName: TypeAlias = Annotated[str | None, arg(metavar="TASK")]
Widths: TypeAlias = Annotated[tuple[int, ...], arg(metavar="N...")]


def learn_command(
    model: Model,
    file: File,
    /,
    target: Column,
    task: TaskName = None,
    regression: bool = False,
    method: Annotated[str | None, arg(metavar="METHOD")] = None,
    network: Widths = (),
    categorical: Columns = (),
    leave_out: Columns = (),
    weight: Annotated[str | None, arg(metavar="COLUMN")] = None,
    most_rows: Annotated[int, arg(metavar="N")] = 1_000_000,
    steps: Annotated[int | None, arg(metavar="N")] = None,
    seed: Annotated[int | None, arg(metavar="N")] = None,
    json: bool = False,
) -> None:
    """Learn a table as the next task of a model.

    Makes the model if it is not there. After Ctrl-C or a kill, the same command resumes. Of a
    file with more than --most-rows rows, as many are drawn.

    Args:
        model: Directory of the model.
        file: A .csv, .tsv, .parquet, .arrow, .feather or .npz file.
        target: Column to predict.
        task: Name of the task; by default that of the file without its ending.
        regression: The target is a number, not a class.
        method: For a new model: as `lifelong list` names it; DEN by default.
        network: For a new model: widths of the hidden layers; 64 32 by default.
        categorical: For a new model: columns of numbers that are categories.
        leave_out: Columns not to learn from.
        weight: Column with a weight for each row.
        most_rows: Rows to learn from, at most.
        steps: For a new model: steps of each training, at most.
        seed: For a new model: of the training; 0 by default.
        json: Print what was learned as JSON.
    """
    if most_rows < 1:
        raise Refusal(f"--most-rows must be 1 or more, not {most_rows}", 2)
    with _plainly(), resumable():
        from lifelong.estimator.work import learn_file
        from lifelong.training.budget import Budget

        asked = {
            "method": method,
            "network": network or None,
            "categorical": categorical or None,
            "random_state": seed,
            "budget": None if steps is None else Budget(steps=steps),
        }
        given: dict[str, Any] = {name: value for name, value in asked.items() if value is not None}
        done = learn_file(
            model,
            file,
            target=target,
            task=task,
            regression=regression,
            parameters={**given, "progress": sys.stderr.isatty() and not json},
            weight=weight,
            leave_out=leave_out,
            most_rows=most_rows,
        )
        if json:
            print_json(done)
            return
        drawn = "" if done.rows == done.learned_from else f", drawn from {done.rows:,}"
        say(
            f"{done.task}: learned from {done.learned_from:,} rows{drawn} in "
            f"{done.record.seconds:.1f} s, validation loss {done.record.loss:.4f}; "
            f"{done.model} has {done.parameters:,} parameters"
        )


def predict_command(
    model: Model,
    file: File,
    /,
    out: Annotated[Path, arg(metavar="FILE")],
    task: TaskName = None,
    json: bool = False,
) -> None:
    """Write the rows of a table with their answers, of any number of rows.

    Args:
        model: Directory of the model.
        file: A .csv, .tsv, .parquet, .arrow, .feather or .npz file.
        out: A .csv or .parquet file: the rows, prediction, the probability of each class, and
            without --task the task that was found and how sure that is.
        task: Name of the task; found for each row by default.
        json: Print what was done as JSON.
    """
    with _plainly():
        from lifelong.estimator.work import predict_file

        done = predict_file(model, file, out, task=task)
        if done.unused:
            warn(f"columns that the model does not use: {', '.join(done.unused)}")
        if json:
            print_json(done)
            return
        say(f"{done.out}: {done.rows:,} rows")
        if len(done.tasks) > 1:
            say(", ".join(f"{name}: {count:,}" for name, count in done.tasks.items()))


def score_command(
    model: Model,
    file: File,
    /,
    target: Column,
    task: TaskName = None,
    json: bool = False,
) -> None:
    """Score a model on a table: AUROC and accuracy, or R2 and RMSE.

    Args:
        model: Directory of the model.
        file: A .csv, .tsv, .parquet, .arrow, .feather or .npz file.
        target: Column with the truth.
        task: Name of the task; found for each row by default.
        json: Print the scores as JSON.
    """
    with _plainly():
        from lifelong.estimator.work import score_file

        done = score_file(model, file, target=target, task=task)
        if json:
            print_json(done)
            return
        told = {n: "–" if v is None else f"{v:.4f}" for n, v in done.scores.items()}
        say(f"{done.rows:,} rows: " + ", ".join(f"{n} {v}" for n, v in told.items()))
        if done.confusion:
            Terminal().print(_confusion(done))


def compare_command(
    file: File,
    /,
    target: Column,
    task_column: Column,
    methods: Annotated[tuple[str, ...], arg(metavar="METHOD...")] = ("DEN", "DNN-STL", "DNN-EWC"),
    regression: bool = False,
    leave_out: Columns = (),
    network: Widths = (64, 32),
    steps: Annotated[int, arg(metavar="N")] = 6000,
    seeds: Seeds = ("0",),
    out: Out = f"{RESULTS}/compare",
    report: Annotated[Path | None, arg(metavar="FILE")] = None,
    where: On = HERE,
    json: bool = False,
) -> None:
    """Compare methods on own data, where a column tells the tasks.

    Each value of that column is a task, learned one after another. Stored runs are not
    repeated. After Ctrl-C or a kill, the same command resumes.

    Args:
        file: A .csv, .tsv, .parquet, .arrow, .feather or .npz file.
        target: Column to predict.
        task_column: Column that names the task of each row, such as the month.
        methods: As `lifelong list` names them, apart by spaces or commas.
        regression: The target is a number, not a class.
        leave_out: Columns not to learn from.
        network: Widths of the hidden layers.
        steps: Training steps of each training, at most.
        seeds: Such as 0-4, or 0 2 5.
        out: Directory to store the runs in, or an address such as s3://bucket/study.
        report: Also write an HTML report to this file.
        where: Where the runs are made.
        json: Print the table as JSON.
    """
    with _plainly(), resumable():
        from lifelong.experiments.collect import collect
        from lifelong.experiments.compare import comparison
        from lifelong.experiments.compare import jobs as jobs_of
        from lifelong.experiments.runner import run
        from lifelong.reproduction.table import as_records, as_table
        from lifelong.training.budget import Budget

        named = [name for each in methods for name in each.split(",") if name]
        recipe = comparison(
            file,
            target=target,
            task_column=task_column,
            methods=named,
            regression=regression,
            leave_out=leave_out,
            network=network,
            budget=Budget(steps=steps),
        )
        asked = seed_numbers(seeds)
        command = shlex.join(["lifelong", *sys.argv[1:]])
        engine, resources = where.made()
        directory, store = at_hand(out, refresh=False)
        todo = jobs_of(recipe, asked, directory, command, store)
        console = Terminal(stderr=True)
        counts = run(todo, console=console, engine=engine, resources=resources)
        found = collect(recipe, directory, seeds=asked)
        if report is not None and found.measured:
            from lifelong.report.page import page

            report.write_text(page(tuple(each.run for each in found.measured)), encoding="utf-8")
        if json:
            print_json({"rows": as_records(found.measured), "failed": counts.failed})
        else:
            Terminal().print(as_table(recipe.title, found.measured))
        if counts.failed:
            first = next(iter(counts.failed.values()))
            raise Refusal(f"{len(counts.failed)} of {len(todo)} runs failed: {first}", 1)


def _confusion(done: "Scored") -> Table:
    shown = Table(title="rows of a class (down) by prediction (across)", title_justify="left")
    shown.add_column("")
    for name in done.classes:
        shown.add_column(str(name), justify="right")
    for name, counts in zip(done.classes, done.confusion, strict=True):
        shown.add_row(str(name), *map(str, counts))
    return shown


@contextmanager
def _plainly() -> Iterator[None]:
    """Errors of learning that the user can fix, beside those of all commands."""
    from lifelong.networks.layout import NetworkError
    from lifelong.persistence.checkpoint import CheckpointError
    from lifelong.training.loop import TrainingError

    with plainly():
        try:
            yield
        except (CheckpointError, NetworkError, TrainingError) as error:
            raise Refusal(str(error), 1) from error
        except ValueError as error:
            if "Unknown label type" not in str(error):
                raise
            raise Refusal(
                "the target holds measurements, not classes; learn them with --regression", 2
            ) from error
