"""The training loop: what moves, what it finds, when it stops, and what it refuses."""

import math
from dataclasses import replace

import pytest
import torch

from builders import CountedExamples, random, random_network, small_mlp, task_for
from lifelong.learners.den import Settings
from lifelong.networks.sequential import mlp
from lifelong.tasks.examples import TensorExamples
from lifelong.tasks.kinds import Kind
from lifelong.training.budget import Budget, SettingError
from lifelong.training.loop import (
    Problem,
    TaskObjective,
    TrainingContext,
    TrainingError,
    objective,
    solve,
    validation_loss,
)
from lifelong.training.losses import loss_of
from lifelong.training.optimizer import Passes
from lifelong.training.penalties import L1Norm
from lifelong.watching.events import StageBegan, StageEnded

QUICK = Budget(steps=30, batch_size=16, learning_rate=0.02, check_every=10)


def problem(kind="one output", movable=None, penalties=None, **rows):
    architecture = small_mlp()
    task = task_for(architecture, kind)
    network = random_network(architecture, random(0), task.outputs)
    train, valid = rows.get("train", task.train), rows.get("valid", task.valid)
    movable = dict.fromkeys(network.tensors) if movable is None else movable
    objectives = [objective(architecture, task.kind, train, valid)]
    return Problem("a stage", network.tensors, objectives, movable, penalties or {})


@pytest.mark.parametrize("kind", ["one output", "subtasks", "classes"])
def test_training_lowers_the_validation_loss_and_returns_its_tensors(kind):
    given = problem(kind)
    start = validation_loss(given.objectives, given.tensors)
    found = solve(
        given, Budget(steps=100, batch_size=16, learning_rate=0.02, check_every=10), random(0)
    )
    assert found.loss < 0.8 * start
    assert found.loss == pytest.approx(validation_loss(given.objectives, found.tensors), rel=1e-6)
    assert 0 < found.steps <= 100
    assert found.seconds > 0
    assert not any(t.requires_grad for t in found.tensors.values())


def test_what_may_not_move_stays_to_the_bit():
    whole = problem()
    mask = torch.rand(whole.tensors["hidden1.weight"].shape, generator=random(5)) < 0.5
    movable = {"hidden1.weight": mask, "head.bias": None}
    penalties = {"hidden1.weight": L1Norm(0.5)}
    before = {name: tensor.clone() for name, tensor in whole.tensors.items()}
    found = solve(problem(movable=movable, penalties=penalties), QUICK, random(0)).tensors
    for name, tensor in before.items():
        if name not in movable:
            assert torch.equal(found[name], tensor)
    moved = found["hidden1.weight"] != before["hidden1.weight"]
    assert not moved[~mask].any()
    assert moved[mask].any()
    assert (found["hidden1.weight"][mask] == 0).any()
    assert not torch.equal(found["head.bias"], before["head.bias"])
    for name, tensor in whole.tensors.items():
        assert torch.equal(tensor, before[name])


def test_a_quadratic_is_solved_to_its_minimum_and_a_strong_l1_leaves_exact_zeros():
    target = torch.tensor([2.0, -1.0, 0.3, 0.0])
    rows = TensorExamples(target.repeat(8, 1), torch.zeros(8))
    loss = TaskObjective(
        lambda t, x: (t["w"] - x).square().sum(1) / 2, lambda a, _: a.mean(), rows, rows
    )
    budget = Budget(steps=800, batch_size=8, learning_rate=0.02, check_every=800)
    start = {"w": torch.zeros(4)}
    free = solve(Problem("s", start, [loss], {"w": None}), budget, random(0))
    torch.testing.assert_close(free.tensors["w"], target, atol=1e-3, rtol=0)
    huge = Problem("s", start, [loss], {"w": None}, {"w": L1Norm(10.0)})
    assert not solve(huge, budget, random(0)).tensors["w"].any()


def test_the_best_tensors_are_kept_even_if_training_goes_astray():
    given = problem()
    start = validation_loss(given.objectives, given.tensors)
    wild = Budget(steps=40, batch_size=16, learning_rate=50.0, check_every=10)
    found = solve(given, wild, random(0))
    assert found.loss <= start
    assert validation_loss(given.objectives, found.tensors) == pytest.approx(found.loss, rel=1e-6)


def test_patience_ends_a_training_that_no_longer_gains():
    given = problem(movable={"head.bias": torch.zeros(1, dtype=torch.bool)})
    patient = Budget(steps=1000, batch_size=16, check_every=3, patience=2, lr_decays=2)
    assert solve(given, patient, random(0)).steps == 3 * 2 * (2 + 1)
    hasty = Budget(steps=1000, batch_size=16, check_every=3, patience=2, lr_decays=0)
    assert solve(given, hasty, random(0)).steps == 6
    short = Budget(steps=7, batch_size=16, check_every=3, patience=9)
    assert solve(given, short, random(0)).steps == 7


