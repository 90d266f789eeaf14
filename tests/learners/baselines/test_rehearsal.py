"""LwF, ER and GPM: what each keeps of earlier tasks, and that it helps."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from builders import (
    ARCHITECTURES,
    BUDGET,
    answers,
    contents,
    inputs_for,
    random,
    same,
    small_mlp,
    stream_for,
    task_for,
    tensors_of,
    with_rows,
)
from lifelong.learners.baselines import ER, GPM, ERSettings, GPMSettings, LwFSettings
from lifelong.learners.baselines.er import reservoir
from lifelong.learners.baselines.gpm import Projection, extended
from lifelong.learners.registry import METHODS
from lifelong.tasks.examples import TensorExamples
from lifelong.training.budget import Budget, SettingError
from lifelong.training.loop import TrainingError

LONGER = Budget(steps=150, batch_size=32, learning_rate=0.02, check_every=50)


def moved(name, rows, **changes):
    """How far the answers for the first task move on these rows when the second is learned."""
    first, second = stream_for(small_mlp(), "classes", "classes")
    learner = METHODS[name].make(small_mlp(), budget=LONGER, changes=changes)
    learner.learn(first)
    x = rows(first, second)
    before = answers(learner, x)[first.name]
    learner.learn(second)
    return float((answers(learner, x)[first.name] - before).abs().mean())


@pytest.mark.parametrize("heads", ["own", "one"])
def test_lwf_keeps_the_old_answers_on_the_new_rows(heads):
    given_rows = lambda _first, second: second.train.x  # noqa: E731
    free = moved("DNN", given_rows, heads=heads)
    assert moved("LwF", given_rows, heads=heads, strength=30.0) < 0.5 * free


def test_lwf_by_share_weighs_the_second_task_as_much_as_the_first():
    given_rows = lambda _first, second: second.train.x  # noqa: E731
    assert moved("LwF", given_rows, weighting="share") < moved("DNN", given_rows)


@pytest.mark.parametrize("heads", ["own", "one"])
def test_er_keeps_what_it_replays(heads):
    given_rows = lambda first, _second: first.train.x  # noqa: E731
    assert moved("ER", given_rows, heads=heads) < 0.5 * moved("DNN", given_rows, heads=heads)


@pytest.mark.parametrize("kinds", [("classes", "subtasks", "one output"), ("one output",) * 3])
@settings(max_examples=12)
@given(memory=st.integers(40, 5000))
def test_the_reservoir_fits_its_bytes_and_holds_rows_of_the_tasks(kinds, memory):
    learner = ER(small_mlp(), ERSettings(memory=memory, budget=Budget(steps=1, check_every=1)))
    tasks = stream_for(small_mlp(), *kinds)
    for task in tasks:
        learner.learn(task)
    kept = learner.network.memory
    held = sum(4 * kept[name].numel() for name in ("own/x", "own/y", "own/task"))
    row = 4 * (6 + kept["own/y"].shape[1] + 1)
    assert memory - row < held <= memory or len(kept["own/x"]) == 120
    assert int(kept["own/seen"]) == 120
    for x, y, number in zip(kept["own/x"], kept["own/y"], kept["own/task"], strict=True):
        rows = tasks[int(number) - 1].train
        (place,) = (rows.x == x).all(dim=1).nonzero()[0]
        truth = rows.y[place].float().reshape(-1)
        assert torch.equal(y[: len(truth)], truth)


@given(st.lists(st.integers(1, 40), min_size=1, max_size=4), st.integers(1, 50), st.integers(0, 9))
def test_a_reservoir_is_full_before_a_row_goes(sizes, capacity, seed):
    made, seen, places = random(seed), 0, {}
    for number, size in enumerate(sizes):
        slots = reservoir(seen, size, capacity, made)
        seen += size
        assert len(slots) == min(capacity, seen)
        places |= {place: (number, row) for place, row in enumerate(slots.tolist()) if row >= 0}
    assert len(places) == min(capacity, seen)
    assert len(set(places.values())) == len(places)


def test_every_row_is_kept_with_equal_probability():
    made, capacity = random(0), 5
    counts = torch.zeros(20)
    for _ in range(2000):
        held = {}
        for start in (0, 10):
            slots = reservoir(start, 10, capacity, made)
            held |= {p: start + row for p, row in enumerate(slots.tolist()) if row >= 0}
        for row in held.values():
            counts[row] += 1
    # 2000 draws of probability 1/4: five standard deviations.
    assert (counts - 500).abs().max() < 5 * (2000 * 0.25 * 0.75) ** 0.5


def test_a_memory_that_holds_no_row_is_refused():
    learner = ER(small_mlp(), ERSettings(memory=31, budget=BUDGET))
    with pytest.raises(SettingError, match="hold a row at least, which takes 32 bytes, not 31"):
        learner.learn(task_for(small_mlp()))
    assert learner.tasks == ()


@pytest.mark.parametrize("network", ARCHITECTURES)
@pytest.mark.parametrize("optimizer", ["adam", "sgd"])
def test_gpm_with_all_directions_kept_changes_no_old_answer_on_old_rows(network, optimizer):
    architecture = ARCHITECTURES[network]()
    rate = {"adam": 0.01, "sgd": 0.3}[optimizer]
    budget = Budget(steps=30, learning_rate=rate, check_every=10, optimizer=optimizer)
    first = task_for(architecture, "classes", rows=5, name="a")
    second = task_for(architecture, "classes", 1, name="b")
    learner = GPM(architecture, GPMSettings(threshold=1.0, budget=budget))
    learner.learn(first)
    before, shared = answers(learner, first.train.x)["a"], dict(learner.network.shared)
    elsewhere = answers(learner, inputs_for(architecture, 9))["a"]
    learner.learn(second)
    assert any(not torch.equal(t, shared[n]) for n, t in learner.network.shared.items())
    torch.testing.assert_close(answers(learner, first.train.x)["a"], before, atol=2e-3, rtol=0)
    moved_elsewhere = (answers(learner, inputs_for(architecture, 9))["a"] - elsewhere).abs().max()
    assert network == "convnet" or moved_elsewhere > 2e-3


@settings(max_examples=25)
@given(
    inputs=st.integers(1, 8), kept=st.integers(0, 9), biased=st.booleans(), seed=st.integers(0, 999)
)
def test_projected_steps_are_what_lies_across_the_directions(inputs, kept, biased, seed):
    """Few directions and many, which are projected in two ways; each step from where it began."""
    generator, size = random(seed), inputs + biased
    made = torch.randn(size + 9, size, generator=generator, dtype=torch.float64)
    basis = torch.linalg.qr(made[9:]).Q[:, : min(kept, size)]
    before, *steps = made[:9].split(3)
    names = ("layer.weight", "layer.bias")
    tensors = dict(zip(names, before.clone().split([inputs, 1][: 1 + biased], dim=1), strict=False))
    if biased:
        tensors["layer.bias"] = tensors["layer.bias"][:, 0]
    hook = Projection({tuple(tensors): basis})
    for step in steps:
        hook.before_step(tensors)
        tensors["layer.weight"] += step[:, :inputs]
        if biased:
            tensors["layer.bias"] += step[:, -1]
        hook.after_step(tensors)
    found = torch.cat([tensor.reshape(3, -1) for tensor in tensors.values()], dim=1)
    moved = sum(steps)
    torch.testing.assert_close(found, before + moved - moved @ basis @ basis.T)


def test_gpm_forgets_less_than_fine_tuning_and_less_the_more_it_keeps():
    given_rows = lambda first, _second: first.train.x  # noqa: E731
    free = moved("DNN", given_rows)
    some, most = (moved("GPM", given_rows, threshold=share) for share in (0.5, 0.99))
    assert most < some < free


@given(st.integers(2, 8), st.floats(0.1, 1.0), st.integers(0, 20))
def test_directions_are_orthonormal_and_hold_their_share_with_none_to_spare(size, share, seed):
    made = random(seed)
    rows = torch.randn(6, size, generator=made)
    basis = extended(torch.zeros(size, 0), rows[:2].T @ rows[:2], 0.7)
    energy = rows.T @ rows
    found = extended(basis, energy, share)
    assert torch.allclose(found.T @ found, torch.eye(found.shape[1]), atol=1e-4)
    assert torch.allclose(found @ found.T @ basis, basis, atol=1e-4)

    def held(columns):
        return float((columns.T @ energy @ columns).trace() / energy.trace())

    assert held(found) >= share - 1e-3
    if found.shape[1] > basis.shape[1]:
        assert held(found[:, :-1]) < share + 1e-3


@pytest.mark.parametrize("scale", [1e20, 1e25])
def test_gpm_tells_of_inputs_whose_directions_cannot_be_found_and_keeps_what_it_was(scale):
    """Their products overflow, so that the eigenvalue problem has no solution."""
    learner = GPM(small_mlp(), GPMSettings(budget=BUDGET))
    first, second = stream_for(small_mlp(), "one output", "one output")
    learner.learn(first)
    before = contents(learner)
    parts = map(tensors_of, (second.train, second.valid))
    rows = [TensorExamples(scale * part.x, part.y) for part in parts]
    with pytest.raises(TrainingError, match=f"{second.name}: .*inputs scaled to about 1"):
        learner.learn(with_rows(second, *rows))
    assert same(contents(learner), before)
    learner.learn(second)


def test_gpm_finds_directions_where_single_precision_fails(monkeypatch):
    """As LAPACK does for thousands of inputs with few rows: most eigenvalues are zero."""
    exact = torch.linalg.eigh

    def fails(matrix):
        if matrix.dtype == torch.float32:
            raise torch.linalg.LinAlgError("it did not converge")
        return exact(matrix)

    rows = torch.randn(5, 40, generator=torch.Generator().manual_seed(0))
    energy, nothing = rows.T @ rows, torch.zeros(40, 0)
    expected = extended(nothing, energy, 1.0)
    monkeypatch.setattr(torch.linalg, "eigh", fails)
    found = extended(nothing, energy, 1.0)
    assert found.dtype == torch.float32
    assert found.shape == expected.shape == (40, 5)
    torch.testing.assert_close(found @ found.T, expected @ expected.T, atol=1e-4, rtol=0)


@pytest.mark.parametrize(
    ("make", "says"),
    [
        (lambda: LwFSettings(strength=-1.0), "strength must be 0 or more"),
        (lambda: LwFSettings(temperature=0.0), "temperature must be above 0"),
        (lambda: LwFSettings(weighting="none"), "weighting must be one of 'sum', 'share'"),
        (lambda: ERSettings(memory=0), "memory must be a whole number above 0"),
        (lambda: GPMSettings(threshold=0.0), "threshold must be above 0 and up to 1"),
        (lambda: GPMSettings(increase=-0.1), "increase must be 0 or more"),
        (lambda: GPMSettings(samples=0), "samples must be a whole number above 0"),
    ],
)
def test_a_setting_out_of_range_is_refused(make, says):
    with pytest.raises(SettingError, match=says):
        make()
