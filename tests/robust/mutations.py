"""Damage models, checkpoints, runs and data files in every way that comes to mind.

    python tests/robust/mutations.py --count 100000 > results/robustness/mutations.json

Each case is one mutation of a good file or directory, drawn from its number. What reads it must say
what is wrong with a documented error, or give what a good file gives: the identical model where
checksums tell, else one with which all can be done that is done with a model. A case may take 5
seconds of the processor and 1 GiB of memory, and nothing outside of the directory may be touched.
Cases run in batches, each in a process of its own, so that one that ends its process is found.
"""

import argparse
import contextlib
import gzip
import io
import json
import multiprocessing
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
import zipfile
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
from rich.console import Console
from torch import nn
from using import QUICK, use

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
from lifelong.persistence.checkpoint import FILE, CheckpointError
from lifelong.persistence.files import LOCK, TensorFileError, digest, packed, unpacked
from lifelong.persistence.models import MANIFEST, ModelFileError
from lifelong.report.inspection import show
from lifelong.tasks.datasets.awa import AWA2, CLASSES, DECAF, FEATURES, LABELS, awa
from lifelong.tasks.datasets.cifar100 import ROW, read_bin
from lifelong.tasks.datasets.features import features, read_npz
from lifelong.tasks.datasets.files import DataError
from lifelong.tasks.datasets.mnist import read_idx
from lifelong.tasks.datasets.variation import read_amat
from lifelong.tasks.kinds import TaskError
from lifelong.tasks.task import Task
from lifelong.training.budget import SettingError
from lifelong.training.loop import TrainingError

sys.path.append(str(Path(__file__).resolve().parent.parent))
from older_models import in_one_file

Files: TypeAlias = dict[str, bytes]
Reseal: TypeAlias = Callable[[Files, random.Random], Files]
MEMORY = 1 << 30  # bytes that reading may take on top of what the process has
SECONDS = 5  # of the processor, that one case may take
BATCH = 250  # cases in one process
USED = (TaskError, TrainingError, SettingError)  # by which a user may be told why not
HOSTILE: tuple[Any, ...] = (
    None, True, -1, 0, 1, 2, 255, 2**31, 2**63, 2**64, 10**30, 10**400, -(2**62), -0.0, 1e-320,
    1e39, 1e308, "", "x" * 999, "../../../etc/passwd", "/dev/zero", "\x00", "\x1b]0;x\x07",
    "\ud800", "head", [], {}, [[]], {"": {}}, [0] * 500,
)  # fmt: skip


class Hang(BaseException):
    """A case that took too long: not an error that a reader could take for one of its own."""


@dataclass(frozen=True)
class Target:
    """Good files, what reads them, and the errors by which it may refuse.

    What `read` returns is what a user then does with it, if there is anything.
    """

    files: Files
    read: Callable[[Path, bool], Callable[[], None] | None]
    errors: tuple[type[Exception], ...]
    reseal: Reseal | None = None


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


def _some_flipped(content: bytes, draw: random.Random) -> bytes:
    return _flipped(bytearray(content), draw)


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
    way = draw.randrange(8)
    if way == 7:
        depth = draw.choice([1, 3, 200])
        holder[key] = json.loads("[" * depth + json.dumps(holder[key]) + "]" * depth)
    elif way == 0:
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
    shared = next(content for name, content in files.items() if name.startswith("tensors-"))
    chain = _chain(files, manifest)
    part = draw.randrange(4) if chain else draw.randrange(2)
    if part == 0:
        shared = _tensors_mutated(shared, draw)
    elif part == 1 or draw.random() < 0.2:
        manifest = json_mutated(manifest, draw)
    if part >= 2:
        place = draw.randrange(len(chain))
        chain[place] = _segment_mutated(chain[place], draw)
    if not isinstance(manifest, dict):
        return {**files, MANIFEST: json.dumps(manifest).encode()}
    made, last = _relinked(chain)
    if chain and draw.random() < 0.9:
        manifest["last"] = last
    with contextlib.suppress(TensorFileError):
        if draw.random() < 0.7:
            manifest["shapes"] = {n: list(t.shape) for n, t in unpacked(shared).items()}
    manifest |= {"sha256": digest(shared), "bytes": len(shared)}
    return {
        MANIFEST: _sealed(manifest, draw),
        f"tensors-{digest(shared)[:16]}.safetensors": shared,
        **made,
    }