def test_the_same_generator_gives_the_same_bits_and_another_does_not():
    one, two, other = (solve(problem(), QUICK, random(seed)).tensors for seed in (1, 1, 2))
    assert all(torch.equal(one[name], two[name]) for name in one)
    assert any(not torch.equal(one[name], other[name]) for name in one)


def test_an_adam_that_is_handed_on_goes_on_as_one_that_never_stopped():
    """With all rows in every batch, two trainings are one of `torch.optim.Adam`."""
    first = replace(problem(), adam={})
    budget = Budget(steps=6, batch_size=10**6, learning_rate=0.01, check_every=6)
    half = solve(first, budget, random(0))
    rest = replace(first, tensors=half.tensors)
    whole = solve(replace(rest, adam=half.adam), budget, random(0))
    anew = solve(rest, budget, random(0))
    leaves = {name: t.clone().requires_grad_() for name, t in first.tensors.items()}
    adam, (asked,) = torch.optim.Adam(leaves.values(), lr=0.01), first.objectives
    (x, y), *_ = asked.train.batches(10**6)
    for _ in range(12):
        adam.zero_grad()
        asked.loss(asked.forward(leaves, x), y).backward()
        adam.step()
    for name, leaf in leaves.items():
        torch.testing.assert_close(whole.tensors[name], leaf.detach())
    assert not torch.allclose(anew.tensors["hidden1.weight"], leaves["hidden1.weight"])
    assert problem().adam is None
    assert not solve(problem(), budget, random(0)).adam


def test_a_batch_larger_than_the_data_is_all_of_the_data():
    task = task_for(small_mlp())
    rows = CountedExamples(task.train)
    found = solve(problem(train=rows), Budget(steps=7, batch_size=10_000, check_every=7), random(0))
    assert rows.served == 7 == found.steps
    exact = solve(problem(), Budget(steps=7, batch_size=len(task.train), check_every=7), random(0))
    assert all(torch.equal(found.tensors[n], exact.tensors[n]) for n in exact.tensors)


def test_who_watches_is_told_the_stage_its_looks_and_its_end():
    told = []
    found = solve(problem(), QUICK, random(0), TrainingContext([told.append]))
    assert told[0] == StageBegan("a stage", 30)
    assert told[-1] == StageEnded("a stage", found.record("a stage"))
    looks = told[1:-1]
    assert [(look.stage, look.step, look.most_steps) for look in looks] == [
        ("a stage", step, 30) for step in (0, 10, 20, 30)
    ]
    assert [look.best for look in looks] == [
        min(look.loss for look in looks[: n + 1]) for n in range(4)
    ]
    assert looks[-1].best == found.loss


def test_several_tasks_count_the_same_however_many_rows_they_have():
    architecture = small_mlp()
    tasks = [task_for(architecture, seed=1, rows=40), task_for(architecture, seed=2, rows=8)]
    network = random_network(architecture, random(0), 1)
    objectives = [objective(architecture, task.kind, task.train, task.valid) for task in tasks]
    with torch.no_grad():
        alone = [float(loss_of(Kind.BINARY)(network.logits(t.valid.x), t.valid.y)) for t in tasks]
    assert validation_loss(objectives, network.tensors) == pytest.approx(sum(alone) / 2, rel=1e-6)


def test_the_validation_loss_is_a_mean_over_rows_not_over_batches():
    architecture = mlp(2, [3])
    rows = 4096 + 10
    x = torch.randn(rows, 2, generator=random(0))
    y = (torch.arange(rows) >= 4096).float()[:, None]
    network = random_network(architecture, random(0), 1)
    held = TensorExamples(x, y)
    with torch.no_grad():
        expected = float(loss_of(Kind.BINARY)(network.logits(x), y))
    few = TensorExamples(x[:7], y[:7])
    found = validation_loss([objective(architecture, Kind.BINARY, few, held)], network.tensors)
    assert found == pytest.approx(expected, rel=1e-5)


def test_a_loss_that_is_not_finite_names_the_stage_and_what_to_look_at():
    wild = Budget(steps=30, batch_size=16, learning_rate=1e15, check_every=10)
    message = r"a stage: the validation loss became (nan|inf) at step 10; a smaller learning_rate"
    with pytest.raises(TrainingError, match=message):
        solve(problem(), wild, random(0))


