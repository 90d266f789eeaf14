"""Tuning: on validation rows, on seeds of its own, alike for all, and resumable."""

import math
from contextlib import suppress
from dataclasses import replace
from datetime import timedelta

import pytest
from rich.console import Console
from tiny import BUDGET

from lifelong.experiments import studies
from lifelong.experiments import tuning as tune
from lifelong.experiments.configuration import NetworkPlan
from lifelong.experiments.perform import Job, Outgrown, perform, tasks_done
from lifelong.experiments.recipes import Entry, rehearsal
from lifelong.experiments.runner import RunCounts
from lifelong.experiments.stored import find
from lifelong.experiments.tuning import Tuning, TuningError, tunable
from lifelong.learners.registry import METHODS, Range

QUIET = Console(quiet=True)


@pytest.fixture
def performed(monkeypatch):
    """Jobs run here and now, on a tiny network."""
    jobs: list[Job] = []

    def run(given, **_how):
        for job in given:
            with suppress(Outgrown):
                perform(job)
        jobs.extend(given)
        return RunCounts()

    def tiny(size):
        return replace(rehearsal(size), network=NetworkPlan((8, 4)), budget=BUDGET)

    monkeypatch.setattr(tune, "run", run)
    monkeypatch.setattr(tune, "RECIPES", {"rehearsal": tiny})
    return jobs


def _tuning(out, trials=3):
    return Tuning("digits", "small", trials, (100, 101), 2, out)


def test_each_method_gets_as_many_trials_the_first_with_its_defaults(tmp_path, performed):
    chosen = tune.tune(["DNN-EWC", "DNN-STL"], _tuning(tmp_path), console=QUIET, command=str)
    assert list(chosen) == ["DNN-EWC", "DNN-STL"]
    for name, choice in chosen.items():
        assert len(choice.trials) == 3
        defaults = METHODS[name].settings()
        assert choice.trials[0].settings == {
            setting: getattr(defaults, setting) for setting in choice.settings
        }
        assert choice.settings == max(choice.trials, key=lambda t: t.auroc).settings
    assert {job.configuration.seed for job in performed} == {100, 101}
    assert {job.configuration.rows for job in performed} == {"valid"}
    assert {job.configuration.tasks for job in performed} == {2}


@pytest.mark.parametrize("shared", [False, True])
def test_trials_asked_for_come_after_the_defaults(tmp_path, performed, shared):
    storage = str(tmp_path / "journal") if shared else ""
    asked = replace(
        _tuning(tmp_path), also=({"mu": 0.03}, {"strength": 500.0}, {}), storage=storage, trials=4
    )
    chosen = tune.tune(["DNN-EWC", "DNN-STL"], asked, console=QUIET, command=str)
    for name, wanted in (
        ("DNN-EWC", [{"mu": 0.03}, {"strength": 500.0}]),
        ("DNN-STL", [{"mu": 0.03}]),
    ):
        trials = [trial.settings for trial in chosen[name].trials]
        assert trials[1 : 1 + len(wanted)] == [{**trials[0], **changes} for changes in wanted]
        assert len(trials) == 4
    del performed


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ({"mu": 1e6}, "DNN-STL searches mu from .* to .*; 1e\\+06 is outside"),
        ({"mu": float("nan")}, "nan is outside"),
        ({"mo": 1.0}, "no method here searches 'mo'; they search .'mu'"),
    ],
)
def test_trials_that_cannot_be_made_are_refused(tmp_path, settings, said):
    asked = replace(_tuning(tmp_path), also=(settings,))
    with pytest.raises(TuningError, match=said):
        tune.tune(["DNN-STL"], asked, console=QUIET, command=str)


def test_a_tuning_goes_on_where_it_was_and_chooses_the_same(tmp_path, performed, monkeypatch):
    given = {"console": QUIET, "command": str}
    first = tune.tune(["DNN-MTL"], _tuning(tmp_path, trials=2), **given)  # type: ignore[arg-type]
    made = len(list((tmp_path / "runs").rglob("*.json")))
    whole = tune.tune(["DNN-MTL"], _tuning(tmp_path, trials=3), **given)  # type: ignore[arg-type]
    assert whole["DNN-MTL"].trials[:2] == first["DNN-MTL"].trials
    assert len(list((tmp_path / "runs").rglob("*.json"))) == made + 2
    del performed, monkeypatch


