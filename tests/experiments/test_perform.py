"""One run: made once, the same each time, and gone on with when it was stopped."""

import errno
from dataclasses import replace

import msgspec
import pytest
from tiny import configuration, job, without_times

from lifelong.experiments import perform as performing
from lifelong.experiments.configuration import NetworkPlan
from lifelong.experiments.perform import (
    Outgrown,
    RunLocked,
    architecture,
    before_finetuning,
    perform,
)
from lifelong.experiments.stored import RunPaths, find
from lifelong.learners.den import DEN
from lifelong.learners.registry import load_model
from lifelong.persistence.files import directory_lock, make_directory
from lifelong.training.budget import Budget


class Stopped(Exception):
    """As a kill would, at a moment of our choice."""


def _stop_at(task):
    def progress(_method, _doing, done):
        if done == task:
            raise Stopped

    return progress


@pytest.mark.parametrize("method", ["DEN", "DNN-EWC", "DNN-Progressive", "DNN-MTL"])
def test_the_same_configuration_gives_the_same_numbers(tmp_path, method):
    first, again = (perform(job(tmp_path / name, method)) for name in ("a", "b"))
    assert without_times(first.run) == without_times(again.run)
    other = perform(job(tmp_path / "a", method, seed=1))
    assert without_times(other.run) != without_times(first.run)


def test_a_finished_run_is_never_made_again(tmp_path, monkeypatch):
    made = perform(job(tmp_path, "DNN"))
    monkeypatch.setattr(performing, "measure", None)
    found = perform(job(tmp_path, "DNN"))
    assert found.run == find(RunPaths(tmp_path), configuration("DNN")).run  # type: ignore[union-attr]
    assert found.run.summary.seconds == made.run.summary.seconds


def test_the_final_model_is_stored_and_answers(tmp_path):
    made = perform(job(tmp_path, "DEN"))
    learner = load_model(RunPaths(tmp_path).model(configuration("DEN")))
    assert learner.tasks == made.run.tasks
    assert not list((tmp_path / "working").glob("*/*"))


@pytest.mark.parametrize("method", ["DEN", "DNN-L2", "DNN-STL"])
def test_a_stopped_run_goes_on_with_the_next_task(tmp_path, monkeypatch, method):
    whole = perform(job(tmp_path / "whole", method, tasks=3))
    with pytest.raises(Stopped):
        perform(job(tmp_path / "stopped", method, tasks=3), _stop_at(2))
    assert find(RunPaths(tmp_path / "stopped"), configuration(method, tasks=3)) is None
    learned: list[str] = []
    monkeypatch.setattr(
        performing,
        "measure",
        lambda learner, *given, **named: (
            learned.extend(learner.tasks),
            measure(learner, *given, **named),
        )[1],
    )
    went_on = perform(job(tmp_path / "stopped", method, tasks=3))
    assert len(learned) == 2  # known already, when it went on
    assert without_times(went_on.run) == without_times(whole.run)


measure = performing.measure


def test_progress_that_cannot_be_trusted_is_not_gone_on_from(tmp_path):
    whole = perform(job(tmp_path / "whole", "DNN"))
    with pytest.raises(Stopped):
        perform(job(tmp_path / "stopped", "DNN"), _stop_at(1))
    progress = RunPaths(tmp_path / "stopped").working(configuration("DNN")) / performing.PROGRESS
    progress.write_bytes(progress.read_bytes()[:-20])
    assert without_times(perform(job(tmp_path / "stopped", "DNN")).run) == without_times(whole.run)


def test_finetuning_starts_from_the_stored_model_of_den(tmp_path, monkeypatch):
    alone = perform(job(tmp_path / "alone", "DEN-Finetune"))
    den = perform(job(tmp_path / "after", "DEN"))
    monkeypatch.setattr(DEN, "_learn", None)  # nothing is left to learn
    after = perform(job(tmp_path / "after", "DEN-Finetune"))
    assert without_times(after.run) == without_times(alone.run)
    assert after.run.method == "DEN-Finetune"
    assert after.run.born == den.run.born
    assert after.run.results is None


