"""The command `lifelong`: parsing only."""

import os
import sys
from collections.abc import Sequence
from importlib.metadata import version
from io import TextIOWrapper
from pathlib import Path
from typing import Annotated

import tyro
from tyro.conf import Positional, arg

from lifelong.cli.catalogue import data_command, list_command
from lifelong.cli.common import Refusal, print_json, say, warn
from lifelong.cli.deploying import export_command, serve_command
from lifelong.cli.making import pack_command, run_command, tune_command
from lifelong.cli.showing import figure_command, reproduce_command, table_command
from lifelong.cli.tables import compare_command, learn_command, predict_command, score_command
from lifelong.evaluation.runs import Run, RunError
from lifelong.extras import MissingExtraError
from lifelong.persistence.files import replace_file
from lifelong.persistence.models import ModelFileError
from lifelong.plugins import PluginError
from lifelong.printing import Terminal
from lifelong.tasks.task import TaskError

_ABOUT = """Networks that keep learning, task after task, and grow only where they must.
`lifelong COMMAND --help` describes a command, `lifelong --version` prints the version."""

_app = tyro.extras.SubcommandApp()
_app.command(name="learn")(learn_command)
_app.command(name="predict")(predict_command)
_app.command(name="score")(score_command)
_app.command(name="compare")(compare_command)
_app.command(name="run")(run_command)
_app.command(name="list")(list_command)
_app.command(name="table")(table_command)
_app.command(name="figure")(figure_command)
_app.command(name="tune")(tune_command)
_app.command(name="pack")(pack_command)
_app.command(name="data")(data_command)
_app.command(name="reproduce")(reproduce_command)
_app.command(name="export")(export_command)
_app.command(name="serve")(serve_command)


class UsageError(ValueError):
    """An option value that is not allowed."""


@_app.command(name="demo")
def _demo(
    out: Annotated[Path, arg(metavar="DIR")] = Path("runs/demo"),
    seed: Annotated[int, arg(metavar="N")] = 1,
    tasks: Annotated[int, arg(metavar="N")] = 10,
) -> None:
    """Learn the ten digits one after another with DEN and the baselines, and compare them.

    The baselines are one network per task (DNN-STL), one network for all tasks at once (DNN-MTL),
    and four that learn task after task as DEN does. The data comes with scikit-learn: no downloads,
    about a minute. Prints a table, and writes report.html and one file of results per method.

    Args:
        out: Directory to write to; created if missing.
        seed: Seed of the order of the digits, the data split and the training; 0 or more.
        tasks: How many of the ten digits to learn, 2 to 10.
    """
    if seed < 0:
        raise UsageError(f"--seed must be 0 or more, not {seed}")
    if not 2 <= tasks <= 10:
        raise UsageError(f"--tasks must be 2 to 10, not {tasks}")
    import torch  # imported here, so that --help is fast

    from lifelong.experiments.demo import demo

    torch.set_num_threads(1)  # networks this small are slower with more threads
    demo(out, seed=seed, tasks=tasks)


@_app.command(name="report")
def _report(
    runs: Annotated[tuple[Path, ...], Positional, arg(metavar="RUN...")],
    /,
    out: Annotated[Path, arg(metavar="FILE")] = Path("report.html"),
) -> None:
    """Write one self-contained HTML report of stored runs or of a saved model.

    It shows scores, cost, growth, units that tasks share, drift, and settings. All runs must be on
    the same tasks; they may differ in method and seed.

    Args:
        runs: Files of stored runs, directories of such files, or the directory of a saved model.
        out: File to write.
    """
    if not runs:
        raise UsageError("report needs at least one stored run, or the directory of a saved model")
    from lifelong.report.page import page

    content = page(_stored(runs)).encode()
    out.parent.mkdir(parents=True, exist_ok=True)
    if out.exists() and not out.is_file():
        out.write_bytes(content)  # a pipe or a device, such as /dev/null: nothing to replace
    else:
        replace_file(out.resolve(), content)
    say(out.resolve())


@_app.command(name="inspect")
def _inspect(
    model: Annotated[Path, Positional, arg(metavar="MODEL")],
    /,
    json: bool = False,
) -> None:
    """Print the tasks and layers of a saved model, the births of units, and shared units.

    Of a module that was made to grow: also which groups of units grow, and why others do not.

    Args:
        model: Directory that `save` wrote.
        json: Print it as JSON, in the format of a stored run without scores.
    """
    from lifelong.evaluation.measure import is_adapted, model_run, module_report

    try:
        run = model_run(model)
    except ModelFileError:
        if json or not is_adapted(model):
            raise
        _say_lines(module_report(model))
        return
    if json:
        print_json(run)
        return
    from lifelong.report.inspection import show

    show(run, Terminal())
    _say_lines(module_report(model))


def _say_lines(text: str) -> None:
    for line in text.splitlines():
        say(line)


def _stored(paths: tuple[Path, ...]) -> tuple[Run, ...]:
    from lifelong.evaluation.measure import is_model, model_run
    from lifelong.evaluation.runs import read_runs

    models = [path for path in paths if is_model(path)]
    if not models:
        return read_runs(paths)
    if len(paths) > 1:
        raise UsageError(
            f"a saved model has a report of its own, but {models[0]} came with "
            f"{len(paths) - 1} more; give it alone"
        )
    return (model_run(models[0]),)


def main(args: Sequence[str] | None = None) -> None:
    """Run the command line. Exit codes: 0 success, 2 wrong usage, 1 any other error to fix."""
    given = list(sys.argv[1:] if args is None else args)
    _require_streams()
    if given == ["--version"]:
        print(f"lifelong {version('lifelong')}")
        return
    try:
        _app.cli(prog="lifelong", description=_ABOUT, args=given)
    except UsageError as error:
        _stop(str(error), 2)
    except Refusal as refusal:
        _stop(str(refusal), refusal.code)
    except (
        BrokenPipeError
    ):  # the reader of the output is gone (as with `| head`): nothing to report
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        sys.exit(1)
    except OSError as error:
        where = f": {error.filename}" if error.filename else ""
        _stop(f"{error.strerror or error}{where}", 1)
    except (TaskError, RunError, ModelFileError, MissingExtraError, PluginError) as error:
        _stop(str(error), 1)
    except KeyboardInterrupt:
        _stop("stopped; nothing was written", 130)


def _require_streams() -> None:
    """A shell can close what is printed to (`>&-`), or ask for an encoding without some of it."""
    sys.stderr = sys.stderr or Path(os.devnull).open("w")  # noqa: SIM115 (for as long as it runs)
    if sys.stdout is None:
        _stop("the standard output is closed; send it to a file, or to /dev/null", 1)
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")


def _stop(message: str, code: int) -> None:
    warn(message)
    sys.exit(code)