def test_reported_seeds_are_refused():
    with pytest.raises(TuningError, match=r"seeds must be 100 or more.*not \[0, 100\]"):
        Tuning("digits", "small", seeds=(0, 100))
    with pytest.raises(TuningError, match="1 trial and 2 tasks at the least, not 0 and 4"):
        Tuning("digits", "small", trials=0)


def test_what_can_be_tuned():
    assert tunable(["den-finetune", "DEN"], "digits") == ("DEN",)
    every = tunable(["all"], "mnist-variation")
    assert "DEN-Dynamic" in every
    assert "DEN-Finetune" not in every
    with pytest.raises(TuningError, match=r"did you mean mnist-variation"):
        tunable(["all"], "mnist-variaton")


@pytest.mark.parametrize("data", ["permuted-mnist", "split-mnist"])
def test_what_is_tuned_is_what_the_recipes_with_tuned_settings_run(tmp_path, data):
    """Not a published set-up, whose settings, such as a mu of 0, are given."""
    asked = Tuning(data, "paper", 1, (100,), 2, tmp_path)
    for method in ("SI", "GPM", "DNN-EWC"):
        recipe, entry = tune._places(data, "paper")[method]
        assert recipe.tuned
        assert not entry.changes
        assert tune._Study(method, asked)  # begins with the defaults


def test_growth_goes_on_as_it_began_in_the_capacity_of_a_trial(tmp_path, performed):
    chosen = tune.tune(["DNN-Progressive"], _tuning(tmp_path, trials=1), console=QUIET, command=str)
    trial = chosen["DNN-Progressive"].trials[0]
    measured = [perform(job).run.summary.capacity for job in performed]
    assert trial.capacity > 1.4 * max(measured)  # four tasks in the recipe, two were tried


@pytest.mark.parametrize(("changes", "feasible"), [({}, False), ({"max_new_units": 0.25}, True)])
def test_a_trial_wins_by_size_only_where_the_recipe_says_how_far(
    tmp_path,
    performed,
    monkeypatch,
    changes,
    feasible,
):
    plain = tune.RECIPES["rehearsal"]
    entries = (Entry("DEN", changes=changes),)
    monkeypatch.setattr(
        tune, "RECIPES", {"rehearsal": lambda size: replace(plain(size), entries=entries)}
    )
    monkeypatch.setattr(tune, "CEILING", 0.0)  # what the defaults need, then
    row = replace(METHODS["DEN"], space={"initial_width": Range(0.2, 1.0)})
    monkeypatch.setattr(tune, "method_named", lambda _name: row)
    chosen = tune.tune(["DEN"], _tuning(tmp_path, trials=2), console=QUIET, command=str)
    defaults, wide = chosen["DEN"].trials
    assert (defaults.feasible, wide.feasible) == (True, feasible)
    assert wide.capacity > defaults.capacity or not (feasible or wide.capacity)  # given up
    del performed


def test_a_trial_that_outgrows_what_it_may_take_is_given_up(tmp_path, performed, monkeypatch):
    """Instead of learning all its tasks in ever larger networks."""
    monkeypatch.setattr(tune, "PAPERS", 0.5)  # less than the base network
    with pytest.raises(TuningError, match=r"no trial of DEN .paper. ended"):
        tune.tune(["DEN (paper)"], _tuning(tmp_path, trials=2), console=QUIET, command=str)
    second = [job for job in performed if job.most < math.inf]
    assert {job.most for job in second} == {0.5}
    assert all(find(job.places, job.configuration) is None for job in second)
    assert all(tasks_done(job) == 1 for job in second)


def test_a_trial_as_large_as_the_defaults_is_a_candidate(tmp_path, performed, monkeypatch):
    monkeypatch.setattr(tune._Study, "_projected", lambda *_: 1.50049)  # more than its three digits
    chosen = tune.tune(["DNN-Progressive"], _tuning(tmp_path, trials=2), console=QUIET, command=str)
    assert [trial.feasible for trial in chosen["DNN-Progressive"].trials] == [True, True]
    del performed


@pytest.mark.parametrize(("method", "size"), [("DEN-W", 1.9), ("DEN (paper)", 1.7)])
def test_the_paper_has_its_capacity_whatever_its_defaults_need(
    tmp_path, performed, monkeypatch, method, size
):
    one = _tuning(tmp_path, trials=1)
    monkeypatch.setattr(tune._Study, "_projected", lambda *_: size)
    chosen = tune.tune([method], one, console=QUIET, command=str)
    assert chosen[method].trials[0].feasible
    del performed


