"""Ordinary modules, narrow, written as their authors would: nothing here knows of growth."""

from collections.abc import Callable
from dataclasses import dataclass
from functools import cache

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from lifelong.networks.traced.architecture import Traced, grow


class BasicBlock(nn.Module):
    def __init__(self, before: int, units: int, stride: int = 1) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(before, units, 3, stride, 1, bias=False)
        self.bn1 = nn.BatchNorm2d(units)
        self.conv2 = nn.Conv2d(units, units, 3, 1, 1, bias=False)
        self.bn2 = nn.BatchNorm2d(units)
        self.relu = nn.ReLU(inplace=True)
        self.down: nn.Module = nn.Identity()
        if stride > 1 or before != units:
            conv = nn.Conv2d(before, units, 1, stride, bias=False)
            self.down = nn.Sequential(conv, nn.BatchNorm2d(units))

    def forward(self, x: Tensor) -> Tensor:
        y = self.relu(self.bn1(self.conv1(x)))
        return self.relu(self.bn2(self.conv2(y)) + self.down(x))


class ResNet(nn.Module):
    """ResNet-18 for 32 x 32 images: two blocks per stage."""

    def __init__(self, widths: tuple[int, ...] = (4, 6, 6, 8), classes: int = 3) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(3, widths[0], 3, 1, 1, bias=False)
        self.bn1 = nn.BatchNorm2d(widths[0])
        before, layers = widths[0], []
        for number, units in enumerate(widths):
            layers += [BasicBlock(before, units, 1 if number == 0 else 2), BasicBlock(units, units)]
            before = units
        self.layers = nn.Sequential(*layers)
        self.pool = nn.AdaptiveAvgPool2d(1)
        self.fc = nn.Linear(widths[-1], classes)

    def forward(self, x: Tensor) -> Tensor:
        x = self.layers(F.relu(self.bn1(self.conv1(x))))
        return self.fc(torch.flatten(self.pool(x), 1))


class Inverted(nn.Module):
    """A depthwise block with squeeze and excitation."""

    def __init__(self, before: int, units: int, expand: int, stride: int) -> None:
        super().__init__()
        hidden = before * expand
        self.body = nn.Sequential(
            nn.Conv2d(before, hidden, 1, bias=False),
            nn.BatchNorm2d(hidden),
            nn.ReLU6(),
            nn.Conv2d(hidden, hidden, 3, stride, 1, groups=hidden, bias=False),
            nn.BatchNorm2d(hidden),
            nn.ReLU6(),
            nn.Conv2d(hidden, units, 1, bias=False),
            nn.BatchNorm2d(units),
        )
        self.squeeze = nn.Sequential(
            nn.AdaptiveAvgPool2d(1),
            nn.Conv2d(units, 2, 1),
            nn.ReLU(),
            nn.Conv2d(2, units, 1),
            nn.Sigmoid(),
        )
        self.residual = stride == 1 and before == units

    def forward(self, x: Tensor) -> Tensor:
        y = self.body(x)
        y = y * self.squeeze(y)
        return x + y if self.residual else y


class Mobile(nn.Module):
    """With a constant in a view, and dropout."""

    def __init__(self, classes: int = 3) -> None:
        super().__init__()
        stem = nn.Conv2d(3, 4, 3, 2, 1, bias=False)
        self.stem = nn.Sequential(stem, nn.BatchNorm2d(4), nn.Hardswish())
        self.blocks = nn.Sequential(Inverted(4, 6, 2, 1), Inverted(6, 6, 2, 1))
        self.drop = nn.Dropout(0.2)
        self.fc = nn.Linear(6 * 4, classes)

    def forward(self, x: Tensor) -> Tensor:
        x = F.adaptive_avg_pool2d(self.blocks(self.stem(x)), 2)
        return self.fc(self.drop(x.view(-1, 6 * 4)))


class Fused(nn.Module):
    """Attention with queries, keys and values from one layer."""

    def __init__(self, size: int, heads: int) -> None:
        super().__init__()
        self.heads, self.inner = heads, size // heads
        self.qkv, self.proj = nn.Linear(size, 3 * size), nn.Linear(size, size)
        self.drop = nn.Dropout(0.1)

    def forward(self, x: Tensor) -> Tensor:
        rows, places, size = x.shape
        split = self.qkv(x).reshape(rows, places, 3, self.heads, self.inner)
        q, k, v = split.permute(2, 0, 3, 1, 4).unbind(0)
        attended = F.scaled_dot_product_attention(q, k, v)
        return self.drop(self.proj(attended.transpose(1, 2).reshape(rows, places, size)))


