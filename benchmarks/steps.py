"""A step of `solve` against a bare loop of the same arithmetic, and a part against the whole.

OMP_NUM_THREADS=1 python benchmarks/steps.py
"""

from collections.abc import Callable
from functools import partial

import torch
import torch.nn.functional as F
from side_by_side import Figure, figure, publish, ratio
from torch import Tensor

from lifelong import Budget, convnet, mlp
from lifelong.networks.growing import Network, first_network
from lifelong.networks.initial import uniform
from lifelong.networks.sequential import Sequential
from lifelong.networks.surgery import gather
from lifelong.tasks.examples import TensorExamples
from lifelong.tasks.kinds import Kind
from lifelong.training.loop import Problem, objective, solve
from lifelong.training.penalties import KernelGroup, L1Norm, sparse_weights

BATCH, RATE, MU = 256, 1e-3, 0.1
RETRAINING = 600  # steps, a short retraining; before them it takes the columns that the part reads
MLP = mlp(784, [312, 128])
CONVNET = convnet((3, 32, 32), [16, 32], [64], kernel=5)


def rows(sequential: Sequential, count: int, seed: int = 0) -> TensorExamples:
    generator = torch.Generator().manual_seed(seed)
    x = torch.randn(count, *sequential.inputs, generator=generator)
    return TensorExamples(x, torch.randint(2, (count, 1), generator=generator).float())


def network(sequential: Sequential) -> Network:
    return first_network(
        sequential, sequential.layout.groups, 1, uniform(torch.Generator().manual_seed(0))
    )


def solved(net: Network, train: TensorExamples, steps: int) -> None:
    """Training with l1, as most of DEN's trainings are; the two looks are at few rows."""
    few = TensorExamples(train.x[:8], train.y[:8])
    tensors = net.tensors
    problem = Problem(
        "benchmark",
        tensors,
        [objective(net.architecture, Kind.BINARY, train, few)],
        dict.fromkeys(tensors),
        sparse_weights(net.architecture.layout.tensors, MU),
    )
    budget = Budget(steps=steps, batch_size=BATCH, learning_rate=RATE, check_every=steps)
    solve(problem, budget, torch.Generator().manual_seed(0))


def bare(net: Network, train: TensorExamples, steps: int, forward: Callable[..., Tensor]) -> None:
    """What one would write by hand: rows by index, fused Adam, the maps of the penalties."""
    w = {name: tensor.clone().requires_grad_() for name, tensor in net.tensors.items()}
    adam = torch.optim.Adam(w.values(), lr=RATE, fused=True)
    generator = torch.Generator().manual_seed(0)
    taken = 0
    while taken < steps:
        for chosen in torch.randperm(len(train), generator=generator).split(BATCH):
            adam.zero_grad()
            out = forward(w, train.x[chosen])
            F.binary_cross_entropy_with_logits(out, train.y[chosen]).backward()
            adam.step()
            with torch.no_grad():
                for t in w.values():
                    if t.ndim == 4:
                        t.copy_(KernelGroup(MU).prox(t, RATE))
                    elif t.ndim == 2:
                        t.copy_(L1Norm(MU).prox(t, RATE))
            taken += 1
            if taken == steps:
                return


def mlp_forward(w: dict[str, Tensor], x: Tensor) -> Tensor:
    x = F.relu(F.linear(x, w["hidden1.weight"], w["hidden1.bias"]))
    x = F.relu(F.linear(x, w["hidden2.weight"], w["hidden2.bias"]))
    return F.linear(x, w["head.weight"], w["head.bias"])


def convnet_forward(w: dict[str, Tensor], x: Tensor) -> Tensor:
    for name in ("conv1", "conv2"):
        x = F.conv2d(x, w[f"{name}.weight"], w[f"{name}.bias"], padding=2)
        x = F.max_pool2d(F.relu(x), 2)
    x = F.relu(F.linear(x.flatten(1), w["hidden1.weight"], w["hidden1.bias"]))
    return F.linear(x, w["head.weight"], w["head.bias"])


def part(net: Network, share: float) -> tuple[Network, Tensor]:
    """A subnetwork with this share of the weights, and the inputs that it reads."""
    side = share**0.5
    chosen = {g: torch.arange(round(side * len(b))) for g, b in net.born.items()}
    inputs = torch.arange(round(side * net.width("inputs")))
    return gather(net, {**chosen, "inputs": inputs}), inputs


def figures() -> list[Figure]:
    found = []
    sizes = {
        "784-312-128": (MLP, mlp_forward, 8192, 150),
        "convnet 16-32-64": (CONVNET, convnet_forward, 512, 6),
    }
    for name, (sequential, forward, count, steps) in sizes.items():
        net, train = network(sequential), rows(sequential, count)
        ours = partial(solved, net, train, steps)
        theirs = partial(bare, net, train, steps, forward)
        found.append(figure(f"step of solve / bare loop, {name}", ratio(ours, theirs), 1.10))
    net, train = network(MLP), rows(MLP, 8192)
    whole = partial(solved, net, train, RETRAINING)
    for share in (0.05, 0.10, 0.25, 0.50, 1.00):
        small, inputs = part(net, share)
        weights = sum(t.numel() for t in small.tensors.values())
        real = weights / sum(t.numel() for t in net.tensors.values())

        def selective(small: Network = small, inputs: Tensor = inputs) -> None:
            solved(small, TensorExamples(train.x.index_select(1, inputs), train.y), RETRAINING)

        name = f"retraining {share:.0%} of the weights / all"
        found.append(figure(name, ratio(selective, whole, turns=5), round(real + 0.10, 3)))
    return found


if __name__ == "__main__":
    torch.set_num_threads(1)
    publish(figures())
