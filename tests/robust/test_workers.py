"""A few kills of `workers.py` and `studies.py`, which have many: no run or trial is lost."""

import pytest
import studies
from workers import torture


@pytest.mark.parametrize("kind", ["directory", "address"])
def test_two_workers_of_which_some_are_killed_make_every_run_once(kind):
    counts = torture(kind, kills=3, tasks=2)
    assert counts["killed"] >= 3
    assert all(counts[each] == 0 for each in ("lost", "doubled", "different", "crashed"))


@pytest.mark.parametrize("workers", [1, 2])
def test_a_study_whose_workers_are_killed_loses_no_trial(workers):
    counts = studies.torture(2, workers)
    assert counts["killed"] >= 2
    assert all(counts[each] == 0 for each in ("lost", "different", "crashed"))
