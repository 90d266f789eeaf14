"""The table of methods."""

from pathlib import Path

import pytest

from builders import small_mlp
from lifelong.learners.registry import METHODS, MethodError, markdown, method, traits_markdown
from lifelong.training.budget import Budget, SettingError


def test_a_method_is_found_in_whatever_case():
    assert method("dnn-ewc") is METHODS["DNN-EWC"]


def test_an_unknown_method_is_refused_with_the_nearest_name():
    with pytest.raises(MethodError, match=r"no method 'DNN-EWX'; did you mean DNN-EWC\? there are"):
        method("DNN-EWX")


@pytest.mark.parametrize("row", METHODS.values(), ids=list(METHODS))
def test_every_method_takes_a_budget_and_a_seed(row):
    learner = row.make(small_mlp(), budget=Budget(steps=7), seed=3)
    assert learner.settings.budget.steps == 7
    assert learner.seed == 3
    assert type(learner) is row.learner


def test_a_setting_that_a_method_does_not_have_is_refused():
    with pytest.raises(SettingError, match=r"DNN has no setting 'strength'; it has \['mu'"):
        METHODS["DNN"].make(small_mlp(), changes={"strength": 1.0})


def test_the_docs_show_the_table():
    docs = (Path(__file__).parents[2] / "docs" / "baselines.md").read_text()
    assert f"<!-- methods -->\n{markdown()}\n<!-- /methods -->" in docs


def test_the_docs_show_what_a_method_is_chosen_by():
    docs = (Path(__file__).parents[2] / "docs" / "choosing.md").read_text()
    assert f"<!-- traits -->\n{traits_markdown()}\n<!-- /traits -->" in docs
