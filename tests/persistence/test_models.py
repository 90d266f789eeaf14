"""Save, then load: the identity, or an error that says what is wrong."""

import hashlib
import json
import math
import os
import shutil
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import msgspec
import pytest
import torch
from hypothesis import given
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st
from rich.console import Console
from safetensors.torch import load_file

import lifelong.persistence.loading
from builders import (
    ARCHITECTURES,
    BUDGET,
    answers,
    contents,
    inputs_for,
    learned,
    quick,
    same,
    small_mlp,
    stream_for,
    task_for,
)
from lifelong.evaluation.measure import model_run
from lifelong.learners.baselines import Joint, Single, TrainingSettings
from lifelong.learners.den import DEN
from lifelong.learners.registry import load_model
from lifelong.persistence.files import LOCK, packed, unpacked
from lifelong.persistence.manifest import MANIFEST, Manifest, ModelFileError
from lifelong.report.inspection import show
from lifelong.tasks.kinds import TaskError
from lifelong.training.budget import SettingError
from older_models import in_one_file


def grown(kind="mlp"):
    architecture = ARCHITECTURES[kind]()
    tasks = stream_for(architecture, "one output", "classes", "subtasks")
    return learned(architecture, tasks, quick(sigma=0.0))


def tensors_file(path):
    return next(path.glob("tensors-*.safetensors"))


def rewrite(path, **changes):
    """Change a manifest on purpose: its own checksum is right again."""
    manifest = json.loads((path / MANIFEST).read_text())
    try:
        sealed = msgspec.convert({**manifest, **changes}, Manifest).sealed()
        (path / MANIFEST).write_bytes(msgspec.json.encode(sealed))
    except msgspec.ValidationError:
        (path / MANIFEST).write_text(json.dumps({**manifest, **changes}))


def read_manifest(path):
    return json.loads((path / MANIFEST).read_text())


def with_one_layer_bare(architecture):
    first, *others = architecture["layers"]
    return {**architecture, "layers": [{**first, "bias": False}, *others]}


def retensor(path, **changes):
    """Change tensors on purpose: all checksums, sizes and shapes are right again."""
    tensors = {**unpacked(tensors_file(path).read_bytes()), **changes}
    content = packed(tensors)
    tensors_file(path).unlink()
    rewrite(
        path,
        sha256=hashlib.sha256(content).hexdigest(),
        bytes=len(content),
        shapes={name: list(tensor.shape) for name, tensor in tensors.items()},
    )
    (path / msgspec.convert(read_manifest(path), Manifest).file).write_bytes(content)


def kinds_of_files(path):
    return Counter(file.name.partition("-")[0] for file in path.iterdir() if file.name != LOCK)


def relink(file):
    """Let a link to another directory stand in its place."""
    elsewhere = file.parent.parent / "elsewhere"
    file.rename(elsewhere)
    file.symlink_to(elsewhere)


@pytest.fixture(scope="module")
def saved(tmp_path_factory):
    path = tmp_path_factory.mktemp("model")
    grown().save(path)
    return path


@pytest.fixture
def model(saved, tmp_path):
    """A copy of a saved model."""
    return Path(shutil.copytree(saved, tmp_path / "model"))


@pytest.fixture
def one_file(model):
    """A copy of a model whose tensors are in one file, to be damaged."""
    return in_one_file(model)


@pytest.mark.parametrize("kind", ARCHITECTURES)
def test_a_loaded_model_is_the_saved_one(kind, tmp_path):
    learner = grown(kind)
    assert any(len(stamps.unique()) > 1 for stamps in learner.network.born.values())
    learner.save(tmp_path / "model")
    loaded = DEN.load(tmp_path / "model")
    x = inputs_for(learner.network.architecture, 50)
    assert same(contents(loaded), contents(learner))
    assert same(answers(loaded, x), answers(learner, x))
    assert loaded.settings == learner.settings
    assert loaded.records == learner.records
    assert loaded.seed == learner.seed


def test_a_loaded_model_goes_on_learning_the_same(tmp_path):
    learner = grown()
    learner.save(tmp_path)
    loaded = DEN.load(tmp_path)
    for one in (learner, loaded):
        one.learn(task_for(small_mlp(), seed=9, name="next"))
    assert same(contents(loaded), contents(learner))


def test_the_order_of_tensors_in_a_file_does_not_matter(tmp_path, monkeypatch):
    learner = learned(small_mlp(), stream_for(small_mlp(), "one output"), quick())
    learner.save(tmp_path)
    reverse = lambda content: dict(sorted(unpacked(content).items(), reverse=True))  # noqa: E731
    monkeypatch.setattr("lifelong.persistence.loading.unpacked", reverse)
    loaded = DEN.load(tmp_path)
    assert list(loaded.network.shared) == list(learner.network.shared)
    for one in (learner, loaded):
        one.learn(task_for(small_mlp(), seed=9, name="next"))
    assert same(contents(loaded), contents(learner))


