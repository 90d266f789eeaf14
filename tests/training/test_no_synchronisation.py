"""A training step never waits for the device: what it computes stays there.

Without a GPU this is shown by the operations themselves: `_local_scalar_dense` is what `.item()`,
`float(tensor)` and `bool(tensor)` become, and a copy to another device is what `.cpu()` becomes.
"""

from dataclasses import replace

import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode

from builders import BUDGET, random, random_network, small_convnet, small_mlp, task_for
from lifelong.learners.baselines.si import PathIntegral
from lifelong.tasks.examples import TensorExamples, to_device
from lifelong.training.loop import Problem, _Loop, objective
from lifelong.training.penalties import Quadratic, sparse_weights
from lifelong.training.ranks import ALONE

WAITS = ("aten::_local_scalar_dense", "aten::equal", "aten::is_nonzero", "aten::nonzero")


class Synchronised(AssertionError):
    """An operation that would wait for the device."""


class NoSynchronisation(TorchDispatchMode):
    """Forbids operations whose result the host must know, and copies between devices."""

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        del types
        name, given = func.name().split(".")[0], kwargs or {}
        masked = name == "aten::index" and any(
            i.dtype is torch.bool for i in args[1] if i is not None
        )
        if name in WAITS or masked:
            raise Synchronised(name)
        if name == "aten::_to_copy" and given.get("device") not in (None, args[0].device):
            raise Synchronised(f"{name} to {given['device']}")
        return func(*args, **given)


def loop_for(architecture, optimizer="adam", hook=False, device="cpu"):
    network = random_network(architecture, random(0), outputs=1)
    task = task_for(architecture)
    tensors = {name: tensor.to(device) for name, tensor in network.tensors.items()}
    specs = architecture.layout.tensors
    rows = [to_device(part, torch.device(device)) for part in (task.train, task.valid)]
    masks = {name: torch.ones_like(t, dtype=torch.bool) for name, t in tensors.items()}
    held = {name: Quadratic(torch.ones_like(t), t.clone()) for name, t in tensors.items()}
    problem = Problem(
        "stage",
        tensors,
        [objective(architecture, task.kind, *rows)],
        masks,
        penalties=sparse_weights(specs, 0.1),
        pulls=held,
        hook=PathIntegral(tensors) if hook else None,
    )
    momentum = 0.9 if optimizer == "sgd" else 0.0
    budget = replace(BUDGET, optimizer=optimizer, momentum=momentum, weight_decay=0.01)
    return _Loop(problem, budget, random(1), ALONE)


@pytest.mark.parametrize("architecture", [small_mlp, small_convnet])
@pytest.mark.parametrize(("optimizer", "hook"), [("adam", False), ("sgd", False), ("adam", True)])
def test_steps_do_not_wait_for_the_device(architecture, optimizer, hook):
    training = loop_for(architecture(), optimizer, hook)
    with NoSynchronisation():
        for _ in range(4):  # also over the end of a pass
            training.step(0.01)


@pytest.mark.parametrize(
    "waits",
    [
        lambda t: t.sum().item(),
        lambda t: float(t.sum()),
        lambda t: bool((t > 0).any()),
        lambda t: t[t > 0],
        lambda t: t.to("meta"),
    ],
)
def test_what_would_wait_is_noticed(waits):
    with NoSynchronisation(), pytest.raises(Synchronised):
        waits(torch.ones(3))


def test_rows_and_their_order_are_on_the_device():
    """On `meta`, the only other device here: no batch comes from the CPU."""
    held = TensorExamples(torch.ones(10, 4), torch.ones(10, 1))
    for rows in (held, held.part(1, 3)):
        moved = to_device(rows, torch.device("meta"))
        for generator in (None, random(0)):
            for x, y in moved.batches(4, generator):
                assert x.is_meta
                assert y.is_meta


def test_a_step_runs_where_its_tensors_are():
    """On `meta`, which takes no tensor of the CPU among its own, and has no numbers to wait for."""
    training = loop_for(small_mlp(), device="meta")
    training.step(0.01)
    gradients = [tensor.grad for tensor in training.tensors.values()]
    assert all(gradient is not None and gradient.is_meta for gradient in gradients)
