"""The command `lifelong`: parsing only."""

import os
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, redirect_stdout
from functools import partial
from io import StringIO, TextIOWrapper
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import tyro
from tyro.conf import Positional, arg

from lifelong.cli import print_version
from lifelong.cli.catalogue import data_command, list_command
from lifelong.cli.common import Refusal, print_json, say, warn
from lifelong.cli.deploying import export_command, serve_command
from lifelong.cli.help import overview, rewrapped, tidy
from lifelong.cli.making import pack_command, run_command, tune_command
from lifelong.cli.showing import figure_command, reproduce_command, table_command
from lifelong.cli.tables import compare_command, learn_command, predict_command, score_command

if TYPE_CHECKING:
    from lifelong.evaluation.runs import Run

_ABOUT = """Networks that keep learning, task after task, and grow only where they must.
`lifelong COMMAND --help` describes a command, `--version` prints the version."""


class UsageError(ValueError):
    """An option value that is not allowed."""


def _demo(
    out: Annotated[Path, arg(metavar="DIR")] = Path("runs/demo"),
    seed: Annotated[int, arg(metavar="N")] = 1,
    tasks: Annotated[int, arg(metavar="N")] = 10,
) -> None:
    """Learn the ten digits with DEN and the baselines, and compare them.

    The digits are tasks, learned one after another. The baselines are one network per task
    (DNN-STL), one network for all tasks at once (DNN-MTL), and four that learn task after task
    as DEN does. The data comes with scikit-learn: no downloads, about a minute. Prints a table,
    and writes report.html and one file of results per method.

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


def _report(
    runs: Annotated[tuple[Path, ...], Positional, arg(metavar="RUN...")] = (),
    /,
    compare: Annotated[tuple[Path, Path] | None, arg(metavar="A B")] = None,
    out: Annotated[Path, arg(metavar="FILE")] = Path("report.html"),
) -> None:
    """Write an HTML report of stored runs or of a saved model.

    One file, which loads nothing. It shows scores, cost, growth, units that tasks share, drift,
    and settings. All runs must be on the same tasks; they may differ in method and seed.

    Args:
        runs: Files of stored runs, directories of such files, or the directory of a saved model.
        compare: Instead show what became better from A to B: two files or directories of runs, or
            two saved models, with the same tasks and some method in common.
        out: File to write.
    """
    if bool(runs) == (compare is not None):
        raise UsageError(
            "report needs at least one stored run, or the directory of a saved model; or two of "
            "these with --compare and nothing else"
        )
    import lifelong.learners.registry  # noqa: F401 (the colours of the methods)
    from lifelong.report import page

    if compare is None:
        _write_page(page.page(_stored(runs)), out)
        return
    names = [path.resolve().stem for path in compare]
    names = names if names[0] != names[1] else ["first", "second"]
    sets = {name: _stored((path,)) for name, path in zip(names, compare, strict=True)}
    _write_page(page.compare(sets), out)


def _write_page(text: str, out: Path) -> None:
    from lifelong.persistence.files import replace_file

    content = text.encode()
    out.parent.mkdir(parents=True, exist_ok=True)
    if out.exists() and not out.is_file():
        out.write_bytes(content)  # a pipe or a device, such as /dev/null: nothing to replace
    else:
        replace_file(out.resolve(), content)
    say(out.resolve())


def _inspect(
    model: Annotated[Path, Positional, arg(metavar="MODEL")],
    /,
    json: bool = False,
) -> None:
    """Print the tasks and layers of a saved model, and what tasks share.

    Of a module that was made to grow: also which groups of units grow, and why others do not.

    Args:
        model: Directory that `save` wrote.
        json: Print it as JSON, in the format of a stored run without scores.
    """
    from lifelong.evaluation.measure import is_adapted, model_run, module_report
    from lifelong.persistence.manifest import ModelFileError

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
    from lifelong.printing import Terminal
    from lifelong.report.inspection import show

    show(run, Terminal())
    _say_lines(module_report(model))


def _say_lines(text: str) -> None:
    for line in text.splitlines():
        say(line)


def _stored(paths: tuple[Path, ...]) -> "tuple[Run, ...]":
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


COMMANDS: dict[str, Callable[..., None]] = {
    "learn": learn_command,
    "predict": predict_command,
    "score": score_command,
    "compare": compare_command,
    "inspect": _inspect,
    "report": _report,
    "export": export_command,
    "serve": serve_command,
    "demo": _demo,
    "list": list_command,
    "data": data_command,
    "run": run_command,
    "table": table_command,
    "figure": figure_command,
    "tune": tune_command,
    "pack": pack_command,
    "reproduce": reproduce_command,
}


def main(args: Sequence[str] | None = None) -> None:
    """Run the command line. Exit codes: 0 success, 2 wrong usage, 1 any other error to fix."""
    given = list(sys.argv[1:] if args is None else args)
    _require_streams()
    if given == ["--version"]:
        print_version()
    elif given in (["--help"], ["-h"]):
        print(overview(_ABOUT, COMMANDS), end="")
    elif not given:
        print(overview(_ABOUT, COMMANDS), file=sys.stderr)
        _stop("say which command", 2)
    else:
        with _told():
            _require_command(given[0])
            _parse(given)


def _parse(given: Sequence[str]) -> None:
    """Let tyro read the arguments and call the command."""
    name, rest = given[0], given[1:]
    if name not in COMMANDS:  # an option of tyro's own, such as to write a shell's completion
        app = tyro.extras.SubcommandApp()
        for each, command in COMMANDS.items():
            app.command(name=each)(command)
        app.cli(prog="lifelong", description=_ABOUT, args=given)
        return
    parse = partial(tyro.cli, tidy(COMMANDS[name]), prog=f"lifelong {name}", args=rest)
    config = (tyro.conf.FlagCreatePairsOff,)
    if not {"--help", "-h"} & set(rest):
        parse(config=config)
        return
    shown = StringIO()
    try:
        with redirect_stdout(shown):
            parse(config=config)
    finally:
        print(rewrapped(shown.getvalue()), end="")


def _require_command(name: str) -> None:
    if name not in COMMANDS and not name.startswith("-"):
        from lifelong.plugins import did_you_mean

        hint = did_you_mean(name, COMMANDS)
        raise UsageError(f"no command {name!r}; {hint}there are {', '.join(COMMANDS)}")


@contextmanager
def _told() -> Iterator[None]:
    """Errors that the user can fix as one line and an exit code."""
    try:
        yield
    except UsageError as error:
        _stop(str(error), 2)
    except Refusal as refusal:
        _stop(str(refusal), refusal.code)
    except BrokenPipeError:  # the reader of the output is gone (as with `| head`)
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        sys.exit(1)
    except OSError as error:
        where = f": {error.filename}" if error.filename else ""
        _stop(f"{error.strerror or error}{where}", 1)
    except KeyboardInterrupt:
        _stop("stopped; nothing was written", 130)
    except Exception as error:
        if not isinstance(error, _errors_to_tell()):
            raise
        _stop(str(error), 1)


def _errors_to_tell() -> tuple[type[Exception], ...]:
    """Imported only when there is an error, since most of them come with torch."""
    from lifelong.evaluation.runs import RunError
    from lifelong.extras import MissingExtraError
    from lifelong.persistence.manifest import ModelFileError
    from lifelong.plugins import PluginError
    from lifelong.tasks.kinds import TaskError

    return TaskError, RunError, ModelFileError, MissingExtraError, PluginError


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
