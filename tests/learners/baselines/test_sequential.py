"""EWC, SI and IMM: what they remember, and what it does."""

from dataclasses import replace
from functools import reduce

import msgspec
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from builders import (
    BUDGET,
    contents,
    random,
    random_network,
    same,
    small_mlp,
    stream_for,
    task_for,
)
from lifelong.learners.baselines import (
    EWC,
    IMM,
    L2,
    SI,
    EWCSettings,
    Finetuning,
    IMMSettings,
    L2Settings,
    SequentialSettings,
    SISettings,
)
from lifelong.learners.baselines.sequential import TaskOutcome
from lifelong.learners.baselines.si import PathIntegral
from lifelong.networks.growing import first_network
from lifelong.networks.initial import uniform
from lifelong.persistence import checkpoint as journal
from lifelong.tasks.kinds import TaskError
from lifelong.training.budget import Budget, SettingError
from lifelong.training.loop import Problem, objective, solve
from lifelong.training.penalties import Quadratic


@given(seed=st.integers(0, 10**6), count=st.integers(2, 5))
def test_quadratics_added_are_one_quadratic_with_their_exact_minimiser(seed, count):
    generator = random(seed)
    pulls = [
        Quadratic(
            torch.rand(3, 4, generator=generator).double(),
            torch.randn(3, 4, generator=generator).double(),
        )
        for _ in range(count)
    ]
    total = reduce(Quadratic.__add__, pulls)
    weight = torch.stack([pull.weight for pull in pulls])
    center = torch.stack([pull.center for pull in pulls])
    torch.testing.assert_close(total.center, (weight * center).sum(0) / weight.sum(0))
    for w in torch.randn(5, 3, 4, generator=generator).double():
        apart = sum(pull.value(w) - pull.value(total.center) for pull in pulls)
        torch.testing.assert_close(total.value(w), apart)


def test_a_pull_of_no_weight_at_all_has_a_center_all_the_same():
    nothing = torch.zeros(2)
    total = Quadratic(nothing, torch.tensor([1.0, 2.0])) + Quadratic(nothing, torch.ones(2))
    assert torch.equal(total.center, torch.ones(2))
    assert torch.equal(total.weight, nothing)


