"""A stored run: plain data, to and from JSON, without torch."""

import re
from collections.abc import Iterable, Iterator
from functools import cached_property
from pathlib import Path
from typing import Annotated, Any, final

import msgspec
import numpy as np

from lifelong.evaluation.metrics import METRICS
from lifelong.evaluation.results import ResultError, ResultMatrix
from lifelong.records import BYTES, Answers, Count, TaskRecord

FORMAT = "lifelong run"
VERSION = 1
MOST_BYTES = 1 << 28  # of a file; what it is decoded into takes several times as much
MOST_TASKS = 2000  # every pair of which has a score
MOST_USES = 1 << 25  # tasks times units: what a table of who uses which takes
MOST_ENTRIES = 1 << 53  # of a tensor: more cannot be counted exactly in a float
MOST_ANSWERS = 1000  # rows and columns of a table of answers
DEEPEST = 10  # settings within settings


class RunError(ValueError):
    """An invalid stored run, or runs that cannot be combined."""


@final
class Summary(msgspec.Struct, frozen=True):
    """The headline numbers of a run.

    Attributes:
        auroc, accuracy: mean over all tasks after the last; None if nothing was scored, as for a
            saved model, or if the tasks are regressions.
        forgetting: of AUROC, or of R2 for regressions (see `ResultMatrix.forgetting`); None after a
            single task, or if all tasks were learned at once.
        capacity: stored bytes relative to those of the base network with a head for each task.
        parameters, nonzero: values that are stored, and those of them that are not zero.
        seconds: of learning, without evaluation.
        bytes: stored, of values and of the places of those that overwrite others. If not given, as
            in runs of earlier releases, four per value.
        learning_bytes: of what is kept only to learn the next task; None in runs of earlier
            releases.
        prediction_seconds: of a prediction of 1,000 rows; None if nothing was scored.
    """

    auroc: float | None
    accuracy: float | None
    forgetting: float | None
    capacity: float
    parameters: Count
    nonzero: Count
    seconds: float
    bytes: Annotated[int, msgspec.Meta(ge=-1, le=1 << 53)] = -1
    learning_bytes: Count | None = None
    prediction_seconds: float | None = None

    def __post_init__(self) -> None:
        if self.bytes < 0:
            msgspec.structs.force_setattr(self, "bytes", BYTES * self.parameters)


@final
class Run(msgspec.Struct, frozen=True, kw_only=True, dict=True):
    """One method on one stream with one seed: the data behind all tables and figures.

    Attributes:
        about: description of the method.
        command: that repeats this run; may be empty.
        data: name of the data set, as `lifelong.tasks.datasets.load` knows it.
        source: description of the data.
        look_alike: whether the data only imitates the data set of that name.
        scenario: "task", "domain" or "class" (see `Stream`); empty if it is not known.
        tasks: names in the order in which they were learned.
        inputs: shape of one input.
        widths: units of each group in the base network.
        warnings: messages of the warnings that the run issued.
        scores: per metric, the score of each task at the end.
        records: one per task, or a single one if all tasks were learned at once.
        born: for each group of units that tasks share, the number of the task, from 1, that each
            unit appeared with.
        used: for each group and each task, the units that the task uses, numbered from 0 as in
            `born`; empty if the method does not know them.
        entries: of each shared tensor, for each task, those that were there when the task began,
            and that it may have overwritten; empty if the run does not tell.
        answers: for each task, how its test rows were answered at the end; empty if not told.
        matrix: the JSON of its `results`; null if all tasks were learned at once.
    """

    format: str = FORMAT
    version: int = VERSION
    method: str
    about: str
    command: str
    data: str
    source: str
    look_alike: bool = False
    scenario: str = ""
    tasks: tuple[str, ...]
    inputs: tuple[Count, ...]
    widths: dict[str, Count]
    seed: int
    settings: dict[str, Any]
    versions: dict[str, str]
    warnings: tuple[str, ...]
    summary: Summary
    scores: dict[str, tuple[float, ...]]
    records: tuple[TaskRecord, ...]
    born: dict[str, tuple[int, ...]]
    used: dict[str, tuple[tuple[int, ...], ...]]
    entries: dict[str, tuple[int, ...]] = {}
    answers: tuple[Answers, ...] = ()
    matrix: msgspec.Raw

    def average(self, measure: str) -> float | None:
        """The mean over tasks at the end; None if the run does not have this metric."""
        summed_up = {"auroc": self.summary.auroc, "accuracy": self.summary.accuracy}
        if measure in summed_up:
            return summed_up[measure]
        return float(np.mean(self.scores[measure])) if measure in self.scores else None

    @cached_property
    def results(self) -> ResultMatrix | None:
        """R[i, j] is the score of task j after learning task i."""
        text = bytes(self.matrix)
        return None if text == b"null" else ResultMatrix.from_json(text)

    def to_json(self) -> bytes:
        return msgspec.json.format(msgspec.json.encode(self), indent=1) + b"\n"

    @classmethod
    def from_json(cls, text: str | bytes) -> "Run":
        """Read what `to_json` wrote."""
        try:
            envelope = msgspec.json.decode(text, type=_Envelope)
            _refuse_another(envelope)
            run = msgspec.json.decode(text, type=cls)
            _refuse_contradictions(run)
        except RecursionError as error:
            raise RunError("not the JSON of a run: it is nested too deep") from error
        except (msgspec.MsgspecError, UnicodeDecodeError, ResultError) as error:
            raise RunError(f"not the JSON of a run: {error}") from error
        return run


