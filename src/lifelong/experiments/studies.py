"""Studies of Optuna, in this process or in storage that many workers share.

In one process a study is Optuna's TPE with a seed. In shared storage a proposal must depend on the
study alone, not on who asks or how often that process was started: for each proposal TPE is started
with the same seed and taken through the earlier trials. One worker thus proposes what it would
propose by itself, and several never draw the same numbers.
"""

import os
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, final

from lifelong.extras import require_extra
from lifelong.learners.registry import Range

require_extra("optuna", extra="tune")

import optuna  # noqa: E402 (after the error that says what to install)
from optuna.distributions import BaseDistribution, FloatDistribution  # noqa: E402
from optuna.exceptions import UpdateFinishedTrialError  # noqa: E402
from optuna.storages.journal import (  # noqa: E402
    JournalFileBackend,
    JournalFileSymlinkLock,
    JournalStorage,
)
from optuna.trial import FrozenTrial, TrialState  # noqa: E402

ENDED = (TrialState.COMPLETE, TrialState.PRUNED)
GIVEN_UP = TrialState.FAIL
_SEED = 0
GRACE = 30  # seconds after which the lock of a process that was killed is taken from it


class StorageError(ValueError):
    """Storage that cannot be used; the message says why, and what can."""


def open_study(
    name: str,
    space: Mapping[str, Range],
    begin: Sequence[Mapping[str, float]],
    storage: str = "",
) -> optuna.Study:
    """The study of this name in the storage, or a new one in this process."""
    optuna.logging.set_verbosity(optuna.logging.WARNING)
    plan = _Plan(space, begin)
    if not storage:
        return plan.study()
    return optuna.create_study(
        storage=_storage(storage),
        study_name=name,
        load_if_exists=True,
        direction="maximize",
        sampler=_ByHistory(plan),
    )


def trials_of(study: optuna.Study) -> list[FrozenTrial]:
    """Those that have begun, in order, but those that were given up."""
    found: list[FrozenTrial] = study.get_trials(deepcopy=False)
    return [trial for trial in found if trial.state not in (TrialState.WAITING, GIVEN_UP)]


def tell(
    study: optuna.Study, number: int, value: float | None = None, *, state: TrialState
) -> None:
    """The outcome of a trial, unless another process told one first."""
    with suppress(UpdateFinishedTrialError):  # told between the look at its state and the write
        study.tell(number, value, state=state, skip_if_finished=True)


def propose(study: optuna.Study, space: Mapping[str, Range]) -> int | None:
    """The number of a new trial with its settings; none if another process gave it up meanwhile."""
    trial = study.ask()
    try:
        draw(trial, space)
    except UpdateFinishedTrialError:
        return None
    return int(trial.number)


def draw(trial: optuna.Trial, space: Mapping[str, Range]) -> dict[str, float]:
    """The settings that are proposed for a trial."""
    return {n: trial.suggest_float(n, r.low, r.high, log=True) for n, r in space.items()}


def _storage(given: str) -> Any:
    """A database by its address, or the file of a journal."""
    try:
        if "://" in given:
            return optuna.storages.RDBStorage(given)
        Path(given).resolve().parent.mkdir(parents=True, exist_ok=True)
        return JournalStorage(JournalFileBackend(given, lock_obj=_Lock(given)))
    except Exception as error:  # each database raises its own
        first = str(error).splitlines()[0]
        raise StorageError(
            f"--storage {given} cannot be used: {first}; give a file for a journal, or a database "
            "such as sqlite:///study.db or postgresql://host/name"
        ) from error


@final
class _Lock(JournalFileSymlinkLock):
    """A journal is written to while this is held, and ends with a whole line then.

    A write that was stopped in its midst leaves a part of a line. The next line would be glued to
    it, and nobody could read the journal any more.
    """

    def __init__(self, journal: str) -> None:
        super().__init__(journal, grace_period=GRACE)
        self._journal = Path(journal)

    def acquire(self) -> bool:
        acquired: bool = super().acquire()
        with self._journal.open("r+b") as stream:
            size = stream.seek(0, os.SEEK_END)
            stream.seek(max(0, size - 1))
            if stream.read() not in (b"", b"\n"):
                stream.seek(0)
                stream.truncate(stream.read().rfind(b"\n") + 1)
        return acquired


@final
@dataclass(frozen=True)
class _Plan:
    """What a study searches, and where it begins."""

    space: Mapping[str, Range]
    begin: Sequence[Mapping[str, float]]

    def study(self) -> optuna.Study:
        """A new study in this process, which tries first what it begins with."""
        sampler = optuna.samplers.TPESampler(seed=_SEED)
        study = optuna.create_study(direction="maximize", sampler=sampler)
        for settings in self.begin:
            study.enqueue_trial(dict(settings))
        return study

    def next_after(self, trials: list[FrozenTrial]) -> dict[str, float]:
        """What is proposed after these."""
        study = self.study()
        for trial in trials:
            self._repeat(study, trial)
        return draw(study.ask(), self.space)

    def _repeat(self, study: optuna.Study, trial: FrozenTrial) -> None:
        asked = study.ask()
        same = draw(asked, self.space) == trial.params
        if same and trial.state in ENDED:
            value = trial.value if trial.state == TrialState.COMPLETE else None
            study.tell(asked, value, state=trial.state)
        elif trial.state in ENDED:  # asked for before others had ended: its own draw is void
            study.tell(asked, state=GIVEN_UP)
            study.add_trial(trial)


@final
class _ByHistory(optuna.samplers.BaseSampler):
    """Proposes what TPE proposes after the earlier trials."""

    def __init__(self, plan: _Plan) -> None:
        self._plan = plan

    def infer_relative_search_space(
        self, study: optuna.Study, trial: FrozenTrial
    ) -> dict[str, BaseDistribution]:
        del study, trial
        return {n: FloatDistribution(r.low, r.high, log=True) for n, r in self._plan.space.items()}

    def sample_relative(
        self, study: optuna.Study, trial: FrozenTrial, search_space: dict[str, BaseDistribution]
    ) -> dict[str, Any]:
        del search_space
        earlier = [each for each in trials_of(study) if each.number < trial.number]
        return self._plan.next_after(earlier)

    def sample_independent(
        self,
        study: optuna.Study,
        trial: FrozenTrial,
        param_name: str,
        param_distribution: BaseDistribution,
    ) -> Any:
        del param_distribution
        return self.sample_relative(study, trial, {})[param_name]
