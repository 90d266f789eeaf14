"""Damage model directories, checkpoints and data files in every way that comes to mind.

    python tests/robust/mutations.py --count 100000 > results/robustness/mutations.json

Each case is one mutation of a good file or directory, drawn from its number. What reads it must say
what is wrong with a documented error, or give what a good file gives: the identical model where
checksums tell, else something that can be used. Memory and time are limited, and nothing outside of
the directory may be touched.
"""

import argparse
import contextlib
import gzip
import io
import json
import platform
import random
import resource
import shutil
import signal
import struct
import sys
import tempfile
import time
import traceback
import warnings
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, TypeAlias
from unittest.mock import patch

import child
import msgspec
import numpy as np
import torch

from lifelong.learners.base import Learner
from lifelong.learners.baselines import EWC, EWCSettings
from lifelong.learners.den import DEN
from lifelong.networks.sequential import convnet, mlp
from lifelong.persistence import checkpoint as journal
from lifelong.persistence.checkpoint import FILE, CheckpointError
from lifelong.persistence.files import LOCK, TensorFileError, digest, unpacked
from lifelong.persistence.models import MANIFEST, Manifest, ModelFileError
from lifelong.tasks.datasets.awa import AWA2, CLASSES, DECAF, FEATURES, LABELS, awa
from lifelong.tasks.datasets.cifar100 import ROW, read_bin
from lifelong.tasks.datasets.features import features, read_npz
from lifelong.tasks.datasets.files import DataError
from lifelong.tasks.datasets.mnist import read_idx
from lifelong.tasks.datasets.variation import read_amat
from lifelong.tasks.task import Task, TaskError
from lifelong.training.budget import Budget
from lifelong.training.loop import TrainingError

sys.path.append(str(Path(__file__).resolve().parent.parent))
from older_models import in_one_file

Files: TypeAlias = dict[str, bytes]
MEMORY = 1 << 30  # bytes that reading may take on top of what the process has
SECONDS = 10  # that one case may take
QUICK = Budget(steps=20, batch_size=32, check_every=5, patience=1)
HOSTILE: tuple[Any, ...] = (
    None, True, -1, 0, 1, 2, 255, 2**31, 2**63, 2**64, 10**30, -0.0, 1e-320, 1e308, "", "x" * 999,
    "../../../etc/passwd", "/dev/zero", "\x00", "head", [], {}, [[]], {"": {}}, [0] * 500,
)  # fmt: skip


class Hang(Exception):
    """A case that took too long."""


@dataclass(frozen=True)
class Target:
    """Good files, what reads them, and the errors by which it may refuse."""

    files: Files
    read: Callable[[Path, bool], object]
    errors: tuple[type[Exception], ...]
    reseal: Callable[[Files, random.Random], Files] | None = None


# ---- mutations of bytes


def mutated(files: Files, draw: random.Random) -> Files:
    """One file changed, or two exchanged, or one left out."""
    name = draw.choice(sorted(files))
    way = draw.choice([*_BYTES] * 3 + [_left_out, _exchanged, _emptied])
    if way is _left_out:
        return {other: content for other, content in files.items() if other != name}
    if way is _exchanged:
        return {**files, name: files[draw.choice(sorted(files))]}
    return {**files, name: way(bytearray(files[name]), draw)}


def _left_out() -> None: ...
def _exchanged() -> None: ...
def _emptied(_: bytearray, __: random.Random) -> bytes:
    return b""


def _flipped(content: bytearray, draw: random.Random) -> bytes:
    for _ in range(draw.choice([1, 1, 2, 8])):
        if content:
            content[_place(content, draw)] ^= 1 << draw.randrange(8)
    return bytes(content)


def _overwritten(content: bytearray, draw: random.Random) -> bytes:
    start = _place(content, draw)
    length = draw.choice([1, 4, 8, 100])
    fill = draw.choice([b"\x00", b"\xff", draw.randbytes(1)]) * length
    content[start : start + length] = fill
    return bytes(content)


def _cut(content: bytearray, draw: random.Random) -> bytes:
    return bytes(content[: _place(content, draw)])


def _without(content: bytearray, draw: random.Random) -> bytes:
    start = _place(content, draw)
    del content[start : start + draw.choice([1, 8, 64, 1000])]
    return bytes(content)