@final
class _Envelope(msgspec.Struct):
    """The members that every version of the format has."""

    format: str = ""
    version: int = 0


def measures(runs: Iterable[Run]) -> tuple[str, ...]:
    """Names of the metrics that any of these runs has, in the order of the table of metrics."""
    found = {name: None for run in runs for name in run.scores}
    return (*(n for n in METRICS if n in found), *(n for n in found if n not in METRICS))


def write_run(run: Run, directory: Path) -> Path:
    """Store a run in a file named after its method and seed; return the path."""
    directory.mkdir(parents=True, exist_ok=True)
    name = re.sub(r"[^a-z0-9]+", "-", run.method.lower()).strip("-")
    file = directory / f"{name}-seed-{run.seed}.json"
    file.write_bytes(run.to_json())
    return file


def read_runs(paths: Iterable[Path]) -> tuple[Run, ...]:
    """Read the runs in these files, and in all JSON files of these directories that hold one."""
    return tuple(run for path in paths for run in _read(path))


def _read(path: Path) -> Iterator[Run]:
    if not path.is_dir():
        yield _read_file(path)
        return
    found = (file for file in sorted(path.rglob("*.json")) if file.is_file())
    files = [file for file in found if _claims_to_be_a_run(file)]
    if not files:
        raise RunError(
            f"{path}: no stored run in this directory; give files or directories that "
            "`lifelong demo` or an experiment wrote, or the directory of a saved model"
        )
    yield from map(_read_file, files)


def _read_file(file: Path) -> Run:
    try:
        return Run.from_json(_content(file))
    except RunError as error:
        raise RunError(f"{file}: {error}") from error


def _content(file: Path) -> bytes:
    """Of an ordinary file: a pipe could keep one waiting, a device has no end."""
    if file.exists() and not file.is_file():
        raise RunError("not an ordinary file; give a file that `lifelong demo` or `run` wrote")
    with file.open("rb") as stream:
        content = stream.read(MOST_BYTES + 1)
    if len(content) > MOST_BYTES:
        raise RunError(f"has more than {MOST_BYTES:,} bytes, the most that is read as a run")
    return content


def _claims_to_be_a_run(file: Path) -> bool:
    try:
        return msgspec.json.decode(_content(file), type=_Envelope).format == FORMAT
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError, RunError):
        return False


def _refuse_another(envelope: _Envelope) -> None:
    if envelope.format != FORMAT:
        raise RunError(f"not the JSON of a run: its format is {envelope.format!r}, not {FORMAT!r}")
    if envelope.version != VERSION:
        raise RunError(
            f"a run in format version {envelope.version}, but this release reads {VERSION}; "
            + ("a newer release reads it" if envelope.version > VERSION else "make it anew")
        )


