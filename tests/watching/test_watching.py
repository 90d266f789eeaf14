"""Who watches a learner is told everything, in order, and changes nothing."""

import inspect
import logging
import sys
from types import ModuleType

import pytest
from tensorboardX.proto.event_pb2 import Event as Written

from builders import BUDGET, answers, inputs_for, quick, small_mlp, stream_for
from lifelong import DEN
from lifelong.learners.baselines import Finetuning, Joint, SequentialSettings, TrainingSettings
from lifelong.watching.events import (
    Scalars,
    StageBegan,
    StageEnded,
    TaskBegan,
    TaskEnded,
    TaskFailed,
    Validated,
)
from lifelong.watching.logs import Log
from lifelong.watching.trackers import MLflow, TensorBoard, WeightsAndBiases

TASKS = stream_for(small_mlp(), "one output", "classes")


def watched(watcher, learner=None):
    learner = learner or DEN(small_mlp(), quick())
    learner.watch(watcher)
    for task in TASKS:
        learner.learn(task)
    return learner


def test_events_come_in_order_and_tell_what_the_records_tell():
    told = []
    learner = watched(told.append)
    ends = [n for n, event in enumerate(told) if isinstance(event, TaskEnded)]
    assert len(ends) == 2
    assert ends[-1] == len(told) - 1
    for number, (first, last) in enumerate(zip([0, ends[0] + 1], ends, strict=True), 1):
        began, *between, ended = told[first : last + 1]
        task = TASKS[number - 1].name
        assert began == TaskBegan("DEN", task, number)
        assert (ended.method, ended.task, ended.number) == ("DEN", task, number)
        inside = None
        for event in between:
            if isinstance(event, StageBegan):
                assert inside is None
                inside = event.stage
            elif isinstance(event, StageEnded):
                inside = None if event.stage == inside else "another"
            else:
                assert isinstance(event, Validated)
                assert event.stage == inside
        assert inside is None
        taken = [e.record for e in between if isinstance(e, StageEnded)]
        kept = learner.records[number - 1].stages
        assert {(s.loss, s.steps) for s in kept} <= {(s.loss, s.steps) for s in taken}
    assert ended.units == {group: len(born) for group, born in learner.network.born.items()}
    assert ended.parameters == learner.capacity().parameters


def test_watching_changes_no_bit():
    x = inputs_for(small_mlp(), 5)
    plain = DEN(small_mlp(), quick())
    for task in TASKS:
        plain.learn(task)
    seen = answers(watched(lambda _event: None), x)
    assert all(seen[name].equal(found) for name, found in answers(plain, x).items())


def test_other_settings_are_watched_by_the_same():
    told = []
    learner = DEN(small_mlp(), quick())
    learner.watch(told.append)
    learner.with_settings(quick(mu=0.2)).learn(TASKS[0])
    assert isinstance(told[-1], TaskEnded)


def test_training_together_is_told_as_all_tasks():
    told = []
    learner = Joint(small_mlp(), TrainingSettings(budget=BUDGET))
    learner.watch(told.append)
    learner.learn_together(TASKS)
    assert told[0] == TaskBegan("DNN-MTL", "all tasks", 2)
    assert (told[-1].task, told[-1].number) == ("all tasks", 2)


@pytest.mark.parametrize("at", [TaskBegan, StageBegan, Validated, StageEnded, TaskEnded])
def test_a_watcher_that_raises_ends_the_learning_which_changes_nothing(at):
    told = []

    def stops(event):
        told.append(event)
        if isinstance(event, at):
            raise ZeroDivisionError("enough")

    learner = DEN(small_mlp(), quick())
    learner.watch(stops)
    with pytest.raises(ZeroDivisionError, match="enough"):
        learner.learn(TASKS[0])
    assert learner.tasks == ()
    if at is not TaskBegan:  # before that there was nothing to fail
        assert told[-1] == TaskFailed("DEN", TASKS[0].name, "enough")
    other = DEN(small_mlp(), quick())
    other.learn(TASKS[0])
    learner._watchers = ()
    learner.learn(TASKS[0])
    assert learner.records[0].loss == other.records[0].loss


