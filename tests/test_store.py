"""Save, then load: the identity, or an error that says what is wrong."""

import json
from collections.abc import Callable
from pathlib import Path

import msgspec
import pytest
from hypothesis import given
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st
from safetensors.torch import load

from builders import (
    BUDGET,
    SKELETONS,
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
from lifelong.baselines import Joint, Single, Training
from lifelong.den import DEN
from lifelong.store import MANIFEST, Manifest, ModelFileError


def grown(kind: str = "mlp") -> DEN:
    skeleton = SKELETONS[kind]()
    tasks = stream_for(skeleton, "one output", "classes", "subtasks")
    return learned(skeleton, tasks, quick(sigma=0.0))


def tensors_file(path: Path) -> Path:
    return next(path.glob("tensors-*.safetensors"))


def rewrite(path: Path, **changes: object) -> None:
    """Change a manifest on purpose: its own checksum is right again."""
    manifest = json.loads((path / MANIFEST).read_text())
    try:
        sealed = msgspec.convert({**manifest, **changes}, Manifest).sealed()
        (path / MANIFEST).write_bytes(msgspec.json.encode(sealed))
    except msgspec.ValidationError:
        (path / MANIFEST).write_text(json.dumps({**manifest, **changes}))


@pytest.fixture(scope="module")
def saved(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("model")
    grown().save(path)
    return path


@pytest.fixture
def model(saved: Path, tmp_path: Path) -> Path:
    """A copy of a saved model, to be damaged."""
    for file in saved.iterdir():
        (tmp_path / file.name).write_bytes(file.read_bytes())
    return tmp_path


@pytest.mark.parametrize("kind", SKELETONS)
def test_a_loaded_model_is_the_saved_one(kind: str, tmp_path: Path) -> None:
    learner = grown(kind)
    assert any(len(stamps.unique()) > 1 for stamps in learner.network.born.values())
    learner.save(tmp_path / "model")
    loaded = DEN.load(tmp_path / "model")
    x = inputs_for(learner.network.skeleton, 50)
    assert same(contents(loaded), contents(learner))
    assert same(answers(loaded, x), answers(learner, x))
    assert loaded.settings == learner.settings
    assert loaded.records == learner.records
    assert loaded.seed == learner.seed


def test_a_loaded_model_goes_on_learning_the_same(tmp_path: Path) -> None:
    learner = grown()
    learner.save(tmp_path)
    loaded = DEN.load(tmp_path)
    for one in (learner, loaded):
        one.learn(task_for(small_mlp(), seed=9, name="next"))
    assert same(contents(loaded), contents(learner))


def test_the_order_of_tensors_in_a_file_does_not_matter(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    learner = learned(small_mlp(), stream_for(small_mlp(), "one output"), quick())
    learner.save(tmp_path)
    reverse = lambda content: dict(sorted(load(content).items(), reverse=True))  # noqa: E731
    monkeypatch.setattr("lifelong.store.load", reverse)
    loaded = DEN.load(tmp_path)
    assert list(loaded.network.shared) == list(learner.network.shared)
    for one in (learner, loaded):
        one.learn(task_for(small_mlp(), seed=9, name="next"))
    assert same(contents(loaded), contents(learner))


def test_a_model_that_has_learned_nothing_can_be_saved(tmp_path: Path) -> None:
    DEN(small_mlp(), quick(), seed=3).save(tmp_path)
    assert DEN.load(tmp_path).tasks == ()


def test_the_batch_models_are_saved_too(tmp_path: Path) -> None:
    tasks = stream_for(small_mlp(), "one output", "classes")
    single = Single(small_mlp(), Training(budget=BUDGET))
    for task in tasks:
        single.learn(task)
    joint = Joint(small_mlp(), Training(budget=BUDGET))
    joint.learn_together(tasks)
    x = inputs_for(small_mlp(), 20)
    for learner in (single, joint):
        learner.save(tmp_path / learner.method)
        loaded = type(learner).load(tmp_path / learner.method)
        assert same(answers(loaded, x), answers(learner, x))


def test_saving_again_replaces_the_model_and_leaves_no_other_file(tmp_path: Path) -> None:
    learner = learned(small_mlp(), stream_for(small_mlp(), "one output"), quick())
    learner.save(tmp_path)
    learner.learn(task_for(small_mlp(), seed=5, name="second"))
    learner.save(tmp_path)
    assert DEN.load(tmp_path).tasks == ("task 1", "second")
    assert len(list(tmp_path.iterdir())) == 2


def test_a_save_that_fails_leaves_the_old_model(
    model: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = contents(DEN.load(model))
    other = learned(small_mlp(), stream_for(small_mlp(), "classes", seed=7), quick())

    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(Path, "replace", full)
        with pytest.raises(OSError, match="No space left"):
            other.save(model)
    assert same(contents(DEN.load(model)), before)
    assert not list(model.glob(".*"))


def test_a_missing_model_is_named(tmp_path: Path) -> None:
    with pytest.raises(ModelFileError, match=r"manifest\.json: cannot be read"):
        DEN.load(tmp_path / "nowhere")


def test_another_method_cannot_load_it(model: Path) -> None:
    with pytest.raises(ModelFileError, match="holds a DEN, which Single cannot load"):
        Single.load(model)


DAMAGES: dict[str, tuple[Callable[[Path], object], str]] = {
    "truncated manifest": (
        lambda p: (p / MANIFEST).write_bytes((p / MANIFEST).read_bytes()[:-40]),
        "not a manifest",
    ),
    "foreign manifest": (lambda p: (p / MANIFEST).write_text("{}"), "not a lifelong model"),
    "newer version": (
        lambda p: rewrite(p, version=3, whatever=1),
        r"format version 3, but this release reads 2; a newer release",
    ),
    "changed by accident": (
        lambda p: (p / MANIFEST).write_text((p / MANIFEST).read_text().replace("task 2", "task 9")),
        "checksum differs",
    ),
    "unknown field": (lambda p: rewrite(p, extra=1), "damaged"),
    "truncated tensors": (
        lambda p: tensors_file(p).write_bytes(tensors_file(p).read_bytes()[:-8]),
        "checksum differs",
    ),
    "no tensors": (lambda p: tensors_file(p).unlink(), "cannot be read"),
    "path out of the directory": (
        lambda p: rewrite(p, tensors="../other.safetensors"),
        "outside its directory",
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
def test_a_damaged_model_is_refused_with_a_reason(damage: str, model: Path) -> None:
    harm, message = DAMAGES[damage]
    harm(model)
    with pytest.raises(ModelFileError, match=message):
        DEN.load(model)


@given(place=st.floats(0, 1), bit=st.integers(0, 7), in_tensors=st.booleans())
@hypothesis_settings(max_examples=60)
def test_a_flipped_bit_is_refused_or_harmless(
    saved: Path, tmp_path_factory: pytest.TempPathFactory, place: float, bit: int, in_tensors: bool
) -> None:
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