class TestEWC:
    def test_separate_penalties_hold_each_task_at_its_own_weights(self):
        learner = EWC(small_mlp(), EWCSettings(labels="true", budget=BUDGET))
        was = Quadratic(torch.zeros(10, 6), torch.zeros(10, 6))
        name = "hidden1.weight"
        for task in stream_for(small_mlp(), "one output", "classes", "subtasks"):
            learner.learn(task)
            memory = learner.network.memory
            held = Quadratic(memory[f"importance/{name}"], memory[f"center/{name}"])
            new = Quadratic(held.weight - was.weight, learner.network.shared[name])
            assert (new.weight >= -1e-9).all()
            torch.testing.assert_close((was + new).center, held.center, atol=1e-5, rtol=1e-4)
            was = held
        assert not torch.equal(was.center, learner.network.shared[name])

    @pytest.mark.parametrize("heads", ["own", "one"])
    def test_a_carried_adam_goes_on_after_saving_and_after_a_kill(
        self, heads, tmp_path, monkeypatch
    ):
        monkeypatch.setattr(journal, "APART", 0)  # every page is written
        settings = EWCSettings(adam="carried", heads=heads, budget=BUDGET)
        first, second = stream_for(small_mlp(), "classes", "classes")
        learner, anew = EWC(small_mlp(), settings), EWC(small_mlp(), replace(settings, adam="anew"))
        for one in (learner, anew):
            one.learn(first)
            one.save(tmp_path / one.settings.adam)
            one.learn(second, checkpoint=tmp_path / f"checkpoint of {one.settings.adam}")
        saved, killed = (EWC.load(tmp_path / "carried") for _ in range(2))
        saved.learn(second)
        with monkeypatch.context() as patch:
            patch.setattr("lifelong.training.loop._Loop", pytest.fail)
            killed.learn(second, checkpoint=tmp_path / "checkpoint of carried")
        assert same(contents(saved), contents(learner))
        assert same(contents(killed), contents(learner))
        assert not same(anew.network.shared, learner.network.shared)
        assert not any(name.startswith("adam/") for name in anew.network.memory)

    def test_online_holds_all_at_the_last_weights_and_lets_the_old_fade(self):
        tasks = stream_for(small_mlp(), "one output", "classes")

        def importance(decay):
            settings = EWCSettings(tasks="online", decay=decay, strength=0.0, budget=BUDGET)
            learner = EWC(small_mlp(), settings)
            for task in tasks:
                learner.learn(task)
                now = learner.network.shared["hidden1.weight"]
                assert torch.equal(learner.network.memory["center/hidden1.weight"], now)
            return learner.network.memory["importance/hidden1.weight"]

        none, half, whole = (importance(decay) for decay in (0.0, 0.5, 1.0))
        torch.testing.assert_close(half, (none + whole) / 2)
        assert (whole >= none).all()
        assert not torch.equal(whole, none)

    def test_the_first_task_is_forgotten_less_than_by_fine_tuning(self):
        budget = Budget(steps=400, batch_size=32, learning_rate=0.01, check_every=20)
        first, *later = [
            task_for(small_mlp(), "classes", seed, f"task {seed}", rows=150) for seed in range(4)
        ]

        def accuracy_of_the_first(learner):
            for task in (first, *later):
                learner.learn(task)
            hits = learner.predict(first.train.x, task=first.name) == first.train.y
            return float(hits.float().mean())

        held = EWC(small_mlp(), EWCSettings(mu=0.0, strength=100.0, budget=budget))
        free = Finetuning(small_mlp(), SequentialSettings(mu=0.0, budget=budget))
        assert accuracy_of_the_first(held) > accuracy_of_the_first(free) + 0.05