def test_a_model_that_has_learned_nothing_can_be_saved(tmp_path):
    DEN(small_mlp(), quick(), seed=3).save(tmp_path)
    assert DEN.load(tmp_path).tasks == ()


def test_the_batch_models_are_saved_too(tmp_path):
    tasks = stream_for(small_mlp(), "one output", "classes")
    single = Single(small_mlp(), TrainingSettings(budget=BUDGET))
    for task in tasks:
        single.learn(task)
    joint = Joint(small_mlp(), TrainingSettings(budget=BUDGET))
    joint.learn_together(tasks)
    x = inputs_for(small_mlp(), 20)
    for learner in (single, joint):
        learner.save(tmp_path / learner.method)
        loaded = type(learner).load(tmp_path / learner.method)
        assert same(answers(loaded, x), answers(learner, x))


def test_saving_again_replaces_the_model_and_leaves_no_other_file(tmp_path):
    learner = learned(small_mlp(), stream_for(small_mlp(), "one output"), quick())
    learner.save(tmp_path)
    learner.learn(task_for(small_mlp(), seed=5, name="second"))
    learner.save(tmp_path)
    assert DEN.load(tmp_path).tasks == ("task 1", "second")
    assert kinds_of_files(tmp_path) == {MANIFEST: 1, "tensors": 1, "tasks": 2}


def test_a_save_that_fails_leaves_the_old_model(model, monkeypatch):
    before = contents(DEN.load(model))
    other = learned(small_mlp(), stream_for(small_mlp(), "classes", seed=7), quick())

    def full(*_):
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(Path, "replace", full)
        with pytest.raises(ModelFileError, match="cannot be written: No space left"):
            other.save(model, overwrite=True)
    assert same(contents(DEN.load(model)), before)
    assert [file.name for file in model.glob(".*")] == [".lock"]


def test_what_someone_else_saved_is_not_overwritten(model):
    mine, theirs = DEN.load(model), DEN.load(model)
    theirs.learn(task_for(small_mlp(), seed=7, name="theirs"))
    theirs.save(model)
    mine.learn(task_for(small_mlp(), seed=8, name="mine"))
    with pytest.raises(ModelFileError, match="someone else saved it in the meantime"):
        mine.save(model)
    assert DEN.load(model).tasks[-1] == "theirs"
    mine.save(model, overwrite=True)
    assert DEN.load(model).tasks[-1] == "mine"
    mine.save(model)
    with pytest.raises(ModelFileError, match="overwrite=True"):
        theirs.save(model)


def test_a_new_learner_does_not_replace_a_model_that_was_there(model):
    with pytest.raises(ModelFileError, match="neither loaded nor saved there"):
        DEN(small_mlp()).save(model)
    assert len(DEN.load(model).tasks) == 3


def test_what_a_killed_save_has_left_is_no_hindrance(model):
    (model / ".incoming").write_bytes(b"half of a ma")
    (model / "tensors-0123456789abcdef.safetensors").write_bytes(b"of no manifest")
    learner = DEN.load(model)
    learner.save(model)
    assert kinds_of_files(model) == {MANIFEST: 1, "tensors": 1, "tasks": 1}


def test_saving_writes_through_no_link(model, tmp_path):
    target = tmp_path / "precious"
    target.write_text("mine")
    (model / ".incoming").symlink_to(target)
    learner = DEN.load(model)
    learner.learn(task_for(small_mlp(), seed=9, name="next"))
    learner.save(model)
    assert target.read_text() == "mine"
    assert [file.name for file in model.glob(".*")] == [".lock"]


def test_a_save_between_reading_the_manifest_and_the_tensors_is_noticed(model, monkeypatch):
    other = DEN.load(model)
    other.learn(task_for(small_mlp(), seed=9, name="next"))
    read, saves = lifelong.persistence.loading._read_tensors, iter([other])

    def save_first(*arguments):
        for learner in saves:
            learner.save(model, overwrite=True)
        return read(*arguments)

    monkeypatch.setattr("lifelong.persistence.loading._read_tensors", save_first)
    assert same(contents(DEN.load(model)), contents(other))


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"seed": 2**64}, "seed must be a whole number from 0"),
        ({"seed": -1}, "seed must be a whole number from 0"),
        ({"seed": 1.5}, "seed must be a whole number from 0"),
        ({"seed": True}, "seed must be a whole number from 0"),
    ],
)
def test_what_could_not_be_saved_is_refused_before_anything_is_learned(arguments, message):
    with pytest.raises(SettingError, match=message):
        DEN(small_mlp(), **arguments)


