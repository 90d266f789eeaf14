"""Files of what was learned, for other runtimes.

Each is checked when it is written: what was read back from its bytes answers as the learner does.
"""

import io
import json
import re
import warnings
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, TypeAlias, final

import numpy as np
import torch
from safetensors.torch import load, save
from torch import Tensor, nn

from lifelong.deployment.facts import ExportError, answer_name, labels_from, model_facts, task_facts
from lifelong.deployment.graphs import ANSWERS, INPUTS, TASK, all_tasks_graph, task_graph
from lifelong.deployment.modules import task_module
from lifelong.extras import require_extra
from lifelong.learners.base import AnyLearner, Learner
from lifelong.networks.adapted import Adapted
from lifelong.networks.growing import LearnedTask
from lifelong.networks.layout import Architecture
from lifelong.networks.traced.architecture import Traced
from lifelong.persistence.files import make_directory, replace_file
from lifelong.plugins import did_you_mean

if TYPE_CHECKING:
    from onnx import ModelProto

    from lifelong.estimator.base import LifelongEstimator

Format: TypeAlias = Literal["onnx", "torch", "state-dict"]
ENDINGS: Mapping[str, str] = {"onnx": ".onnx", "torch": ".pt2", "state-dict": ".safetensors"}
CLOSE = 1e-5  # largest difference from the learner's own answer, relative to answers above 1
_CHECKED_ROWS = (1, 7)


@final
@dataclass(frozen=True)
class Exported:
    """A file that was written.

    Attributes:
        task: None for all tasks in one file.
        difference: largest, from the learner's own answers, on the rows that it was checked with.
    """

    file: Path
    format: str
    task: str | None
    bytes: int
    difference: float


def export(
    model: "AnyLearner | LifelongEstimator", file: str | Path, *, task: str, format: str = "onnx"
) -> Exported:
    """Write the network that serves one task.

    - "onnx": inputs of any number of rows; outputs "probabilities" and "labels", or "predictions"
      of a regression. Of an estimator its columns are the inputs, and its labels are as they were
      in the data ("numbers" of a regressor);
    - "torch": a program that `torch.export.load` reads; it returns what `predict_proba` does;
    - "state-dict": tensors in safetensors for `task_module(learner, task)` or a module of your own.

    The metadata of each names the task, its kind and classes, the method and versions. The columns
    of an estimator are part of "onnx" only; the others take inputs that are prepared already.
    """
    if format not in ENDINGS:
        hint = did_you_mean(format, ENDINGS)
        raise ExportError(f"no format {format!r}; {hint}there are {', '.join(ENDINGS)}")
    learner = model if isinstance(model, Learner) else model.learner_
    if format == "torch":
        made = _torch(learner, task)
    elif format == "state-dict":
        made = _state_dict(learner, task)
    else:
        made = _onnx(learner, task) if isinstance(model, Learner) else _onnx_of_table(model, task)
    return _written(Path(file), made[0], format, task, made[1])


def export_all(learner: AnyLearner, file: str | Path) -> Exported:
    """Write one ONNX file for all tasks: its second input is the number of a task, from 1.

    What tasks share is stored once; if they share nothing this is refused. Of an estimator, give
    its `learner_`: the file takes inputs that are prepared already.
    """
    if not learner.tasks:
        raise ExportError("no task was learned yet, so there is nothing to export")
    model = all_tasks_graph(
        [learner.predictor(task) for task in learner.tasks], model_facts(learner)
    )
    content = model.SerializeToString()
    run = _session(content)
    difference = 0.0
    for number, task in enumerate(learner.tasks, 1):
        known, _ = learner.predictor(task)

        def answers(x: Tensor, number: int = number) -> Any:
            return run([ANSWERS], {INPUTS: x.numpy(), TASK: np.array(number)})[0]

        difference = max(difference, _difference(learner, known, answers))
    return _written(Path(file), content, "onnx", None, difference)


def file_name(task: str | None, format: str) -> str:
    """A name for the file of a task that every file system takes."""
    plain = "all-tasks" if task is None else re.sub(r"[^\w.-]+", "-", task).strip("-.")[:80]
    return (plain or "task") + ENDINGS[format]


def _written(
    file: Path, content: bytes, format: str, task: str | None, difference: float
) -> Exported:
    make_directory(file.resolve().parent)
    replace_file(file.resolve(), content)
    return Exported(file, format, task, len(content), difference)


def _onnx(learner: AnyLearner, task: str) -> tuple[bytes, float]:
    known, network = learner.predictor(task)
    facts = task_facts(learner, known)
    model = task_graph(known, network, facts) or _traced_graph(learner, known, facts)
    content = model.SerializeToString()
    run = _session(content)

    def answers(x: Tensor) -> Any:
        found, *labels = run(None, {INPUTS: x.numpy()})
        if labels:
            _require_labels(known, found, labels[0])
        return found

    return content, _difference(learner, known, answers)


