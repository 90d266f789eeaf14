"""Equation 3: optimal by its own condition, and the same as scikit-learn's solution."""

from functools import partial

import pytest
import torch
from hypothesis import given
from hypothesis import settings as runs
from hypothesis import strategies as st
from sklearn.linear_model import Lasso, LogisticRegression

from builders import quick, random, stream_for
from lifelong.learners.den import DEN
from lifelong.networks.sequential import mlp
from lifelong.tasks.kinds import Kind
from lifelong.training import head_solvers
from lifelong.training.budget import Budget
from lifelong.training.head_solvers import TOLERANCE
from lifelong.training.losses import loss_of
from lifelong.training.sparse_head import fit_sparse_head


def data(seed, kind, outputs=1, rows=60, columns=8, dtype=torch.float64):
    """Features like those of ReLU units: not negative, on different scales, one of them dead."""
    generator = random(seed)
    x = torch.randn(rows, columns, generator=generator, dtype=dtype).clamp_min(0)
    x = x * torch.logspace(-1, 1, columns, dtype=dtype) + 0.5
    x[:, 1] = 0
    rule = torch.randn(columns, max(outputs, 1), generator=generator, dtype=dtype)
    score = (x - x.mean(0)) @ rule
    score = score / score.std() + torch.randn(score.shape, generator=generator, dtype=dtype)
    if kind.is_regression:
        return x, score
    return x, score.argmax(1) if kind is Kind.CLASSES else (score > 0).to(dtype)


def gradients(head, x, y, kind):
    """Of the mean loss, by automatic differentiation: weights one row an output, and biases."""
    weight = head.weight.double().clone().requires_grad_()
    bias = head.bias.double().clone().requires_grad_()
    out = x.double() @ weight.T + bias
    if kind is Kind.CLASSES:
        loss = torch.nn.functional.cross_entropy(out, y)
    elif kind.is_regression:
        loss = (out - y.double()).square().mean(dim=0).sum()
    else:  # each output is a problem of its own, so their means are added
        loss = torch.nn.functional.binary_cross_entropy_with_logits(
            out, y.double(), reduction="none"
        )
        loss = loss.mean(dim=0).sum()
    return torch.autograd.grad(loss, (weight, bias))


def zero_head_gradient(x, y, kind, outputs):
    """Of the mean loss at the best head without weights: its largest entry is mu_max."""
    hits = torch.nn.functional.one_hot(y, outputs).double() if kind is Kind.CLASSES else y.double()
    return (1 + kind.is_regression) * (hits.mean(0) - hits).T @ x.double() / len(x)


kinds = st.sampled_from([(Kind.BINARY, 1), (Kind.BINARY, 3), (Kind.CLASSES, 3), (Kind.CLASSES, 2)])
numbers = st.sampled_from([(Kind.REGRESSION, 1), (Kind.MEDIAN_REGRESSION, 2)])


@given(st.integers(0, 999), kinds | numbers, st.floats(0.005, 0.9))
@runs(max_examples=40)
def test_the_optimality_condition_holds_to_the_stated_tolerance(seed, kind_outputs, strength):
    kind, outputs = kind_outputs
    x, y = data(seed, kind, outputs)
    head = fit_sparse_head(x, y, kind, outputs, strength)
    slope, slope_of_bias = gradients(head, x, y, kind)
    slope = slope - slope_of_bias[:, None] * x.mean(dim=0)  # features are centred
    at_zero = zero_head_gradient(x, y, kind, outputs).abs()
    mu_max = at_zero.max() if kind is Kind.CLASSES else at_zero.max(dim=1, keepdim=True).values
    torch.testing.assert_close(head.mu_max.flatten(), mu_max.flatten(), rtol=1e-9, atol=0)
    mu, slack = strength * mu_max, 1.01 * TOLERANCE * mu_max
    nonzero = head.weight != 0
    assert ((slope + mu * head.weight.sign()).abs() <= slack)[nonzero].all()
    assert (slope.abs() <= mu + slack)[~nonzero].all()
    assert (slope_of_bias.abs() <= slack.flatten()).all()
    assert head.gap <= TOLERANCE
    assert head.weight.shape == (outputs, 8)
    assert not head.weight[:, 1].any()


