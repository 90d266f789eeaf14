"""A model card made of what the model knows about itself."""

import math
import re
from collections.abc import Mapping, Sequence

from lifelong.learners.base import AnyLearner
from lifelong.printing import printable
from lifelong.records import TaskRecord

MADE = "<!-- made by lifelong from the model's records -->"
Scores = Mapping[str, Mapping[str, float]]  # by task, then by metric


def card_text(
    learner: AnyLearner, *, scores: Scores | None = None, command: str = "", name: str = "MODEL"
) -> str:
    """The card in Markdown, without the header that a hub reads."""
    sections = [
        MADE,
        f"# {_plain(name)}",
        _about(learner),
        "## Use\n\n" + _usage(learner, name),
        "## Tasks\n\n" + _tasks(learner, scores or {}),
        "## Growth\n\n" + _growth(learner),
        *([f"## Command\n\n{_code(command, 'shell')}"] if command else []),
        "## Settings\n\n" + _settings(learner),
    ]
    return "\n\n".join(sections) + "\n"


def _about(learner: AnyLearner) -> str:
    count, capacity = len(learner.tasks), learner.capacity()
    relative = f", {learner.relative_capacity():.2f} times its base network" if count else ""
    return (
        f"A network that {learner.method} taught {count} task{'s' * (count != 1)}, one after "
        f"another: {capacity.parameters:,} parameters{relative}. Made with "
        "[lifelong](https://pypi.org/project/lifelong/)."
    )


def _usage(learner: AnyLearner, name: str) -> str:
    task = repr(learner.tasks[-1]) if learner.tasks else '"..."'
    code = (
        "from lifelong.deployment.hub import from_pretrained\n\n"
        f"learner = from_pretrained({name!r})\n"
        f"learner.predict(rows, task={task})"
    )
    inputs = learner.network.architecture.layout.inputs
    return f"{_code(code, 'python')}\n\nEach row has the shape {inputs}."


def _tasks(learner: AnyLearner, scores: Scores) -> str:
    metrics = list(dict.fromkeys(metric for of_task in scores.values() for metric in of_task))
    records = {record.number: record for record in learner.records}
    rows = [
        [
            str(number),
            known.name,
            known.kind.value,
            str(known.outputs),
            _loss(records.get(number)),
            *(_number(scores.get(known.name, {}).get(metric)) for metric in metrics),
        ]
        for number, known in enumerate(learner.network.tasks, 1)
    ]
    return _table(["", "task", "kind", "outputs", "validation loss", *metrics], rows)


def _growth(learner: AnyLearner) -> str:
    base = learner.network.architecture.layout.groups
    now = {group: len(born) for group, born in learner.network.born.items()}
    rows = [
        [
            str(record.number),
            record.task,
            *(_change(record, group) for group in base),
            f"{record.steps:,}",
            f"{record.seconds:.1f}",
        ]
        for record in learner.records
    ]
    widths = ", ".join(f"{_plain(g)} {now.get(g, n):,} (base {n:,})" for g, n in base.items())
    table = _table(["", "task", *base, "steps", "seconds"], rows)
    return f"Units per layer now: {widths}. After each task, with those that it added:\n\n{table}"


def _change(record: TaskRecord, group: str) -> str:
    at = record.groups.get(group)
    if at is None:
        return "–"
    new = at.added + at.split - at.dropped
    return f"{at.units:,} ({new:+,})" if new else f"{at.units:,}"


def _settings(learner: AnyLearner) -> str:
    return _code(f"seed={learner.seed}\n{learner.settings!r}", "text")


def _loss(record: TaskRecord | None) -> str:
    return "–" if record is None or math.isnan(record.loss) else f"{record.loss:.4f}"


def _number(value: float | None) -> str:
    return "–" if value is None else f"{value:.4f}"


def _table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join(f"| {' | '.join(map(_plain, line))} |" for line in lines)


def _plain(text: str) -> str:
    """Text that is no markup: names come from data."""
    return re.sub(r"([\\`*_\[\]<>|#!~$&])", r"\\\1", printable(text))


def _code(text: str, language: str) -> str:
    """A block that its text cannot end."""
    lines = "\n".join(map(printable, text.split("\n")))
    longest = max((len(run) for run in re.findall("`+", lines)), default=0)
    fence = "`" * max(3, longest + 1)
    return f"{fence}{language}\n{lines}\n{fence}"