def _onnx_of_table(estimator: "LifelongEstimator", task: str) -> tuple[bytes, float]:
    estimator.learner_.predictor(task)  # refuses a task that was not learned
    from lifelong.deployment.tables import checked_rows, table_graph

    content = table_graph(estimator, task).SerializeToString()
    table, fed = checked_rows(estimator)
    found = _session(content)(None, fed)
    answer: Any = estimator
    if estimator.front == "regressor":
        return content, _apart(task, found[0], answer.predict(table, task=task))
    probabilities = answer.predict_proba(table, task=task)
    sure = np.ptp(np.sort(probabilities, axis=1)[:, -2:], axis=1) > CLOSE  # others may tie
    if not np.array_equal(found[1][sure], answer.predict(table, task=task)[sure]):
        raise ExportError(f"{task!r}: labels that are not those of the estimator")
    return content, _apart(task, found[0], probabilities)


def _traced_graph(
    learner: AnyLearner, known: LearnedTask, facts: Mapping[str, str]
) -> "ModelProto":
    """Of layers that are not ours, by `torch.onnx`; without labels."""
    require_extra("onnx", "onnxscript", extra="export")
    module, example, rows = _module_and_example(learner, known)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", FutureWarning)  # torch about its own code
        program = torch.onnx.export(
            module,
            (example,),
            dynamo=True,
            dynamic_shapes=(rows,),
            input_names=[INPUTS],
            output_names=[answer_name(known)],
            verbose=False,
        )
    if program is None:
        raise ExportError(f"torch.onnx makes nothing of {known.name!r}; export it as torch")
    from onnx import helper

    model: ModelProto = program.model_proto
    helper.set_model_props(model, dict(facts))
    return model


def _torch(learner: AnyLearner, task: str) -> tuple[bytes, float]:
    known, _ = learner.predictor(task)
    module, example, rows = _module_and_example(learner, known)
    program = torch.export.export(module, (example,), dynamic_shapes=(rows,))
    stream = io.BytesIO()
    facts = json.dumps(task_facts(learner, known))
    torch.export.save(program, stream, extra_files={"task.json": facts})
    read = torch.export.load(io.BytesIO(stream.getvalue())).module()
    return stream.getvalue(), _difference(learner, known, read)


def _module_and_example(
    learner: AnyLearner, known: LearnedTask
) -> tuple[nn.Module, Tensor, dict[int, Any]]:
    """What is traced, the rows it is traced with, and that their number may differ."""
    module = task_module(learner, known.name, answers=True).cpu().requires_grad_(False)
    example = torch.zeros(2, *learner.network.architecture.layout.inputs)
    return module, example, {0: torch.export.Dim("rows")}


def _state_dict(learner: AnyLearner, task: str) -> tuple[bytes, float]:
    known, _ = learner.predictor(task)
    module = task_module(learner, task).cpu().requires_grad_(False)
    facts = {**task_facts(learner, known), "module": str(module)}
    content = save({name: t.contiguous() for name, t in module.state_dict().items()}, facts)
    for parameter in module.parameters():
        parameter.fill_(torch.nan)  # so that the check sees only what is read back
    module.load_state_dict(load(content))
    return content, _difference(learner, known, module, logits=True)


def _session(content: bytes) -> Callable[..., Any]:
    require_extra("onnxruntime", extra="export")
    from onnxruntime import InferenceSession, SessionOptions

    options = SessionOptions()
    options.intra_op_num_threads = 1
    session = InferenceSession(content, options, providers=["CPUExecutionProvider"])
    run: Callable[..., Any] = session.run
    return run


def _difference(
    learner: AnyLearner,
    known: LearnedTask,
    answers: Callable[[Tensor], Any],
    *,
    logits: bool = False,
) -> float:
    """Largest difference from the learner's answers."""
    generator = torch.Generator().manual_seed(0)
    own = learner.decision_function if logits or known.kind.is_regression else learner.predict_proba
    largest = 0.0
    for rows in _CHECKED_ROWS:
        x = _inputs(learner.network.architecture, rows, generator)
        expected = own(x, task=known.name).cpu().numpy()
        largest = max(largest, _apart(known.name, np.asarray(answers(x)), expected))
    return largest


def _inputs(architecture: Architecture, rows: int, generator: torch.Generator) -> Tensor:
    """Random numbers, or tokens that every vocabulary has."""
    shape = (rows, *architecture.layout.inputs)
    if isinstance(architecture, Traced | Adapted) and architecture.data.dtype == "int64":
        return torch.randint(2, shape, generator=generator).float()
    return torch.randn(shape, generator=generator)


def _apart(task: str, found: Any, expected: Any) -> float:
    """Largest difference, relative to answers above 1; refused if it is not small."""
    if found.shape != expected.shape:
        raise ExportError(f"{task!r}: answers of shape {found.shape}, not {expected.shape}")
    largest = float((np.abs(found - expected) / np.maximum(1, np.abs(expected))).max())
    if not largest <= CLOSE:  # NaN is not close either
        raise ExportError(
            f"{task!r}: the exported network differs from the learner's answers by "
            f"{largest:.1e}, more than {CLOSE:.0e}, and was not written; please report this"
        )
    return largest


def _require_labels(known: LearnedTask, answers: Any, labels: Any) -> None:
    """That labels follow from the answers."""
    if not np.array_equal(labels, labels_from(known, answers.tolist())):
        raise ExportError(f"{known.name!r}: labels that do not follow from the probabilities")
