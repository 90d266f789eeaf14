"""APD: additive parameter decomposition (Yoon, Kim, Yang and Hwang, 2020), by DEN's authors.

The weights of task t are `sigma * M_t + tau_t`: shared weights sigma, times a gate for each unit
(the sigmoid of v_t), plus sparse weights tau_t of its own. While task t is learned sigma may move,
and each earlier tau_i is changed so that the task keeps its weights theta_i (the retroactive
update). The objective is that of the paper,

    loss_t + lam1 * sum_i |tau_i|_1 + lam2 * sum_{i<t} |theta_i - (sigma * M_i + tau_i)|^2.

The best tau_i for a given sigma is known: `soft(theta_i - sigma * M_i, lam1 / (2 lam2))`. So an
entry of an earlier task moves by `lam1 / (2 lam2)` at most with each task that is learned later.

Departs from the paper: earlier v_i stay; what a change of sigma costs in the earlier tau_i is
`lam1 * M_i` for each unit of change and task, which holds sigma by a proximal map, so that most of
it stays exactly and the tau_i stay sparse; the first task has no tau, because sigma can take all of
it; taus are not clustered into locally shared ones.
"""

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any, ClassVar, final

import torch
import torch.nn.functional as F
from torch import Tensor

from lifelong.learners.baselines.views import ViewLearner, movable_all, shared_weights
from lifelong.networks.growing import BITS, OWN, GrowingNetwork
from lifelong.networks.layout import NetworkError, Tensors, logits
from lifelong.networks.masks import bytes_for, join_sparse, on_dim, split_sparse, unpack_bits
from lifelong.records import TaskRecord
from lifelong.tasks.examples import to_device
from lifelong.tasks.task import Task
from lifelong.training.budget import Budget, require
from lifelong.training.loop import Problem, TaskObjective, TrainingContext, solve
from lifelong.training.losses import loss_of
from lifelong.training.optimizer import under
from lifelong.training.penalties import Around, L1Norm, Penalty, WeightedL1

_GATE = 2.0  # v before training: gates of 0.88


@final
@dataclass(frozen=True)
class APDSettings:
    """Symbols of APD.

    Attributes:
        lam1: lambda_1, strength of l1 on the tasks' own weights tau.
        lam2: lambda_2, strength with which earlier tasks keep their weights.
        budget: of each training.
    """

    lam1: float = 0.2
    lam2: float = 1000.0
    budget: Budget = field(default_factory=Budget)

    def __post_init__(self) -> None:
        require("lam1", self.lam1, "0 or more", lambda v: v >= 0)
        require("lam2", self.lam2, "above 0", lambda v: v > 0)

    @property
    def slack(self) -> float:
        """By how much an entry of an earlier task may move with each later task."""
        return self.lam1 / (2 * self.lam2)


