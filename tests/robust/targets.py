"""What is damaged: good files of every kind, what reads them, and what a user does with them."""

import gzip
import io
import random
import struct
import sys
import tempfile
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any, TypeAlias

import msgspec
import numpy as np
import torch
from child import SETTINGS
from damage import (
    Files,
    idx_mutated,
    npz_mutated,
    reseal_checkpoint,
    reseal_model,
    reseal_run,
)
from torch import nn
from using import QUICK, Model, inspect, state_key, use

from lifelong.estimator import LifelongClassifier, LifelongRegressor
from lifelong.evaluation.measure import model_run
from lifelong.evaluation.runs import RunError, read_runs
from lifelong.learners.base import Learner
from lifelong.learners.baselines import Joint
from lifelong.learners.den import DEN
from lifelong.learners.registry import METHODS
from lifelong.networks.adapted import adapt
from lifelong.networks.sequential import convnet, mlp
from lifelong.networks.traced.architecture import grow
from lifelong.persistence import checkpoint as journal
from lifelong.persistence.checkpoint import CheckpointError
from lifelong.persistence.files import LOCK, digest
from lifelong.persistence.manifest import ModelFileError
from lifelong.tasks.datasets.awa import AWA2, CLASSES, DECAF, FEATURES, LABELS, awa
from lifelong.tasks.datasets.cifar100 import ROW, read_bin
from lifelong.tasks.datasets.features import features, read_npz
from lifelong.tasks.datasets.files import DataError
from lifelong.tasks.datasets.mnist import read_idx
from lifelong.tasks.datasets.variation import read_amat
from lifelong.tasks.kinds import TaskError
from lifelong.tasks.task import Task
from lifelong.training.loop import TrainingError

sys.path.append(str(Path(__file__).resolve().parent.parent))
from older_models import in_one_file

Reseal: TypeAlias = Callable[[Files, random.Random], Files]


@dataclass(frozen=True)
class Found:
    """What was read: `key` stands for all that `use` depends on, so that nothing is used twice."""

    key: str
    use: Callable[[bool], None]  # with or without the HTML report, which takes longest


@dataclass(frozen=True)
class Target:
    """Good files, what reads them, and the errors by which it may refuse.

    `read` is told whether checksums cannot tell; what it returns can be used, if there is anything.
    """

    files: Files
    read: Callable[[Path, bool], Found | None]
    errors: tuple[type[Exception], ...]
    reseal: Reseal | None = None


def kinds() -> dict[str, Callable[[], dict[str, Target]]]:
    """Each kind of file, and the good files of that kind, which take a while to make."""
    data = data_targets(0)
    return {
        "model": model_targets,
        "checkpoint": lambda: {"checkpoint": checkpoint_target()},
        "run": lambda: {"run": run_target()},
        **{name: partial(_alone, name, target) for name, target in data.items()},
    }


def _alone(name: str, target: Target) -> dict[str, Target]:
    return {name: target}


def model_targets() -> dict[str, Target]:
    """Networks of all kinds, and all methods. Some in one file, as before there were segments."""
    small, den = mlp(5, [6, 4]), DEN_QUICK
    made: dict[str, Target] = {
        "model in one file": model_target(DEN(small, den), one_file=True),
        "convnet": model_target(DEN(convnet((1, 6, 6), [3, 2], [4], kernel=3), den)),
        "patched": model_target(DEN(small, replace(den, split="auto"))),
        "patched, in one file": model_target(
            DEN(small, replace(den, split="weights")), one_file=True
        ),
        "traced": model_target(DEN(grow(_module(), torch.zeros(2, 5), head="2"), den)),
        "adapted": model_target(
            DEN(
                adapt(_module(), torch.zeros(2, 5), head="2"),
                replace(den, split="weights", expand=False),
            ),
            module=_module(),
        ),
        "classifier": estimator_target(LifelongClassifier),
        "regressor": estimator_target(LifelongRegressor),
    }
    for number, (name, row) in enumerate(METHODS.items()):
        learner = row.make(mlp(5, [6, 4]), budget=QUICK)
        made[name] = model_target(learner, one_file=number % 2 == 0)
    return made


