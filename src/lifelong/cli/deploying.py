"""Commands that take a saved model elsewhere: `export` and `serve`."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal, TypeAlias

from tyro.conf import Positional, arg

from lifelong.cli.common import Refusal, print_json, say

if TYPE_CHECKING:
    from lifelong.deployment.export import Exported
    from lifelong.estimator.base import LifelongEstimator
    from lifelong.learners.base import AnyLearner

Model: TypeAlias = Annotated[Path, Positional, arg(metavar="MODEL")]


def export_command(
    model: Model,
    /,
    task: Annotated[str | None, arg(metavar="NAME")] = None,
    format: Literal["onnx", "torch", "state-dict"] = "onnx",
    all: bool = False,
    out: Annotated[Path | None, arg(metavar="FILE")] = None,
    json: bool = False,
) -> None:
    """Write what a model knows of a task as a file for another runtime.

    The file is checked against the model's own answers.

    Args:
        model: Directory that `save` wrote.
        task: Name of the task; may be left out if there is only one.
        format: `onnx`, `torch` (a program for torch.export.load), or `state-dict` (safetensors).
        all: One ONNX file for all tasks, with the task's number, from 1, as its second input.
        out: File to write; by default it is named after the task.
        json: Print what was written as JSON.
    """
    from lifelong.deployment.answering import load_model_or_estimator
    from lifelong.deployment.facts import ExportError

    if all and (task is not None or format != "onnx"):
        raise Refusal("--all makes one ONNX file of all tasks: give it without --task, --format", 2)
    try:
        made = _export(load_model_or_estimator(model), task, format, all, out)
    except ExportError as error:
        raise Refusal(str(error), 1) from error
    if json:
        print_json(
            {
                "file": str(made.file),
                "format": made.format,
                "task": made.task,
                "bytes": made.bytes,
                "difference": made.difference,
            }
        )
        return
    say(
        f"{made.file}: {made.bytes:,} bytes, at most {made.difference:.0e} from the model's answers"
    )


def serve_command(
    model: Model,
    /,
    port: Annotated[int, arg(metavar="N")] = 8000,
    host: Annotated[str, arg(metavar="ADDRESS")] = "127.0.0.1",
    hosts: Annotated[tuple[str, ...], arg(metavar="NAME")] = (),
    max_bytes: Annotated[int, arg(metavar="N")] = 1 << 20,
    poll: Annotated[float, arg(metavar="SECONDS")] = 1.0,
) -> None:
    """Answer HTTP requests with a saved model.

    A newer model that is saved in its place is taken over.

    POST /predict takes {"task": NAME, "rows": [[numbers], ...]} as JSON; GET /health and
    GET /metrics (Prometheus) tell how it goes.

    Args:
        model: Directory that `save` wrote.
        port: Port to listen on.
        host: Address to listen on; by default only this machine reaches it.
        hosts: Further names under which it may be called, such as those of a proxy before it.
        max_bytes: Largest request.
        poll: Seconds between looks for a newly saved model.
    """
    if not 0 < port < 2**16:
        raise Refusal(f"--port must be 1 to 65535, not {port}", 2)
    if not (max_bytes > 0 and 0.01 <= poll <= 86400):
        raise Refusal("--max-bytes must be above 0, and --poll 0.01 to 86400 seconds", 2)
    import torch

    from lifelong.deployment.serving import serve

    torch.set_num_threads(1)  # rows come one or a few at a time
    serve(
        model,
        host=host,
        port=port,
        hosts=hosts,
        poll=poll,
        most_bytes=max_bytes,
        ready=lambda: say(f"{model}: http://{host}:{port}/predict (stop with Ctrl-C)"),
    )


def _export(
    found: "AnyLearner | LifelongEstimator",
    task: str | None,
    format: str,
    every: bool,
    out: Path | None,
) -> "Exported":
    from lifelong.deployment.export import export, export_all, file_name
    from lifelong.learners.base import Learner

    learner = found if isinstance(found, Learner) else found.learner_
    if every:
        return export_all(learner, out or Path(file_name(None, format)))
    if task is None:
        if len(learner.tasks) != 1:
            known = ", ".join(map(repr, learner.tasks)) or "none"
            raise Refusal(f"say which task with --task, or --all; the model knows {known}", 2)
        (task,) = learner.tasks
    return export(found, out or Path(file_name(task, format)), task=task, format=format)
