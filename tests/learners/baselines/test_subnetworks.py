"""Methods whose tasks use parts of one network: what each promises about them."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from builders import ARCHITECTURES, BUDGET, KINDS, random, same, small_mlp, stream_for, task_for
from lifelong.learners.baselines import (
    HAT,
    WSN,
    HATSettings,
    LoRA,
    LoRASettings,
    PackNet,
    PackNetSettings,
    Piggyback,
    PiggybackSettings,
    SupSup,
    SupSupSettings,
    WSNSettings,
)
from lifelong.learners.registry import METHODS
from lifelong.networks.masks import between
from lifelong.training.budget import SettingError
from lifelong.training.scores import straight_through, threshold

every_network = pytest.mark.parametrize("network", ARCHITECTURES)
few = settings(max_examples=3)


def after_each_task(learner, architecture, *kinds):
    """Shared tensors and masks after each of some tasks."""
    for task in stream_for(architecture, *(kinds or KINDS)):
        learner.learn(task)
        shared = {name: t.clone() for name, t in learner.network.shared.items()}
        yield shared, learner.sharing_of_weights().used


def masks_of(used, shared, row):
    return {name: used[name][row].reshape(tensor.shape) for name, tensor in shared.items()}


@every_network
@few
@given(share=st.floats(0.05, 1.0), of=st.sampled_from(["free", "all"]))
def test_packnet_gives_a_weight_to_one_task_and_never_moves_it_again(network, share, of):
    architecture = ARCHITECTURES[network]()
    learner = PackNet(architecture, PackNetSettings(share=share, of=of, budget=BUDGET))
    owned, before = {}, {}
    for number, (shared, used) in enumerate(after_each_task(learner, architecture), 1):
        for name, tensor in shared.items():
            mask = used[name][-1].reshape(tensor.shape)
            older = owned.get(name, torch.zeros_like(mask))
            assert not (older & ~mask).any()  # a task reads all that earlier ones own
            if name in before:
                assert torch.equal(tensor[older], before[name][older])
            free = tensor.numel() - int(older.sum())
            whole = free if of == "free" else tensor.numel()
            assert int((mask & ~older).sum()) == min(free, max(1, round(share * whole)))
            assert (tensor[~mask] == 0).all()
            owned[name] = mask
        before = shared
        assert all(len(rows) == number for rows in used.values())


def test_packnet_stores_the_owners_in_as_few_bits_as_their_number_takes():
    learner = PackNet(small_mlp(), PackNetSettings(budget=BUDGET))
    for number, task in enumerate(stream_for(small_mlp(), *["one output"] * 4), 1):
        learner.learn(task)
        digits = number.bit_length()
        own = number * (10 + 7 + 7 + 1)
        bits = digits * (-(-60 // 8) + -(-70 // 8))
        used = sum(
            int(rows.any(dim=0).sum()) for rows in learner.sharing_of_weights().used.values()
        )
        assert used < 60 + 70
        assert learner.capacity().bytes == 4 * (used + own) + bits
        assert learner.learning_bytes() == 4 * (60 + 70 - used)


@every_network
@few
@given(share=st.floats(0.05, 1.0))
def test_wsn_freezes_what_a_task_uses_and_a_later_one_reuses_some(network, share):
    architecture = ARCHITECTURES[network]()
    learner = WSN(architecture, WSNSettings(share=share, budget=BUDGET))
    used_before, before = {}, {}
    for shared, used in after_each_task(learner, architecture):
        for name, tensor in shared.items():
            mask = used[name][-1].reshape(tensor.shape)
            assert int(mask.sum()) == max(1, round(share * tensor.numel()))
            if name in before:
                held = used_before[name]
                assert torch.equal(tensor[held], before[name][held])
            used_before[name] = used_before.get(name, torch.zeros_like(mask)) | mask
        before = shared
    overlap = learner.sharing_of_weights().overlap()
    assert share < 0.5 or overlap[0, 1] > 0.3


def test_wsn_trains_what_no_task_uses():
    learner = WSN(small_mlp(), WSNSettings(share=0.2, budget=BUDGET))
    (first, used), (second, _) = after_each_task(learner, small_mlp(), "classes", "classes")
    for name, tensor in first.items():
        free = ~used[name][0].reshape(tensor.shape)
        assert (second[name] != tensor)[free].any()


@every_network
def test_supsup_never_trains_a_weight(network):
    architecture = ARCHITECTURES[network]()
    learner = SupSup(architecture, SupSupSettings(share=0.4, budget=BUDGET))
    states = list(after_each_task(learner, architecture))
    assert all(same(shared, states[0][0]) for shared, _ in states)
    for name, tensor in states[0][0].items():
        assert len(tensor.abs().unique()) == 1
        assert (tensor > 0).any()
        assert (tensor < 0).any()
        rows = states[-1][1][name]
        assert (rows.sum(dim=1) == round(0.4 * tensor.numel())).all()
        assert not torch.equal(rows[0], rows[1])


@every_network
def test_piggyback_keeps_the_first_network_and_masks_it(network):
    architecture = ARCHITECTURES[network]()
    learner = Piggyback(architecture, PiggybackSettings(budget=BUDGET))
    states = list(after_each_task(learner, architecture))
    assert all(same(shared, states[0][0]) for shared, _ in states)
    used = states[-1][1]
    assert all(rows[0].all() for rows in used.values())
    assert any(not rows[1].all() for rows in used.values())
    assert any(not torch.equal(rows[1], rows[2]) for rows in used.values())


@every_network
def test_hat_moves_only_weights_with_an_end_that_no_task_uses(network):
    architecture = ARCHITECTURES[network]()
    learner = HAT(architecture, HATSettings(budget=BUDGET))
    before, held, moved = {}, {}, 0
    for shared, _ in after_each_task(learner, architecture):
        for name, mask in held.items():
            assert torch.equal(shared[name][mask], before[name][mask])
            moved += int((shared[name] != before[name]).sum())
        units = {group: used.any(dim=0) for group, used in learner.sharing().used.items()}
        specs = architecture.layout.tensors
        held = {n: between(specs[n], units, tuple(t.shape)) for n, t in shared.items()}
        before = shared
    assert moved > 0


def test_hat_uses_fewer_units_if_they_cost_more():
    def used(c):
        learner = HAT(small_mlp(), HATSettings(c=c, budget=BUDGET), seed=3)
        learner.learn(task_for(small_mlp(), "classes", rows=100))
        return sum(int(units.sum()) for units in learner.sharing().used.values())

    assert used(50.0) < used(0.0)


def test_a_gate_is_open_even_if_all_are_shut():
    from lifelong.learners.baselines.hat import is_open

    assert is_open(torch.tensor([-2.0, -1.0, -3.0])).tolist() == [False, True, False]
    assert is_open(torch.tensor([0.5, -1.0, 3.0])).tolist() == [True, False, True]


@every_network
@few
@given(rank=st.integers(1, 4))
def test_lora_changes_weights_by_matrices_of_its_rank(network, rank):
    architecture = ARCHITECTURES[network]()
    learner = LoRA(architecture, LoRASettings(rank=rank, budget=BUDGET))
    for task in stream_for(architecture, *KINDS):
        learner.learn(task)
    shared = learner.network.shared
    for number in (1, 2, 3):
        view = learner._view(learner.network, number).tensors
        for name, tensor in shared.items():
            change = (view[name] - tensor).flatten(1).double()
            assert torch.linalg.matrix_rank(change, atol=1e-5) <= (rank if number > 1 else 0)
    assert any(not torch.equal(view[name], shared[name]) for name in shared)


def test_lpf_trains_the_network_once():
    learner = METHODS["LPF"].make(small_mlp(), budget=BUDGET)
    first, second = stream_for(small_mlp(), "one output", "classes")
    learner.learn(first)
    before = dict(learner.network.shared)
    learner.learn(second)
    assert same(before, learner.network.shared)
    assert set(learner.network.tasks[1].private) == {"head.weight", "head.bias"}


@given(st.integers(1, 60), st.floats(0.01, 1.0), st.integers(0, 50))
def test_the_threshold_leaves_the_share(count, share, seed):
    score = torch.randn(count, generator=random(seed))
    assert int((score.abs() >= threshold(score, share)).sum()) == max(1, round(share * count))


@pytest.mark.parametrize("frozen", [True, False])
@pytest.mark.parametrize("by_size", [True, False])
def test_a_score_gets_the_gradient_that_its_product_with_the_weight_would_have(by_size, frozen):
    weight, score = (torch.randn(5, generator=random(n)).requires_grad_() for n in (1, 2))
    weight = weight.detach() if frozen else weight
    gradient = torch.randn(5, generator=random(3))
    found = straight_through(weight, score, torch.tensor(0.4), by_size=by_size)
    found.backward(gradient)
    size = score.detach().abs() if by_size else score.detach()
    assert torch.equal(found.detach(), torch.where(size >= 0.4, weight.detach(), 0.0))
    if not frozen:
        assert torch.equal(weight.grad, torch.where(size >= 0.4, gradient, 0.0))
    sign = score.detach().sign() if by_size else 1
    assert torch.allclose(score.grad, gradient * weight.detach() * sign)


@pytest.mark.parametrize(
    ("make", "says"),
    [
        (lambda: PackNetSettings(share=0.0), "share must be above 0 and up to 1"),
        (lambda: PackNetSettings(of="some"), "of must be one of 'free', 'all', not 'some'"),
        (lambda: WSNSettings(share=1.5), "share must be above 0 and up to 1"),
        (lambda: SupSupSettings(share=-1.0), "share must be above 0 and up to 1"),
        (
            lambda: PiggybackSettings(initial=0.0),
            r"initial must be 0.005 \(the threshold\) or more",
        ),
        (lambda: HATSettings(s_max=1.0), "s_max must be above 1"),
        (lambda: HATSettings(c=-1.0), "c must be 0 or more"),
        (lambda: HATSettings(gate_learning_rate=0.0), "gate_learning_rate must be above 0"),
        (lambda: LoRASettings(rank=0), "rank must be a whole number above 0"),
        (lambda: LoRASettings(scale=0.0), "scale must be above 0"),
    ],
)
def test_a_setting_out_of_range_is_refused(make, says):
    with pytest.raises(SettingError, match=says):
        make()
