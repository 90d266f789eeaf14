"""`lifelong.load`, whatever learner is there, and what a learner says of itself."""

import pytest

import lifelong
from builders import BUDGET, answers, inputs_for, quick, small_mlp, stream_for
from lifelong import DEN
from lifelong.learners.registry import METHODS
from lifelong.persistence.manifest import ModelFileError

TASKS = stream_for(small_mlp(), "one output", "one output")


@pytest.mark.parametrize("name", ["DEN", "DNN-STL", "DNN-EWC", "DNN-Progressive"])
def test_whatever_was_saved_is_loaded(name, tmp_path):
    learner = METHODS[name].make(small_mlp(), budget=BUDGET, seed=3)
    for task in TASKS:
        learner.learn(task)
    learner.save(tmp_path / "model")
    again = lifelong.load(str(tmp_path / "model"), progress=True)
    assert type(again) is type(learner)
    assert again.progress
    assert repr(again) == repr(learner)
    x = inputs_for(small_mlp(), 4)
    assert all(p.equal(answers(learner, x)[task]) for task, p in answers(again, x).items())


@pytest.mark.parametrize("load", [lifelong.load, DEN.load])
@pytest.mark.parametrize("what", ["nothing", "empty", "file"])
def test_what_is_no_model_is_said_to_be_none(load, what, tmp_path):
    path = tmp_path / "model"
    if what == "empty":
        path.mkdir()
    elif what == "file":
        path.write_text("a file")
    with pytest.raises(
        ModelFileError, match=r"model: not a saved model: it has no manifest\.json; give the dir"
    ):
        load(path)


def test_a_learner_says_what_it_knows():
    learner = DEN(small_mlp(), quick(), seed=5)
    assert repr(learner) == (
        "<DEN: no task yet; inputs (6,), hidden1 10, hidden2 7; 0 parameters; seed 5>"
    )
    learner.learn(TASKS[0])
    units = ", ".join(f"{group} {len(born)}" for group, born in learner.network.born.items())
    assert repr(learner) == (
        f"<DEN: 1 task, 'task 1'; inputs (6,), {units}; "
        f"{learner.capacity().parameters} parameters; seed 5>"
    )


def test_the_names_of_many_tasks_are_cut_and_cannot_command_a_terminal():
    learner = METHODS["DNN-STL"].make(small_mlp(), budget=BUDGET)
    for number in range(6):
        task = stream_for(small_mlp(), "one output")[0]
        task.name = f"\x1b[2J{number}" + "long" * 50
        learner.learn(task)
    said = repr(learner)
    assert said.isprintable()
    assert len(said) < 500
    assert "6 tasks, … '\\x1b[2J1" in said


def test_the_version_is_that_of_the_package():
    assert lifelong.__version__.split(".")[0].isdecimal()
    assert "load" in dir(lifelong)
    assert "__version__" in dir(lifelong)
