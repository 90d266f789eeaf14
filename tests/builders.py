"""Small networks, tasks and budgets, and what it means that two learners are the same."""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file
from torch import Tensor

from lifelong.learners.base import Learner
from lifelong.learners.den import DEN, Settings
from lifelong.networks.growing import Network, first_network
from lifelong.networks.initial import uniform
from lifelong.networks.layout import OUTPUTS, Architecture, TensorSpec
from lifelong.networks.sequential import Sequential, convnet, mlp
from lifelong.networks.surgery import newcomers, with_newcomers
from lifelong.tasks.examples import Examples, TensorExamples
from lifelong.tasks.kinds import Kind
from lifelong.tasks.task import Task
from lifelong.training.budget import Budget

BUDGET = Budget(
    steps=24,
    batch_size=16,
    learning_rate=0.02,
    check_every=8,
    patience=2,
    lr_decays=1,
    lr_decay=0.5,
)
KINDS = ("one output", "subtasks", "classes")
REGRESSIONS = ("regression", "median regression")


def small_mlp() -> Sequential:
    return mlp(6, [10, 7])


def small_convnet() -> Sequential:
    return convnet((2, 6, 6), [5, 4], [6], kernel=3, pool=[True, False])


ARCHITECTURES: dict[str, Callable[[], Sequential]] = {"mlp": small_mlp, "convnet": small_convnet}


def random(seed: int) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def inputs_for(architecture: Architecture, rows: int, seed: int = 0) -> Tensor:
    return torch.randn(rows, *architecture.layout.inputs, generator=random(seed))


def task_for(
    architecture: Architecture,
    kind: str = "one output",
    seed: int = 0,
    name: str = "",
    rows: int = 40,
) -> Task:
    """A task that a network can learn: labels by the signs, or the order, of random directions.

    The validation rows are near the training rows, so that a few steps of training are a gain.
    """
    x = inputs_for(architecture, rows, seed + 1000)
    outputs = {"one output": 1, "subtasks": 2, "classes": 3}.get(kind, 2)
    rule = torch.randn(x[0].numel(), outputs, generator=random(seed + 2000))
    score = x.flatten(1) @ rule
    y = score.argmax(dim=1) if kind == "classes" else (score > score.median(dim=0).values).long()
    y = score / score.std(dim=0) if kind in REGRESSIONS else y
    train, valid = (x, y), (x + 0.1 * inputs_for(architecture, rows, seed + 3000), y)
    return Task(
        name or f"{kind} {seed}",
        train,
        valid,
        valid,
        kind=Kind(kind) if kind in ("classes", *REGRESSIONS) else Kind.BINARY,
        outputs=outputs,
    )


def stream_for(architecture: Architecture, *kinds: str, seed: int = 0) -> list[Task]:
    return [task_for(architecture, kind, seed + n, f"task {n}") for n, kind in enumerate(kinds, 1)]


def quick(**changes: Any) -> Settings:
    """Settings under which small networks select, grow and split within a few steps."""
    settings: dict[str, Any] = {
        "k": 2,
        "tau": 0.0,
        "initial_width": 0.5,
        "min_improvement": 0.0,
        "max_new_units": None,
    }
    return Settings(**{**settings, "budget": BUDGET, **changes})


def learned(
    architecture: Architecture, tasks: list[Task], settings: Settings, seed: int = 0
) -> DEN:
    learner = DEN(architecture, settings, seed=seed)
    for task in tasks:
        learner.learn(task)
    return learner


def random_network(
    architecture: Architecture, generator: torch.Generator, outputs: int = 2, density: float = 1.0
) -> Network:
    """All weights and biases random, and of the weights only this share not zero.

    Of a convolution whole kernels are zero, and a kernel that is not has zeros too.
    """
    make = uniform(generator)

    def fill(spec: TensorSpec, size: tuple[int, ...]) -> Tensor:
        if spec.kind == "bias":
            return torch.randn(size, generator=generator)
        kept = torch.rand(size[:2], generator=generator) < density
        values = make(spec, size) * kept.reshape(*size[:2], *[1] * (len(size) - 2))
        if len(size) == 4:
            values = values * (torch.rand(size, generator=generator) < 0.7)
        return values

    return first_network(architecture, architecture.layout.groups, outputs, fill)


def units_on(architecture: Architecture, name: str) -> Iterator[tuple[int, str, str, int]]:
    """Of each axis of a tensor that runs over hidden units or inputs: dim, group, role and span."""
    for dim, axis in enumerate(architecture.layout.tensors[name].axes):
        for segment in axis.segments:
            if segment.group not in (None, OUTPUTS):
                yield dim, segment.group, axis.role, segment.span


def in_double(network: Network) -> Network:
    return replace(network, tensors={name: t.double() for name, t in network.tensors.items()})


def touching_newcomers(network: Network, number: int) -> Mapping[str, Tensor]:
    """For each tensor, which entries touch a unit born with this task; all of the head's do."""
    nothing = {name: torch.zeros(t.shape, dtype=torch.bool) for name, t in network.tensors.items()}
    blocks = newcomers(network, number)
    full = {name: torch.ones_like(block, dtype=torch.bool) for name, block in blocks.items()}
    return with_newcomers(network.with_tensors(nothing), number, full).tensors


def same(left: Mapping[str, Tensor], right: Mapping[str, Tensor]) -> bool:
    """To the bit."""
    return left.keys() == right.keys() and all(torch.equal(left[n], right[n]) for n in left)


def stored_tensors(directory: Path) -> dict[str, Tensor]:
    """The tensors of a saved model's files, without what describes them."""
    files = (load_file(file) for file in sorted(directory.glob("*.safetensors")))
    return {name: t for file in files for name, t in file.items() if name != "about"}


def answers(learner: Learner, x: Tensor) -> dict[str, Tensor]:
    return {name: learner.predict_proba(x, task=name) for name in learner.tasks}


def contents(learner: Learner) -> dict[str, Tensor]:
    """Every tensor of a learner, copied."""
    network = learner.network
    own = {f"{k.name}.{n}": t for k in network.tasks for n, t in k.private.items()}
    stamps = {f"born.{group}": t for group, t in network.born.items()}
    memory = {f"memory.{name}": t for name, t in network.memory.items()}
    patches = {
        f"patch.{name}.{part}": getattr(patch, part)
        for name, patch in network.patches().items()
        for part in ("places", "values")
    }
    kept = {**network.shared, **own, **stamps, **memory, **patches}
    return {name: t.clone() for name, t in kept.items()}


class CountedExamples:
    """Rows that are not held as tensors, and that break at a given batch."""

    def __init__(
        self,
        rows: Examples,
        breaks_at: int | None = None,
        error: type[BaseException] = RuntimeError,
    ) -> None:
        self.rows, self.breaks_at, self.error = rows, breaks_at, error
        self.served = 0

    def __len__(self) -> int:
        return len(self.rows)

    @property
    def shape(self) -> tuple[int, ...]:
        return self.rows.shape

    def batches(
        self, size: int, generator: torch.Generator | None = None
    ) -> Iterator[tuple[Tensor, Tensor]]:
        for batch in self.rows.batches(size, generator):
            if self.served == self.breaks_at:
                raise self.error("the rows broke")
            self.served += 1
            yield batch


def with_rows(task: Task, train: Examples | None = None, valid: Examples | None = None) -> Task:
    """The same task, from other rows."""
    return Task(
        task.name, train or task.train, valid or task.valid, kind=task.kind, outputs=task.outputs
    )


def tensors_of(rows: Examples) -> TensorExamples:
    assert isinstance(rows, TensorExamples)
    return rows
