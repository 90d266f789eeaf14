"""Networks of recipes that are ordinary modules, as a user would write them, made to grow.

`register_module` and entry points of the group `lifelong.modules` add modules.
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import TypeAlias, final

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from lifelong.learners.baselines import Single, TrainingSettings
from lifelong.networks.layout import NetworkError
from lifelong.networks.traced.architecture import Traced, grow
from lifelong.persistence.files import make_directory, packed, replace_file, unpacked
from lifelong.plugins import Registry
from lifelong.tasks.datasets.cifar100 import cifar_100
from lifelong.tasks.datasets.files import data_directory, readable
from lifelong.tasks.datasets.source_lines import WORDS
from lifelong.training.budget import Budget

Inputs: TypeAlias = tuple[int, ...]
Widths: TypeAlias = tuple[int, ...]


@final
@dataclass(frozen=True)
class NamedModule:
    """One row of the table: `make` takes the shape of an input, and widths."""

    name: str
    make: Callable[[Inputs, Widths], Traced]


class Block(nn.Module):
    """Two convolutions with batch normalisation, and a way around them."""

    def __init__(self, before: int, units: int, stride: int) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(before, units, 3, stride, 1, bias=False)
        self.bn1 = nn.BatchNorm2d(units)
        self.conv2 = nn.Conv2d(units, units, 3, 1, 1, bias=False)
        self.bn2 = nn.BatchNorm2d(units)
        self.around: nn.Module = nn.Identity()
        if stride > 1 or before != units:
            conv = nn.Conv2d(before, units, 1, stride, bias=False)
            self.around = nn.Sequential(conv, nn.BatchNorm2d(units))

    def forward(self, x: Tensor) -> Tensor:
        y = self.bn2(self.conv2(F.relu(self.bn1(self.conv1(x)))))
        return F.relu(y + self.around(x))


class Trunk(nn.Module):
    """A stem that quarters the sides of an image, and a block per stage."""

    def __init__(self, channels: int, widths: Widths) -> None:
        super().__init__()
        self.stem = nn.Conv2d(channels, widths[0], 3, 2, 1, bias=False)
        self.norm = nn.BatchNorm2d(widths[0])
        sides = zip((widths[0], *widths), widths, strict=False)
        self.stages = nn.Sequential(
            *(
                Block(before, units, 1 + bool(number))
                for number, (before, units) in enumerate(sides)
            )
        )

    def forward(self, x: Tensor) -> Tensor:
        x = F.max_pool2d(F.relu(self.norm(self.stem(x))), 2)
        features: Tensor = self.stages(x)
        return features.mean((2, 3))


class ResNet(nn.Module):
    """A residual network with batch normalisation; 0.31 million parameters at 32-64-128."""

    def __init__(self, channels: int, widths: Widths, outputs: int = 1) -> None:
        super().__init__()
        self.trunk = Trunk(channels, widths)
        self.fc = nn.Linear(widths[-1], outputs)

    def forward(self, x: Tensor) -> Tensor:
        features: Tensor = self.fc(self.trunk(x))
        return features


class BehindTrunk(nn.Module):
    """A trunk that is there already, and fully connected layers behind it."""

    def __init__(self, trunk: Trunk, features: int, widths: Widths) -> None:
        super().__init__()
        sides = zip((features, *widths), widths, strict=False)
        layers = (part for a, b in sides for part in (nn.Linear(a, b), nn.ReLU()))
        self.trunk, self.layers = trunk, nn.Sequential(*layers)
        self.fc = nn.Linear(widths[-1], 1)

    def forward(self, x: Tensor) -> Tensor:
        outputs: Tensor = self.fc(self.layers(self.trunk(x)))
        return outputs


class Transformer(nn.Module):
    """A pre-norm encoder of tokens; the widths are those of the stream and of the MLPs inside."""

    def __init__(self, length: int, words: int, widths: Widths, layers: int = 2) -> None:
        super().__init__()
        stream, hidden = widths
        self.tokens, self.places = nn.Embedding(words, stream), nn.Embedding(length, stream)
        layer = nn.TransformerEncoderLayer(stream, HEADS, hidden, 0.1, F.gelu, batch_first=True)
        layer.norm_first = True
        self.encoder = nn.TransformerEncoder(layer, layers, enable_nested_tensor=False)
        self.norm, self.fc = nn.LayerNorm(stream), nn.Linear(stream, 1)

    def forward(self, x: Tensor) -> Tensor:
        embedded = self.tokens(x) + self.places(torch.arange(x.shape[1], device=x.device))
        outputs: Tensor = self.fc(self.norm(self.encoder(embedded)).mean(1))
        return outputs


HEADS = 4
TRUNK = (32, 64, 128)
TRUNK_BUDGET = Budget(batch_size=64)
_EXAMPLES = 3


def resnet(inputs: Inputs, widths: Widths) -> Traced:
    return grow(_seeded(lambda: ResNet(inputs[0], widths)), _images(inputs))


def transformer(inputs: Inputs, widths: Widths) -> Traced:
    module = _seeded(lambda: Transformer(inputs[0], WORDS, widths))
    return grow(module, torch.zeros(_EXAMPLES, *inputs, dtype=torch.long))


def behind_trunk(inputs: Inputs, widths: Widths) -> Traced:
    """Layers behind a trunk that was trained on the first half of CIFAR-100's classes."""
    trunk = Trunk(inputs[0], TRUNK)
    trunk.load_state_dict(trained_trunk(), strict=False)
    module = _seeded(lambda: BehindTrunk(trunk, TRUNK[-1], widths))
    return grow(module, _images(inputs), frozen=("trunk",))


@lru_cache(maxsize=1)
def trained_trunk() -> dict[str, Tensor]:
    """Weights and statistics of the trunk, from the data directory; trained and kept there if they
    are missing, which takes some minutes.
    """
    file = data_directory(None) / "trunks" / "cifar-100-first-half.safetensors"
    if not file.exists():
        make_directory(file.parent)
        trained = _train_trunk(file.parent / "training")
        replace_file(file, packed(trained))
    with readable(file):
        return unpacked(file.read_bytes())


def _train_trunk(checkpoint: Path) -> dict[str, Tensor]:
    """One softmax over fifty classes, with seed 0."""
    stream = cifar_100(0, group=50, kind="classes", valid=2500, half="first")
    task = next(iter(stream))
    learner = Single(resnet(task.shape, TRUNK), TrainingSettings(budget=TRUNK_BUDGET), seed=0)
    learner.learn(task, checkpoint=checkpoint)
    _, served = learner.predictor(task.name)
    inside = "trunk."
    return {n.removeprefix(inside): t for n, t in served.tensors.items() if n.startswith(inside)}


def _images(inputs: Inputs) -> Tensor:
    return torch.randn(_EXAMPLES, *inputs, generator=torch.Generator().manual_seed(0))


def _seeded(make: Callable[[], nn.Module]) -> nn.Module:
    """A module whose initial values do not depend on what ran before."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        return make()


MODULES = Registry(
    "module",
    NamedModule,
    NetworkError,
    (
        NamedModule("resnet", resnet),
        NamedModule("transformer", transformer),
        NamedModule("behind-trunk", behind_trunk),
    ),
)
register_module = MODULES.add