@pytest.mark.parametrize(("kind", "outputs"), [(Kind.BINARY, 2), (Kind.CLASSES, 3)])
@pytest.mark.parametrize("strength", [0.02, 0.3])
def test_scikit_learn_finds_the_same_head(kind, outputs, strength):
    x, y = data(3, kind, outputs)
    x = x / x.std(0).clamp_min(1)  # saga is slow on features of different scales
    head = fit_sparse_head(x, y, kind, outputs, strength)
    columns = y.T if kind is Kind.BINARY else [y]
    mu = (strength * head.mu_max).reshape(-1).tolist()
    for row, (labels, one_mu) in enumerate(zip(columns, mu, strict=True)):
        model = LogisticRegression(
            l1_ratio=1.0, C=1 / (len(x) * one_mu), solver="saga", tol=1e-9, max_iter=100_000
        )
        model.fit(x.numpy(), labels.numpy())
        rows = [row] if kind is Kind.BINARY else slice(None)
        there = torch.tensor(model.coef_), torch.tensor(model.intercept_)
        here = head.weight[rows], head.bias[rows]
        torch.testing.assert_close(here[0], there[0], atol=0.01, rtol=0.05)
        out_here, out_there = (x @ weight.T + bias for weight, bias in (here, there))
        turn = torch.sigmoid if kind is Kind.BINARY else partial(torch.softmax, dim=1)
        torch.testing.assert_close(turn(out_here), turn(out_there), atol=5e-3, rtol=0)
        loss = loss_of(kind)
        target = labels[:, None] if kind is Kind.BINARY else labels
        ours = loss(out_here, target) + one_mu * here[0].abs().sum()
        theirs = loss(out_there, target) + one_mu * there[0].abs().sum()
        assert abs(ours - theirs) < 1e-5


@pytest.mark.parametrize(("kind", "outputs"), [(Kind.BINARY, 2), (Kind.CLASSES, 3)])
def test_at_mu_max_the_head_is_all_zero_and_just_below_it_is_not(kind, outputs):
    x, y = data(5, kind, outputs)
    for strength in (1.0, 7.0):
        head = fit_sparse_head(x, y, kind, outputs, strength)
        assert not head.weight.any()
        p = head.bias.softmax(0) if kind is Kind.CLASSES else head.bias.sigmoid()
        share = torch.bincount(y) / len(y) if kind is Kind.CLASSES else y.mean(0)
        torch.testing.assert_close(p, share.double())
    just_below = fit_sparse_head(x, y, kind, outputs, 0.98).weight
    assert just_below.any() if kind is Kind.CLASSES else just_below.any(dim=1).all()


def test_a_stronger_penalty_leaves_a_smaller_head():
    x, y = data(8, Kind.BINARY, 1)
    norms = [
        float(fit_sparse_head(x, y, Kind.BINARY, 1, share).weight.abs().sum())
        for share in (0.01, 0.1, 0.5, 0.9, 1.0)
    ]
    assert norms == sorted(norms, reverse=True)
    assert norms[-1] == 0