def _chain(files: Files, manifest: Any) -> list[bytes]:
    """The segments, the first one first."""
    found: list[bytes] = []
    pointer = manifest.get("last")
    while pointer is not None:
        found.append(files[f"tasks-{pointer['sha256'][:16]}.safetensors"])
        pointer = _about(found[-1])[1]["before"]
    return found[::-1]


def _about(segment: bytes) -> tuple[dict[str, torch.Tensor], Any]:
    """Tensors and facts of a segment."""
    tensors = unpacked(segment)
    return tensors, json.loads(tensors.pop("about").numpy().tobytes())


def _segment_mutated(segment: bytes, draw: random.Random) -> bytes:
    if draw.random() < 0.5:
        return _tensors_mutated(segment, draw)
    tensors, facts = _about(segment)
    text = _as_text(json_mutated(facts, draw), draw)
    return packed({**tensors, "about": torch.frombuffer(bytearray(text), dtype=torch.uint8)})


def _relinked(chain: list[bytes]) -> tuple[Files, Any]:
    """The segments with right checksums of those before them, as far as they can be read."""
    files, before = {}, None
    for segment in chain:
        with contextlib.suppress(TensorFileError, KeyError, ValueError, RecursionError):
            tensors, facts = _about(segment)
            if isinstance(facts, dict) and facts.get("before", 0) != before:
                facts["before"] = before
                text = json.dumps(facts).encode()
                about = torch.frombuffer(bytearray(text), dtype=torch.uint8)
                segment = packed({**tensors, "about": about})
        before = {"bytes": len(segment), "sha256": digest(segment)}
        files[f"tasks-{before['sha256'][:16]}.safetensors"] = segment
    return files, before


def _sealed(manifest: Any, draw: random.Random) -> bytes:
    manifest["seal"] = ""
    try:
        manifest["seal"] = digest(msgspec.json.encode(manifest))
    except (msgspec.MsgspecError, UnicodeEncodeError, OverflowError):
        return json.dumps(manifest).encode()
    return _as_text(manifest, draw)


def _as_text(value: Any, draw: random.Random) -> bytes:
    """As JSON, and at times with a name twice or nested far too deep."""
    text = json.dumps(value)
    way = draw.randrange(30)
    if way == 0 and text.startswith("{") and value:
        name = draw.choice(sorted(value))
        text = f"{{{json.dumps(name)}: {json.dumps(draw.choice(HOSTILE))}, {text[1:]}"
    elif way == 1:
        depth = draw.choice([50, 1000, 100_000])
        text = text.replace("[]", "[" * depth + "]" * depth, 1)
    elif way == 2:
        text = text.replace("0", "1e999", 1)
    return text.encode()


def reseal_run(files: Files, draw: random.Random) -> Files:
    value = json.loads(files["run.json"])
    for _ in range(draw.choice([1, 1, 2])):
        value = json_mutated(value, draw)
    return {"run.json": _as_text(value, draw)}


def idx_mutated(files: Files, draw: random.Random) -> Files:
    """Another magic number, other sizes, or more or fewer of these."""
    ((name, content),) = files.items()
    plain = bytearray(gzip.decompress(content) if name.endswith("gz") else content)
    for _ in range(draw.choice([1, 2])):
        way = draw.randrange(3)
        if way == 0:
            plain[2:4] = bytes([draw.choice([8, 9, 11, 13, 14, 0]), draw.choice([0, 1, 3, 4, 255])])
        elif way == 1:
            size = draw.choice([0, 1, 2, 5, 1 << 16, 1 << 31, (1 << 32) - 1])
            struct.pack_into(">I", plain, 4 + 4 * draw.randrange(3), size)
        else:
            plain[4:4] = struct.pack(">I", draw.choice([0, 1, 2, 1 << 31]))
    return {name: gzip.compress(bytes(plain)) if name.endswith("gz") else bytes(plain)}


