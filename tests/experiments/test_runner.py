"""Many runs in processes: failures, kills and Ctrl-C, and what is there afterwards."""

import os
import signal
import subprocess
import sys
import time
from concurrent.futures import Future
from contextlib import contextmanager
from pathlib import Path

from rich.console import Console
from tiny import configuration, job, tiny_recipe, without_times

from lifelong.experiments.engines import (
    LOCAL,
    Doing,
    Done,
    Engine,
    Failed,
    Pool,
    Resources,
    outcome,
    run_jobs,
)
from lifelong.experiments.engines.engine import Line
from lifelong.experiments.perform import Job, perform
from lifelong.experiments.recipes import recipe
from lifelong.experiments.runner import jobs_of, run
from lifelong.experiments.stored import RunPaths, failure, find

QUIET = Console(quiet=True)
ONE = Resources(jobs=1)
# Who starts the tests in the background may have told all below to ignore Ctrl-C.
MAIN = (
    "import signal; signal.signal(signal.SIGINT, signal.default_int_handler); "
    "from lifelong.cli.main import main; main()"
)
# Of the larger size: a fast processor ends the small one before it can be stopped.
COMMAND = (
    "rehearsal",
    "--size",
    "paper",
    "--seeds",
    "0",
    "--methods",
    "DEN",
    "--parts",
    "tasks",
    "--jobs",
    "1",
)


def test_a_failing_run_is_recorded_and_the_others_go_on(tmp_path):
    fails = job(tmp_path, "DNN", mu=0.2)
    fails.configuration.settings["mu"] = -1.0
    jobs = [fails, job(tmp_path, "DEN-Finetune"), job(tmp_path, "DEN")]
    counts = run(jobs, console=QUIET, resources=ONE)
    assert list(counts.failed.values()) == [
        "SettingError: DNN: mu must be 0 or more and finite, not -1.0"
    ]
    assert len(counts.made) == 2
    recorded = failure(RunPaths(tmp_path), fails.configuration)
    assert recorded is not None
    assert "mu must be 0 or more" in recorded.error
    assert "Traceback" in recorded.traceback
    alone = perform(job(tmp_path / "alone", "DEN"))
    found = find(RunPaths(tmp_path), configuration("DEN"))
    assert found is not None
    assert without_times(found.run) == without_times(alone.run)  # in a process of its own too

    again = run(jobs[1:], console=QUIET, resources=ONE)
    assert len(again.there) == 2
    assert not again.made


def test_a_worker_that_is_killed_costs_its_run_only(tmp_path):
    jobs = [job(tmp_path, "DEN", tasks=4), job(tmp_path, "DNN-MTL")]
    ended = {}
    for event in run_jobs(jobs, LOCAL, ONE):
        if isinstance(event, Doing) and not ended:
            os.kill(int(event.where.rpartition(":")[2]), signal.SIGKILL)
        if isinstance(event, Done | Failed):
            ended[event.job.configuration.method] = event
    assert isinstance(ended["DNN-MTL"], Done)
    failed = ended["DEN"]
    assert isinstance(failed, Failed)
    assert "ended by SIGKILL" in failed.error
    assert "fewer --jobs" in failed.error


@contextmanager
def _here(_resources):
    """In this process."""

    def submit(jobs):
        futures = [Future() for _ in jobs]
        for future, each in zip(futures, jobs, strict=True):
            future.set_result(outcome(each))
        return futures

    yield Pool(submit, room=1)


HERE = Engine("here", "in this process", _here)


def test_a_damaged_run_is_named_left_aside_and_made_again(tmp_path, capsys):
    made = perform(job(tmp_path, "DNN-MTL"))
    file = RunPaths(tmp_path).run(configuration("DNN-MTL"))
    file.write_bytes(file.read_bytes()[:-30])
    counts = run([job(tmp_path, "DNN-MTL")], console=Console(), engine=HERE)
    assert f"{file}: not a stored run" in capsys.readouterr().out.replace("\n", "")
    assert counts.damaged == [f"{file}.damaged"]
    assert len(counts.made) == 1
    found = find(RunPaths(tmp_path), configuration("DNN-MTL"))
    assert found is not None
    assert without_times(found.run) == without_times(made.run)
    assert Path(counts.damaged[0]).exists()


def test_finetuning_waits_for_the_den_that_it_starts_from(tmp_path):
    den, tuned = job(tmp_path, "DEN"), job(tmp_path, "DEN-Finetune")
    line = Line([tuned, den])
    assert line.next(room=2) == [den]
    assert line.next(room=1) == []
    line.ended(den)  # however it did
    assert line.next(room=0) == []
    assert line.next(room=1) == [tuned]
    assert not line.waiting


def test_runs_of_a_recipe_come_once_and_seed_by_seed(tmp_path):
    chosen = tiny_recipe("DNN", "DEN", "DNN")
    jobs = jobs_of(chosen, seeds=(0, 1), out=tmp_path)
    assert [(each.configuration.method, each.configuration.seed) for each in jobs] == [
        ("DNN", 0),
        ("DEN", 0),
        ("DNN", 1),
        ("DEN", 1),
    ]


def test_a_command_that_is_stopped_or_killed_goes_on_and_ends_the_same(tmp_path):
    out = tmp_path / "out"
    code, said = _stop(out, signal.SIGINT, after_tasks=1)
    assert code == 130
    assert f"goes on: lifelong run {' '.join(COMMAND)} --out {out}" in said

    _stop(out, signal.SIGKILL, after_tasks=2)
    assert not list((out / "runs").rglob("*.json"))

    chosen = recipe("rehearsal", "paper")
    asked = chosen.configuration(chosen.chosen(["DEN"], ["tasks"])[0], 0)
    known: list[int] = []
    went_on = perform(Job(asked, out), lambda _method, _doing, done: known.append(done))
    assert known[0] >= 2
    whole = perform(Job(asked, tmp_path / "whole"))
    assert without_times(went_on.run) == without_times(whole.run)


def _stop(out, how, after_tasks):
    """Start the command, stop it once so many tasks are done; its code and what it said.

    It ends within seconds, and its children with it.
    """
    process = _start(out)
    while _tasks_done(out) < after_tasks:
        assert process.poll() is None, f"it ended by itself: {process.communicate()}"
        time.sleep(0.005)
    children = _children(process.pid)
    assert children
    began = time.monotonic()
    process.send_signal(how)
    said = process.communicate()[1]
    assert time.monotonic() - began < 30
    assert _gone_within(children, seconds=30)
    return process.returncode, said


def _start(out):
    return subprocess.Popen(
        [sys.executable, "-c", MAIN, "run", *COMMAND, "--out", str(out)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, "OMP_NUM_THREADS": "1"},
    )


def _tasks_done(out):
    models = (out / "working").rglob("model-*/manifest.json")
    return max((int(file.parent.name.removeprefix("model-")) for file in models), default=0)


def _children(pid):
    found = subprocess.run(["ps", "-o", "pid=", "--ppid", str(pid)], capture_output=True, text=True)
    return [int(child) for child in found.stdout.split()]


def _gone_within(children, seconds):
    until = time.monotonic() + seconds
    while time.monotonic() < until:
        if not any(_alive(child) for child in children):
            return True
        time.sleep(0.05)
    return False


def _alive(pid):
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0]
    except OSError:
        return False
    return state != "Z"