def test_a_killed_learning_tells_only_what_is_done_after_it_resumes(tmp_path, monkeypatch):
    monkeypatch.setattr("lifelong.persistence.checkpoint.APART", 0)  # every look is kept

    def kill(event):
        if isinstance(event, Validated) and event.step > 8:
            raise KeyboardInterrupt

    settings = SequentialSettings(budget=BUDGET)
    learner = Finetuning(small_mlp(), settings)
    learner.watch(kill)
    with pytest.raises(KeyboardInterrupt):
        learner.learn(TASKS[0], checkpoint=tmp_path)
    told = []
    again = Finetuning(small_mlp(), settings)
    again.watch(told.append)
    again.learn(TASKS[0], checkpoint=tmp_path)
    assert [event.step for event in told if isinstance(event, Validated)] == [24]
    assert isinstance(told[-1], TaskEnded)


def test_scalars_run_on_from_training_to_training():
    told = []
    watched(told.append)
    scalars = Scalars()
    points = [scalars(event) for event in told]
    steps = [step for step, _ in points]
    assert steps == sorted(steps)
    assert steps[-1] == sum(e.record.steps for e in told if isinstance(e, StageEnded))
    assert points[-1][1]["tasks"] == 2
    looks = [numbers["validation loss"] for _, numbers in points if "validation loss" in numbers]
    assert looks == [event.loss for event in told if isinstance(event, Validated)]


def test_the_log_has_tasks_trainings_and_failures_and_no_escape(caplog):
    caplog.set_level(logging.DEBUG, "lifelong")
    log = Log()
    watched(log)
    lines = [(record.levelno, record.getMessage()) for record in caplog.records]
    assert lines[0] == (logging.INFO, "DEN: task 1, task 1")
    assert lines[-1][1].startswith("DEN: learned task 2, task 2: ")
    assert any(level == logging.DEBUG and "validation loss" in line for level, line in lines)
    log(TaskFailed("DEN", "\x1b]0;evil\x07", "why"))
    assert caplog.records[-1].levelno == logging.ERROR
    assert "\x1b" not in caplog.records[-1].getMessage()
    assert r"\x1b]0;evil\x07 was not learned: why" in caplog.records[-1].getMessage()


def test_tensorboard_gets_every_look(tmp_path):
    told = []
    board = TensorBoard(tmp_path)
    learner = DEN(small_mlp(), quick())
    learner.watch(told.append)
    watched(board, learner)
    board.close()
    found = {}
    for event in written(next(tmp_path.iterdir())):
        for value in event.summary.value:
            if value.HasField("simple_value"):
                found.setdefault(value.tag, []).append((event.step, value.simple_value))
    looks = [event.loss for event in told if isinstance(event, Validated)]
    assert [loss for _, loss in found["validation_loss"]] == pytest.approx(looks)
    assert found["parameters"][-1][1] == learner.capacity().parameters
    assert [count for _, count in found["tasks"]] == [1, 2]


def written(file):
    """The events of a file: each has a length of eight bytes, two checksums and a message."""
    content, at = file.read_bytes(), 0
    while at < len(content):
        size = int.from_bytes(content[at : at + 8], "little")
        yield Written.FromString(content[at + 12 : at + 12 + size])
        at += 16 + size


def _log(self, data, step=None, commit=None): ...  # wandb 0.31: Run.log
def _log_metrics(
    metrics,
    step=None,
    synchronous=None,
    run_id=None,
    timestamp=None,
    model_id=None,
    dataset=None,
): ...  # mlflow 3.17: log_metrics


def checked(signature, calls):
    """A stand-in for a function that takes what the real one takes."""

    def stand_in(*args, **kwargs):
        bound = inspect.signature(signature).bind(*args, **kwargs)
        calls.append(bound.arguments)

    return stand_in


@pytest.mark.parametrize("name", ["wandb", "mlflow"])
def test_large_trackers_are_called_as_they_want_it(name, monkeypatch):
    calls = []
    module = ModuleType(name)
    module.__spec__ = inspect.__spec__  # found by `find_spec`
    monkeypatch.setitem(sys.modules, name, module)
    if name == "wandb":
        run = type("Run", (), {"log": checked(_log, calls)})()
        watched(WeightsAndBiases(run))
        logged = [(call["step"], call["data"]) for call in calls]
    else:
        module.log_metrics = checked(_log_metrics, calls)
        watched(MLflow("a run"))
        assert {call["run_id"] for call in calls} == {"a run"}
        logged = [(call["step"], call["metrics"]) for call in calls]
    assert [step for step, _ in logged] == sorted(step for step, _ in logged)
    assert all(isinstance(v, int | float) for _, numbers in logged for v in numbers.values())
    assert logged[-1][1]["tasks"] == 2
    assert "validation loss" in logged[0][1]