def test_the_papers_capacity_is_that_of_its_figure():
    assert tune._papers_capacity("mnist-variation", "paper") == pytest.approx(1.8)
    assert tune._papers_capacity("cifar-100", "small") == pytest.approx(6.03)
    assert tune._papers_capacity("features:animals50/features.npz", "paper") == pytest.approx(5.95)


def test_a_tuning_without_a_candidate_says_why(tmp_path, performed, monkeypatch):
    monkeypatch.setattr(tune._Study, "_projected", lambda *_: 1.9)
    with pytest.raises(TuningError, match=r"no trial of DEN .paper. ended .* capacity of 1\.8"):
        tune.tune(["DEN (paper)"], _tuning(tmp_path, trials=1), console=QUIET, command=str)
    del performed


def test_shared_trials_choose_what_one_process_chooses(tmp_path, performed):
    given = {"console": QUIET, "command": str}
    alone = tune.tune(["DNN-EWC"], _tuning(tmp_path / "alone"), **given)  # type: ignore[arg-type]
    shared = replace(_tuning(tmp_path / "shared"), storage=str(tmp_path / "journal"))
    assert tune.tune(["DNN-EWC"], shared, **given) == alone  # type: ignore[arg-type]
    made = len(performed)
    assert tune.tune(["DNN-EWC"], shared, **given) == alone  # type: ignore[arg-type]
    assert len(performed) == made  # all trials have ended


def test_a_trial_whose_process_was_lost_is_finished_by_another(tmp_path, performed):
    tuning = replace(_tuning(tmp_path), storage=str(tmp_path / "journal"))
    lost = tune._Study("DNN-EWC", tuning)
    assert len(lost.ask()) == 2
    chosen = tune.tune(["DNN-EWC"], tuning, console=QUIET, command=str)
    assert len(chosen["DNN-EWC"].trials) == 3
    assert {trial.feasible for trial in chosen["DNN-EWC"].trials} == {True}
    assert len(performed) == 6


@pytest.mark.parametrize("drawn", [0, 1, 2])
def test_a_trial_of_a_lost_process_changes_no_proposal(tmp_path, performed, monkeypatch, drawn):
    monkeypatch.setattr(tune, "WAIT", 0.01)
    monkeypatch.setattr(tune, "LOST", timedelta(seconds=0.05))
    given = {"console": QUIET, "command": str}
    tuning = replace(_tuning(tmp_path), storage=str(tmp_path / "journal"))
    tune.tune(["DNN-EWC"], replace(tuning, trials=1), **given)  # type: ignore[arg-type]
    proposal = tune._Study("DNN-EWC", tuning)._study.ask()
    studies.draw(proposal, dict(list(METHODS["DNN-EWC"].space.items())[:drawn]))
    chosen = tune.tune(["DNN-EWC"], tuning, **given)  # type: ignore[arg-type]
    assert chosen == tune.tune(["DNN-EWC"], _tuning(tmp_path / "alone"), **given)  # type: ignore[arg-type]
    del performed


def test_a_trial_of_a_lost_process_ends_before_another_is_proposed(tmp_path, performed):
    tuning = replace(_tuning(tmp_path), storage=str(tmp_path / "journal"))
    lost = tune._Study("DNN-EWC", tuning).ask()
    assert [job.label for job in tune._Study("DNN-EWC", tuning).ask()] == [
        job.label for job in lost
    ]
    del performed


def test_a_trial_that_another_process_makes_is_left_to_it(tmp_path, performed):
    tuning = replace(_tuning(tmp_path), storage=str(tmp_path / "journal"))
    one, other = (tune._Study("DNN-EWC", tuning) for _ in range(2))
    locked = one.ask()
    assert other.ask() == locked
    other.tell(RunCounts(skipped={locked[0].label: "locked"}))
    labels = {job.label for job in other.ask()}
    assert not labels & {job.label for job in locked}
    del performed


def test_a_trial_that_was_asked_for_too_much_does_not_count(tmp_path, performed):
    tuning = replace(_tuning(tmp_path, trials=1), storage=str(tmp_path / "journal"))
    tune.tune(["DNN-EWC"], tuning, console=QUIET, command=str)
    late = tune._Study("DNN-EWC", tuning)
    assert late._new() is None
    assert len(late._trials()) == 1
    del performed
