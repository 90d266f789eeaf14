"""What `grow` and `adapt` ask of a module, how an architecture made of one is identified, and where
its own code takes random numbers from.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from hashlib import sha256

import msgspec
import torch
from torch import Tensor, nn
from torch.nn.parameter import is_lazy

from lifelong.networks.layout import HEAD, Layout, NetworkError, Tensors


@contextmanager
def global_state_from(generator: torch.Generator, device: torch.device) -> Iterator[None]:
    """Seed the global random state, which a module's own code draws from; then restore it."""
    seed = int(torch.randint(2**62, (), generator=generator))
    cuda = [device] if device.type == "cuda" else []
    with torch.random.fork_rng(devices=cuda):
        torch.default_generator.manual_seed(seed)
        if cuda:
            torch.cuda.manual_seed(seed)
        yield


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
    if example.is_floating_point() and example.dtype != torch.float32:
        raise NetworkError(f"the example is {example.dtype}; use example.float()")
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
    lazy = [n for n, p in module.named_parameters() if is_lazy(p)]
    if lazy:
        raise NetworkError(f"{lazy[0]} has no values yet; call the module once with the example")
    odd = [n for n, p in module.named_parameters() if p.dtype != torch.float32]
    if odd:
        raise NetworkError(f"{odd[0]} is {module.get_parameter(odd[0]).dtype}; use module.float()")


def other_names(module: nn.Module, head: str, first: Sequence[str] = ()) -> dict[str, str]:
    """Of tensors that the module has under several names, the name that counts by each other one.

    Those of `first`, and of the parts named there, count before others: what is tied to a frozen
    part never moves. That of the head counts last, since each task has a head of its own.
    """
    wanted, parts = set(first), tuple(f"{part}." for part in first)

    def rank(name: str) -> int:
        if name.startswith(f"{head}."):
            return 2
        return 0 if name in wanted or name.startswith(parts) else 1

    by_tensor: dict[int, list[str]] = {}
    for name, tensor in [
        *module.named_parameters(remove_duplicate=False),
        *module.named_buffers(remove_duplicate=False),
    ]:
        by_tensor.setdefault(id(tensor), []).append(name)
    found: dict[str, str] = {}
    for names in by_tensor.values():
        first, *others = sorted(names, key=rank)
        found |= dict.fromkeys(others, first)
    return found


def named_tensors(
    module: nn.Module, head: str, first: Sequence[str] = ()
) -> tuple[dict[str, Tensor], dict[str, Tensor]]:
    """Parameters and buffers, each tensor once, under the name that counts."""
    others = other_names(module, head, first)
    parameters = dict(module.named_parameters(remove_duplicate=False))
    buffers = dict(module.named_buffers(remove_duplicate=False))
    return (
        {name: tensor for name, tensor in parameters.items() if name not in others},
        {name: tensor for name, tensor in buffers.items() if name not in others},
    )


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
