"""Kills while a run, its progress or a study is written; and two commands with the same work."""

import multiprocessing

from rich.console import Console
from tiny import configuration, job, without_times

from killing import killed_at
from lifelong.experiments.engines import Resources
from lifelong.experiments.perform import perform
from lifelong.experiments.runner import run
from lifelong.experiments.stored import RunPaths, find


def test_a_kill_while_a_run_or_its_progress_is_written_costs_no_result(tmp_path):
    whole = without_times(perform(job(tmp_path / "whole", "DNN")).run)
    killed = 0
    for turn in range(2, 200, 11):
        out = tmp_path / str(turn)
        if not killed_at(turn, lambda out=out: perform(job(out, "DNN"))):
            break
        killed += 1
        assert without_times(perform(job(out, "DNN")).run) == whole
        assert not list((out / "working").glob("*/*"))
    assert killed > 3


def _run(out):
    run(
        [job(out, "DNN"), job(out, "DNN-STL")],
        resources=Resources(jobs=1),
        console=Console(quiet=True),
    )


def test_two_commands_with_the_same_work_make_each_run_once(tmp_path):
    fork = multiprocessing.get_context("fork")
    both = [fork.Process(target=_run, args=(tmp_path / "out",)) for _ in range(2)]
    for process in both:
        process.start()
    for process in both:
        process.join()
    assert [process.exitcode for process in both] == [0, 0]
    for method in ("DNN", "DNN-STL"):
        found = find(RunPaths(tmp_path / "out"), configuration(method))
        assert found is not None
        alone = perform(job(tmp_path / "alone", method))
        assert without_times(found.run) == without_times(alone.run)
    assert not list((tmp_path / "out" / "working").glob("*/*"))
