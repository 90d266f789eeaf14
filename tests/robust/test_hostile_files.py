"""Files that somebody made to do harm: each is refused, by name, at once and in little memory."""

import gzip
import io
import json
import resource
import signal
import struct
import zipfile
from collections.abc import Callable
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pytest
import torch
from rich.console import Console
from torch import nn

from builders import BUDGET, inputs_for, learned, quick, small_mlp, stream_for, task_for
from lifelong.estimator import LifelongClassifier, LifelongRegressor
from lifelong.evaluation.measure import model_run
from lifelong.learners.baselines import Joint, TrainingSettings
from lifelong.learners.den import DEN
from lifelong.learners.registry import METHODS, load_model
from lifelong.networks.adapted import adapt
from lifelong.networks.sequential import mlp
from lifelong.networks.traced.architecture import grow
from lifelong.persistence import checkpoint as journal
from lifelong.persistence.checkpoint import FILE, CheckpointError
from lifelong.persistence.files import TensorFileError, digest, packed, unpacked
from lifelong.persistence.manifest import MANIFEST, ModelFileError
from lifelong.report.inspection import show
from lifelong.report.page import page
from lifelong.tasks.datasets.features import features, read_npz
from lifelong.tasks.datasets.files import DataError
from lifelong.tasks.datasets.mnist import read_idx
from lifelong.tasks.kinds import TaskError
from older_models import in_one_file

SECONDS = 5  # that a refusal may take
MEMORY = 1 << 28  # bytes that it may take


class TooLong(BaseException):
    """Not an error that a reader could take for one of its own."""