@pytest.mark.parametrize(
    ("setting", "value", "message"),
    [
        ("steps", 0, "steps must be a whole number above 0 and finite, not 0"),
        ("steps", 2.5, "steps must be a whole number above 0 and finite, not 2.5"),
        ("batch_size", -1, "batch_size must be a whole number above 0"),
        ("batch_size", math.inf, "batch_size must be a whole number above 0 and finite, not inf"),
        ("batch_size", True, "batch_size must be .* not True"),
        ("batch_size", "16", "batch_size must be .* not '16'"),
        ("check_every", 0, "check_every must be a whole number above 0"),
        ("patience", 0, "patience must be a whole number above 0"),
        ("lr_decays", -1, "lr_decays must be a whole number, 0 or more"),
        ("lr_decays", 0.5, "lr_decays must be a whole number, 0 or more"),
        ("learning_rate", 0.0, "learning_rate must be above 0 and finite, not 0.0"),
        ("learning_rate", math.nan, "learning_rate must be above 0 and finite, not nan"),
        ("lr_decay", 1.0, "lr_decay must be above 0 and below 1"),
        ("lr_decay", 0.0, "lr_decay must be above 0 and below 1"),
    ],
)
def test_a_budget_out_of_range_is_refused(setting, value, message):
    with pytest.raises(SettingError, match=message):
        Budget(**{setting: value})


@pytest.mark.parametrize("setting", ["steps", "batch_size", "check_every", "patience", "lr_decays"])
def test_a_whole_number_written_as_a_float_is_refused(setting):
    with pytest.raises(SettingError, match=f"{setting} must be a whole number.* not 5.0"):
        Budget(**{setting: 5.0})


@pytest.mark.parametrize(
    ("kind", "old", "new"),
    [(Budget, "batch", "batch_size"), (Settings, "worth", "min_improvement")],
)
def test_a_setting_by_its_old_name_is_refused_with_the_new_one(kind, old, new):
    with pytest.raises(SettingError, match=f"has no setting '{old}' any more.* called '{new}'"):
        kind(**{old: 1})


BY_SGD = replace(QUICK, optimizer="sgd", momentum=0.9, weight_decay=0.1)


def test_sgd_takes_the_steps_of_torch_optim():
    given = problem()
    budget = replace(BY_SGD, steps=10, check_every=10)
    found = solve(given, budget, random(3)).tensors
    ours = {n: t.clone().requires_grad_() for n, t in given.tensors.items()}
    theirs = torch.optim.SGD(ours.values(), lr=0.02, momentum=0.9, weight_decay=0.1)
    rows = Passes(given.objectives[0].train, 16, random(3))
    for _ in range(10):
        x, y = next(rows)
        theirs.zero_grad()
        given.objectives[0].loss(given.objectives[0].forward(ours, x), y).backward()
        theirs.step()
    for name, tensor in found.items():
        torch.testing.assert_close(tensor, ours[name].detach(), rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("optimizer", ["adam", "sgd"])
def test_weight_decay_leaves_what_may_not_move_to_the_bit(optimizer):
    mask = torch.rand(problem().tensors["hidden1.weight"].shape, generator=random(5)) < 0.5
    given = problem(movable={"hidden1.weight": mask})
    budget = replace(QUICK, optimizer=optimizer, weight_decay=0.5)
    moved = solve(given, budget, random(0)).tensors["hidden1.weight"]
    assert not (moved != given.tensors["hidden1.weight"])[~mask].any()
    without = solve(given, replace(budget, weight_decay=0.0), random(0)).tensors["hidden1.weight"]
    assert not torch.equal(moved, without)


@pytest.mark.parametrize(("batch_size", "steps"), [(16, 9), (40, 3), (100, 3)])
def test_an_epoch_is_one_pass_over_the_rows(batch_size, steps):
    budget = replace(QUICK, batch_size=batch_size, epochs=3, patience=50)
    assert len(problem().objectives[0].train) == 40
    assert solve(problem(), budget, random(0)).steps == steps


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        ({"epochs": 0}, "epochs must be a whole number above 0, or None and finite, not 0"),
        ({"epochs": 1.5}, "epochs must be a whole number above 0"),
        ({"optimizer": "lbfgs"}, "optimizer must be one of 'adam', 'sgd', not 'lbfgs'"),
        ({"optimizer": "sgd", "momentum": 1.0}, "momentum must be 0 or more and below 1"),
        ({"momentum": 0.9}, "momentum is SGD's, not 0.9 with Adam, which has its own; use"),
        ({"weight_decay": -1.0}, "weight_decay must be 0 or more"),
    ],
)
def test_a_budget_that_cannot_be_is_refused(changes, says):
    with pytest.raises(SettingError, match=says):
        Budget(**changes)