@pytest.mark.parametrize(("kind", "outputs"), [(Kind.BINARY, 1), (Kind.CLASSES, 3)])
def test_single_precision_features_give_a_single_precision_head(kind, outputs):
    x, y = data(2, kind, outputs, dtype=torch.float32)
    head = fit_sparse_head(x, y, kind, outputs, 0.05)
    assert head.weight.dtype == head.bias.dtype == torch.float32
    double = fit_sparse_head(x.double(), y, kind, outputs, 0.05)
    torch.testing.assert_close(head.weight.double(), double.weight, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize(("kind", "outputs"), [(Kind.BINARY, 1), (Kind.CLASSES, 3)])
@pytest.mark.parametrize("value", [0.0, 0.1])
def test_features_that_tell_nothing_get_no_weight_and_are_solved_for(kind, outputs, value):
    _, y = data(2, kind, outputs)
    x = torch.full((60, 8), value)
    head = fit_sparse_head(x, y, kind, outputs, 0.02)
    out = x @ head.weight.T + head.bias
    p = out.softmax(1) if kind is Kind.CLASSES else out.sigmoid()
    share = torch.bincount(y) / len(y) if kind is Kind.CLASSES else y.mean(0)
    torch.testing.assert_close(p[0], share.float(), atol=1e-4, rtol=0)
    assert not head.weight.any()
    assert head.gap <= TOLERANCE  # else the solver went on until its limit, which takes long


def test_more_features_than_rows():
    x, y = data(4, Kind.BINARY, 1, rows=12, columns=30)
    head = fit_sparse_head(x, y, Kind.BINARY, 1, 0.02)
    assert head.gap <= TOLERANCE
    assert 0 < int((head.weight != 0).sum()) < 30


@pytest.mark.parametrize("kind", ["one output", "subtasks", "classes"])
def test_with_an_all_zero_head_den_still_learns_by_expansion(kind):
    architecture = mlp(6, [16, 12])
    budget = Budget(steps=150, batch_size=20, learning_rate=0.02, check_every=10)
    first, second = stream_for(architecture, "one output", kind)
    learner = DEN(architecture, quick(head_l1=1.0, k=6, budget=budget))
    learner.learn(first)
    record = learner.learn(second)
    assert {group: one.selected for group, one in record.groups.items()} == {
        "hidden1": 0,
        "hidden2": 0,
    }
    assert "retrain" not in [stage.name for stage in record.stages]
    assert record.groups["hidden2"].added == 6
    assert int((learner.network.born["hidden2"] == 2).sum()) > 0
    labels = learner.predict(second.train.x, task=second.name)
    truth = second.train.y.squeeze(1) if kind == "one output" else second.train.y
    chance = 0.45 if kind == "classes" else 0.5
    assert float((labels == truth).double().mean()) > chance + 0.3


def test_the_head_is_found_in_any_case_without_the_global_random_state():
    state = torch.get_rng_state()
    x, y = data(1, Kind.CLASSES, 3)
    fit_sparse_head(x, y, Kind.CLASSES, 3, 0.1)
    assert torch.equal(state, torch.get_rng_state())


@pytest.mark.parametrize("strength", [0.02, 0.3])
@pytest.mark.parametrize("scale", [1.0, 1e6])
def test_scikit_learn_finds_the_same_lasso_whatever_the_scale_of_the_labels(strength, scale):
    x, y = data(4, Kind.REGRESSION, 2)
    head = fit_sparse_head(x, scale * y, Kind.REGRESSION, 2, strength)
    for row, labels in enumerate((scale * y).T):
        mu = float(strength * head.mu_max[row])
        model = Lasso(alpha=mu / 2, tol=1e-12, max_iter=100_000)  # it halves the squared error
        model.fit(x.numpy(), labels.numpy())
        ours = head.weight[row] @ x.T + head.bias[row]
        theirs = torch.tensor(model.predict(x.numpy()))
        torch.testing.assert_close(ours, theirs, rtol=0, atol=2e-3 * scale)


def test_labels_that_never_differ_make_a_head_without_weights():
    x, _ = data(5, Kind.REGRESSION)
    head = fit_sparse_head(x, torch.full((len(x), 1), 7.5), Kind.REGRESSION, 1, 0.1)
    assert not head.weight.any()
    torch.testing.assert_close(head.bias, torch.tensor([7.5], dtype=x.dtype))


def few_rows(classes, units, each=12):
    """Many classes with a dozen rows each, in features that go together as those of a network do;
    some are those of dead units.
    """
    y = torch.arange(classes * each) % classes
    centres = torch.randn(classes, 10, generator=random(1))
    below = centres[y] + torch.randn(len(y), 10, generator=random(2))
    x = torch.relu(below @ torch.randn(10, units, generator=random(3)))
    x[:, :3] = 0
    return x, y


@pytest.mark.parametrize("strength", [0.02, 0.3])
def test_both_newton_steps_find_the_same_head(strength, monkeypatch):
    x, y = few_rows(6, 12)
    small = fit_sparse_head(x, y, Kind.CLASSES, 6, strength)
    monkeypatch.setattr(head_solvers, "LARGE", 0)
    large = fit_sparse_head(x, y, Kind.CLASSES, 6, strength)
    assert max(small.gap, large.gap) <= TOLERANCE
    values = [
        torch.nn.functional.cross_entropy(x @ head.weight.T + head.bias, y)
        + strength * head.mu_max * head.weight.abs().sum()
        for head in (small, large)
    ]
    torch.testing.assert_close(*values, rtol=2e-3, atol=0)


def test_many_classes_with_few_rows_take_few_steps():
    x, y = few_rows(30, 100)  # 139 steps within orthants, each cut many times
    head = fit_sparse_head(x, y, Kind.CLASSES, 30, 0.02)
    assert head.gap <= TOLERANCE
    assert head.steps <= 20
