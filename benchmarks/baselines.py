"""What the baselines cost: Fisher's information, and a step of training.

    OMP_NUM_THREADS=1 python benchmarks/baselines.py

A step is compared with a bare PyTorch loop of the same method (same network, rows taken by index,
fused Adam), and with Avalanche where it is installed.
"""

import warnings
from collections.abc import Callable
from functools import partial

import torch
import torch.nn.functional as F
from peers import has_avalanche, one_pass
from side_by_side import Figure, figure, publish, ratio
from torch import Tensor, nn

from lifelong import Budget, mlp
from lifelong.learners.baselines.fisher import fisher
from lifelong.learners.baselines.si import PathIntegral
from lifelong.networks.growing import Network, first_network
from lifelong.networks.initial import uniform
from lifelong.tasks.examples import TensorExamples
from lifelong.tasks.kinds import Kind
from lifelong.training.loop import Problem, objective, solve
from lifelong.training.penalties import Quadratic

ROWS, OUTPUTS, BATCH, RATE = 10_000, 10, 256, 1e-3
STEPS = ROWS // BATCH  # a pass
SKELETON = mlp(784, [312, 128])
METHODS = ("DNN", "EWC", "SI")


def rows(count: int, seed: int) -> TensorExamples:
    generator = torch.Generator().manual_seed(seed)
    x = torch.randn(count, 784, generator=generator)
    return TensorExamples(x, torch.randint(OUTPUTS, (count,), generator=generator))


TRAIN, VALID = rows(ROWS, 1), rows(64, 2)


def network() -> Network:
    make = uniform(torch.Generator().manual_seed(0))
    return first_network(SKELETON, SKELETON.layout.groups, OUTPUTS, make)


def ours(method: str, passes: int = 3) -> None:
    """Steps of `solve` with what the method adds to them."""
    tensors = network().tensors
    pulls = {n: Quadratic(torch.ones_like(t), t.clone()) for n, t in tensors.items()}
    problem = Problem(
        "benchmark",
        tensors,
        [objective(SKELETON, Kind.CLASSES, TRAIN, VALID)],
        dict.fromkeys(tensors),
        pulls={} if method == "DNN" else pulls,
        hook=PathIntegral(tensors) if method == "SI" else None,
    )
    steps = passes * STEPS
    budget = Budget(steps=steps, batch_size=BATCH, learning_rate=RATE, check_every=steps)
    solve(problem, budget, torch.Generator().manual_seed(0))


def bare(method: str, passes: int = 3) -> None:
    """What somebody would write by hand who cares about speed, and wants nothing else."""
    w = {name: t.clone().requires_grad_() for name, t in network().tensors.items()}
    old = {name: t.detach().clone() for name, t in w.items()}
    importance = {name: torch.ones_like(t) for name, t in w.items()}
    path = {name: torch.zeros_like(t) for name, t in w.items()}
    adam = torch.optim.Adam(w.values(), lr=RATE, fused=True)
    generator = torch.Generator().manual_seed(0)
    for _ in range(passes):
        for chosen in torch.randperm(ROWS, generator=generator).split(BATCH)[:STEPS]:
            adam.zero_grad()
            h = F.relu(F.linear(TRAIN.x[chosen], w["hidden1.weight"], w["hidden1.bias"]))
            h = F.relu(F.linear(h, w["hidden2.weight"], w["hidden2.bias"]))
            out = F.linear(h, w["head.weight"], w["head.bias"])
            F.cross_entropy(out, TRAIN.y[chosen]).backward()
            with torch.no_grad():
                _bare_update(method, w, old, importance, path, adam)


def _bare_update(
    method: str,
    w: dict[str, Tensor],
    old: dict[str, Tensor],
    importance: dict[str, Tensor],
    path: dict[str, Tensor],
    adam: torch.optim.Optimizer,
) -> None:
    if method == "SI":
        slopes = {name: t.grad.clone() for name, t in w.items() if t.grad is not None}
        before = {name: t.detach().clone() for name, t in w.items()}
    if method != "DNN":
        for name, t in w.items():
            t.grad += importance[name] * (t - old[name])
    adam.step()
    if method == "SI":
        for name, t in w.items():
            path[name] -= slopes[name] * (t - before[name])


def avalanche(method: str) -> Callable[[], object]:
    """A second experience of theirs: the first one only sets up what is held."""
    from avalanche.benchmarks.scenarios.dataset_scenario import benchmark_from_datasets
    from avalanche.benchmarks.utils.classification_dataset import (
        _make_taskaware_tensor_classification_dataset as dataset,
    )
    from avalanche.training.supervised import EWC, Naive, SynapticIntelligence

    few = TensorExamples(TRAIN.x[:BATCH], TRAIN.y[:BATCH])
    experiences = [dataset(part.x, part.y, task_labels=0) for part in (few, TRAIN)]
    stream = benchmark_from_datasets(train=experiences).train_stream
    model = nn.Sequential(
        nn.Linear(784, 312), nn.ReLU(), nn.Linear(312, 128), nn.ReLU(), nn.Linear(128, OUTPUTS)
    )
    common = one_pass(model, RATE, BATCH)
    strategy = {
        "DNN": lambda: Naive(**common),
        "EWC": lambda: EWC(ewc_lambda=1.0, **common),
        "SI": lambda: SynapticIntelligence(si_lambda=1.0, **common),
    }[method]()
    strategy.train(stream[0])
    return lambda: strategy.train(stream[1])


def an_experience(method: str) -> None:
    """What Avalanche does in `train`: a pass, and after it EWC's importances of all rows."""
    ours(method, passes=1)
    if method == "EWC":
        fisher_of_all()


def fisher_of_all() -> None:
    generator = torch.Generator().manual_seed(0)
    fisher(network(), Kind.CLASSES, TRAIN, labels="all", examples=None, generator=generator)


def figures() -> list[Figure]:
    one_pass = partial(bare, "DNN", passes=1)
    found = [
        figure("Fisher of 10,000 examples / a training pass", ratio(fisher_of_all, one_pass), 2.0)
    ]
    for method in METHODS:
        step = ratio(partial(ours, method), partial(bare, method))
        found.append(figure(f"{method}: step / bare loop", step, 1.15))
    if not has_avalanche():
        print("avalanche-lib is not installed: not compared")
        return found
    for method in METHODS:
        theirs = ratio(partial(an_experience, method), avalanche(method), turns=5)
        found.append(figure(f"{method}: a pass / Avalanche 0.6", theirs, 0.6))
    return found


if __name__ == "__main__":
    torch.set_num_threads(1)
    warnings.simplefilter("ignore")  # Avalanche's
    publish(figures())
