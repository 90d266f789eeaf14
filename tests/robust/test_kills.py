"""Twenty kills; `make torture` does two hundred, each of a command in an interpreter of its own."""

from kills import forked, torture


def test_twenty_kills_lose_and_tear_nothing(tmp_path):
    counts = torture(20, 1, forked, tmp_path)
    assert counts["kills"] == 20
    assert counts["with a checkpoint to go on from"] > 0