class TestSI:
    def problem(self, *, pull=0.0):
        architecture, task = small_mlp(), task_for(small_mlp(), "one output", rows=32)
        start = first_network(
            architecture, architecture.layout.groups, 1, uniform(random(5))
        ).tensors
        tensors = {name: tensor.double() for name, tensor in start.items()}
        rows = type(task.train)(task.train.x.double(), task.train.y.double())
        return Problem(
            "toy",
            tensors,
            [objective(architecture, task.kind, rows, rows)],
            movable=dict.fromkeys(tensors),
            pulls={n: Quadratic(torch.full_like(t, pull), t) for n, t in tensors.items()},
            hook=PathIntegral(tensors),
        )

    @pytest.mark.parametrize("pull", [0.0, 0.3])
    def test_the_path_integral_is_the_one_done_by_hand(self, pull):
        problem, budget = self.problem(pull=pull), Budget(steps=12, batch_size=8, check_every=12)
        found = solve(problem, budget, random(7))
        tensors = {n: t.clone().requires_grad_() for n, t in problem.tensors.items()}
        adam = torch.optim.Adam(tensors.values(), lr=budget.learning_rate)
        by_hand = {name: torch.zeros_like(t) for name, t in tensors.items()}
        generator, (one,) = random(7), problem.objectives
        batches = [b for _ in range(3) for b in one.train.batches(8, generator)]
        for x, y in batches:
            adam.zero_grad()
            one.loss(one.forward(tensors, x), y).backward()
            slope = {name: t.grad.clone() for name, t in tensors.items()}
            before = {name: t.detach().clone() for name, t in tensors.items()}
            for name, t in tensors.items():
                t.grad += pull * (t.detach() - problem.tensors[name])
            adam.step()
            for name, t in tensors.items():
                by_hand[name] -= slope[name] * (t.detach() - before[name])
        assert len(batches) == 12
        for name, saved in problem.hook.state().items():
            torch.testing.assert_close(found.tensors[name], tensors[name].detach())
            torch.testing.assert_close(saved, by_hand[name])

    def test_the_contributions_add_up_to_the_fall_of_the_loss(self):
        problem = self.problem()
        budget = Budget(steps=3000, batch_size=32, learning_rate=1e-4, check_every=3000)
        (one,) = problem.objectives
        x, y = next(iter(one.train.batches(32)))
        found = solve(problem, budget, random(7))
        fall = one.loss(one.forward(problem.tensors, x), y) - found.loss
        saved = sum(path.sum() for path in problem.hook.state().values())
        assert fall > 0.1
        torch.testing.assert_close(saved, fall, rtol=0.01, atol=0)

    def test_the_path_ends_where_the_best_tensors_are(self):
        """Steps after the best look belong to weights that are thrown away."""
        problem = self.problem()
        wild = Budget(
            steps=400, batch_size=8, learning_rate=0.3, check_every=10, patience=3, lr_decays=0
        )
        found = solve(problem, wild, random(7))
        assert found.steps < 400  # it stopped early, so the last looks were not the best
        best = found.steps - 30
        other = self.problem()
        again = solve(other, Budget(**{**vars(wild), "steps": best}), random(7))
        for name, path in problem.hook.state().items():
            assert torch.equal(found.tensors[name], again.tensors[name])
            assert torch.equal(path, other.hook.state()[name])

    def test_importance_adds_up_over_tasks_and_is_never_negative(self):
        learner = SI(small_mlp(), SISettings(budget=BUDGET))
        sizes = []
        for task in stream_for(small_mlp(), "one output", "classes", "subtasks"):
            learner.learn(task)
            importance = learner.network.memory["importance/hidden1.weight"]
            assert (importance >= 0).all()
            sizes.append(float(importance.sum()))
        assert sizes[0] < sizes[1] < sizes[2]

    @pytest.mark.parametrize(("below_zero", "expected"), [("cut", 0.0), ("kept", -10.0)])
    def test_importances_below_zero_are_kept_if_they_are_to_be(self, below_zero, expected):
        learner = SI(small_mlp(), SISettings(below_zero=below_zero, damping=0.1, budget=BUDGET))
        task, network = task_for(small_mlp()), random_network(small_mlp(), random(0))
        hook = PathIntegral(network.tensors)
        for path in hook.state().values():
            path.fill_(-1.0)  # steps that raised the loss
        tensors = network.tensors
        outcome = TaskOutcome(
            task, learner.network, tensors, network, tensors, hook, task.train, random(0)
        )
        for importance in learner._keep(outcome).memory.values():
            torch.testing.assert_close(importance, torch.full_like(importance, expected))


class TestL2:
    def test_a_new_head_is_held_too_if_all_is_to_be_held(self):
        first, second = stream_for(small_mlp(), "classes", "classes")
        left = []
        for holds in ("old", "all"):
            settings = L2Settings(mu=0.0, strength=1e4, holds=holds, budget=BUDGET)
            learner = L2(small_mlp(), settings)
            learner.learn(first)
            start = learner._network(second, learner._generator())
            learner.learn(second)
            head = learner.network.tasks[1].private["head.weight"]
            left.append(float((head - start.tensors["head.weight"]).abs().max()))
        assert left[1] < 0.1 * left[0]

    def test_any_method_may_carry_adam_over(self):
        tasks = stream_for(small_mlp(), "classes", "classes")
        carried = Finetuning(small_mlp(), SequentialSettings(adam="carried", budget=BUDGET))
        without = L2(small_mlp(), L2Settings(strength=0.0, adam="carried", budget=BUDGET))
        anew = Finetuning(small_mlp(), SequentialSettings(budget=BUDGET))
        for learner in (carried, without, anew):
            for task in tasks:
                learner.learn(task)
        assert same(without.network.shared, carried.network.shared)
        assert not same(anew.network.shared, carried.network.shared)

    def test_what_is_left_out_is_not_stored(self):
        for settings in (SequentialSettings(), L2Settings(), SISettings()):
            stored = msgspec.to_builtins(settings)
            assert stored.keys().isdisjoint({"adam", "holds", "below_zero"})
        assert msgspec.to_builtins(EWCSettings())["adam"] == "anew"