def _refuse_contradictions(run: Run) -> None:
    """Refuse inconsistent parts, so that code that shows a run need not check."""
    count = len(run.tasks)
    _refuse_too_much(run)
    results = run.results
    if count == 0 or (results is not None and results.tasks != run.tasks):
        raise RunError(f"a run whose tasks {run.tasks!r} are not those of its matrix")
    for measure, scores in run.scores.items():
        if len(scores) != count:
            raise RunError(f"a run with {len(scores)} scores of {measure} for {count} tasks")
        if results is not None and measure not in results.scores:
            raise RunError(f"a run with scores of {measure}, which its matrix does not have")
    for group, born in run.born.items():
        if any(not 1 <= number <= count for number in born) or list(born) != sorted(born):
            raise RunError(f"a run in which the births of {group} are not tasks in order")
    for group in (*run.born, *run.used):
        if group not in run.widths or group not in run.born:
            raise RunError(f"a run with units of {group}, whose width or births it does not tell")
    sigma = run.settings.get("sigma", 0)
    if not isinstance(sigma, int | float) or sigma < 0:
        raise RunError(f"a run whose sigma is {sigma!r}, not a number from 0")
    for tensor, found in run.entries.items():
        if len(found) != count or not all(0 <= entries <= MOST_ENTRIES for entries in found):
            raise RunError(f"a run in which {tensor} has not some number of entries for each task")
    _refuse_strange_answers(run)
    for place, record in enumerate(run.records):
        if len(run.records) == count and run.born.keys() - record.groups:
            raise RunError(f"a run whose record of {record.task!r} lacks a group")
        _refuse_strange_heritage(run, record, place)
    for group, used in run.used.items():
        units = len(run.born.get(group, ()))
        if len(used) != count or any(not 0 <= unit < units for each in used for unit in each):
            raise RunError(f"a run in which tasks use units that {group} does not have")


def _refuse_strange_answers(run: Run) -> None:
    if len(run.answers) not in (0, len(run.tasks)):
        raise RunError(f"a run with answers of {len(run.answers)} of its {len(run.tasks)} tasks")
    for answers in run.answers:
        widths = {len(row) for row in answers.counts}
        plausible = len(widths) == 1 and 0 < max(widths) <= MOST_ANSWERS >= len(answers.counts)
        if not plausible or any(not 0 <= n <= MOST_ENTRIES for row in answers.counts for n in row):
            raise RunError("a run whose answers are not a table of how many rows got which")


def _refuse_strange_heritage(run: Run, record: TaskRecord, place: int) -> None:
    """A task started from an earlier one, and overwrote no more than there was."""
    if record.parent is not None and not 0 <= record.parent <= place:
        raise RunError(f"a run in which {record.task!r} started from task {record.parent}")
    for tensor, changed in record.changed.items():
        known = run.entries.get(tensor, (0,) * len(run.tasks))
        if not 0 <= changed <= (known[place] if run.entries else MOST_ENTRIES):
            raise RunError(
                f"a run in which {record.task!r} overwrote {changed:,} entries of {tensor}, which "
                "did not have as many"
            )


def _refuse_too_much(run: Run) -> None:
    count, units = len(run.tasks), sum(map(len, run.born.values()))
    if count > MOST_TASKS or count * units > MOST_USES:
        raise RunError(
            f"a run of {count:,} tasks and {units:,} units, but {MOST_TASKS:,} tasks are read at "
            f"the most, and {MOST_USES:,} pairs of a task and a unit"
        )
    level: list[Any] = [run.settings]
    for _ in range(DEEPEST):
        level = [inner for outer in level for inner in _parts(outer)]
    if level:
        raise RunError(f"a run whose settings are nested more than {DEEPEST} deep")


def _parts(value: Any) -> Iterable[Any]:
    if isinstance(value, dict):
        return value.values()
    return value if isinstance(value, list) else ()
