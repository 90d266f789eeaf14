"""Saving writes what is new: segments that are never written again, whatever was learned."""

import json
import shutil
import threading
from dataclasses import replace
from itertools import pairwise

import msgspec
import pytest
import torch
from hypothesis import given
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st

from builders import BUDGET, contents, learned, quick, same, small_mlp, stream_for, task_for
from lifelong.learners.baselines import EWC, WSN, EWCSettings, LwF, LwFSettings, WSNSettings
from lifelong.learners.den import DEN
from lifelong.persistence.files import TensorFileError, digest, packed
from lifelong.persistence.manifest import MANIFEST, Manifest, ModelFileError
from lifelong.persistence.segments import (
    Growth,
    Pointer,
    Segment,
    SegmentFacts,
    growth_between,
    joined,
    segment_from,
)
from lifelong.training.loop import STANDALONE

TASKS = stream_for(small_mlp(), *["one output", "classes", "one output", "subtasks"])


def segments_in(path):
    return {file.name: file.read_bytes() for file in path.glob("tasks-*.safetensors")}


def inode_of_shared(path):
    return next(path.glob("tensors-*.safetensors")).stat().st_ino


def saved_each_time(learner, path, tasks=TASKS):
    """What the files were after each save, while it learns."""
    for task in tasks:
        learner.learn(task)
        learner.save(path)
        yield segments_in(path)
        assert same(contents(type(learner).load(path)), contents(learner))


def test_each_task_adds_one_file_and_leaves_the_others(tmp_path):
    learner = DEN(small_mlp(), quick(sigma=0.0))
    before = {}
    for number, now in enumerate(saved_each_time(learner, tmp_path), 1):
        assert len(now) == number
        assert before.items() <= now.items()
        before = now
    assert any(len(born.unique()) > 1 for born in learner.network.born.values())


def test_what_units_were_there_before_is_not_written_again(tmp_path):
    learner = DEN(small_mlp(), quick(sigma=0.0))
    found = set()
    for _ in saved_each_time(learner, tmp_path):
        found.add(inode_of_shared(tmp_path))
    assert len(found) == 1
    assert any(len(born.unique()) > 1 for born in learner.network.born.values())


def test_a_loaded_learner_adds_to_what_is_there(tmp_path):
    learner = DEN(small_mlp(), quick(sigma=0.0))
    learner.learn(TASKS[0])
    learner.save(tmp_path)
    before, shared = segments_in(tmp_path), inode_of_shared(tmp_path)
    loaded = DEN.load(tmp_path)
    for one in (learner, loaded):
        one.learn(TASKS[1])
    loaded.save(tmp_path)
    now = segments_in(tmp_path)
    assert before.items() < now.items()
    assert inode_of_shared(tmp_path) == shared
    assert same(contents(DEN.load(tmp_path)), contents(learner))


def test_a_change_after_growth_writes_what_is_shared_and_nothing_else(tmp_path):
    """DEN without a split trains old weights again, and grows."""
    learner = DEN(small_mlp(), quick(sigma=0.0))
    learner.learn(TASKS[0])
    learner.save(tmp_path)
    learner.learn(TASKS[1])
    learner.save(tmp_path)
    shared, before = inode_of_shared(tmp_path), segments_in(tmp_path)
    changed = {name: tensor + 1 for name, tensor in learner.network.shared.items()}
    learner._commit(STANDALONE, replace(learner.network, shared=changed), learner.records)
    learner.save(tmp_path)
    assert inode_of_shared(tmp_path) != shared
    assert segments_in(tmp_path) == before
    assert same(contents(DEN.load(tmp_path)), contents(learner))
    for task in TASKS[2:]:
        learner.learn(task)
        learner.save(tmp_path)
    assert len(segments_in(tmp_path)) == 4
    assert same(contents(DEN.load(tmp_path)), contents(learner))


def test_a_method_that_changes_what_is_shared_writes_only_that_again(tmp_path):
    learner = EWC(small_mlp(), EWCSettings(budget=BUDGET))
    before = {}
    for now in saved_each_time(learner, tmp_path):
        assert before.items() < now.items()
        before = now
    assert len(list(tmp_path.glob("tensors-*"))) == 1


def test_masks_of_tasks_are_in_their_segments(tmp_path):
    learner = WSN(small_mlp(), WSNSettings(budget=BUDGET))
    for number, now in enumerate(saved_each_time(learner, tmp_path), 1):
        assert len(now) == number
    (shared,) = tmp_path.glob("tensors-*")
    assert b"memory/own/bits/4/" not in shared.read_bytes()
    again = WSN.load(tmp_path)
    for one in (learner, again):
        one.learn(task_for(small_mlp(), name="next"))
    again.save(tmp_path)
    assert same(contents(WSN.load(tmp_path)), contents(learner))