def npz_mutated(files: Files, draw: random.Random) -> Files:
    """The header of an array says something else, or an array has another name."""
    ((name, content),) = files.items()
    with zipfile.ZipFile(io.BytesIO(content)) as archive:
        arrays = {member: archive.read(member) for member in archive.namelist()}
    member = draw.choice(sorted(arrays))
    if draw.random() < 0.2:
        arrays[draw.choice(["x.npy", "y.npy", "z.npy", "../x.npy", "x"])] = arrays.pop(member)
    else:
        arrays[member] = _npy_mutated(arrays[member], draw)
    buffer = io.BytesIO()
    way = draw.choice([zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED])
    with zipfile.ZipFile(buffer, "w", way) as archive:
        for member, array in arrays.items():
            archive.writestr(member, array)
    return {name: buffer.getvalue()}


def _npy_mutated(array: bytes, draw: random.Random) -> bytes:
    (length,) = struct.unpack("<H", array[8:10])
    body = array[10 + length :]
    types = ["<f8", ">f4", "<f2", "|S0", "|S9", "<U3", "|O", "|V0", "<c16", "|b1", "<M8[s]", "<i8"]
    sizes = [0, 1, 2, 6, 12, 36, 1 << 31, 1 << 62, -1]
    shape = tuple(draw.choice(sizes) for _ in range(draw.choice([0, 1, 2, 3, 40])))
    header = repr(
        {"descr": draw.choice(types), "fortran_order": draw.random() < 0.5, "shape": shape}
    )
    if draw.random() < 0.1:
        header = draw.choice(["(" * 9000, "{}", header[:-5], header.replace("shape", "shapes")])
    text = header.encode()[:65000] + b"\n"
    return array[:8] + struct.pack("<H", len(text)) + text + body


def reseal_checkpoint(files: Files, draw: random.Random) -> Files:
    index = json.loads(files[FILE])
    if draw.random() < 0.4:
        return _page_mutated(files, index, draw)
    index = json_mutated(index, draw)
    with contextlib.suppress(msgspec.MsgspecError, UnicodeEncodeError):
        index = msgspec.to_builtins(msgspec.convert(index, journal._Index).sealed())
    return {**files, FILE: json.dumps(index).encode()}


def _page_mutated(files: Files, index: Any, draw: random.Random) -> Files:
    name = next(name for name in files if name != FILE)
    content = _tensors_mutated(files[name], draw)
    index["entries"][0] |= {"tensors": digest(content), "bytes": len(content)}
    sealed = msgspec.convert(index, journal._Index).sealed()
    return {FILE: msgspec.json.encode(sealed), f"training-{digest(content)}.safetensors": content}


def _tensors_mutated(content: bytes, draw: random.Random) -> bytes:
    """Of safetensors: the header, or one of the tensors."""
    way = draw.randrange(8)
    if way < 2:
        return draw.choice([_header_mutated, _some_flipped])(content, draw)
    tensors = unpacked(content)
    names = sorted(tensors.keys() - {"about"})
    if not names:
        return content
    name = draw.choice(names)
    if way == 2:
        tensors[draw.choice([*names, "", "task/3/head.bias", f"{name}x"])] = tensors.pop(name)
    elif way == 3:
        del tensors[name]
    else:
        tensors[name] = _tensor_mutated(tensors[name], draw)
    return packed(tensors)


def _tensor_mutated(tensor: torch.Tensor, draw: random.Random) -> torch.Tensor:
    """Another shape, another type, or other numbers."""
    way = draw.randrange(6)
    if way == 0 and tensor.ndim:
        return tensor[: draw.randrange(len(tensor) + 1)]
    if way == 1 and tensor.ndim:
        return torch.cat([tensor, tensor[: draw.choice([1, 2])]])
    if way == 2 and tensor.ndim:
        return draw.choice([tensor.reshape(-1), tensor[None], tensor.movedim(0, -1)])
    if way == 3:
        types = [torch.float64, torch.float16, torch.int64, torch.uint8, torch.bool]
        return tensor.to(draw.choice(types))
    filled = tensor.clone()
    numbers = [0, 1, 2, 3, 255, -1, 1e-40, 1e30, -3e38, float("nan"), float("inf")]
    if filled.numel():
        place = draw.choice([slice(None), draw.randrange(filled.numel())])
        number = draw.choice(numbers)
        if not filled.is_floating_point():
            number = draw.choice([0, 1, 2, 255])
        filled.view(-1)[place] = number
    return filled