@final
class APD(ViewLearner[APDSettings]):
    """Tasks share what they have in common, and earlier ones adapt to what is shared later."""

    method: ClassVar[str] = "APD"
    settings_type = APDSettings

    def _weights(self, network: GrowingNetwork, number: int) -> Tensors:
        return {
            name: sigma * self._gate(network, number, name) + _tau(network, number, name)
            for name, sigma in network.shared.items()
        }

    @staticmethod
    def _gate(network: GrowingNetwork, number: int, name: str) -> Tensor:
        """M of a task, shaped to multiply the weight of this name."""
        return _gate(network.memory[f"{OWN}{number}/gate/{name}"], network.shared[name].ndim)

    def _memory_of(self, network: GrowingNetwork) -> Iterable[tuple[str, tuple[int, ...] | None]]:
        for number in range(1, len(network.tasks) + 1):
            for name, sigma in network.shared.items():
                yield f"{OWN}{number}/gate/{name}", (len(sigma),)
                yield f"{BITS}{number}/{name}", (bytes_for(sigma.numel()),)
                yield f"{OWN}{number}/tau/{name}", None

    def _require_usable(self) -> None:
        super()._require_usable()
        network = self.network
        for number in range(1, len(network.tasks) + 1):
            for name, sigma in network.shared.items():
                bits = unpack_bits(network.memory[f"{BITS}{number}/{name}"], tuple(sigma.shape))
                if network.memory[f"{OWN}{number}/tau/{name}"].shape != (int(bits.sum()),):
                    raise NetworkError(f"task {number} has not one number for each place in {name}")

    def _learn(
        self, task: Task, generator: torch.Generator, context: TrainingContext
    ) -> tuple[GrowingNetwork, TaskRecord]:
        known, start = self.network, self._start(task, generator)
        names = shared_weights(known.architecture)
        gates = {n: torch.full((len(start.tensors[n]),), _GATE, device=self.device) for n in names}
        taus = {n: torch.zeros_like(t) for n, t in known.shared.items()}
        tensors = {**start.tensors, **under("gate", gates), **under("tau", taus)}

        def forward(
            tensors: Tensors, x: Tensor, generator: torch.Generator | None = None
        ) -> Tensor:
            weights = {
                name: decomposed(tensors[name], tensors[f"gate/{name}"], tensors.get(f"tau/{name}"))
                for name in names
            }
            return logits(known.architecture, {**tensors, **weights}, x, generator)

        rows = (to_device(rows, self.device) for rows in (task.train, task.valid))
        problem = Problem(
            f"{task.name}: decomposed",
            tensors,
            [TaskObjective(forward, loss_of(task), *rows, training=forward)],
            movable=movable_all(known.architecture, [*under("gate", gates), *under("tau", taus)]),
            buffers=known.architecture.layout.buffers,
            penalties=self._penalties(known),
        )
        solution = solve(problem, self.settings.budget, generator, context)
        found = solution.tensors
        memory = self._updated(known, {name: found[name] for name in names})
        for name in names:
            zero = torch.zeros_like(found[name])
            memory |= _kept(len(known.tasks) + 1, name, found.get(f"tau/{name}", zero))
            memory[f"{OWN}{len(known.tasks) + 1}/gate/{name}"] = found[f"gate/{name}"]
        after = self._after(task, start, found, memory)
        return after, self._record(task, start, decomposed=solution)

    def _penalties(self, known: GrowingNetwork) -> dict[str, Penalty]:
        """l1 on tau; and on the change of sigma, whose price the earlier taus would pay."""
        lam1, numbers = self.settings.lam1, range(1, len(known.tasks) + 1)
        penalties: dict[str, Penalty] = {}
        for name, sigma in known.shared.items():
            price = torch.stack([self._gate(known, number, name) for number in numbers]).sum(dim=0)
            penalties[name] = Around(sigma, WeightedL1(lam1 * price))
            penalties[f"tau/{name}"] = L1Norm(lam1)
        return penalties

    def _updated(self, known: GrowingNetwork, sigmas: Tensors) -> dict[str, Tensor]:
        """The memory of earlier tasks after sigma has moved: the retroactive update."""
        memory = dict(known.memory)
        for number in range(1, len(known.tasks) + 1):
            theta = self._weights(known, number)
            for name, before in known.shared.items():
                moved = sigmas[name] != before
                left = theta[name] - sigmas[name] * self._gate(known, number, name)
                tau = _tau(known, number, name)
                memory |= _kept(
                    number, name, torch.where(moved, F.softshrink(left, self.settings.slack), tau)
                )
        return memory


def decomposed(sigma: Tensor, gate: Tensor, tau: Tensor | None) -> Tensor:
    """The weights `sigma * M + tau`, with M made of v, the gate; tau is zero if there is none."""
    open_share = _gate(gate, sigma.ndim)
    if tau is None:
        return sigma * open_share
    found: Tensor = _Decomposed.apply(sigma, open_share, tau)  # type: ignore[no-untyped-call]
    return found


class _Decomposed(torch.autograd.Function):
    """`sigma * gate + tau` whose gradients take fewer passes over the weights than PyTorch's."""

    @staticmethod
    def forward(ctx: Any, sigma: Tensor, gate: Tensor, tau: Tensor) -> Tensor:
        ctx.save_for_backward(sigma, gate)
        return torch.addcmul(tau, sigma, gate)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        (gradient,) = gradients
        sigma, gate = ctx.saved_tensors
        product = gradient * sigma
        of_gate = product.sum_to_size(gate.shape)
        return torch.mul(gradient, gate, out=product), of_gate, gradient


def _gate(v: Tensor, dims: int) -> Tensor:
    return on_dim(torch.sigmoid(v), 0, dims)


def _tau(network: GrowingNetwork, number: int, name: str) -> Tensor:
    bits, values = network.memory[f"{BITS}{number}/{name}"], f"{OWN}{number}/tau/{name}"
    return join_sparse(bits, network.memory[values], tuple(network.shared[name].shape))


def _kept(number: int, name: str, tau: Tensor) -> dict[str, Tensor]:
    bits, values = split_sparse(tau)
    return {f"{BITS}{number}/{name}": bits, f"{OWN}{number}/tau/{name}": values}