def test_a_method_that_changes_earlier_tasks_is_written_whole(tmp_path):
    learner = LwF(small_mlp(), LwFSettings(budget=BUDGET))
    for now in saved_each_time(learner, tmp_path):
        assert len(now) == 1


def test_what_is_tuned_after_growing_is_written_whole(tmp_path):
    learner = learned(small_mlp(), TASKS[:1], quick())
    learner.save(tmp_path)
    learner.learn(TASKS[1])
    learner.save(tmp_path)
    learner.finetune(TASKS[:2])
    learner.save(tmp_path)
    assert len(segments_in(tmp_path)) == 1
    assert same(contents(DEN.load(tmp_path)), contents(learner))


def test_overwriting_writes_everything(tmp_path):
    learner = DEN(small_mlp(), quick())
    for _ in saved_each_time(learner, tmp_path):
        pass
    learner.save(tmp_path, overwrite=True)
    assert len(segments_in(tmp_path)) == 1
    assert same(contents(DEN.load(tmp_path)), contents(learner))


def test_a_model_that_was_put_back_is_added_to(tmp_path):
    learner = DEN(small_mlp(), quick())
    learner.learn(TASKS[0])
    learner.save(tmp_path / "model")
    shutil.copytree(tmp_path / "model", tmp_path / "backup")
    learner.learn(TASKS[1])
    learner.save(tmp_path / "model")
    shutil.rmtree(tmp_path / "model")
    shutil.copytree(tmp_path / "backup", tmp_path / "model")
    learner.save(tmp_path / "model")
    assert same(contents(DEN.load(tmp_path / "model")), contents(learner))


@given(steps=st.lists(st.sampled_from(["learn", "save", "load", "settings", "back"]), max_size=8))
@hypothesis_settings(max_examples=15)
def test_any_history_of_saves_and_loads_ends_in_the_same_model(steps, tmp_path_factory):
    path = tmp_path_factory.mktemp("model")
    learner = DEN(small_mlp(), quick(max_new_units=2))
    learner.save(path)
    before = learner
    for number, step in enumerate(steps):
        if step == "learn":
            before = DEN.load(path)
            learner.learn(task_for(small_mlp(), seed=number, name=f"task {number}", rows=8))
        elif step == "load":
            learner.save(path)
            learner = DEN.load(path)
        elif step == "settings":
            learner = learner.with_settings(quick(k=1))
            learner.save(path, overwrite=True)
        elif step == "back":
            before.save(path, overwrite=True)
            learner = before
        else:
            learner.save(path)
    learner.save(path)
    assert same(contents(DEN.load(path)), contents(learner))
    assert DEN.load(path).records == learner.records


def test_readers_see_a_whole_model_while_one_learns(tmp_path):
    learner = EWC(small_mlp(), EWCSettings(budget=BUDGET))
    learner.learn(TASKS[0])
    learner.save(tmp_path)
    expected, seen, failed = {1: contents(learner)}, set(), []
    done = threading.Event()

    def read():
        while not done.is_set():
            try:
                found = EWC.load(tmp_path)
                if not same(contents(found), expected[len(found.tasks)]):
                    failed.append("torn")
                seen.add(len(found.tasks))
            except Exception as error:
                failed.append(repr(error))

    readers = [threading.Thread(target=read) for _ in range(3)]
    for reader in readers:
        reader.start()
    for number in range(2, 8):
        learner.learn(task_for(small_mlp(), seed=number, name=str(number), rows=8))
        expected[number] = contents(learner)
        learner.save(tmp_path)
    done.set()
    for reader in readers:
        reader.join()
    assert failed == []
    assert seen


# ---- files that somebody changed


@pytest.fixture
def model(tmp_path):
    learner = DEN(small_mlp(), quick(sigma=0.0))
    for _ in saved_each_time(learner, tmp_path, TASKS[:2]):
        pass
    return tmp_path


def relinked(path, change):
    """Change the last segment on purpose: all checksums are right again."""
    manifest = msgspec.json.decode((path / MANIFEST).read_bytes(), type=Manifest)
    content = change(segment_from((path / manifest.last.file).read_bytes())).packed()
    last = Pointer(len(content), digest(content))
    (path / last.file).write_bytes(content)
    sealed = msgspec.structs.replace(manifest, last=last).sealed()
    (path / MANIFEST).write_bytes(msgspec.json.encode(sealed))


def with_facts(**changes):
    return lambda segment: Segment(
        msgspec.structs.replace(segment.facts, **changes), segment.tensors, segment.growth
    )


def with_tensors(**changes):
    return lambda segment: Segment(segment.facts, {**segment.tensors, **changes}, segment.growth)


def with_growth(change):
    def changed(segment):
        changed = {name: change(g) for name, g in segment.growth.items()}
        return segment.with_growth(changed, segment.facts.era)

    return changed


