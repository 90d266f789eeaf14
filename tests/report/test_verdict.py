"""The first sentence of a report, and limits that tasks reached."""

import msgspec
import pytest

from lifelong.report.page import page
from lifelong.report.verdict import limits_reached, standard_error, verdict
from made_up import made_up


def _run(method, seed=0, *, auroc, bytes=1000, seconds=10.0, forgetting=0.0):
    run = made_up(3, method=method, seed=seed)
    summary = msgspec.structs.replace(
        run.summary, auroc=auroc, bytes=bytes, seconds=seconds, forgetting=forgetting
    )
    scores = {**run.scores, "auroc": (auroc,) * 3}
    return msgspec.structs.replace(run, summary=summary, scores=scores)


def test_quality_bytes_forgetting_time_and_seeds_in_one_sentence():
    runs = [
        _run("DEN-auto", auroc=0.95, bytes=150, seconds=19),
        _run("DNN-STL", auroc=0.951),
        _run("DNN", auroc=0.8, forgetting=0.1),
    ]
    assert verdict(runs, "DEN-auto") == (
        "0.1 points of AUROC below a network per task with 15% of its bytes; nothing forgotten; "
        "1.9 times fine-tuning's time; one seed: the third decimal says little."
    )
    assert "10.00 points forgotten" in verdict(runs, "DNN")
    assert "fine-tuning's time" not in verdict(runs, "DNN")
    assert verdict(runs, "DEN-auto") in page(runs).replace("&#39;", "'")


@pytest.mark.parametrize(
    ("ours", "words"),
    [
        (0.9512, "0.02 points of AUROC above a network"),
        (0.951, "Level in AUROC with a network per task"),
        (0.961, "1.0 points of AUROC above"),
    ],
)
def test_how_far_apart(ours, words):
    assert words in verdict([_run("DEN", auroc=ours), _run("DNN-STL", auroc=0.951)], "DEN")


def test_a_difference_within_its_error_is_told_as_that():
    ours = [_run("DEN", seed, auroc=score) for seed, score in enumerate((0.95, 0.96, 0.94))]
    others = [_run("DNN-STL", seed, auroc=0.951) for seed in range(3)]
    said = verdict([*ours, *others], "DEN")
    assert "Within its error (-0.10 ± 0.58 points of AUROC) of a network per task" in said
    assert said.endswith("the mean of 3 seeds.")


def test_without_rivals_or_scores_there_is_still_a_sentence():
    assert verdict([made_up(3)], "DEN").startswith("Nothing forgotten; one seed")
    run = made_up(3)
    bare = msgspec.structs.replace(
        run, scores={}, summary=msgspec.structs.replace(run.summary, forgetting=None)
    )
    assert verdict([bare], "DEN") == "1.25 times the bytes of the base network."


def test_limits_that_tasks_reached_are_named():
    run = made_up(4, newcomers=4)
    births = [run.born["hidden1"].count(number) for number in (2, 3, 4)]
    most = max(births)
    settings = {**run.settings, "max_new_units": [most, 1000]}
    said = limits_reached(msgspec.structs.replace(run, settings=settings))
    assert said.startswith(f"{births.count(most)} of 3 later tasks")
    assert f"hidden1 {most}, hidden2 1000" in said
    assert f"max_new_units = [{most}, 1000]" in said
    assert limits_reached(run) == ""
    free = {**run.settings, "max_new_units": None}
    assert limits_reached(msgspec.structs.replace(run, settings=free)) == ""


def test_plus_minus_is_the_standard_error():
    assert standard_error([1.0, 2.0, 3.0]) == pytest.approx(1 / 3**0.5)
