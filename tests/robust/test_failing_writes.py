"""Disks that are full, directories that cannot be written, files that vanish: nothing is torn."""

import copy
import errno
import os
import shutil
import subprocess
import sys
from contextlib import contextmanager
from pathlib import Path

import pytest

from builders import contents, learned, quick, same, small_mlp, stream_for, task_for
from lifelong.learners.den import DEN
from lifelong.persistence import checkpoint as journal
from lifelong.persistence import files as disk
from lifelong.persistence.checkpoint import CheckpointError
from lifelong.persistence.manifest import MANIFEST, ModelFileError
from lifelong.persistence.models import Directory
from lifelong.training.loop import STANDALONE

FULL = OSError(errno.ENOSPC, "No space left on device")
SKELETON = small_mlp()


class Failing:
    """A file that takes a few bytes and is then full."""

    def __init__(self, stream):
        self.stream = stream

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.stream.close()

    def write(self, content):
        self.stream.write(content[: len(content) // 2])
        raise FULL


@contextmanager
def failing(turn):
    """Let one of the next calls to the file system that write fail: the one with this number."""
    calls = [0]

    def fails():
        calls[0] += 1
        return calls[0] == turn

    def or_fail(call):
        def wrapped(*arguments, **named):
            if fails():
                raise FULL
            return call(*arguments, **named)

        return wrapped

    path_open = Path.open

    def open_or_fail(path, mode="r", *rest, **named):
        stream = path_open(path, mode, *rest, **named)
        return Failing(stream) if mode == "xb" and fails() else stream

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Path, "open", open_or_fail)
        for owner, name in ((os, "fsync"), (Path, "replace"), (Path, "mkdir"), (Path, "unlink")):
            patch.setattr(owner, name, or_fail(getattr(owner, name)))
        yield calls


def error_of(kind, act, *given, **named):
    """What it says, or nothing if there is none."""
    try:
        act(*given, **named)
    except kind as error:
        return str(error)
    return ""


def grown():
    return learned(SKELETON, stream_for(SKELETON, "one output"), quick())


def test_a_save_that_fails_at_any_write_leaves_a_whole_model_and_can_be_repeated(
    tmp_path,
):
    before, after = grown(), grown()
    after.learn(task_for(SKELETON, seed=5, name="second"))
    for turn in range(1, 100):
        path = tmp_path / str(turn)
        before.save(path)
        learner = DEN.load(path)
        learner._commit(STANDALONE, after.network, after.records)
        with failing(turn) as calls:
            said = error_of(ModelFileError, learner.save, path)
        assert "cannot be written: No space left" in said or not said
        found = contents(DEN.load(path))
        assert same(found, contents(after)) or (said and same(found, contents(before)))
        learner.save(path)
        assert same(contents(DEN.load(path)), contents(after))
        assert len(list(path.iterdir())) == 4  # manifest, tensors, a segment, lock
        if calls[0] < turn:
            break
    assert turn > 8


def test_an_added_task_that_fails_at_any_write_leaves_the_model_without_it(tmp_path):
    grown().save(tmp_path / "before")
    before, after = (DEN.load(tmp_path / "before") for _ in range(2))
    after.learn(task_for(SKELETON, seed=5, name="second"))
    (known,) = after._directories.values()
    for turn in range(1, 100):
        path = Path(shutil.copytree(tmp_path / "before", tmp_path / str(turn)))
        learner = copy.copy(after)
        learner._directories = {path: Directory(dict(known.marks))}
        with failing(turn) as calls:
            said = error_of(ModelFileError, learner.save, path)
        assert "cannot be written: No space left" in said or not said
        found = contents(DEN.load(path))
        assert same(found, contents(after)) or (said and same(found, contents(before)))
        learner.save(path)
        assert same(contents(DEN.load(path)), contents(after))
        assert len(list(path.glob("tasks-*"))) == 2
        assert len(list(path.glob("tensors-*"))) == 1
        if calls[0] < turn:
            break
    assert turn > 8


def test_a_first_save_that_fails_leaves_no_model(tmp_path):
    learner = grown()
    with failing(1), pytest.raises(ModelFileError, match="No space left"):
        learner.save(tmp_path / "new" / "model")
    with pytest.raises(ModelFileError, match="not a saved model"):
        DEN.load(tmp_path / "new" / "model")
    learner.save(tmp_path / "new" / "model")
    assert same(contents(DEN.load(tmp_path / "new" / "model")), contents(learner))


def test_a_checkpoint_that_fails_at_any_write_leaves_the_learner_and_can_be_gone_on_from(
    tmp_path, monkeypatch
):
    monkeypatch.setattr(journal, "APART", 0)
    expected = grown()
    task = task_for(SKELETON, seed=5, name="second")
    expected.learn(task)
    for turn in range(1, 1000, 23):
        learner = grown()
        before = contents(learner)
        with failing(turn) as calls:
            place = tmp_path / str(turn)
            said = error_of(CheckpointError, learner.learn, task, checkpoint=place)
        if said:
            assert "No space left" in said
            assert same(contents(learner), before)
            learner.learn(task, checkpoint=place)
        assert same(contents(learner), contents(expected))
        if calls[0] < turn:
            break
    assert turn > 50


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write anywhere")
def test_a_directory_that_cannot_be_written_is_named(tmp_path):
    tmp_path.chmod(0o500)
    with pytest.raises(ModelFileError, match="cannot be written: Permission denied"):
        grown().save(tmp_path / "model")
    with pytest.raises(CheckpointError, match="cannot hold a checkpoint: Permission denied"):
        grown().learn(task_for(SKELETON, name="next"), checkpoint=tmp_path / "checkpoint")


def test_a_file_in_place_of_the_directory_is_named(tmp_path):
    (tmp_path / "file").write_text("mine")
    for place in (tmp_path / "file", tmp_path / "file" / "model"):
        with pytest.raises(ModelFileError, match=r"cannot be written: (File exists|Not a dir)"):
            grown().save(place)
        with pytest.raises(CheckpointError, match=r"cannot hold a checkpoint: (File exists|Not a)"):
            grown().learn(task_for(SKELETON, name="next"), checkpoint=place)
    assert (tmp_path / "file").read_text() == "mine"


@pytest.mark.parametrize("victim", [MANIFEST, "tensors-*.safetensors"])
@pytest.mark.parametrize("harm", ["removed", "cut off"])
def test_a_file_that_changes_while_it_is_read_is_named_or_was_read_before(
    victim, harm, tmp_path, monkeypatch
):
    learner = grown()
    learner.save(tmp_path)
    fstat = os.fstat

    def harm_first(descriptor):
        status = fstat(descriptor)
        for file in tmp_path.glob(victim):
            if harm == "removed":
                file.unlink()
            else:
                os.truncate(file, 100)
        return status

    monkeypatch.setattr(disk.os, "fstat", harm_first)
    if (victim, harm) == (MANIFEST, "removed"):  # who has opened a file can read it to its end
        assert same(contents(DEN.load(tmp_path)), contents(learner))
    with pytest.raises(
        ModelFileError, match=r"cannot be read|not a manifest|no manifest|checksum differs"
    ):
        DEN.load(tmp_path)


def test_two_that_write_at_once_wait_or_are_told(tmp_path):
    learner = grown()
    with disk.directory_lock(tmp_path):
        with pytest.raises(CheckpointError, match="another process is writing there"):
            learner.learn(task_for(SKELETON, name="next"), checkpoint=tmp_path)
        with (
            pytest.raises(OSError, match="another process"),
            disk.directory_lock(tmp_path, patience=0),
        ):
            pass
    learner.learn(task_for(SKELETON, name="next"), checkpoint=tmp_path)


def test_a_lock_is_free_again_once_its_holder_was_killed(tmp_path):
    hold = """if True:
        import pathlib, sys, time
        from lifelong.persistence.files import directory_lock
        with directory_lock(pathlib.Path(sys.argv[1])):
            print("held", flush=True)
            time.sleep(60)"""
    command = [sys.executable, "-c", hold, str(tmp_path)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as holder:
        assert holder.stdout is not None
        assert holder.stdout.readline() == "held\n"
        with pytest.raises(OSError, match="another process"), disk.directory_lock(tmp_path, 0):
            pass
        holder.kill()
    with disk.directory_lock(tmp_path, patience=0):
        pass


@pytest.mark.parametrize("number", [errno.ENOSYS, errno.ENOLCK, errno.EOPNOTSUPP])
def test_where_the_file_system_cannot_lock_one_writes_without(number, tmp_path, monkeypatch):
    def refused(*_):
        raise OSError(number, os.strerror(number))

    monkeypatch.setattr("fcntl.flock", refused)
    learner = grown()
    learner.save(tmp_path)
    assert same(contents(DEN.load(tmp_path)), contents(learner))


def test_a_lock_follows_no_link(tmp_path):
    (tmp_path / "mine").write_text("mine")
    (tmp_path / "model").mkdir()
    (tmp_path / "model" / disk.LOCK).symlink_to(tmp_path / "mine")
    with pytest.raises(ModelFileError, match="cannot be written"):
        grown().save(tmp_path / "model")
    assert (tmp_path / "mine").read_text() == "mine"
