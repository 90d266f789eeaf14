"""Events as lines of Python's `logging`."""

import logging
from typing import final

from lifelong.printing import printable
from lifelong.watching.events import (
    Event,
    StageBegan,
    StageEnded,
    TaskBegan,
    TaskEnded,
    TaskFailed,
    Validated,
)


@final
class Log:
    """A watcher that logs tasks and trainings as INFO, looks as DEBUG and failures as ERROR."""

    def __init__(self, logger: logging.Logger | None = None) -> None:
        self._logger = logger or logging.getLogger("lifelong")

    def __call__(self, event: Event) -> None:
        level, text = _line(event)
        if self._logger.isEnabledFor(level):
            self._logger.log(level, "%s", printable(text))


def _line(event: Event) -> tuple[int, str]:
    match event:
        case TaskBegan(method, task, number):
            return logging.INFO, f"{method}: task {number}, {task}"
        case StageBegan(stage, most_steps):
            return logging.DEBUG, f"{stage}: at most {most_steps:,} steps"
        case Validated(stage, step, most_steps, loss, best, rate):
            said = f"step {step:,} of {most_steps:,}, validation loss {loss:.4g} (best {best:.4g})"
            return logging.DEBUG, f"{stage}: {said}, learning rate {rate:.2g}"
        case StageEnded(stage, record):
            said = f"validation loss {record.loss:.4g} after {record.steps:,} steps"
            return logging.INFO, f"{stage}: {said}, {record.seconds:.1f} s"
        case TaskEnded(method, task, number, units, parameters):
            grown = ", ".join(f"{group} {count:,}" for group, count in units.items())
            said = f"{method}: learned task {number}, {task}: {parameters:,} parameters, {grown}"
            return logging.INFO, said
        case TaskFailed(method, task, error):
            return logging.ERROR, f"{method}: {task} was not learned: {error}"
