"""A learning that is stopped anywhere goes on where it was, and ends with the same bits."""

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from builders import (
    BUDGET,
    SKELETONS,
    contents,
    learned,
    quick,
    same,
    stream_for,
)
from lifelong import journal
from lifelong.learner import Learner
from lifelong.records import TaskRecord


class Stop(BaseException):
    """What nobody catches, like a kill."""


@pytest.fixture(autouse=True)
def every_look(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let checkpoints be written whenever they may be, however short a time that is."""
    monkeypatch.setattr(journal, "APART", 0)


def stop_after(looks: int, patch: pytest.MonkeyPatch) -> None:
    """Stop at a look at the validation loss, after what is written there."""
    left = iter(range(looks))
    keep = journal.Journal.keep

    def keep_and_stop(self: journal.Journal, page: Callable[[], journal.Page]) -> None:
        keep(self, page)
        if next(left, None) is None:
            raise Stop

    patch.setattr(journal.Journal, "keep", keep_and_stop)


def stopped_everywhere(
    make: Callable[[], Learner], act: Callable[[Learner, Path], object], directory: Path
) -> Iterator[Learner]:
    """Learners that were stopped at the first look, the second and so on, and then went on."""
    for looks in range(1000):
        checkpoint = directory / str(looks)
        with pytest.MonkeyPatch.context() as patch:
            stop_after(looks, patch)
            try:
                act(make(), checkpoint)
                return
            except Stop:
                pass
        learner = make()
        act(learner, checkpoint)
        yield learner


def unhurried(records: tuple[TaskRecord, ...]) -> object:
    """Records but for the seconds."""
    return [
        (r.task, r.number, r.groups, [(s.name, s.loss, s.steps) for s in r.stages]) for r in records
    ]


@pytest.mark.parametrize("name", SKELETONS)
def test_a_learn_that_was_stopped_goes_on_to_the_bit(name: str, tmp_path: Path) -> None:
    skeleton = SKELETONS[name]()
    first, second = stream_for(skeleton, "one output", "classes")
    settings = quick(sigma=0.0)
    expected = learned(skeleton, [first, second], settings)
    resumed = 0
    for learner in stopped_everywhere(
        lambda: learned(skeleton, [first], settings),
        lambda learner, at: learner.learn(second, checkpoint=at),
        tmp_path,
    ):
        assert same(contents(learner), contents(expected))
        assert unhurried(learner.records) == unhurried(expected.records)
        resumed += 1
    assert resumed == sum(stage.steps for stage in expected.records[-1].stages) / BUDGET.check_every