def _inserted(content: bytearray, draw: random.Random) -> bytes:
    start = _place(content, draw)
    content[start:start] = draw.randbytes(draw.choice([1, 8, 64, 1000]))
    return bytes(content)


def _doubled(content: bytearray, draw: random.Random) -> bytes:
    start = _place(content, draw)
    content[start:start] = content[start : start + draw.choice([1, 8, 64, 1000])]
    return bytes(content)


def _number_changed(content: bytearray, draw: random.Random) -> bytes:
    """A length or an offset, as it may stand anywhere."""
    form = draw.choice(["<Q", "<I", ">I", "<H"])
    size = struct.calcsize(form)
    if len(content) > size:
        start = min(_place(content, draw), len(content) - size)
        most = 256**size - 1
        struct.pack_into(form, content, start, draw.choice([0, 1, most, most // 2, 1 << 12]))
    return bytes(content)


def _digit_changed(content: bytearray, draw: random.Random) -> bytes:
    places = [n for n, byte in enumerate(content) if 48 <= byte < 58]
    if places:
        content[draw.choice(places)] = draw.choice(b"0123456789-.eE \n,")
    return bytes(content)


def _extended(content: bytearray, draw: random.Random) -> bytes:
    return bytes(content) + draw.randbytes(draw.choice([1, 8, 5000]))


_BYTES = (
    _flipped, _overwritten, _cut, _without, _inserted, _doubled, _number_changed, _digit_changed,
    _extended,
)  # fmt: skip


def _place(content: bytearray, draw: random.Random) -> int:
    """Anywhere, and often near the start, where headers are."""
    most = draw.choice([len(content), min(len(content), 64), min(len(content), 512)])
    return draw.randrange(most) if most else 0


# ---- mutations of JSON, with all checksums right again


def json_mutated(value: Any, draw: random.Random) -> Any:
    """One place in a tree of lists and objects changed."""
    places = list(_places(value))
    if not places:
        return draw.choice(HOSTILE)
    # First a branch and then a place in it, or nearly all would fall into the longest list.
    branch = value[draw.choice(sorted(value))] if isinstance(value, dict) else value
    within = list(_places(branch)) if isinstance(branch, dict | list) else []
    holder, key = draw.choice(within if within and draw.random() < 0.8 else places)
    way = draw.randrange(7)
    if way == 0:
        del holder[key]
    elif way == 1:
        other, at = draw.choice(places)
        holder[key] = other[at]
    elif way == 2 and isinstance(holder, list):
        holder.insert(key, holder[key])
    elif way == 3 and isinstance(holder, dict):
        holder[draw.choice(["", "extra", "head", *map(str, holder)])] = holder.pop(key)
    elif way == 4 and isinstance(holder[key], int | float):
        holder[key] = draw.choice([holder[key] + 1, holder[key] - 1, -holder[key], holder[key] * 2])
    else:
        alike = [other for other in HOSTILE if type(other) is type(holder[key])]
        holder[key] = draw.choice(alike if way > 4 and alike else HOSTILE)
    try:
        return json.loads(json.dumps(value))  # a tree again, where a part was put into itself
    except (ValueError, RecursionError):
        return draw.choice(HOSTILE)


def _places(value: Any) -> Iterator[tuple[Any, Any]]:
    items = value.items() if isinstance(value, dict) else enumerate(value)
    for key, inner in items:
        yield value, key
        if isinstance(inner, dict | list):
            yield from _places(inner)


def reseal_model(files: Files, draw: random.Random) -> Files:
    """A model that somebody changed on purpose: nothing tells it from a good one but its sense."""
    manifest = json.loads(files[MANIFEST])
    tensors = next(content for name, content in files.items() if name != MANIFEST)
    if draw.random() < 0.3:
        tensors = _header_mutated(tensors, draw)
    elif draw.random() < 0.2:
        tensors = _flipped(bytearray(tensors), draw)
    if draw.random() < 0.8:
        manifest = json_mutated(manifest, draw)
    if isinstance(manifest, dict):
        with contextlib.suppress(TensorFileError):
            if draw.random() < 0.7:
                manifest["shapes"] = {n: list(t.shape) for n, t in unpacked(tensors).items()}
        manifest |= {"sha256": digest(tensors), "bytes": len(tensors)}
    try:
        sealed = msgspec.convert(manifest, Manifest).sealed()
        text, name = msgspec.json.encode(sealed), sealed.file
    except (msgspec.MsgspecError, UnicodeEncodeError):
        text, name = json.dumps(manifest).encode(), f"tensors-{digest(tensors)[:16]}.safetensors"
    return {MANIFEST: text, name: tensors}


def reseal_checkpoint(files: Files, draw: random.Random) -> Files:
    index = json.loads(files[FILE])
    if draw.random() < 0.4:
        return _page_mutated(files, index, draw)
    index = json_mutated(index, draw)
    with contextlib.suppress(msgspec.MsgspecError):
        index = msgspec.to_builtins(msgspec.convert(index, journal._Index).sealed())
    return {**files, FILE: json.dumps(index).encode()}


def _page_mutated(files: Files, index: Any, draw: random.Random) -> Files:
    name = next(name for name in files if name != FILE)
    change = draw.choice([_header_mutated, lambda c, d: _flipped(bytearray(c), d)])
    content = change(files[name], draw)
    index["entries"][0] |= {"tensors": digest(content), "bytes": len(content)}
    sealed = msgspec.convert(index, journal._Index).sealed()
    return {FILE: msgspec.json.encode(sealed), f"training-{digest(content)}.safetensors": content}


def _header_mutated(content: bytes, draw: random.Random) -> bytes:
    """Of safetensors: the length of the header is right again."""
    (length,) = struct.unpack("<Q", content[:8])
    header = json_mutated(json.loads(content[8 : 8 + length]), draw)
    text = json.dumps(header).encode()
    return struct.pack("<Q", len(text)) + text + content[8 + length :]


# ---- what is damaged, and what reads it


def targets(seed: int = 0) -> dict[str, Target]:
    rng = np.random.default_rng(seed)
    images = rng.integers(0, 256, (5, 4, 4))
    amat = "\n".join(" ".join(f"{v:.3f}" for v in [*rng.random(784), 3]) for _ in range(2))
    idx = bytes([0, 0, 8, 3]) + struct.pack(">3I", *images.shape) + images.astype("u1").tobytes()
    return {
        "model": model_target(DEN(mlp(5, [6, 4]), child.SETTINGS), (5,)),
        "convnet model": model_target(
            DEN(convnet((1, 6, 6), [3, 2], [4], kernel=3), child.SETTINGS), (1, 6, 6)
        ),
        "patched model": model_target(
            DEN(mlp(5, [6, 4]), replace(child.SETTINGS, split="auto")), (5,)
        ),
        "EWC model": model_target(EWC(mlp(5, [6, 4]), EWCSettings(budget=QUICK)), (5,)),
        "checkpoint": checkpoint_target(),
        "idx": data_target({"f": idx}, lambda path: read_idx(path / "f", 3)),
        "idx.gz": data_target({"f.gz": gzip.compress(idx)}, lambda p: read_idx(p / "f.gz", 3)),
        "bin": data_target({"f": rng.bytes(ROW)}, lambda path: read_bin(path / "f")),
        "amat": data_target({"f": amat.encode()}, lambda path: read_amat(path / "f")),
        "npz": data_target({"f": _npz(rng, np.savez)}, lambda path: read_npz(path / "f")),
        "packed npz": data_target({"f": _npz(rng, np.savez_compressed)}, _tasks_of_table),
        "AwA": data_target(_decaf(rng), lambda path: _first(awa(0, path, **AWA_SIZES))),
        "AwA2": data_target(_resnet(rng), lambda path: _first(awa(0, path, **AWA_SIZES))),
    }


AWA_SIZES: dict[str, Any] = {"per_class": (2, 1, 1), "dimensions": 3}


def model_target(learner: Learner[Any], inputs: tuple[int, ...]) -> Target:
    for number in (1, 2):
        learner.learn(_task(inputs, number))
    with tempfile.TemporaryDirectory() as directory:
        learner.save(directory)
        files = _read_files(in_one_file(Path(directory)))
    expected = _state(learner)

    def read(path: Path, resealed: bool) -> None:
        loaded = type(learner).load(path)
        if not resealed:
            assert _same(_state(loaded), expected), "another model"
        with tempfile.TemporaryDirectory() as elsewhere:
            loaded.save(elsewhere)

    return Target(files, read, (ModelFileError,), reseal_model)


def checkpoint_target() -> Target:
    task = _task((5,), 1)
    settings = replace(child.SETTINGS, budget=QUICK)
    learner = DEN(mlp(5, [6, 4]), settings)
    learner.learn(task)
    expected = _state(learner)

    def start(path: Path) -> DEN:
        learner = DEN(mlp(5, [6, 4]), settings)
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
        return _read_files(directory)
    finally:
        journal.Checkpoint.keep, journal.APART = keep, apart  # type: ignore[method-assign]
    raise AssertionError("it was not stopped")


def data_target(files: Files, read: Callable[[Path], object]) -> Target:
    return Target(files, lambda path, _: read(path), (DataError, TaskError))


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


# ---- running


def run_case(target: Target, number: int, directory: Path) -> str:
    """ "refused" or "read"; anything else is an exception, and a fault."""
    draw = random.Random(number)
    resealed = target.reseal is not None and draw.random() < 0.6
    change = target.reseal if resealed and target.reseal else mutated
    _write_files(directory, change(target.files, draw))
    try:
        with (
            warnings.catch_warnings(),
            patch("lifelong.tasks.datasets.files._download", _no_network),
        ):
            warnings.simplefilter("error")
            target.read(directory, resealed)
    except target.errors:
        return "refused"
    return "read"


def _no_network(*_: object) -> Path:
    raise DataError("not there, and not to be downloaded")


def run(count: int, seed: int, root: Path) -> tuple[dict[str, Counter[str]], list[str]]:
    """So many cases of all targets in turn; the faults, each with what makes it again."""
    made = targets()
    counts = {name: Counter[str]() for name in made}
    faults = []
    outside = root / "outside"
    outside.write_text("mine")
    for number in range(seed, seed + count):
        name = list(made)[_SHARES[number % len(_SHARES)]]
        directory = root / "case"
        signal.alarm(SECONDS)
        try:
            counts[name][run_case(made[name], number, directory)] += 1
        except Exception as error:
            counts[name]["faults"] += 1
            faults.append(f"{name} {number}: {error!r}\n{traceback.format_exc(limit=-3)}")
        finally:
            signal.alarm(0)
            shutil.rmtree(directory, ignore_errors=True)
    assert sorted(path.name for path in root.iterdir()) == ["outside"], "files outside"
    assert outside.read_text() == "mine"
    return counts, faults


_SHARES = (0, 0, 0, 0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 0)


def limited() -> None:
    """Let this process take only so much more memory, and each case only so long."""
    with Path("/proc/self/statm").open() as statm:
        size = int(statm.read().split()[0]) * resource.getpagesize()
    resource.setrlimit(resource.RLIMIT_AS, (size + MEMORY, size + MEMORY))

    def too_long(*_: object) -> None:
        raise Hang

    signal.signal(signal.SIGALRM, too_long)


def _read_files(directory: Path) -> Files:
    files = (path for path in directory.rglob("*") if path.is_file() and path.name != LOCK)
    return {str(path.relative_to(directory)): path.read_bytes() for path in files}


def _write_files(directory: Path, files: Files) -> None:
    directory.mkdir(exist_ok=True)
    for name, content in files.items():
        path = directory / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--count", type=int, default=100_000)
    parser.add_argument("--seed", type=int, default=0)
    given = parser.parse_args()
    torch.set_num_threads(1)
    began = time.monotonic()
    with tempfile.TemporaryDirectory() as root:
        limited()
        counts, faults = run(given.count, given.seed, Path(root))
    result = {
        "command": f"python tests/robust/mutations.py --count {given.count} --seed {given.seed}",
        "faults": len(faults),
        "cases": {name: dict(counts) for name, counts in counts.items()},
        "memory limit in MiB": MEMORY >> 20,
        "seconds": round(time.monotonic() - began),
        "torch": torch.__version__,
        "python": platform.python_version(),
    }
    print(*faults[:20], sep="\n", file=sys.stderr)
    print(json.dumps(result, indent=1))
    sys.exit(bool(faults))


if __name__ == "__main__":
    main()