CHANGES = {
    "no task": (with_facts(tasks=[]), "it holds no task"),
    "no segment before it": (with_facts(before=None), "do not hold 2 tasks"),
    "a path": (with_facts(before=Pointer(3, "../../../elsewhere")), "not the checksum of a file"),
    "another's size": (with_facts(before=Pointer(3, "0" * 64)), "cannot be read"),
    "a tensor twice": (
        with_tensors(**{"task/1/head.bias": torch.zeros(1)}),
        "a tensor is in several of its files",
    ),
    "a tensor of nobody": (with_tensors(other=torch.zeros(1)), "belong to no task"),
    "a record of another task": (
        lambda s: with_facts(records=[*s.facts.records, *s.facts.records])(s),
        "several records of one task",
    ),
    "a shape that shrinks": (
        with_growth(lambda g: Growth([0] * len(g.shape), g.slabs)),
        "did not grow from",
    ),
    "a shape of more dims": (
        with_growth(lambda g: Growth([*g.shape, 2], g.slabs)),
        "did not grow from",
    ),
    "a shape beyond its slabs": (
        with_growth(lambda g: Growth([10**9] * len(g.shape), g.slabs)),
        "did not grow from",
    ),
    "slabs of another type": (
        with_growth(lambda g: Growth(g.shape, {d: s.double() for d, s in g.slabs.items()})),
        "did not grow from",
    ),
    "growth of what is not there": (
        lambda s: s.with_growth({**s.growth, "other": Growth([1], {0: torch.ones(1)})}, 0),
        "a tensor has grown that was not there",
    ),
}


@pytest.mark.parametrize("change", CHANGES)
def test_a_segment_that_was_changed_is_refused_with_a_reason(change, model):
    act, message = CHANGES[change]
    relinked(model, act)
    with pytest.raises(ModelFileError, match=message):
        DEN.load(model)


def test_a_segment_that_is_damaged_is_named(model):
    for file, content in segments_in(model).items():
        (model / file).write_bytes(content[:-1] + bytes([content[-1] ^ 1]))
        with pytest.raises(ModelFileError, match=rf"{file}: .*checksum differs"):
            DEN.load(model)
        (model / file).unlink()
        with pytest.raises(ModelFileError, match=rf"{file}: cannot be read"):
            DEN.load(model)
        (model / file).write_bytes(content)


@pytest.mark.parametrize(
    "changes",
    [{"version": 6}, {"tasks": [{"name": "x", "kind": "binary", "outputs": 1, "private": []}]}],
)
def test_members_of_another_version_are_refused(changes, model):
    manifest = {**json.loads((model / MANIFEST).read_text()), **changes}
    sealed = msgspec.convert(manifest, Manifest).sealed()
    (model / MANIFEST).write_bytes(msgspec.json.encode(sealed))
    with pytest.raises(ModelFileError, match="members are not those of version"):
        DEN.load(model)


@pytest.mark.parametrize(
    "tensors",
    [
        {},
        {"about": torch.zeros(3)},
        {"about": torch.tensor(list(b"[[["), dtype=torch.uint8)},
        {"grown/shared/x/": torch.zeros(1)},
    ],
)
def test_bytes_that_are_no_segment_are_refused(tensors):
    if "grown/shared/x/" in tensors:
        text = msgspec.json.encode(SegmentFacts(None, [], [], {"shared/x": [1]}))
        tensors = {**tensors, "about": torch.tensor(list(text), dtype=torch.uint8)}
    with pytest.raises(TensorFileError):
        segment_from(packed(tensors))


# ---- slabs


@given(data=st.data(), dims=st.integers(0, 3))
def test_what_has_grown_is_put_together_again_to_the_bit(data, dims):
    generator = torch.Generator().manual_seed(data.draw(st.integers(0, 99)))
    sizes = sorted(data.draw(st.lists(st.integers(0, 4), min_size=3, max_size=3)))
    after = [[data.draw(st.integers(0, 2)) for _ in range(dims)] for _ in sizes]
    shapes = [[sum(step[d] for step in after[: n + 1]) for d in range(dims)] for n in range(3)]
    whole = torch.randn(shapes[-1], generator=generator)
    states = [whole[tuple(slice(size) for size in shape)] for shape in shapes]
    steps = [growth_between(a, b) for a, b in pairwise(states)]
    assert None not in steps
    found = joined({"x": states[0]}, [{"x": step} for step in steps])["x"]
    assert torch.equal(found, whole)
    entries = states[0].numel() + sum(s.numel() for step in steps for s in step.slabs.values())
    assert entries == whole.numel()


def test_a_change_within_is_no_growth():
    before = torch.zeros(2, 3)
    after = torch.zeros(3, 3)
    after[1, 1] = -0.0
    assert growth_between(before, after) is None
    assert growth_between(before, torch.zeros(2, 2)) is None
    assert growth_between(before, torch.zeros(3, 3, dtype=torch.float64)) is None
    assert growth_between(before, torch.zeros(3)) is None
