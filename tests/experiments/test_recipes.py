"""Recipes at both sizes, the names that they know, and the settings that they take."""

import re
from pathlib import Path

import msgspec
import numpy as np
import pytest

from builders import quick, small_mlp, stream_for
from lifelong.experiments import choices as tuned
from lifelong.experiments.choices import Choice, Trial, write_choices
from lifelong.experiments.configuration import differences
from lifelong.experiments.recipes import (
    FAMILY,
    GROUPS,
    RECIPES,
    RecipeError,
    plan,
    recipe,
    recipes,
)
from lifelong.learners.den.variants import newcomers_only
from lifelong.learners.registry import METHODS


@pytest.mark.parametrize("name", RECIPES)
@pytest.mark.parametrize("size", ["small", "paper"])
def test_every_recipe_makes_configurations_that_hold(name, size):
    chosen = recipe(name, size)
    assert (chosen.reduced == "") == (size == "paper")
    keys = set()
    for entry in chosen.entries:
        made = chosen.configuration(entry, 0)
        assert 1 <= made.tasks <= chosen.data.tasks
        keys.add(made.key)
    assert len(keys) == len(chosen.entries)  # no run twice under two labels
    assert len({entry.label for entry in chosen.entries}) == len(chosen.entries)


def test_the_papers_networks_and_data():
    variation = recipe("figure3-variation", "paper")
    assert (variation.network.widths, variation.data.tasks) == ((312, 128), 10)
    assert variation.data.options == {}
    cifar = recipe("figure3-cifar100", "paper").network
    assert cifar.filters == (64, 128, 256, 256, 128)
    assert (cifar.widths, cifar.kernel) == ((384, 192), 5)
    assert recipe("figure3-awa", "paper").data.tasks == 50
    assert recipe("figure3-animals50", "paper").data.tasks == 50


def test_figures_share_their_runs():
    def keys(name):
        chosen = recipe(name, "paper")
        first = {entry.method: entry for entry in reversed(chosen.entries)}
        return {name: chosen.configuration(entry, 3).key for name, entry in first.items()}

    third, fourth, fifth = (keys(n) for n in ("figure3-variation", "figure4", "figure5"))
    assert third["DNN-L2"] == fourth["DNN-L2"] == fifth["DNN-L2"]
    assert third["DEN"] == fifth["DEN"]
    assert third["DNN-Progressive"] == fifth["DNN-Progressive"]


def test_nearest_names_are_suggested():
    with pytest.raises(RecipeError, match="did you mean figure3-variation"):
        recipe("figure3-variaton")
    with pytest.raises(RecipeError, match=r"no recipe 'x'; there are figure3-variation"):
        recipe("x")
    with pytest.raises(RecipeError, match="'small' or 'paper', not 'huge'"):
        recipe("figure4", "huge")
    with pytest.raises(RecipeError, match=r"no method 'SI'.*it has DNN-L2"):
        recipe("figure4").chosen(["si"])
    assert [entry.label for entry in recipe("figure4", methods=["si"]).chosen(["si"])] == ["SI"]
    with pytest.raises(RecipeError, match=r"did you mean capacity"):
        recipe("figure3-awa").chosen(parts=["capacty"])


def test_every_method_but_guises_of_another_can_be_tuned():
    assert all(METHODS[row.tuned_as].space for row in METHODS.values())
    for row in METHODS.values():
        assert bool(row.space) != bool(row.like)
        settings = row.settings()
        for setting, between in row.space.items():
            assert between.low <= getattr(settings, setting) <= between.high


def test_choices_that_another_process_wrote_meanwhile_are_kept(tmp_path):
    choice = Choice({"mu": 0.44}, (), (100,), 2, "8-4", "lifelong tune")
    write_choices("digits", {"DEN": choice}, tmp_path)
    assert tuned.tuned("digits", tmp_path).methods.keys() == {"DEN"}
    file = tuned.file_for("digits", tmp_path)
    file.write_bytes(file.read_bytes().replace(b'"DEN"', b'"DNN"'))
    write_choices("digits", {"SI": choice}, tmp_path)
    assert tuned.tuned("digits", tmp_path).methods.keys() == {"DNN", "SI"}


def test_what_was_chosen_is_what_recipes_use(tmp_path, monkeypatch):
    settings = {"mu": 0.33, "strength": 7.0}
    choice = Choice(settings, (Trial(settings, 0.9, 1.0),), (100,), 2, "8-4", "lifelong tune")
    den = Choice({"mu": 0.44}, (), (100,), 2, "8-4", "lifelong tune")
    write_choices("digits", {"DNN-EWC": choice}, tmp_path)
    write_choices("digits", {"DEN": den}, tmp_path)
    monkeypatch.setattr(
        plan, "tuned_settings", lambda data, name: tuned.tuned_settings(data, name, tmp_path)
    )
    chosen = recipe("rehearsal", "small")
    first = {entry.method: entry for entry in reversed(chosen.entries)}
    made = {name: chosen.configuration(entry, 0).settings for name, entry in first.items()}
    assert (made["DNN-EWC"]["mu"], made["DNN-EWC"]["strength"]) == (0.33, 7.0)
    assert made["DEN"]["mu"] == made["DEN-Finetune"]["mu"] == 0.44
    assert made["DNN-STL"]["mu"] == 0.1
    assert tuned.tuned("another", tmp_path).methods == {}


def test_stored_choices_fit_their_methods():
    """Whatever was tuned so far must be settings that the recipes can take."""
    for name in RECIPES:
        chosen = recipe(name, "paper")
        for method in tuned.tuned(chosen.data.name).methods:
            assert method in METHODS