def _module() -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(5, 6), nn.ReLU(), nn.Linear(6, 1))


def data_targets(seed: int) -> dict[str, Target]:
    rng = np.random.default_rng(seed)
    images = rng.integers(0, 256, (5, 4, 4))
    amat = "\n".join(" ".join(f"{v:.3f}" for v in [*rng.random(784), 3]) for _ in range(2))
    idx = bytes([0, 0, 8, 3]) + struct.pack(">3I", *images.shape) + images.astype("u1").tobytes()
    zipped = gzip.compress(idx)
    return {
        "idx": data_target({"f": idx}, lambda path: read_idx(path / "f", 3), idx_mutated),
        "idx.gz": data_target({"f.gz": zipped}, lambda p: read_idx(p / "f.gz", 3), idx_mutated),
        "bin": data_target({"f": rng.bytes(ROW)}, lambda path: read_bin(path / "f")),
        "amat": data_target({"f": amat.encode()}, lambda path: read_amat(path / "f")),
        "npz": data_target({"f": _npz(rng, np.savez)}, lambda p: read_npz(p / "f"), npz_mutated),
        "packed npz": data_target({"f": _npz(rng, np.savez_compressed)}, _tasks_of_table),
        "AwA": data_target(_decaf(rng), lambda path: _first(awa(0, path, **AWA_SIZES))),
        "AwA2": data_target(_resnet(rng), lambda path: _first(awa(0, path, **AWA_SIZES))),
    }


DEN_QUICK = replace(SETTINGS, budget=QUICK)
AWA_SIZES: dict[str, Any] = {"per_class": (2, 1, 1), "dimensions": 3}


def model_target(
    learner: Learner[Any], *, one_file: bool = False, module: nn.Module | None = None
) -> Target:
    inputs = learner.network.architecture.layout.inputs
    with tempfile.TemporaryDirectory() as directory:
        if isinstance(learner, Joint):
            learner.learn_together([_task(inputs, number) for number in (1, 2)])
            learner.save(directory)
        else:
            for number in (1, 2):
                learner.learn(_task(inputs, number))
                learner.save(directory)
        if one_file:
            in_one_file(Path(directory))
        files = read_files(Path(directory))

    def load(path: str | Path) -> Learner[Any]:
        return type(learner).load(path, module=module)

    return _model_files(files, load)


def estimator_target(front: type[LifelongClassifier | LifelongRegressor]) -> Target:
    draw = np.random.default_rng(0)
    x = draw.normal(size=(40, 3))
    y = (x[:, 0] > 0).astype(float if front is LifelongRegressor else int)
    model = front(network=(4,), budget=QUICK, random_state=0)
    with tempfile.TemporaryDirectory() as directory:
        for number in (1, 2):
            model.partial_fit(x, y, task=f"task {number}")
            model.save(directory)
        files = read_files(Path(directory))
    return _model_files(files, front.load)


def _model_files(files: Files, load: Callable[[str | Path], Model]) -> Target:
    with tempfile.TemporaryDirectory() as directory:
        write_files(Path(directory), files)
        expected = state_key(load(directory))

    def read(path: Path, resealed: bool) -> Found:
        loaded = load(path)
        key = state_key(loaded)
        assert resealed or key == expected, "another model"
        return Found(key, lambda report: use(loaded, load, report))

    return Target(files, read, (ModelFileError,), reseal_model)


def run_target() -> Target:
    """A stored run, as `lifelong inspect` and `lifelong report` show it."""
    learner = DEN(mlp(5, [6, 4]), DEN_QUICK)
    with tempfile.TemporaryDirectory() as directory:
        for number in (1, 2):
            learner.learn(_task((5,), number))
        learner.save(directory)
        text = msgspec.json.encode(model_run(Path(directory)))

    def read(path: Path, _: bool) -> Found:
        (run,) = read_runs([path / "run.json"])
        return Found(digest(msgspec.json.encode(run)), lambda report: inspect(run, report))

    return Target({"run.json": text}, read, (RunError, FileNotFoundError), reseal_run)


