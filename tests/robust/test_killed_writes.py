"""Kills at every call to the file system of a save: the old model is there or the new one."""

import copy
import shutil
from pathlib import Path

import pytest

from builders import contents, quick, same, small_mlp, stream_for
from killing import killed_at
from lifelong.learners.den import DEN
from lifelong.persistence.checkpoint import CheckpointError
from lifelong.persistence.models import Directory

TASKS = stream_for(small_mlp(), "one output", "classes")


@pytest.mark.parametrize("split", ["units", "weights", "auto"])
def test_a_kill_while_a_task_is_added_leaves_the_model_without_it_or_with_it(split, tmp_path):
    learner = DEN(small_mlp(), quick(sigma=0.0, split=split))
    learner.learn(TASKS[0])
    learner.save(tmp_path / "before")
    before, after = (DEN.load(tmp_path / "before") for _ in range(2))
    after.learn(TASKS[1])
    (known,) = after._directories.values()
    found = []
    for turn in range(1, 100):
        path = Path(shutil.copytree(tmp_path / "before", tmp_path / str(turn)))
        adding = copy.copy(after)
        adding._directories = {path: Directory(dict(known.marks))}
        killed = killed_at(turn, lambda adding=adding, path=path: adding.save(path))
        there = contents(DEN.load(path))
        found.append(same(there, contents(after)))
        assert found[-1] or (killed and same(there, contents(before)))
        again = DEN.load(path)
        if not found[-1]:
            again.learn(TASKS[1])
        again.save(path)
        assert same(contents(DEN.load(path)), contents(after))
        assert len(list(path.glob("tasks-*"))) == 2
        assert [file.name for file in path.glob(".*")] == [".lock"]
        if not killed:
            break
    assert turn > 8
    assert found == sorted(found)  # from one moment on it is the new one
    assert not all(found)


def test_a_kill_while_a_checkpoint_is_written_leaves_one_to_go_on_from(tmp_path, monkeypatch):
    monkeypatch.setattr("lifelong.persistence.checkpoint.APART", 0)
    expected = DEN(small_mlp(), quick())
    expected.learn(TASKS[0])
    for turn in range(3, 60, 7):
        learner = DEN(small_mlp(), quick())
        place = tmp_path / str(turn)
        killed = killed_at(
            turn, lambda one=learner, place=place: one.learn(TASKS[0], checkpoint=place)
        )
        assert killed
        try:
            learner.learn(TASKS[0], checkpoint=place)
        except CheckpointError as error:  # pragma: no cover
            raise AssertionError(f"torn at call {turn}") from error
        assert same(contents(learner), contents(expected))
