"""A few kills of `workers.py`, which has many: no run is lost, and none is made twice."""

import pytest
from workers import torture


@pytest.mark.parametrize("kind", ["directory", "address"])
def test_two_workers_of_which_some_are_killed_make_every_run_once(kind):
    counts = torture(kind, kills=3, tasks=2)
    assert counts["killed"] >= 3
    assert all(counts[each] == 0 for each in ("lost", "doubled", "different", "crashed"))