def checkpoint_target() -> Target:
    task = _task((5,), 1)
    learner = DEN(mlp(5, [6, 4]), DEN_QUICK)
    learner.learn(task)
    expected = _state(learner)

    def start(path: Path) -> DEN:
        learner = DEN(mlp(5, [6, 4]), DEN_QUICK)
        learner.learn(task, checkpoint=path)
        return learner

    with tempfile.TemporaryDirectory() as directory:
        files = _stopped(start, Path(directory))

    def read(path: Path, resealed: bool) -> None:
        learner = start(path)
        assert resealed or _same(_state(learner), expected), "another model"

    return Target(files, read, (CheckpointError, TrainingError), reseal_checkpoint)


def _stopped(start: Callable[[Path], object], directory: Path) -> Files:
    """What a learning leaves that is stopped in its midst."""
    keep, apart = journal.Checkpoint.keep, journal.APART

    def keep_and_stop(
        self: journal.Checkpoint, snapshot: Callable[[], journal.StageSnapshot]
    ) -> None:
        keep(self, snapshot)
        raise KeyboardInterrupt

    journal.Checkpoint.keep, journal.APART = keep_and_stop, 0  # type: ignore[method-assign]
    try:
        start(directory)
    except KeyboardInterrupt:
        return read_files(directory)
    finally:
        journal.Checkpoint.keep, journal.APART = keep, apart  # type: ignore[method-assign]
    raise AssertionError("it was not stopped")


def data_target(
    files: Files, read: Callable[[Path], object], reseal: Reseal | None = None
) -> Target:
    def only_read(path: Path, _: bool) -> None:
        read(path)

    return Target(files, only_read, (DataError, TaskError), reseal)


def _task(inputs: tuple[int, ...], number: int) -> Task:
    draw = torch.Generator().manual_seed(number)
    x = torch.randn(40, *inputs, generator=draw)
    y = (x.flatten(1).sum(dim=1) > 0).long()
    return Task(f"task {number}", (x, y), (x, y))


def _state(learner: Learner[Any]) -> dict[str, torch.Tensor]:
    network = learner.network
    x = torch.ones(3, *network.architecture.layout.inputs)
    answers = {f"answer {n}": learner.predict_proba(x, task=n) for n in learner.tasks}
    return {**network.everything(), **network.memory, **network.born, **answers}


def _same(left: Mapping[str, torch.Tensor], right: Mapping[str, torch.Tensor]) -> bool:
    return left.keys() == right.keys() and all(torch.equal(left[n], right[n]) for n in left)


def _npz(rng: np.random.Generator, save: Callable[..., None]) -> bytes:
    buffer = io.BytesIO()
    y = np.arange(2).repeat(6)
    save(
        buffer,
        x=rng.normal(size=(12, 3)),
        y=y,
        names=np.array(["a", "b"]),
        split=np.arange(12) % 6 > 3,
    )
    return buffer.getvalue()


def _tasks_of_table(path: Path) -> None:
    _first(features(path / "f", per_class=(2, 1, 1), dimensions=2))


def _first(stream: Any) -> None:
    next(iter(stream))


def _decaf(rng: np.random.Generator) -> Files:
    names = [f"{DECAF}/{animal}/{n}.txt" for animal in ("cat", "dog") for n in range(4)]
    return {name: " ".join(map(str, rng.random(5))).encode() for name in names}


def _resnet(rng: np.random.Generator) -> Files:
    rows = "\n".join(" ".join(map(str, rng.random(5))) for _ in range(8))
    labels = "\n".join("11112222")
    tables = {FEATURES: rows, LABELS: labels, CLASSES: "1\tcat\n2\tdog\n"}
    return {f"{AWA2}/{name}": text.encode() for name, text in tables.items()}


def read_files(directory: Path) -> Files:
    files = (path for path in directory.rglob("*") if path.is_file() and path.name != LOCK)
    return {str(path.relative_to(directory)): path.read_bytes() for path in files}


def write_files(directory: Path, files: Files) -> None:
    directory.mkdir(exist_ok=True)
    for name, content in files.items():
        path = directory / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content)