def _header_mutated(content: bytes, draw: random.Random) -> bytes:
    """Of safetensors: the length of the header is right again."""
    (length,) = struct.unpack("<Q", content[:8])
    header = json_mutated(json.loads(content[8 : 8 + length]), draw)
    text = json.dumps(header).encode()
    return struct.pack("<Q", len(text)) + text + content[8 + length :]


# ---- what is damaged, and what reads it


def targets(seed: int = 0) -> dict[str, Target]:
    return {**model_targets(), "checkpoint": checkpoint_target(), **data_targets(seed)}


def model_targets() -> dict[str, Target]:
    """Networks of all kinds, and all methods. Some in one file, as before there were segments."""
    small = mlp(5, [6, 4])
    den = child.SETTINGS
    made: dict[str, Target] = {
        "model": model_target(DEN(small, den)),
        "model in one file": model_target(DEN(small, den), one_file=True),
        "convnet model": model_target(DEN(convnet((1, 6, 6), [3, 2], [4], kernel=3), den)),
        "patched model": model_target(DEN(small, replace(den, split="auto"))),
        "patched model in one file": model_target(
            DEN(small, replace(den, split="weights")), one_file=True
        ),
        "traced model": model_target(DEN(grow(_module(), torch.zeros(2, 5), head="2"), den)),
        "adapted model": model_target(
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
        made[f"{name} model"] = model_target(learner, one_file=number % 2 == 0)
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
        "run": run_target(),
    }


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
        files = _read_files(Path(directory))
    expected = _state(learner)

    def load(path: str | Path) -> Learner[Any]:
        return type(learner).load(path, module=module)

    def read(path: Path, resealed: bool) -> Callable[[], None]:
        loaded = load(path)
        if not resealed:
            assert _same(_state(loaded), expected), "another model"
        return lambda: use(loaded, load)

    return Target(files, read, (ModelFileError,), reseal_model)


def estimator_target(front: type[LifelongClassifier | LifelongRegressor]) -> Target:
    draw = np.random.default_rng(0)
    x = draw.normal(size=(40, 3))
    y = (x[:, 0] > 0).astype(float if front is LifelongRegressor else int)
    model = front(network=(4,), budget=QUICK, random_state=0)
    with tempfile.TemporaryDirectory() as directory:
        for number in (1, 2):
            model.partial_fit(x, y, task=f"task {number}")
            model.save(directory)
        files = _read_files(Path(directory))

    def read(path: Path, _: bool) -> Callable[[], None]:
        loaded = front.load(path)
        return lambda: use(loaded, front.load)

    return Target(files, read, (ModelFileError,), reseal_model)


def run_target() -> Target:
    """A stored run, as `lifelong report` reads it."""
    learner = DEN(mlp(5, [6, 4]), replace(child.SETTINGS, budget=QUICK))
    with tempfile.TemporaryDirectory() as directory:
        for number in (1, 2):
            learner.learn(_task((5,), number))
        learner.save(directory)
        text = msgspec.json.encode(model_run(Path(directory)))

    def read(path: Path, _: bool) -> Callable[[], None]:
        (run,) = read_runs([path / "run.json"])
        return lambda: show(run, Console(file=io.StringIO(), width=100))

    return Target({"run.json": text}, read, (RunError,), reseal_run)


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


# ---- running


def run_case(target: Target, number: int, directory: Path) -> str:
    """What became of it; anything but the documented is an exception, and a fault."""
    draw = random.Random(number)
    resealed = target.reseal is not None and draw.random() < 0.8
    change = target.reseal if resealed and target.reseal else mutated
    _write_files(directory, change(target.files, draw))
    with warnings.catch_warnings(), patch("lifelong.tasks.datasets.files._download", _no_network):
        warnings.simplefilter("ignore")
        try:
            act = target.read(directory, resealed)
        except target.errors:
            return "refused"
        if act is None:
            return "read"
        try:
            act()
        except USED:
            return "used, and told why not"
    return "used"


def _no_network(*_: object) -> Path:
    raise DataError("not there, and not to be downloaded")


Outcome: TypeAlias = tuple[dict[str, Counter[str]], list[str]]


def run(made: Mapping[str, Target], count: int, seed: int, root: Path) -> Outcome:
    """So many cases of each target; the faults, each with what makes it again."""
    counts = {name: Counter[str]() for name in made}
    faults: list[str] = []
    outside = root / "outside"
    outside.write_text("mine")
    for first in range(seed, seed + count, BATCH):
        numbers = range(first, min(first + BATCH, seed + count))
        for name, target in made.items():
            found, wrong = _batch(name, target, numbers, root)
            counts[name].update(found)
            faults += wrong
    assert sorted(path.name for path in root.iterdir()) == ["outside"], "files outside"
    assert outside.read_text() == "mine"
    return counts, faults


def _batch(name: str, target: Target, numbers: range, root: Path) -> tuple[list[str], list[str]]:
    """The outcomes and the faults of some cases, made in a process of its own."""
    fork = multiprocessing.get_context("fork")
    here, there = fork.Pipe(duplex=False)
    process = fork.Process(target=_cases, args=(name, target, numbers, root, there))
    process.start()
    there.close()
    outcomes, faults = [], []
    for number in numbers:
        try:
            told = here.recv() if here.poll(20 * SECONDS) else None
        except EOFError:
            told = None
        if told is None:  # it was ended, or blocks
            process.kill()
            process.join()
            code = process.exitcode
            rest = _batch(name, target, range(number + 1, numbers.stop), root)
            ended = f"{name} {number}: the process ended with {code}, or did not answer"
            return [*outcomes, "faults", *rest[0]], [*faults, ended, *rest[1]]
        outcomes.append(told[0])
        faults += told[1:]
    process.join()
    shutil.rmtree(root / "case", ignore_errors=True)
    return outcomes, faults


def _cases(name: str, target: Target, numbers: range, root: Path, say: Any) -> None:
    limited()
    for number in numbers:
        directory = root / "case"
        shutil.rmtree(directory, ignore_errors=True)
        signal.setitimer(signal.ITIMER_PROF, SECONDS)
        try:
            told = [run_case(target, number, directory)]
        except (Exception, Hang) as error:
            trace = traceback.format_exc(limit=-4)
            told = ["faults", f"{name} {number}: {error!r}\n{trace}"]
        finally:
            signal.setitimer(signal.ITIMER_PROF, 0)
        say.send(told)


def limited() -> None:
    """Let this process take only so much more memory, and each case only so long."""
    with Path("/proc/self/statm").open() as statm:
        size = int(statm.read().split()[0]) * resource.getpagesize()
    resource.setrlimit(resource.RLIMIT_AS, (size + MEMORY, size + MEMORY))

    def too_long(*_: object) -> None:
        raise Hang

    signal.signal(signal.SIGPROF, too_long)


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
    parser.add_argument("--count", type=int, default=100_000, help="cases of each kind of file")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--only", nargs="*", help="names of kinds of files")
    given = parser.parse_args()
    torch.set_num_threads(1)
    began = time.monotonic()
    made = targets()
    made = {name: target for name, target in made.items() if not given.only or name in given.only}
    with tempfile.TemporaryDirectory() as root:
        counts, faults = run(made, given.count, given.seed, Path(root))
    result = {
        "command": f"python tests/robust/mutations.py --count {given.count} --seed {given.seed}",
        "cases": sum(sum(found.values()) for found in counts.values()),
        "faults": len(faults),
        "by kind of file": {name: dict(sorted(found.items())) for name, found in counts.items()},
        "limits": f"{SECONDS} seconds of the processor, {MEMORY >> 20} MiB of memory",
        "seconds": round(time.monotonic() - began),
        "torch": torch.__version__,
        "python": platform.python_version(),
    }
    print(*faults[:50], sep="\n", file=sys.stderr)
    print(json.dumps(result, indent=1))
    sys.exit(bool(faults))


if __name__ == "__main__":
    main()
