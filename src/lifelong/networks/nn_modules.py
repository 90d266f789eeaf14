"""What `grow` and `adapt` ask of a module, and how an architecture made of one is identified."""

from collections.abc import Iterable, Mapping, Sequence
from hashlib import sha256

import msgspec
import torch
from torch import Tensor, nn

from lifelong.networks.layout import HEAD, Layout, NetworkError, Tensors


def require_module(
    module: nn.Module, example: Tensor, head: str, parts: Mapping[str, Sequence[str]]
) -> None:
    """Refuse what is no module of float32 with a Linear head, and parts that it does not have."""
    if not isinstance(module, nn.Module):
        raise NetworkError(f"an nn.Module is needed, not a {type(module).__name__}")
    if not isinstance(example, Tensor) or example.ndim < 2 or len(example) < 1:
        shape = tuple(example.shape) if isinstance(example, Tensor) else type(example).__name__
        raise NetworkError(
            "the example must be one tensor of inputs with rows first and at least one more dim, "
            f"not {shape}; a module with several inputs must be wrapped to take one"
        )
    known = [name for name, _ in module.named_modules() if name]
    for argument, names in {"head": [head], **parts}.items():
        if isinstance(names, str):
            raise NetworkError(f"{argument} must be a list of names, not {names!r}")
        for name in names:
            if name not in known:
                raise NetworkError(
                    f"{argument}={name!r} is no part of the module; it has {', '.join(known)}"
                )
    if not isinstance(module.get_submodule(head), nn.Linear):
        kind = type(module.get_submodule(head)).__name__
        raise NetworkError(f"head={head!r} must be a Linear layer, not a {kind}")
    odd = [n for n, p in module.named_parameters() if p.dtype != torch.float32]
    if odd:
        raise NetworkError(f"{odd[0]} is {module.get_parameter(odd[0]).dtype}; use module.float()")


def require_names(names: Iterable[str]) -> None:
    """Refuse names of tensors that mean something else in a network or in its files."""
    odd = [name for name in names if name in HEAD or not set("/ ").isdisjoint(name)]
    if odd:
        raise NetworkError(
            f"a tensor of the module is called {odd[0]!r}; names with a space or a slash, and "
            f"{' and '.join(HEAD)} for anything but the head, are taken: rename that part"
        )


def require_initials(layout: Layout) -> None:
    """Refuse a layout in a file with a resting value that no tensor can hold."""
    most = torch.finfo(torch.float32).max
    for name, spec in layout.tensors.items():
        if spec.initial is not None and not abs(spec.initial) <= most:
            raise NetworkError(f"{name} does not start at a number of float32: {spec.initial}")


def identity(data: msgspec.Struct, tensors: Tensors) -> str:
    """A short checksum of data and tensors."""
    content = sha256(msgspec.json.encode(data))
    for name, tensor in sorted(tensors.items()):
        content.update(name.encode())
        content.update(tensor.cpu().contiguous().numpy().tobytes())
    return content.hexdigest()[:16]
