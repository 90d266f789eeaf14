"""A sample of the mutations that `make torture` tries; a fault is named by the number it has."""

import os
import random
import signal
from dataclasses import replace
from itertools import count

import pytest
from damage import mutated
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from mutations import AGAIN, AS_BEFORE, Result, Torture, run_case, store, stored
from targets import (
    DEN_QUICK,
    Found,
    Target,
    _task,
    checkpoint_target,
    data_targets,
    model_target,
    run_target,
    write_files,
)
from using import QUICK, state_key

from lifelong.learners.den import DEN
from lifelong.learners.registry import METHODS
from lifelong.networks.sequential import mlp
from lifelong.persistence.manifest import MANIFEST, ModelFileError
from lifelong.tasks.datasets.files import DataError

OUTCOMES = ("refused", "read", "used", "used, and told why not", "used, and reported")
MADE = {
    "model": model_target(DEN(mlp(5, [6, 4]), DEN_QUICK)),
    "patched model in one file": model_target(
        DEN(mlp(5, [6, 4]), replace(DEN_QUICK, split="auto")), one_file=True
    ),
    "ER model": model_target(METHODS["ER"].make(mlp(5, [6, 4]), budget=QUICK)),
    "WSN model": model_target(METHODS["WSN"].make(mlp(5, [6, 4]), budget=QUICK)),
    "checkpoint": checkpoint_target(),
    "run": run_target(),
    **data_targets(0),
}


@pytest.fixture(autouse=True)
def without_report(monkeypatch):
    """Reports take longest, and have tests of their own."""
    monkeypatch.setattr("mutations.REPORTED", 1 << 60)


@given(number=st.integers(0, 2**32))
@settings(max_examples=12, suppress_health_check=[HealthCheck.function_scoped_fixture])
@pytest.mark.parametrize("name", MADE)
def test_damage_is_refused_with_a_documented_error_or_does_no_harm(name, tmp_path_factory, number):
    assert run_case(MADE[name], number, tmp_path_factory.mktemp("case")) in OUTCOMES


def test_the_good_files_are_read(tmp_path):
    for name, target in MADE.items():
        write_files(tmp_path / name, target.files)
        found = target.read(tmp_path / name, False)
        if found is not None:
            found.use(False)


def test_no_damage_takes_more_memory_or_time_than_it_may(tmp_path):
    result = Result()
    Torture(MADE, tmp_path).run(range(7, 7 + 10 * len(MADE)), result)
    assert result.faults == []
    assert {sum(found.values()) for found in result.outcomes.values()} == {10}


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
    monkeypatch.setattr("mutations.mutated", lambda _, draw: {"f": draw.randbytes(9)})

    def read(path, _):
        if (path / "f").read_bytes() < b"\x80":
            harm()

    result = Result()
    Torture({"made up": Target({}, read, (DataError,))}, tmp_path).run(range(6), result)
    assert result.numbers == 6
    assert result.outcomes["made up"].keys() == {"read", "fault"}
    assert len(result.faults) == result.outcomes["made up"]["fault"]
    assert all(said in fault for fault in result.faults)


def test_what_was_seen_is_not_read_or_used_again(tmp_path, monkeypatch):
    """And nothing else is left out: files and what they hold are told apart by all of it."""
    monkeypatch.setattr("mutations.mutated", lambda _, draw: {"f": draw.randbytes(1)})
    read, used = [], []

    def reader(path, _):
        content = (path / "f").read_bytes()[0]
        read.append(content)
        return Found(str(content % 16), lambda _: used.append(content % 16))

    target, result = Target({}, reader, (DataError,)), Result()
    seen, outcomes = set(), []
    for number in range(600):
        outcomes.append(run_case(target, number, tmp_path, seen))
    assert len(read) == len(set(read)) == 600 - outcomes.count(AGAIN) > 200
    assert sorted(used) == list(range(16))
    assert outcomes.count(AS_BEFORE) == len(read) - 16
    monkeypatch.setattr("mutations.BATCH", 100)
    (tmp_path / "t").mkdir()
    Torture({"made up": target}, tmp_path / "t").run(range(600), result)
    assert result.outcomes["made up"][AGAIN] == outcomes.count(AGAIN)  # in other processes too
    assert result.cases == len(read)


def test_any_other_model_has_another_key():
    def made(seed=0, **changes):
        learner = DEN(mlp(5, [6, 4]), replace(DEN_QUICK, **changes), seed=seed)
        learner.learn(_task((5,), 1))
        return learner

    learner = made()
    assert state_key(learner) == state_key(learner)
    others = [made(seed=1), made(max_new_units=5), made()]
    others[2]._learned = replace(learner._learned, records=())
    assert len({state_key(one) for one in (learner, *others)}) == 4


def test_results_go_on_where_they_ended(tmp_path):
    result = Result()
    for outcome in ("refused", AGAIN, "used"):
        result.add("one", outcome, [])
    result.add("two", "fault", ["what went wrong"])
    store(tmp_path / "kind.json", result)
    again = stored(tmp_path / "kind.json")
    assert (again.numbers, again.cases, again.faults) == (4, 3, ["what went wrong"])
    assert again.outcomes == result.outcomes


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