def test_what_finetuning_alone_uses_does_not_ask_for_another_den():
    shrink_and_perturb = configuration("DEN-Finetune", shrink=0.9, perturb=0.1)
    assert before_finetuning(shrink_and_perturb).key == configuration("DEN").key
    other = configuration("DEN-Finetune", mu=0.3)
    assert before_finetuning(other).key == configuration("DEN", mu=0.3).key


def test_on_a_full_disk_nothing_half_written_counts(tmp_path, monkeypatch):
    def full(file, content):
        file.with_name(".incoming").write_bytes(content[: len(content) // 2])
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(performing, "replace_file", full)
    with pytest.raises(OSError, match="No space left"):
        perform(job(tmp_path, "DNN-MTL"))
    assert find(RunPaths(tmp_path), configuration("DNN-MTL")) is None
    monkeypatch.undo()
    perform(job(tmp_path, "DNN-MTL"))
    assert find(RunPaths(tmp_path), configuration("DNN-MTL")) is not None


def test_a_run_that_another_process_makes_is_left_to_it(tmp_path):
    working = RunPaths(tmp_path).working(configuration("DNN"))
    make_directory(working)
    with directory_lock(working), pytest.raises(RunLocked, match="another process"):
        perform(job(tmp_path, "DNN"))


def test_a_run_that_another_process_ends_meanwhile_is_found(tmp_path, monkeypatch):
    plain, places = performing.directory_lock, RunPaths(tmp_path)

    def late(working, patience=10.0):
        if working == places.working(configuration("DNN")) and not made:
            made.append(True)
            monkeypatch.setattr(performing, "directory_lock", plain)
            perform(job(tmp_path, "DNN"))  # and its directory is removed
        return plain(working, patience)

    made: list[bool] = []
    monkeypatch.setattr(performing, "directory_lock", late)
    assert perform(job(tmp_path, "DNN")) == find(places, configuration("DNN"))


def test_capacity_is_counted_against_the_base_network(tmp_path):
    base, double = (perform(job(tmp_path, "DNN-MTL", scale=scale)) for scale in (1.0, 2.0))
    assert base.run.summary.capacity == 1.0
    parameters = double.run.summary.parameters / base.run.summary.parameters
    assert double.run.summary.capacity == pytest.approx(parameters)
    assert double.run.widths == {"hidden1": 16, "hidden2": 8}


def test_a_run_that_outgrows_what_it_may_take_is_given_up(tmp_path):
    """After the task with which it does, and at once when it is tried again."""
    grows = replace(job(tmp_path, "DNN-STL", tasks=3), most=1.5)
    with pytest.raises(
        Outgrown, match=r"with 2 tasks it has a capacity of \d\.\d+, but may take 1\.5"
    ):
        perform(grows)
    told: list[str] = []
    with pytest.raises(Outgrown, match="with 2 tasks"):
        perform(grows, lambda *what: told.append(str(what)))
    assert told == []
    stored = perform(replace(grows, most=9.0))  # goes on from there
    assert stored.run.summary.capacity > 2
    assert find(RunPaths(tmp_path), grows.configuration) == stored


def test_networks_are_scaled_layer_by_layer():
    assert architecture(NetworkPlan((10, 3)), (7,), 0.5).layout.groups == {
        "hidden1": 5,
        "hidden2": 2,
    }
    plan = NetworkPlan((6,), filters=(4, 8), kernel=3, pool=(True, False))
    assert architecture(plan, (3, 8, 8), 2.0).layout.groups == {
        "conv1": 8,
        "conv2": 16,
        "hidden1": 12,
    }


def test_validation_rows_can_stand_in_for_test_rows(tmp_path):
    plain = configuration("DNN")
    tested = perform(performing.Job(plain, tmp_path))
    chosen = perform(performing.Job(msgspec.structs.replace(plain, rows="valid"), tmp_path))
    assert "validation rows" in chosen.run.source
    assert chosen.run.scores != tested.run.scores
    assert chosen.run.summary.nonzero == tested.run.summary.nonzero  # the same network


def test_the_budget_of_the_recipe_is_the_runs(tmp_path):
    made = perform(job(tmp_path, "DNN-MTL"))
    assert made.run.settings["budget"]["steps"] == 20 != Budget().steps