def test_a_name_that_no_file_can_hold_is_refused():
    with pytest.raises(TaskError, match="text that a file can hold"):
        DEN(small_mlp(), quick()).learn(task_for(small_mlp(), name="half \ud800"))


def test_a_missing_model_is_named(tmp_path):
    with pytest.raises(ModelFileError, match="nowhere: not a saved model"):
        DEN.load(tmp_path / "nowhere")


def test_another_method_cannot_load_it(model):
    with pytest.raises(ModelFileError, match="holds a DEN, which DNN-STL cannot load"):
        Single.load(model)


DAMAGES: dict[str, tuple[Callable[[Path], object], str]] = {
    "truncated manifest": (
        lambda p: (p / MANIFEST).write_bytes((p / MANIFEST).read_bytes()[:-40]),
        "not a manifest",
    ),
    "foreign manifest": (lambda p: (p / MANIFEST).write_text("{}"), "not a lifelong model"),
    "newer version": (
        lambda p: rewrite(p, version=9, whatever=1),
        "format version 9, but this release reads 3 to 8; a newer release",
    ),
    "older version": (
        lambda p: rewrite(p, version=2, sha256="x"),
        "format version 2, but this release reads 3 to 8; an older one",
    ),
    "changed by accident": (
        lambda p: (p / MANIFEST).write_text((p / MANIFEST).read_text().replace("task 2", "task 9")),
        "checksum differs",
    ),
    "unknown field": (lambda p: rewrite(p, extra=1), "damaged"),
    "truncated tensors": (
        lambda p: tensors_file(p).write_bytes(tensors_file(p).read_bytes()[:-8]),
        "cannot be read: has [0-9,]+ bytes where [0-9,]+ were saved",
    ),
    "no tensors": (lambda p: tensors_file(p).unlink(), "cannot be read"),
    "path out of the directory": (
        lambda p: rewrite(p, sha256="../../../../../other"),
        "not the checksum of a file",
    ),
    "another's tensors": (lambda p: retensor(p, other=torch.zeros(3)), "belong to no task"),
    "tensors that the manifest does not list": (
        lambda p: rewrite(p, shapes={}),
        "other tensors than the manifest lists",
    ),
    "more than the file can hold": (
        lambda p: rewrite(p, shapes={"shared/hidden1.weight": [10**12, 10**12]}),
        "too small for the tensors",
    ),
    "a shape below zero": (
        lambda p: rewrite(p, shapes={"shared/hidden1.weight": [-1, 10**12]}),
        "a shape below zero",
    ),
    "numbers that are not finite": (
        lambda p: retensor(p, **{"task/1/head.bias": torch.tensor([math.nan])}),
        "head.bias holds numbers that are not finite",
    ),
    "numbers of another type": (
        lambda p: retensor(p, **{"task/1/head.bias": torch.zeros(1, dtype=torch.float64)}),
        "head.bias is torch.float64",
    ),
    "a link in place of the tensors": (
        lambda p: relink(tensors_file(p)),
        "cannot be read: Too many levels of symbolic links",
    ),
    "a pipe in place of the manifest": (
        lambda p: ((p / MANIFEST).unlink(), os.mkfifo(p / MANIFEST)),
        "cannot be read: not an ordinary file",
    ),
    "layers that nothing makes": (
        lambda p: rewrite(
            p, architecture={"inputs": [6], "layers": [{"type": "max_pool", "size": 0}]}
        ),
        "widths must be",
    ),
    "layers in another order": (
        lambda p: rewrite(p, architecture={**read_manifest(p)["architecture"], "inputs": [2, 3]}),
        "neither those of an mlp nor of a convnet",
    ),
    "a bias in some layers only": (
        lambda p: rewrite(p, architecture=with_one_layer_bare(read_manifest(p)["architecture"])),
        "neither those of an mlp nor of a convnet",
    ),
    "nested without end": (
        lambda p: (p / MANIFEST).write_text('{"format": ' + "[" * 100_000),
        "not a manifest",
    ),
    "births of tasks to come": (
        lambda p: rewrite(p, born={g: [*b[:-1], 4] for g, b in read_manifest(p)["born"].items()}),
        "not at tasks that were learned",
    ),
    "a seed that nobody can draw from": (lambda p: rewrite(p, seed=-1), "seed must be"),
    "a setting of another kind": (
        lambda p: rewrite(p, settings={"no such thing": 1.0}),
        "none named no such thing",
    ),
    "settings that do not fit the network": (
        lambda p: rewrite(p, settings={"k": [1, 2, 3]}),
        "k must be one number, or one for each of the 2 hidden layers",
    ),
    "births that do not fit": (
        lambda p: rewrite(p, born={"hidden1": [1], "hidden2": [1]}),
        "do not fit",
    ),
    "births that decrease": (
        lambda p: rewrite(p, born={"hidden1": [2, 1], "hidden2": [1]}),
        "the births of hidden1 decrease",
    ),
    "a task too few": (
        lambda p: rewrite(p, tasks=json.loads((p / MANIFEST).read_text())["tasks"][:-1]),
        "do not fit",
    ),
    "a setting out of range": (
        lambda p: rewrite(p, settings={"mu": -1.0}),
        "settings are damaged: .*mu must be 0 or more",
    ),
}


