"""Save, learn with a checkpoint and report on a disk that is full or read-only.

unshare --user --map-root-user --mount python tests/robust/disks.py full DIRECTORY
"""

import os
import subprocess
import sys
from pathlib import Path

import child
import torch

from lifelong.learners.den import DEN
from lifelong.persistence.checkpoint import CheckpointError
from lifelong.persistence.manifest import ModelFileError


def mount(place: Path, options: str) -> None:
    subprocess.run(["mount", "-t", "tmpfs", "-o", options, "tmpfs", str(place)], check=True)


def said(kind: type[Exception], act: object, *given: object, **named: object) -> str:
    try:
        act(*given, **named)  # type: ignore[operator]
    except kind as error:
        return str(error)
    return ""


def answers(learner: DEN) -> list[torch.Tensor]:
    x = torch.ones(3, 12)
    return [learner.predict_proba(x, task=name) for name in learner.tasks]


def same(left: DEN, right: DEN) -> bool:
    pairs = zip(answers(left), answers(right), strict=True)
    return left.tasks == right.tasks and all(torch.equal(a, b) for a, b in pairs)


def learner() -> DEN:
    made = DEN(child.mlp(12, [14, 9]), child.SETTINGS, seed=3)
    made.learn(child.task(1))
    return made


def full(place: Path) -> None:
    mount(place, "size=64k")
    model = learner()
    model.save(place / "model")
    kept, number = DEN.load(place / "model"), 1
    free = os.statvfs(place)
    (place / "ballast").write_bytes(bytes((free.f_bavail - 3) * free.f_bsize))
    while not (message := said(ModelFileError, model.save, place / "model")):
        kept, number = DEN.load(place / "model"), number + 1
        assert number < 20, "it never was full"
        model.learn(child.task(number))
    assert "cannot be written: No space left on device" in message, message
    assert same(DEN.load(place / "model"), kept)
    message = said(
        CheckpointError, model.learn, child.task(number + 1), checkpoint=place / "checkpoint"
    )
    assert "No space left on device" in message or not message, message
    (place / "ballast").unlink()
    model.save(place / "model")
    assert same(DEN.load(place / "model"), model)


def read_only(place: Path) -> None:
    mount(place, "size=1m")
    model = learner()
    model.save(place / "model")
    subprocess.run(["mount", "-o", "remount,ro", str(place)], check=True)
    kept = DEN.load(place / "model")
    message = said(CheckpointError, model.learn, child.task(2), checkpoint=place / "checkpoint")
    assert "cannot hold a checkpoint: Read-only file system" in message, message
    assert model.tasks == kept.tasks
    model.learn(child.task(2))
    for directory in (place / "model", place / "new"):
        message = said(ModelFileError, model.save, directory)
        assert "cannot be written: Read-only file system" in message, message
    assert same(DEN.load(place / "model"), kept)


if __name__ == "__main__":
    torch.set_num_threads(1)
    child.journal.APART = 0
    {"full": full, "read-only": read_only}[sys.argv[1]](Path(sys.argv[2]))
    print("as promised")