class Separate(nn.Module):
    """Attention with separate layers, written out."""

    def __init__(self, size: int, heads: int) -> None:
        super().__init__()
        self.heads, self.inner = heads, size // heads
        self.q, self.k, self.v, self.o = (nn.Linear(size, size) for _ in range(4))

    def forward(self, x: Tensor) -> Tensor:
        rows, places, size = x.shape
        shape = (rows, places, self.heads, self.inner)
        q, k, v = (part(x).view(shape).transpose(1, 2) for part in (self.q, self.k, self.v))
        scores = (q @ k.transpose(-2, -1) * self.inner**-0.5).softmax(-1)
        return self.o((scores @ v).transpose(1, 2).contiguous().view(rows, places, size))


class Block(nn.Module):
    """Pre-norm, with a plain or a gated MLP."""

    def __init__(self, size: int, attention: nn.Module, hidden: int, gated: bool) -> None:
        super().__init__()
        self.n1, self.attention, self.n2 = nn.LayerNorm(size), attention, nn.LayerNorm(size)
        self.gated = gated
        self.up = nn.Linear(size, 2 * hidden if gated else hidden)
        self.down = nn.Linear(hidden, size)

    def forward(self, x: Tensor) -> Tensor:
        x = x + self.attention(self.n1(x))
        hidden = self.up(self.n2(x))
        if self.gated:
            gate, hidden = hidden.chunk(2, -1)
            return x + self.down(F.silu(gate) * hidden)
        return x + self.down(F.gelu(hidden))


