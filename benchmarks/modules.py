"""A traced module against the module itself: training steps, prediction, and tracing.

OMP_NUM_THREADS=1 python benchmarks/modules.py
"""

import sys
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path

import torch
import torch.nn.functional as F
from side_by_side import Figure, figure, publish, ratio
from torch import Tensor, nn

from lifelong import Budget, grow
from lifelong.networks.growing import Network, first_network
from lifelong.networks.initial import uniform
from lifelong.networks.layout import trainable
from lifelong.tasks.examples import TensorExamples
from lifelong.tasks.kinds import Kind
from lifelong.training.loop import Problem, objective, solve

sys.path.append(str(Path(__file__).resolve().parent.parent / "tests"))
from zoo import ResNet, ViT

BATCH, RATE, CLASSES = 64, 1e-3, 10
MODULES: dict[str, Callable[[], nn.Module]] = {
    "ResNet-18, 16 to 64 channels": lambda: ResNet((16, 24, 32, 64), CLASSES),
    "ViT, 64 wide": lambda: ViT(64, 4, 128, 32, CLASSES),
}
TRACING = 10.0  # seconds allowed for ResNet-18


def images(rows: int) -> Tensor:
    return torch.randn(rows, 3, 32, 32, generator=torch.Generator().manual_seed(0))


def rows(count: int) -> TensorExamples:
    return TensorExamples(images(count), torch.arange(count) % CLASSES)


def network(module: nn.Module) -> Network:
    architecture = grow(module, images(2), pretrained=True)
    make = uniform(torch.Generator().manual_seed(0))
    return first_network(architecture, architecture.layout.groups, CLASSES, make)


def solved(net: Network, train: TensorExamples, steps: int) -> None:
    layout = net.architecture.layout
    few = TensorExamples(train.x[:2], train.y[:2])
    problem = Problem(
        "benchmark",
        net.tensors,
        [objective(net.architecture, Kind.CLASSES, train, few)],
        trainable(layout.tensors),
        buffers=layout.buffers,
    )
    budget = Budget(steps=steps, batch_size=BATCH, learning_rate=RATE, check_every=steps)
    solve(problem, budget, torch.Generator().manual_seed(0))


def bare(module: nn.Module, train: TensorExamples, steps: int) -> None:
    """What one would write by hand."""
    module.train()
    adam = torch.optim.Adam(module.parameters(), lr=RATE, fused=True)
    generator, taken = torch.Generator().manual_seed(0), 0
    while True:
        for chosen in torch.randperm(len(train), generator=generator).split(BATCH):
            adam.zero_grad()
            F.cross_entropy(module(train.x[chosen]), train.y[chosen]).backward()
            adam.step()
            taken += 1
            if taken == steps:
                return


def plainly(module: nn.Module, x: Tensor, times: int) -> None:
    with torch.no_grad():
        for _ in range(times):
            module(x)


def ours(net: Network, x: Tensor, times: int) -> None:
    with torch.no_grad():
        for _ in range(times):
            net.logits(x)


def tracing() -> Figure:
    """Seconds of the processor that tracing ResNet-18 takes, over those allowed."""
    module, example = ResNet((64, 128, 256, 512), CLASSES), images(2)
    began = time.process_time()
    grow(module, example)
    share = (time.process_time() - began) / TRACING
    return figure(f"tracing ResNet-18 / {TRACING:.0f} s", share, 1.0)


def figures() -> list[Figure]:
    found = []
    for name, make in MODULES.items():
        module = make()
        net, train = network(module), rows(4 * BATCH)
        step = ratio(partial(solved, net, train, 4), partial(bare, module, train, 4), turns=5)
        found.append(figure(f"step of solve / bare loop, {name}, batch {BATCH}", step, 1.10))
        module.eval()
        for count, times, target in ((256, 1, 1.10), (64, 3, 1.10), (1, 40, 1.5)):
            x = images(count)
            measured = ratio(
                partial(ours, net, x, times), partial(plainly, module, x, times), turns=9
            )
            row = f"{count} row{'s'[: count > 1]}"
            found.append(figure(f"prediction / module, {name}, {row}", measured, target))
    return [*found, tracing()]


if __name__ == "__main__":
    torch.set_num_threads(1)
    publish(figures())