@pytest.mark.parametrize("damage", DAMAGES)
def test_a_damaged_model_is_refused_with_a_reason(damage, one_file):
    harm, message = DAMAGES[damage]
    harm(one_file)
    with pytest.raises(ModelFileError, match=message):
        DEN.load(one_file)


@given(place=st.floats(0, 1), bit=st.integers(0, 7), in_tensors=st.booleans())
@hypothesis_settings(max_examples=60)
def test_a_flipped_bit_is_refused_or_harmless(saved, tmp_path_factory, place, bit, in_tensors):
    path = tmp_path_factory.mktemp("flipped")
    for file in saved.iterdir():
        (path / file.name).write_bytes(file.read_bytes())
    target = tensors_file(path) if in_tensors else path / MANIFEST
    content = bytearray(target.read_bytes())
    content[int(place * (len(content) - 1))] ^= 1 << bit
    target.write_bytes(content)
    try:
        loaded = DEN.load(path)
    except ModelFileError:
        return
    assert not in_tensors  # a byte of white space in the manifest, at the most
    assert same(contents(loaded), contents(DEN.load(saved)))
    assert loaded.settings == DEN.load(saved).settings


OLDER = Path(__file__).parent
OLD = [path for path in sorted(OLDER.glob("version-*/*")) if path.is_dir()]
assert len(OLD) == 7


@pytest.mark.parametrize("path", OLD, ids=lambda path: f"{path.parent.name}-{path.name}")
def test_a_model_of_an_older_version_is_read_and_saved_in_the_new_form(path, tmp_path):
    stored = load_file(path.parent / "answers.safetensors")
    loaded = load_model(path)
    x = inputs_for(loaded.network.architecture, 5)
    for task, found in answers(loaded, x).items():
        torch.testing.assert_close(found, stored[f"{path.name}/{task}"])
    loaded.learn(task_for(loaded.network.architecture, name="one more"))
    loaded.save(tmp_path)
    again = load_model(tmp_path)
    assert again.settings == loaded.settings
    assert same(contents(again), contents(loaded))


def test_version_7_is_read_which_had_no_masks_of_the_untrained_network(model):
    expected = contents(DEN.load(model))
    rewrite(model, version=7)
    assert same(contents(DEN.load(model)), expected)


def test_a_model_of_an_older_version_is_replaced_where_it_is(model):
    learner = DEN.load(in_one_file(model))
    learner.learn(task_for(small_mlp(), seed=9, name="next"))
    learner.save(model)
    assert read_manifest(model)["version"] == 8
    assert kinds_of_files(model) == {MANIFEST: 1, "tensors": 1, "tasks": 1}
    assert same(contents(DEN.load(model)), contents(learner))


def test_the_settings_of_an_older_version_have_their_new_names():
    settings = DEN.load(OLDER / "version-3" / "den").settings
    found = (settings.shrink, settings.perturb, settings.distillation, settings.head_l1)
    assert found == (0.9, 0.1, 0.5, 0.05)
    assert settings.budget == BUDGET


def test_a_task_that_needed_no_training_is_saved_loaded_and_inspected(tmp_path):
    """A head of zeros selects nothing, and nothing else is asked for."""
    architecture = small_mlp()
    settings = quick(head_l1=1.0, expand=False, split=False)
    learner = learned(architecture, stream_for(architecture, "one output", "classes"), settings)
    assert [stage.name for stage in learner.records[-1].stages] == ["head"]
    assert math.isfinite(learner.records[-1].loss)
    learner.save(tmp_path)
    loaded = DEN.load(tmp_path)
    assert same(contents(loaded), contents(learner))
    console = Console(record=True, width=120)
    show(model_run(tmp_path), console)
    assert "task 2" in console.export_text()
