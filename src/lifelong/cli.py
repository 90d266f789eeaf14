"""The command `lifelong`: parsing only."""

import os
import sys
from collections.abc import Sequence
from importlib.metadata import version
from pathlib import Path
from typing import Annotated

import tyro
from tyro.conf import arg

from lifelong.tasks import TaskError

_ABOUT = """Networks that keep learning, task after task, and grow only where they must.
`lifelong COMMAND --help` tells more of a command, `lifelong --version` the version."""

_app = tyro.extras.SubcommandApp()


class UsageError(ValueError):
    """An option with a value that is not allowed."""


@_app.command(name="demo")
def _demo(
    out: Annotated[Path, arg(metavar="DIR")] = Path("runs/demo"),
    seed: Annotated[int, arg(metavar="N")] = 1,
    tasks: Annotated[int, arg(metavar="N")] = 10,
) -> None:
    """Learn the ten digits one after another, and see what it took.

    DEN, a network for each task (DNN-STL) and one network for all tasks at once (DNN-MTL) learn to
    tell each digit from the rest, on data that comes with scikit-learn: no files, no network, less
    than a minute. Ends in a table, and writes report.html and results.json.

    Args:
        out: Directory to write to; made if it is not there.
        seed: Of the order of the digits, the parts of the data and the training; 0 or more.
        tasks: How many of the ten digits to learn, 2 to 10.
    """
    if seed < 0:
        raise UsageError(f"--seed must be 0 or more, not {seed}")
    if not 2 <= tasks <= 10:
        raise UsageError(f"--tasks must be 2 to 10, not {tasks}")
    import torch  # here and not above: --help need not wait for it

    from lifelong.demo import demo

    torch.set_num_threads(1)  # networks this small are slower on more, far slower on a busy machine
    demo(out, seed=seed, tasks=tasks)


def main(args: Sequence[str] | None = None) -> None:
    """Run the command line: exit code 0, 2 for bad usage, 1 for what else a user can mend."""
    given = list(sys.argv[1:] if args is None else args)
    if given == ["--version"]:
        print(f"lifelong {version('lifelong')}")
        return
    try:
        _app.cli(prog="lifelong", description=_ABOUT, args=given)
    except UsageError as error:
        _stop(str(error), 2)
    except BrokenPipeError:  # who read the output has left, as `head` does: nobody to tell
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        sys.exit(1)
    except OSError as error:
        where = f": {error.filename}" if error.filename else ""
        _stop(f"{error.strerror or error}{where}", 1)
    except TaskError as error:
        _stop(str(error), 1)
    except KeyboardInterrupt:
        _stop("stopped; nothing was written", 130)


def _stop(message: str, code: int) -> None:
    print(f"lifelong: {message}", file=sys.stderr)
    sys.exit(code)