class ViT(nn.Module):
    def __init__(
        self, size: int = 8, heads: int = 2, hidden: int = 6, side: int = 8, classes: int = 3
    ) -> None:
        super().__init__()
        self.embed = nn.Conv2d(3, size, 4, 4)
        self.cls = nn.Parameter(torch.randn(1, 1, size) * 0.02)
        self.pos = nn.Parameter(torch.randn(1, 1 + (side // 4) ** 2, size) * 0.02)
        self.blocks = nn.Sequential(
            Block(size, Fused(size, heads), hidden + 4, False),
            Block(size, Separate(size, heads), hidden, True),
        )
        self.norm, self.fc = nn.LayerNorm(size), nn.Linear(size, classes)

    def forward(self, x: Tensor) -> Tensor:
        x = self.embed(x).flatten(2).transpose(1, 2)
        x = torch.cat([self.cls.expand(x.shape[0], -1, -1), x], 1) + self.pos
        return self.fc(self.norm(self.blocks(x))[:, 0])


class Decoder(nn.Module):
    """Down and up again, with a slope per channel and gates."""

    def __init__(self, classes: int = 3) -> None:
        super().__init__()
        self.down, self.slope = nn.Conv2d(3, 4, 3, 2, 1), nn.PReLU(4)
        self.up, self.gate = nn.ConvTranspose2d(4, 6, 2, 2), nn.GLU(1)
        self.fc = nn.Linear(3, classes)

    def forward(self, x: Tensor) -> Tensor:
        return self.fc(self.gate(self.up(self.slope(self.down(x)))).mean((2, 3)))


class Text(nn.Module):
    """Embeddings, and PyTorch's own encoder."""

    def __init__(self, words: int = 20, size: int = 8, classes: int = 3) -> None:
        super().__init__()
        self.tokens, self.places = nn.Embedding(words, size), nn.Embedding(6, size)
        layer = nn.TransformerEncoderLayer(size, 2, 12, 0.1, F.gelu, True, True)
        layer.norm_first = True
        self.encoder = nn.TransformerEncoder(layer, 1, enable_nested_tensor=False)
        self.fc = nn.Linear(size, classes)

    def forward(self, x: Tensor) -> Tensor:
        embedded = self.tokens(x) + self.places(torch.arange(x.shape[1]))
        return self.fc(self.encoder(embedded).mean(1))


class Dense(nn.Module):
    """Concatenations, also with the inputs."""

    def __init__(self, classes: int = 3) -> None:
        super().__init__()
        self.norms = nn.ModuleList(nn.BatchNorm2d(3 + 4 * n) for n in range(3))
        self.convs = nn.ModuleList(nn.Conv2d(3 + 4 * n, 4, 3, 1, 1) for n in range(3))
        self.norm, self.fc = nn.BatchNorm2d(15), nn.Linear(15 * 4, classes)

    def forward(self, x: Tensor) -> Tensor:
        for norm, conv in zip(self.norms, self.convs, strict=True):
            x = torch.cat([x, conv(F.relu(norm(x)))], 1)
        return self.fc(F.max_pool2d(F.relu(self.norm(x)), 4).flatten(1))


class NeXt(nn.Module):
    """A grouped convolution (ResNeXt) and group normalisation."""

    def __init__(self, classes: int = 3) -> None:
        super().__init__()
        self.stem, self.norm = nn.Conv2d(3, 8, 3, 1, 1), nn.GroupNorm(4, 8)
        self.a, self.b = nn.Conv2d(8, 6, 1), nn.Conv2d(6, 8, 1)
        self.grouped = nn.Conv2d(6, 6, 3, 1, 1, groups=3)
        self.fc = nn.Linear(8, classes)

    def forward(self, x: Tensor) -> Tensor:
        x = F.relu(self.norm(self.stem(x)))
        x = x + self.b(F.relu(self.grouped(F.relu(self.a(x)))))
        return self.fc(x.mean((2, 3)))


def plain_mlp() -> nn.Module:
    return nn.Sequential(
        *(nn.Linear(6, 10), nn.ReLU(), nn.Linear(10, 7), nn.Sigmoid(), nn.Linear(7, 3))
    )


def plain_convnet() -> nn.Module:
    return nn.Sequential(
        *(nn.Conv2d(3, 5, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2), nn.Conv2d(5, 4, 3), nn.ReLU()),
        *(nn.Flatten(), nn.Linear(16, 6), nn.ReLU(), nn.Dropout(0.3), nn.Linear(6, 3)),
    )


def _images(size: int) -> Callable[[int, int], Tensor]:
    def make(rows: int, seed: int = 0) -> Tensor:
        return torch.randn(rows, 3, size, size, generator=torch.Generator().manual_seed(seed))

    return make


def _numbers(rows: int, seed: int = 0) -> Tensor:
    return torch.randn(rows, 6, generator=torch.Generator().manual_seed(seed))


def _tokens(rows: int, seed: int = 0) -> Tensor:
    return torch.randint(20, (rows, 6), generator=torch.Generator().manual_seed(seed))


@dataclass(frozen=True)
class Animal:
    """A module, the name of its head, and its inputs."""

    make: Callable[[], nn.Module]
    head: str
    inputs: Callable[..., Tensor]


ZOO = {
    "mlp": Animal(plain_mlp, "4", _numbers),
    "convnet": Animal(plain_convnet, "9", _images(8)),
    "resnet": Animal(ResNet, "fc", _images(16)),
    "mobile": Animal(Mobile, "fc", _images(8)),
    "dense": Animal(Dense, "fc", _images(8)),
    "next": Animal(NeXt, "fc", _images(6)),
    "vit": Animal(ViT, "fc", _images(8)),
    "text": Animal(Text, "fc", _tokens),
    "decoder": Animal(Decoder, "fc", _images(8)),
}


@cache
def module_of(name: str) -> nn.Module:
    """With weights and statistics as after some training."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        module = ZOO[name].make()
        for part in module.modules():
            if isinstance(part, nn.BatchNorm2d | nn.LayerNorm | nn.GroupNorm):
                nn.init.uniform_(part.weight, 0.5, 1.5)
                nn.init.normal_(part.bias, 0, 0.3)
            if isinstance(part, nn.BatchNorm2d):
                nn.init.normal_(part.running_mean, 0, 0.3)
                nn.init.uniform_(part.running_var, 0.5, 2)
    return module


@cache
def traced(name: str) -> Traced:
    """Traced once for all tests."""
    animal = ZOO[name]
    return grow(module_of(name), animal.inputs(3), head=animal.head, pretrained=True)