@contextmanager
def little():
    """Little time and memory, or the test fails."""

    def too_long(*_):
        raise TooLong

    before = signal.signal(signal.SIGALRM, too_long)
    size = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
    soft, hard = resource.getrlimit(resource.RLIMIT_AS)
    signal.alarm(SECONDS)
    resource.setrlimit(resource.RLIMIT_AS, (size + MEMORY, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_AS, (soft, hard))
        signal.alarm(0)
        signal.signal(signal.SIGALRM, before)


# ---- models


def forge(path, tensors=None, **changes):
    """Change a model on purpose: all checksums, sizes and shapes are right again, unless given."""
    manifest = {**json.loads((path / MANIFEST).read_text()), "seal": ""}
    if tensors is not None:
        content = packed(tensors)
        manifest |= {"sha256": digest(content), "bytes": len(content)}
        manifest["shapes"] = {name: list(tensor.shape) for name, tensor in tensors.items()}
        (path / f"tensors-{digest(content)[:16]}.safetensors").write_bytes(content)
    manifest |= changes
    manifest["seal"] = digest(msgspec.json.encode(manifest))
    (path / MANIFEST).write_bytes(msgspec.json.encode(manifest))
    return path


def tensors_in(path):
    file = json.loads((path / MANIFEST).read_text())["sha256"][:16]
    return unpacked((path / f"tensors-{file}.safetensors").read_bytes())


def manifest_in(path):
    return json.loads((path / MANIFEST).read_text())


@pytest.fixture
def model(tmp_path):
    architecture = small_mlp()
    tasks = stream_for(architecture, "one output", "classes")
    learned(architecture, tasks, quick(sigma=0.0)).save(tmp_path / "model")
    return in_one_file(tmp_path / "model")


def deep(path, layers, tasks):
    """A network of many layers of one unit, with many tasks."""
    architecture = mlp(6, [1] * layers)
    made = {
        f"shared/{name}": torch.ones(architecture.layout.shape(name, architecture.layout.groups, 1))
        for name in list(architecture.layout.tensors)[:-2]
    }
    for number in range(1, tasks + 1):
        made |= {f"task/{number}/head.weight": torch.ones(1, 1)}
        made |= {f"task/{number}/head.bias": torch.ones(1)}
    heads = ["head.bias", "head.weight"]
    return forge(
        path,
        made,
        architecture=msgspec.to_builtins(architecture),
        born={group: [1] for group in architecture.layout.groups},
        tasks=[
            {"name": str(n), "kind": "binary", "outputs": 1, "private": heads} for n in range(tasks)
        ],
        records=[],
    )


HUGE: dict[str, tuple[Callable[[Path], object], str]] = {
    "a shape of many sizes": (
        lambda path: forge(path, shapes={"z": [2**62] * 200_000}),
        "200,000 sizes in a shape, at most 8",
    ),
    "many layers": (lambda path: deep(path, 3000, 1), "6,000 layers, at most 2,000"),
    "layers and tasks": (lambda path: deep(path, 1500, 1500), "3,000 layers, at most 2,000"),
    "many tasks": (lambda path: deep(path, 1, 10_001), "10,001 tasks, at most 10,000"),
    "many tensors": (
        lambda path: forge(path, shapes={str(n): [] for n in range(50_001)}),
        "50,001 tensors, at most 50,000",
    ),
    "a size beyond all": (
        lambda path: forge(path, shapes={"z": [0, 2**62]}),
        "places on an axis, at most",
    ),
    "a long name of a task": (
        lambda path: forge(
            path,
            tasks=[{**task, "name": "n" * 1001} for task in manifest_in(path)["tasks"]],
        ),
        "1,001 characters in a name, at most 1,000",
    ),
    "a long name of a tensor": (
        lambda path: forge(path, memory=["own/" + "n" * 1001]),
        "1,005 characters in a name, at most 1,000",
    ),
    "many brackets": (
        lambda path: forge(path, settings={"mu": [[]] * 1_100_000}),
        "lists and objects, at most 1,000,000",
    ),
    "many words": (
        lambda path: forge(path, settings={"mu": ["a"] * 2_600_000}),
        "quotation marks, at most 5,000,000",
    ),
    "many bytes": (lambda path: forge(path, settings={"mu": [1] * 34_000_000}), "more than 67,1"),
    "many outputs": (
        lambda path: forge(
            path, tasks=[{**task, "outputs": 2**62} for task in manifest_in(path)["tasks"]]
        ),
        "not float32 of",
    ),
    "many records": (
        lambda path: forge(path, records=manifest_in(path)["records"] * 5000),
        "several records of one task",
    ),
}


@pytest.mark.parametrize("case", HUGE)
def test_a_model_that_would_take_long_is_refused_at_once(case, model):
    make, message = HUGE[case]
    make(model)
    with little(), pytest.raises(ModelFileError, match=message):
        DEN.load(model)


def test_as_many_layers_and_tasks_as_are_allowed_are_read_at_once(model):
    deep(model, 1000, 2000)
    with little():
        loaded = DEN.load(model)
    assert len(loaded.tasks) == 2000


# ---- checkpoints


def start(directory):
    architecture = small_mlp()
    DEN(architecture, quick()).learn(task_for(architecture), checkpoint=directory)


def about():
    architecture = small_mlp()
    return DEN(architecture, quick())._about("learn", [task_for(architecture)])


def write_page(directory, tensors, count=1, **facts):
    """A checkpoint of trainings that have all ended, with these tensors."""
    header = {
        name: {"dtype": "F32", "shape": [1], "data_offsets": [4 * n, 4 * n + 4]}
        for n, name in enumerate(tensors)
    }
    text = json.dumps(header).encode()
    content = struct.pack("<Q", len(text)) + text + bytes(4 * len(tensors))
    (directory / f"training-{digest(content)}.safetensors").write_bytes(content)
    entry = journal._Entry("one output 0: first", True, facts, digest(content), len(content))
    index = journal._Index(journal.FORMAT, journal.VERSION, about(), [entry] * count, False)
    (directory / FILE).write_bytes(msgspec.json.encode(index.sealed()))


CHECKPOINTS: dict[str, tuple[Callable[[Path], object], str]] = {
    "many trainings": (
        lambda path: write_page(path, {}, 100_000),
        "100,000 trainings, at most 10,000",
    ),
    "many tensors": (
        lambda path: write_page(path, dict.fromkeys(map(str, range(100_000)))),
        "tensors, at most 50,000",
    ),
    "many brackets": (
        lambda path: write_page(path, {}, loss=[[]] * 1_000_000),
        "lists and objects, at most 1,000,000",
    ),
}


@pytest.mark.parametrize("case", CHECKPOINTS)
def test_a_checkpoint_that_would_take_long_is_refused_at_once(case, tmp_path):
    make, message = CHECKPOINTS[case]
    make(tmp_path)
    with little(), pytest.raises(CheckpointError, match=message):
        start(tmp_path)


def test_a_checkpoint_of_something_else_is_told_in_a_few_words(tmp_path):
    many = {str(number): "x" for number in range(100_000)} | {"long": "x" * 10_000}
    index = journal._Index(journal.FORMAT, journal.VERSION, many, [], False)
    (tmp_path / FILE).write_bytes(msgspec.json.encode(index.sealed()))
    with pytest.raises(CheckpointError, match="another learning") as told:
        start(tmp_path)
    assert len(str(told.value)) < 5000


def test_a_checkpoint_holds_no_more_trainings_than_are_read(tmp_path, monkeypatch):
    monkeypatch.setattr(journal, "MOST_TRAININGS", 0)
    monkeypatch.setattr(journal, "APART", 0)
    with pytest.raises(CheckpointError, match=r"1 trainings, at most 0 .*learn without one"):
        start(tmp_path)


# ---- data


def header(descr, shape):
    text = f"{{'descr': {descr!r}, 'fortran_order': False, 'shape': {shape}}}\n".encode()
    return b"\x93NUMPY\x01\x00" + struct.pack("<H", len(text)) + text


def array(descr, shape, content=b""):
    return header(descr, shape) + content


def npz(path, packing=zipfile.ZIP_DEFLATED, **members):
    """With good arrays for those of x and y that are not given."""
    good = {"x": array("<f4", (4, 2), bytes(32)), "y": array("|u1", (4,), bytes([0, 0, 1, 1]))}
    with zipfile.ZipFile(path, "w", packing) as archive:
        for name, content in {**good, **members}.items():
            archive.writestr(f"{name}.npy", content)


MANY = 1_000_000_000
ARRAYS: dict[str, tuple[Callable[[Path], None], str]] = {
    "rows of nothing": (
        lambda path: npz(path, x=array("<f4", (MANY, 0)), y=array("|S0", (MANY,))),
        "no axis may be empty",
    ),
    "labels of nothing": (lambda path: npz(path, y=array("|S0", (MANY,))), "type .S0"),
    "names of nothing": (lambda path: npz(path, names=array("|S0", (MANY,))), "type .S0"),
    "no rows": (
        lambda path: npz(path, x=array("<f4", (0, 2)), y=array("|u1", (0,))),
        "no axis may be empty",
    ),
    "a bomb": (
        lambda path: npz(path, x=array("<f4", (20_000_000, 1), bytes(80_000_000))),
        "announces 80,000,004 bytes of data, but a file of",
    ),
    "several bombs": (
        lambda path: npz(
            path,
            x=array("<f4", (10_000_000, 1), bytes(40_000_000)),
            y=array("<f4", (10_000_000,), bytes(40_000_000)),
        ),
        "may hold 67,108,864 at the most",
    ),
    "a header that is a bomb": (
        lambda path: npz(
            path, x=b"\x93NUMPY\x02\x00" + struct.pack("<I", 300_000_000) + b" " * 300_000_000
        ),
        "not a whole npz file",
    ),
    "a header of brackets": (
        lambda path: npz(
            path, x=b"\x93NUMPY\x01\x00" + struct.pack("<H", 9000) + b"(" * 8999 + b"\n"
        ),
        "not a whole npz file",
    ),
    "another packing": (lambda path: npz(path, zipfile.ZIP_LZMA), "packed in a way"),
    "one name for all": (
        lambda path: npz(path, names=array("|S3", "()", b"cat")),
        "names must be a list",
    ),
    "a split of nothing": (lambda path: npz(path, split=array("|V0", (4,))), "type .V0"),
    "a split of anything": (
        lambda path: npz(path, split=array("|V4", (4,), bytes(16))),
        "type .V4",
    ),
    "objects": (lambda path: npz(path, y=array("|O", (4,), bytes(32))), "type object"),
}


@pytest.mark.parametrize("case", ARRAYS)
def test_a_table_that_is_not_one_is_refused_at_once(case, tmp_path):
    make, message = ARRAYS[case]
    make(tmp_path / "table.npz")
    with little(), pytest.raises(DataError, match=message):
        features(tmp_path / "table.npz", per_class=(1, 1, 0))


def idx(*shape, content=b""):
    return bytes([0, 0, 8, len(shape)]) + struct.pack(f">{len(shape)}I", *shape) + content


IMAGES: dict[str, tuple[bytes, str]] = {
    "f": (idx(0, 28, 28), "in which there is nothing"),
    "f.gz": (gzip.compress(idx(2**17, 28, 28, content=bytes(28 * 28 << 17)), 1), "announces 102,7"),
    "g": (idx(2**32 - 1, 2**32 - 1, 2**32 - 1), "bytes of data, but a file of 16 bytes"),
    "h": (idx(2**10, 28, 28), "that is 802,832 bytes, but there are 16"),
}


@pytest.mark.parametrize("name", IMAGES)
def test_images_that_are_none_are_refused_at_once(name, tmp_path):
    content, message = IMAGES[name]
    (tmp_path / name).write_bytes(content)
    with little(), pytest.raises(DataError, match=message):
        read_idx(tmp_path / name, 3)


def test_what_shrinks_a_lot_is_read_while_it_is_small(tmp_path):
    (tmp_path / "f.gz").write_bytes(gzip.compress(idx(10**6, content=bytes(10**6))))
    assert read_idx(tmp_path / "f.gz", 1).shape == (10**6,)
    np.savez_compressed(tmp_path / "t.npz", x=np.zeros((60_000, 64)), y=np.arange(60_000) % 10)
    assert read_npz(tmp_path / "t.npz")["x"].shape == (60_000, 64)


# ---- models that make no sense


def test_a_number_too_large_for_a_setting_is_refused(model):
    settings = manifest_in(model)["settings"]
    for name in ("mu", "k"):
        text = (forge(model, settings={**settings, name: "HUGE"}) / MANIFEST).read_text()
        seal = json.loads(text)["seal"]
        text = text.replace('"HUGE"', "1" + "0" * 400)
        unsealed = text.replace(seal, "").encode()
        (model / MANIFEST).write_text(text.replace(seal, digest(unsealed)))
        with pytest.raises(ModelFileError, match="settings are damaged"):
            DEN.load(model)


@pytest.mark.parametrize("load", [DEN.load, load_model])
@pytest.mark.parametrize("deep", ["[" * 100_000, '{"method":"DEN","a":' + "[" * 100_000])
def test_a_manifest_that_is_deep_is_refused(deep, load, model):
    (model / MANIFEST).write_text(deep)
    with pytest.raises(ModelFileError, match="not a manifest"):
        load(model)


def test_a_shape_of_nothing_and_of_too_much_is_refused():
    text = json.dumps({"z": {"dtype": "F32", "shape": [0, 2**62], "data_offsets": [0, 0]}}).encode()
    with pytest.raises(TensorFileError, match="one above 1,099,511,627,776"):
        unpacked(struct.pack("<Q", len(text)) + text)
    text = text.replace(str(2**62).encode(), b"1099511627776,1099511627776")
    with pytest.raises(TensorFileError, match="cannot have shape"):
        unpacked(struct.pack("<Q", len(text)) + text)


def test_a_name_that_could_not_be_read_again_is_refused_before_it_is_learned():
    architecture = small_mlp()
    learner = DEN(architecture, quick())
    with pytest.raises(TaskError, match="has 1,001 characters, but a file can hold 1,000"):
        learner.learn(task_for(architecture, name="n" * 1001))


def test_what_could_not_be_read_again_is_not_saved(tmp_path):
    architecture = small_mlp()
    learner = Joint(architecture, TrainingSettings(budget=BUDGET))
    learner.learn_together([task_for(architecture, name="n" * (1 << 20))])
    with pytest.raises(ModelFileError, match="1,048,576 characters in a name, at most 1,000"):
        learner.save(tmp_path / "model")
    assert not (tmp_path / "model").exists()


def saved(path, name, **settings):
    """A model of a method that has learned two tasks."""
    architecture = small_mlp()
    learner = METHODS[name].make(architecture, budget=BUDGET, changes=settings)
    tasks = stream_for(architecture, "one output", "one output")
    if isinstance(learner, Joint):
        learner.learn_together(tasks)
    else:
        for task in tasks:
            learner.learn(task)
    learner.save(path)
    return in_one_file(path)


def use(path, elsewhere):
    """All that one does with a model: predict, learn, save, load, inspect, report."""
    learner = load_model(path)
    architecture = learner.network.architecture
    for task in learner.tasks:
        learner.predict(inputs_for(architecture, 3), task=task)
    if not isinstance(learner, Joint):
        learner.learn(task_for(architecture, "one output", 9, "one more"))
    learner.save(elsewhere)
    run = model_run(elsewhere)
    show(run, Console(file=io.StringIO()))
    page([run])


@pytest.mark.parametrize("name", METHODS)
def test_a_good_model_of_any_method_can_be_used(name, tmp_path):
    use(saved(tmp_path / "model", name), tmp_path / "next")


def records(path, **changes):
    """Change the last record."""
    *first, last = manifest_in(path)["records"]
    return forge(path, records=[*first, {**last, **changes}])


def tasks(path, **changes):
    """Change the last task."""
    *first, last = manifest_in(path)["tasks"]
    return forge(path, tasks=[*first, {**last, **changes}])


def without_memory(path, word):
    kept = {n: t for n, t in tensors_in(path).items() if not n.startswith(f"memory/{word}/")}
    names = [n.removeprefix("memory/") for n in kept if n.startswith("memory/")]
    return forge(path, kept, memory=names)


def private(path):
    """Let the first layer be each task's own."""
    made = tensors_in(path)
    names = ("hidden1.weight", "hidden1.bias")
    for name in names:
        tensor = made.pop(f"shared/{name}")
        born = manifest_in(path)["born"]["hidden1"]
        made[f"task/1/{name}"] = tensor[: born.count(1)].clone()
        made[f"task/2/{name}"] = tensor
    known = manifest_in(path)["tasks"]
    return forge(
        path, made, tasks=[{**task, "private": [*names, *task["private"]]} for task in known]
    )


def one_head(path):
    """A network with one head for all tasks, of a method that wants one for each."""
    settings = manifest_in(path)["settings"]
    return forge(path, settings={**settings, "heads": "own"})


def born_later(path):
    born = manifest_in(path)["born"]
    return forge(path, born={**born, "hidden1": [2] * len(born["hidden1"])})


def base_without_end(path):
    first, *rest = manifest_in(path)["architecture"]["layers"]
    architecture = manifest_in(path)["architecture"]
    return forge(path, architecture={**architecture, "layers": [{**first, "units": 2**62}, *rest]})


def adam_counts(path):
    made = tensors_in(path)
    name = next(name for name in made if name.startswith("memory/adam/taken/"))
    shape = made["shared/" + name.rpartition("/")[2]].shape
    return forge(path, {**made, name: torch.ones(shape)})


def shortened(path, name):
    """Of a tensor in the memory, without its first row."""
    made = tensors_in(path)
    return forge(path, {**made, f"memory/{name}": made[f"memory/{name}"][1:].clone()})


def filled(path, name, value):
    made = tensors_in(path)
    return forge(path, {**made, f"memory/{name}": torch.full_like(made[f"memory/{name}"], value)})


ONE: dict[str, Any] = {"heads": "one"}
USELESS: dict[str, tuple[str, dict[str, Any], Callable[[Path], Path], str]] = {
    "a head that is another's": ("DNN", ONE, lambda p: tasks(p, outputs=3), "one head serves all"),
    "a head for all": ("DNN", ONE, one_head, "cannot go on with it: its tasks have"),
    "no units for the first": ("DEN", {}, born_later, "hidden1 has no units for task 1"),
    "a base network without end": (
        "DNN-Progressive",
        {},
        base_without_end,
        "hidden1 has .* its base network 4,611,686,018,427,387,904: more than 10,000 times",
    ),
    "a strange group": (
        "DEN",
        {},
        lambda p: records(p, groups={"other": {"units": 3}}),
        "not about the network's groups",
    ),
    "a record of more units than can be": (
        "DEN",
        {},
        lambda p: records(p, groups={g: {"units": 10**400} for g in manifest_in(p)["born"]}),
        "damaged: .*units|out of range",
    ),
    "a record too many": (
        "DEN",
        {},
        lambda p: forge(p, records=manifest_in(p)["records"] * 2),
        "several records of one task",
    ),
    "nothing remembered": (
        "DNN-EWC",
        {},
        lambda p: without_memory(p, "importance"),
        "it does not remember importance/hidden1.weight",
    ),
    "no centers": ("DNN-EWC", {}, lambda p: without_memory(p, "center"), "remember center/"),
    "SI's": ("SI", {}, lambda p: without_memory(p, "importance"), "remember importance/"),
    "IMM's": ("IMM-mode", {}, lambda p: without_memory(p, "last"), "remember last/"),
    "Adam's": ("DNN-EWC", {"adam": "carried"}, adam_counts, "count of Adam's steps"),
    "own layers": ("DEN", {}, private, "cannot go on with it: its tasks have .*hidden1"),
    "WSN's masks": ("WSN", {}, lambda p: without_memory(p, "own/bits/2"), "nothing as bits/2/hid"),
    "a mask too short": (
        "SupSup",
        {},
        lambda p: shortened(p, "own/bits/1/hidden1.weight"),
        "bits/1",
    ),
    "WSN's scores": ("WSN", {}, lambda p: without_memory(p, "score"), "remember score/"),
    "Piggyback's": ("Piggyback", {}, lambda p: without_memory(p, "own/bits/2"), "nothing as bits"),
    "PackNet's": ("PackNet", {}, lambda p: without_memory(p, "own/bits/1"), "nothing as bits/1"),
    "HAT's": ("HAT", {}, lambda p: shortened(p, "own/bits/2/hidden1"), "bits/2/hidden1"),
    "LoRA's": ("LoRA", {}, lambda p: shortened(p, "own/2/hidden1.weight/a"), "2/hidden1.weight/a"),
    "APD's gates": ("APD", {}, lambda p: without_memory(p, "own/1/gate"), "nothing as 1/gate"),
    "APD's weights": (
        "APD",
        {"lam1": 0.001},
        lambda p: shortened(p, "own/2/tau/hidden1.weight"),
        "task 2 has not one number for each place in hidden1.weight",
    ),
    "no reservoir": ("ER", {}, lambda p: without_memory(p, "own"), "it has no reservoir"),
    "a reservoir with fewer labels": ("ER", {}, lambda p: shortened(p, "own/y"), "reservoir has"),
    "a reservoir of no task": ("ER", {}, lambda p: filled(p, "own/task", 3.0), "rows of no task"),
    "labels of no task": ("ER", {}, lambda p: filled(p, "own/y", 2.0), "labels that no task has"),
    "more rows seen than can be": (
        "ER",
        {},
        lambda p: filled(p, "own/seen", 1e30),
        "its reservoir is of 1e.30 rows",
    ),
    "GPM's directions": ("GPM", {}, lambda p: shortened(p, "own/hidden1"), "directions of hidden1"),
    "a shared column": (
        "DNN-STL",
        {},
        lambda p: forge(p, method="DNN"),
        "cannot go on with it|settings are damaged",
    ),
}


@pytest.mark.parametrize("case", USELESS)
def test_a_model_that_could_not_be_used_is_refused(case, tmp_path):
    name, settings, harm, message = USELESS[case]
    path = saved(tmp_path / "model", name, **settings)
    use(path, tmp_path / "good")
    harm(path)
    with pytest.raises(ModelFileError, match=message):
        use(path, tmp_path / "next")


@pytest.mark.parametrize(
    ("name", "settings", "message"),
    [
        ("DEN", {"k": 2**31}, "k must be at most 10,000"),
        ("DEN", {"mu": 1e307}, "mu must be 0 or more and at most 1e"),
        ("DNN", {"budget": {"weight_decay": 1e308}}, "weight_decay must be 0 or more and at most"),
        ("LoRA", {"scale": 1e39}, "scale must be above 0 and at most"),
        ("DNN-Progressive", {"width": 255.0}, "width must be above 0 and at most 10"),
        ("ER", {"memory": 10**30}, "memory must be a whole number above 0 and at most 1e"),
    ],
)
def test_a_setting_beyond_what_can_be_computed_is_refused(name, settings, message, tmp_path):
    path = saved(tmp_path / "model", name)
    kept = manifest_in(path)["settings"]
    inner = {"budget": {**kept["budget"], **settings.get("budget", {})}}
    forge(path, settings={**kept, **settings, **inner})
    with pytest.raises(ModelFileError, match=message):
        load_model(path)


def saved_module(path):
    """A model whose code is the module's, and that module."""
    module = nn.Sequential(nn.Linear(5, 6), nn.ReLU(), nn.Linear(6, 1))
    architecture = adapt(module, torch.zeros(2, 5), head="2")
    learner = DEN(architecture, quick(split="weights", expand=False))
    learner.learn(task_for(architecture))
    learner.save(path)
    return manifest_in(in_one_file(path))["module"], module


@pytest.mark.parametrize("inputs", [[2**40], [-1], [7], [5, 1], []])
def test_inputs_that_a_module_does_not_take_are_refused(inputs, tmp_path):
    data, module = saved_module(tmp_path)
    forge(tmp_path, module={**data, "layout": {**data["layout"], "inputs": inputs}})
    with pytest.raises(ModelFileError, match=r"inputs of shape|its module makes"):
        DEN.load(tmp_path, module=module)


@pytest.mark.parametrize("kept", [0, 1])
@pytest.mark.parametrize("name", ["head.weight", "head.bias"])
def test_a_head_of_a_module_without_its_axes_is_refused(name, kept, tmp_path):
    data, module = saved_module(tmp_path)
    layout = data["layout"]
    head = layout["tensors"][name]
    tensors = {**layout["tensors"], name: {**head, "axes": head["axes"][:kept]}}
    if len(head["axes"]) == kept:
        tensors[name]["axes"] = head["axes"] * 2
    forge(tmp_path, module={**data, "layout": {**layout, "tensors": tensors}})
    with pytest.raises(ModelFileError, match=r"but its head is of|do not fit"):
        DEN.load(tmp_path, module=module)


def saved_traced(path):
    """A model of a module that grows; what the file says of the module."""
    module = nn.Sequential(nn.Linear(5, 6), nn.ReLU(), nn.Linear(6, 1))
    architecture = grow(module, torch.zeros(2, 5), head="2")
    learner = DEN(architecture, quick())
    learner.learn(task_for(architecture))
    learner.save(path)
    return manifest_in(in_one_file(path))["module"]


@pytest.mark.parametrize("value", [1e39, -1e308])
@pytest.mark.parametrize("name", ["0.bias", "head.bias"])
def test_a_resting_value_beyond_float32_is_refused(name, value, tmp_path):
    data = saved_traced(tmp_path)
    layout = data["layout"]
    tensors = {**layout["tensors"], name: {**layout["tensors"][name], "initial": value}}
    forge(tmp_path, module={**data, "layout": {**layout, "tensors": tensors}})
    with pytest.raises(ModelFileError, match=f"{name} does not start at a number of float32"):
        DEN.load(tmp_path)


def test_a_resting_value_beyond_float32_is_refused_in_an_adapted_module(tmp_path):
    data, module = saved_module(tmp_path)
    layout = data["layout"]
    tensors = {n: {**spec, "initial": 1e39} for n, spec in layout["tensors"].items()}
    forge(tmp_path, module={**data, "layout": {**layout, "tensors": tensors}})
    with pytest.raises(ModelFileError, match="does not start at a number of float32"):
        DEN.load(tmp_path, module=module)


@pytest.mark.parametrize("place", [["0.weight", 2, 1], ["0.bias", 1, 1], ["0.weight", 2**63, 1]])
@pytest.mark.parametrize("program", ["evaluation", "training"])
def test_a_width_that_is_read_from_no_axis_is_refused(program, place, tmp_path):
    data = saved_traced(tmp_path)
    forge(tmp_path, module={**data, program: {**data[program], "widths": {"0": place}}})
    with pytest.raises(ModelFileError, match=r"the width of 0 is read from|damaged"):
        DEN.load(tmp_path)


def test_a_width_that_costs_need_and_that_is_not_there_is_refused(tmp_path):
    data = saved_traced(tmp_path)
    forge(tmp_path, module={**data, "evaluation": {**data["evaluation"], "widths": {}}})
    with pytest.raises(ModelFileError, match="its formulas are about groups that are not there"):
        DEN.load(tmp_path)


def test_a_program_for_one_width_only_is_refused(tmp_path):
    data = saved_traced(tmp_path)
    calls = data["evaluation"]["calls"]
    features = {"type": "value", "number": len(calls)}
    view = {"operation": "aten.view.default", "arguments": [features, [-1, 6]], "named": {}}
    program = {**data["evaluation"], "calls": [*calls, view], "result": len(calls) + 1}
    forge(tmp_path, module={**data, "evaluation": program})
    with pytest.raises(ModelFileError, match="its program"):
        DEN.load(tmp_path)


# ---- estimators


FRONTS = [LifelongClassifier, LifelongRegressor]


def saved_table(path, front):
    """An estimator that has learned two tasks."""
    x = np.random.default_rng(0).normal(size=(40, 3))
    y = (x[:, 0] > 0).astype(float if front is LifelongRegressor else int)
    model = front(network=(4,), budget=BUDGET)
    for name in "ab":
        model.partial_fit(x, y, task=name)
    model.save(path)
    return in_one_file(path)


@pytest.mark.parametrize("front", FRONTS)
def test_a_density_that_cannot_be_computed_is_refused(front, tmp_path):
    made = tensors_in(saved_table(tmp_path, front))
    harmed = {
        name: torch.full_like(tensor, 1e30 if name.endswith("directions") else 1e-40)
        for name, tensor in made.items()
        if name.endswith(("1/directions", "1/noise"))
    }
    forge(tmp_path, {**made, **harmed})
    with pytest.raises(ModelFileError, match="the density of task 1 cannot be computed"):
        front.load(tmp_path)


@pytest.mark.parametrize("weights", [1.5, "equal", [["1", 2.0], 3], {"1": -1.0}, {"1": "a"}])
def test_class_weights_that_are_none_are_refused(weights, tmp_path):
    attached = manifest_in(saved_table(tmp_path, LifelongClassifier))["attached"]
    parameters = {**attached["parameters"], "class_weight": weights}
    forge(tmp_path, attached={**attached, "parameters": parameters})
    with pytest.raises(ModelFileError, match="what it knows of columns is damaged"):
        LifelongClassifier.load(tmp_path)