class TestIMM:
    @pytest.mark.parametrize("merge", ["mean", "mode"])
    def test_what_answers_is_the_merger_of_each_tasks_weights(self, merge):
        learner = IMM(small_mlp(), IMMSettings(merge=merge, budget=BUDGET))
        weights, precisions, before = [], [], torch.zeros(10, 6)
        for task in stream_for(small_mlp(), "one output", "classes", "subtasks"):
            learner.learn(task)
            memory = learner.network.memory
            weights.append(memory["last/hidden1.weight"])
            precisions.append(memory["precision/hidden1.weight"] - before)
            before = memory["precision/hidden1.weight"]
        if merge == "mean":
            assert all(torch.equal(p, torch.ones(10, 6)) for p in precisions)
        w, p = torch.stack(weights), torch.stack(precisions)
        expected = (w * p).sum(dim=0) / p.sum(dim=0)
        torch.testing.assert_close(
            learner.network.shared["hidden1.weight"], expected, atol=1e-4, rtol=1e-3
        )

    def test_the_next_task_starts_from_the_last_weights_and_not_from_the_merger(self):
        tasks = stream_for(small_mlp(), "one output", "classes")
        merged = IMM(small_mlp(), IMMSettings(merge="mean", transfer=0.0, budget=BUDGET))
        plain = Finetuning(small_mlp(), SequentialSettings(budget=BUDGET))
        for task in tasks:
            merged.learn(task)
            plain.learn(task)
        for name, tensor in plain.network.shared.items():
            assert torch.equal(merged.network.memory[f"last/{name}"], tensor)
            assert not torch.equal(merged.network.shared[name], tensor)


@pytest.mark.parametrize(
    ("settings", "changes", "message"),
    [
        (SequentialSettings, {"mu": -1.0}, r"mu must be 0 or more and finite, not -1\.0"),
        (SequentialSettings, {"heads": "two"}, r"heads must be one of 'own', 'one', not 'two'"),
        (SequentialSettings, {"adam": "new"}, r"adam must be one of 'anew', 'carried', not 'new'"),
        (L2Settings, {"strength": -1.0}, r"strength must be 0 or more"),
        (L2Settings, {"holds": "none"}, r"holds must be one of 'old', 'all', not 'none'"),
        (
            EWCSettings,
            {"strength": float("nan")},
            r"strength must be 0 or more and finite, not nan",
        ),
        (EWCSettings, {"adam": "made up"}, r"adam must be one of 'anew', 'carried'"),
        (
            EWCSettings,
            {"labels": "made up"},
            r"labels must be one of 'all', 'sampled', 'true', 'predicted'",
        ),
        (EWCSettings, {"tasks": "both"}, r"tasks must be one of 'separate', 'online'"),
        (EWCSettings, {"examples": 0}, r"examples must be a whole number above 0"),
        (EWCSettings, {"examples": 1.5}, r"examples must be a whole number above 0"),
        (EWCSettings, {"decay": 1.5}, r"decay must be from 0 to 1"),
        (SISettings, {"damping": 0.0}, r"damping must be above 0"),
        (SISettings, {"below_zero": "up"}, r"below_zero must be one of 'cut', 'kept', not 'up'"),
        (IMMSettings, {"merge": "median"}, r"merge must be one of 'mean', 'mode'"),
        (IMMSettings, {"floor": 0.0}, r"floor must be above 0"),
    ],
)
def test_a_setting_out_of_its_range_is_refused(settings, changes, message):
    with pytest.raises(SettingError, match=message):
        settings(**changes)


def test_one_head_refuses_a_task_that_asks_something_else():
    first, second = stream_for(small_mlp(), "classes", "subtasks")
    learner = Finetuning(small_mlp(), SequentialSettings(heads="one", budget=BUDGET))
    learner.learn(first)
    with pytest.raises(TaskError, match=r"one head serves all tasks.*use heads='own'"):
        learner.learn(second)
    assert learner.tasks == ("task 1",)
