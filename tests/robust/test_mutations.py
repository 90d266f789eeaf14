"""A sample of the mutations that `make torture` tries; a fault is named by the number it has."""

import multiprocessing
import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from mutations import Target, limited, mutated, run, run_case, targets

from lifelong.persistence.models import MANIFEST, ModelFileError
from lifelong.tasks.datasets.files import DataError

MADE = targets()


@given(number=st.integers(0, 2**32))
@settings(max_examples=25)
@pytest.mark.parametrize("name", MADE)
def test_damage_is_refused_with_a_documented_error_or_does_no_harm(name, tmp_path_factory, number):
    assert run_case(MADE[name], number, tmp_path_factory.mktemp("case")) in ("refused", "read")


def test_the_good_files_are_read(tmp_path):
    for name, target in MADE.items():
        for file, content in target.files.items():
            (tmp_path / name / file).parent.mkdir(parents=True, exist_ok=True)
            (tmp_path / name / file).write_bytes(content)
        target.read(tmp_path / name, False)


def _run_limited(root, said):
    limited()
    said.put(run(320, 7, root)[1])


def test_no_damage_takes_more_memory_or_time_than_its_size_justifies(tmp_path):
    fork = multiprocessing.get_context("fork")
    said = fork.Queue()
    process = fork.Process(target=_run_limited, args=(tmp_path, said))
    process.start()
    faults = said.get(timeout=300)
    process.join()
    assert (faults, process.exitcode) == ([], 0)


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
