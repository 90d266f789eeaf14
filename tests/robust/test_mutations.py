"""A sample of the mutations that `make torture` tries; a fault is named by the number it has."""

import os
import random
import signal
from dataclasses import replace
from itertools import count

import child
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from mutations import (
    Target,
    _batch,
    checkpoint_target,
    data_targets,
    model_target,
    mutated,
    run,
    run_case,
)
from using import QUICK

from lifelong.learners.den import DEN
from lifelong.learners.registry import METHODS
from lifelong.networks.sequential import mlp
from lifelong.persistence.models import MANIFEST, ModelFileError
from lifelong.tasks.datasets.files import DataError

OUTCOMES = ("refused", "read", "used", "used, and told why not")
MADE = {
    "model": model_target(DEN(mlp(5, [6, 4]), child.SETTINGS)),
    "patched model in one file": model_target(
        DEN(mlp(5, [6, 4]), replace(child.SETTINGS, split="auto")), one_file=True
    ),
    "ER model": model_target(METHODS["ER"].make(mlp(5, [6, 4]), budget=QUICK)),
    "WSN model": model_target(METHODS["WSN"].make(mlp(5, [6, 4]), budget=QUICK)),
    "checkpoint": checkpoint_target(),
    **data_targets(0),
}


@given(number=st.integers(0, 2**32))
@settings(max_examples=12)
@pytest.mark.parametrize("name", MADE)
def test_damage_is_refused_with_a_documented_error_or_does_no_harm(name, tmp_path_factory, number):
    assert run_case(MADE[name], number, tmp_path_factory.mktemp("case")) in OUTCOMES


def test_the_good_files_are_read(tmp_path):
    for name, target in MADE.items():
        for file, content in target.files.items():
            (tmp_path / name / file).parent.mkdir(parents=True, exist_ok=True)
            (tmp_path / name / file).write_bytes(content)
        act = target.read(tmp_path / name, False)
        if act is not None:
            act()


def test_no_damage_takes_more_memory_or_time_than_it_may(tmp_path):
    counts, faults = run(MADE, 20, 7, tmp_path)
    assert faults == []
    assert {sum(found.values()) for found in counts.values()} == {20}


@pytest.mark.parametrize(
    ("harm", "said"),
    [
        (lambda: next(n for n in count() if n < 0), "Hang"),
        (lambda: bytearray(1 << 31), "MemoryError"),
        (lambda: os.kill(os.getpid(), signal.SIGKILL), "ended with -9"),
    ],
)
def test_a_case_that_takes_too_much_is_found_and_the_next_are_made(
    harm, said, tmp_path, monkeypatch
):
    """That it could fail: by time, by memory, by the end of its process."""
    monkeypatch.setattr("mutations.SECONDS", 0.5)
    monkeypatch.setattr("mutations.mutated", lambda _, draw: {"f": draw.randbytes(1)})

    def read(path, _):
        if (path / "f").read_bytes() < b"\x80":
            harm()

    outcomes, faults = _batch("made up", Target({}, read, (DataError,)), range(6), tmp_path)
    assert len(outcomes) == 6
    assert set(outcomes) == {"read", "faults"}
    assert all(said in fault for fault in faults)


def test_the_fuzzer_finds_what_is_wrong(tmp_path):
    """That it could fail: a reader that trusts its file is caught."""

    def trusting(path, _):
        if len((path / "f").read_bytes()) != 100:
            raise IndexError

    target = Target({"f": bytes(100)}, trusting, (DataError,))
    numbers = iter(range(50))
    with pytest.raises((IndexError, OSError)):
        all(run_case(target, number, tmp_path) for number in numbers)


def test_what_is_resealed_is_not_noticed_by_checksums(tmp_path):
    """That mutations get past the checksums, to the checks of what they mean."""
    target, messages = MADE["model"], []
    assert target.reseal is not None
    for number in range(120):
        case = tmp_path / str(number)
        case.mkdir()
        for name, content in target.reseal(target.files, random.Random(number)).items():
            (case / name).write_bytes(content)
        try:
            target.read(case, True)
        except ModelFileError as error:
            messages.append(str(error))
    assert sum("checksum differs" in message for message in messages) < 10
    assert sum("do not fit" in message for message in messages) > 5


def test_a_flip_is_noticed_by_checksums():
    files = MADE["model"].files
    changed = sum(mutated(files, random.Random(n)) != files for n in range(100))
    assert changed > 80
    assert MANIFEST in files