def test_the_ablation_changes_one_thing_at_a_time_and_shares_what_is_whole():
    chosen, third = recipe("ablation-variation", "paper"), recipe("figure3-variation", "paper")
    made = {entry.label: chosen.configuration(entry, 0) for entry in chosen.entries}
    whole = {entry.label: third.configuration(entry, 0) for entry in third.entries}
    for name in ("DEN", "DEN-W", "DEN-auto", "DEN (paper)", "DNN-STL", "DNN-MTL"):
        assert made[name].key == whole[name].key
    assert differences(made["DEN"], made["DEN without distillation"]).startswith(
        "settings.distillation is"
    )
    assert made["DNN-STL without l1"].settings["mu"] == 0.0
    names = ("head and retraining", "head, retraining, expansion", "DEN from full width")
    ladder = [made[name].settings for name in names]
    assert [(each["expand"], each["split"]) for each in ladder] == [
        (False, False),
        (True, False),
        (True, "units"),
    ]
    assert {each["initial_width"] for each in ladder} == {1.0}
    newcomers, written = made["DEN, newcomers only"].settings, newcomers_only()
    assert all(newcomers[name] == getattr(written, name) for name in ("head_l1", "k"))


def test_the_sparse_head_alone_stores_nothing_but_heads():
    chosen = recipe("ablation-variation", "paper")
    (entry,) = (each for each in chosen.entries if each.label == "sparse head alone")
    learner = METHODS["DEN-auto"].make(
        small_mlp(), budget=quick().budget, changes=entry.changes, seed=1
    )
    for task in stream_for(small_mlp(), "one output", "classes", "one output"):
        learner.learn(task)
    first, *later = learner.records
    assert first.changed
    assert all(not any(record.changed.values()) for record in later)
    assert all(int(born.max()) == 1 for born in learner.network.born.values())


def test_the_published_set_up():
    """van de Ven and Tolias, 2019: whatever was tuned on this data must not get in."""
    chosen = recipe("published-permuted", "paper")
    assert (chosen.network.widths, chosen.data.tasks) == ((1000, 1000), 10)
    for entry in chosen.entries:
        settings = chosen.configuration(entry, 1).settings
        budget = settings["budget"]
        assert (settings["mu"], settings["heads"]) == (0.0, "one")
        assert (budget["steps"], budget["batch_size"], budget["learning_rate"]) == (5000, 256, 1e-4)
        assert settings.get("strength") == {"DNN-EWC": 100.0, "SI": 10.0}.get(entry.method)


def test_the_docs_have_the_accuracies_that_are_stored_beside_the_published_ones():
    project = Path(__file__).resolve().parents[2]
    text = (project / "docs" / "baselines.md").read_text(encoding="utf-8")
    published = {
        entry.label: f"{entry.published.accuracy:.4f}"
        for entry in recipe("published-permuted", "paper").entries
    }
    runs = msgspec.json.decode((project / "results" / "published.json").read_bytes())["runs"]
    tested = [run for run in runs if run["rows"] == "test"]
    assert len(tested) == 6
    for run in tested:
        assert run["accuracy"] == pytest.approx(np.mean(run["by_task"]), abs=1e-6)
        row = re.compile(
            rf"\| {run['method']} \| {published[run['method']]} ± 0\.\d+ \| {run['accuracy']:.4f} "
            rf"\| {np.mean(run['just_learned']):.4f} \| {run['strength']:g} \| {run['seed']} \|"
        )
        assert row.search(text), row.pattern


PUBLISHED = [name for name in RECIPES if name.startswith("published-")]


@pytest.mark.parametrize("name", PUBLISHED)
def test_a_published_set_up_has_no_settings_that_were_tuned_here(name, monkeypatch):
    monkeypatch.setattr(plan, "tuned_settings", lambda *_: {"mu": 123.0, "share": 0.123})
    chosen = recipe(name, "paper")
    for entry in chosen.entries:
        settings = chosen.configuration(entry, 0).settings
        assert settings.get("mu") != 123.0
        assert settings.get("share") != 0.123


@pytest.mark.parametrize("name", PUBLISHED)
def test_only_the_published_size_has_published_figures(name):
    assert all(entry.published is not None for entry in recipe(name, "paper").entries)
    assert all(entry.published is None for entry in recipe(name, "small").entries)
    assert all(entry.published.source for entry in recipe(name, "paper").entries)


def test_split_mnist_is_told_in_two_scenarios():
    chosen = recipe("published-split", "paper")
    assert chosen.parts == ("task", "domain")
    for entry in chosen.entries:
        settings = chosen.configuration(entry, 0).settings
        budget = settings["budget"]
        assert (budget["epochs"], budget["batch_size"], budget["learning_rate"]) == (4, 128, 1e-3)
        if entry.method != "DNN-MTL":
            assert settings["heads"] == {"task": "own", "domain": "one"}[entry.part]
        if entry.method in ("DNN-L2", "DNN-EWC", "SI"):
            assert settings["adam"] == "carried"


def test_the_family_is_the_same_on_every_data_set():
    several = recipes("Family", "paper")
    assert [one.name for one in several] == list(GROUPS["family"])
    assert {one.methods for one in several} == {FAMILY}
    assert set(FAMILY) <= set(METHODS)
    assert recipes("figure4") == (recipe("figure4"),)
    with pytest.raises(RecipeError, match="no recipe 'familly'"):
        recipes("familly")
