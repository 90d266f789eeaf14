"""A network from a manifest and its tensors, which are not trusted: every part is checked."""

import math
from collections.abc import Callable, Collection, Mapping
from typing import TypeAlias

import torch
from torch import Tensor, nn

from lifelong.networks.adapted import Adapted, from_module
from lifelong.networks.growing import BITS, OWN, ROOT, GrowingNetwork, LearnedTask
from lifelong.networks.initial import root_alone
from lifelong.networks.layout import Architecture, NetworkError
from lifelong.networks.patches import Patch, apply
from lifelong.networks.sequential import (
    Convolution,
    Linear,
    MaxPool,
    Sequential,
    convnet,
    mlp,
)
from lifelong.networks.traced.architecture import Traced, from_data
from lifelong.networks.traced.data import TracedData
from lifelong.persistence.manifest import Manifest

MOST_UNTRAINED = 64  # entries of a network that is kept as its seed, per byte of its file
MOST_WIDER = 10_000  # times the units that a layer has, that its base network may have
PATCH, PLACES, VALUES = "patch/", "/places", "/values"
CONSTANT = "constant/"
# Expected shape of a private tensor, from the network, the task's number and the tensor's name.
PrivateShape: TypeAlias = Callable[[GrowingNetwork, int, str], tuple[int, ...]]


def network_from(
    manifest: Manifest, tensors: Mapping[str, Tensor], given: nn.Module | None = None
) -> GrowingNetwork:
    """The network; a module that was not traced must be given."""
    architecture = _architecture(manifest, tensors, given)
    _check_tasks(manifest)
    # In the order of the layout and not of the file: random numbers are drawn tensor by tensor.
    births = _births(manifest, architecture)
    shared = {
        name: tensors[f"shared/{name}"]
        for name in architecture.layout.tensors
        if f"shared/{name}" in tensors
    }
    if manifest.root is not None and manifest.tasks:
        shared = _rooted(manifest, architecture, births, tensors)
    place = {name: place for place, name in enumerate(architecture.layout.tensors)}
    tasks = tuple(
        LearnedTask(
            task.name,
            task.kind,
            task.outputs,
            {n: tensors[f"task/{number}/{n}"] for n in sorted(task.private, key=place.__getitem__)},
            task.first,
            _patches(tensors, number, sorted(task.patched, key=place.__getitem__)),
            task.parent,
        )
        for number, task in enumerate(manifest.tasks, 1)
    )
    memory = {name: tensors[f"memory/{name}"] for name in manifest.memory}
    network = GrowingNetwork(architecture, shared, births, tasks, memory, manifest.root)
    if len(all_tensors(network)) + len(own_tensors(architecture)) != len(tensors):
        raise NetworkError("there are tensors that belong to no task")
    return network


def _architecture(
    manifest: Manifest, tensors: Mapping[str, Tensor], given: nn.Module | None
) -> Sequential | Traced | Adapted:
    sequential, module = manifest.architecture, manifest.module
    if (sequential is None) == (module is None):
        raise NetworkError("there must be an architecture, or else a module")
    if sequential is not None:
        _check_sequential(sequential)
        return sequential
    assert module is not None
    constants = {name: tensors[f"{CONSTANT}{name}"] for name in module.constants}
    start = {name: tensors[f"start/{name}"] for name in module.start}
    if isinstance(module, TracedData):
        return from_data(module, constants, start)
    if given is None:
        raise NetworkError(
            f"it was learned with a {module.module} that was not traced, and a file holds no code: "
            f"give load(..., module={module.module}(...)), of the same shape"
        )
    return from_module(module, constants, start, given)


def _check_sequential(sequential: Sequential) -> None:
    """Refuse layers that neither `mlp` nor `convnet` would make.

    For these, the tensors in the file bound all sizes, and so the cost of a prediction.
    """
    layers = sequential.layers
    widths = [layer.units for layer in layers if isinstance(layer, Linear)]
    convolutions = [layer for layer in layers if isinstance(layer, Convolution)]
    bias = all(layer.bias for layer in layers if isinstance(layer, Linear | Convolution))
    pool = [
        layers[place + 2 : place + 3] == (MaxPool(2),)
        for place, layer in enumerate(layers)
        if isinstance(layer, Convolution)
    ]
    known: Sequential | None = None
    if not convolutions:
        known = mlp(math.prod(sequential.inputs), widths, bias=bias)
    elif len(sequential.inputs) == 3:
        filters, kernel = [layer.units for layer in convolutions], convolutions[0].kernel
        known = convnet(sequential.inputs, filters, widths, kernel=kernel, pool=pool, bias=bias)
    if known != sequential:
        raise NetworkError(f"its layers are neither those of an mlp nor of a convnet: {layers}")


def own_tensors(architecture: "Sequential | Traced | Adapted") -> dict[str, Tensor]:
    """Tensors of the architecture itself."""
    if isinstance(architecture, Sequential):
        return {}
    constants = {f"{CONSTANT}{name}": t for name, t in architecture.constants.items()}
    return constants | {f"start/{name}": t for name, t in architecture.start.items()}


def all_tensors(network: GrowingNetwork) -> dict[str, Tensor]:
    return network.stored() | {f"memory/{name}": t for name, t in network.memory.items()}


def _rooted(
    manifest: Manifest,
    architecture: Architecture,
    births: Mapping[str, Tensor],
    tensors: Mapping[str, Tensor],
) -> dict[str, Tensor]:
    """The shared tensors of a network that is kept as its seed, with units that were born later."""
    layout = architecture.layout
    names = [name for name, spec in layout.tensors.items() if spec.owner == "shared"]
    root, now = (
        layout.widths({g: int((born <= last).sum()) for g, born in births.items()}, 0)
        for last in (1, len(manifest.tasks))
    )
    _require_affordable(manifest, sum(math.prod(layout.tensors[n].shape(now)) for n in names))
    assert manifest.root is not None
    device, shared = next(iter(tensors.values())).device, {}
    for name, alone in root_alone(architecture, names, root, now, manifest.root).items():
        shared[name] = alone.to(device)
        part = f"{PATCH}{ROOT}/{name}"
        if part + PLACES in tensors:
            patch = Patch(tensors[part + PLACES].cpu(), tensors[part + VALUES])
            patch.require_within(alone.numel())
            _require_finite(patch, name)
            apply(patch, shared[name], layout.tensors[name], now, now)
    return shared


def _require_affordable(manifest: Manifest, entries: int) -> None:
    """Refuse a network that is far larger than its file: task 1 has changed most of the root."""
    if entries > MOST_UNTRAINED * max(1, manifest.bytes):
        raise NetworkError(
            f"{entries:,} weights are too many for a file of {manifest.bytes:,} bytes"
        )


def _patches(
    tensors: Mapping[str, Tensor], number: int, names: Collection[str]
) -> dict[str, Patch]:
    parts = {name: f"{PATCH}{number}/{name}" for name in names}
    return {
        name: Patch(tensors[part + PLACES].cpu(), tensors[part + VALUES])
        for name, part in parts.items()
    }


def _check_tasks(manifest: Manifest) -> None:
    names = [task.name for task in manifest.tasks]
    if len(set(names)) < len(names) or "" in names:
        raise NetworkError(f"tasks must have names that differ and are not empty, not {names}")
    if any(task.outputs < 1 for task in manifest.tasks):
        raise NetworkError("there is a task without outputs")
    if any(task.first not in (0, 1) for task in manifest.tasks):
        raise NetworkError("there is a task whose classes are numbered neither from 0 nor from 1")
    _check_parents(manifest)
    numbers = [record.number for record in manifest.records]
    if any(not 1 <= number <= len(names) for number in numbers):
        raise NetworkError("there is a record of a task that was not learned")
    if numbers != sorted(set(numbers)):
        raise NetworkError("there are several records of one task, or not in the tasks' order")
    for record in manifest.records:
        if set(record.groups) != set(manifest.born):
            raise NetworkError(
                f"the record of task {record.number} is not about the network's groups"
            )


def _check_parents(manifest: Manifest) -> None:
    first = 1 if manifest.root is None else ROOT
    for number, task in enumerate(manifest.tasks, 1):
        if task.parent is not None and not first <= task.parent < number:
            raise NetworkError(f"task {task.name!r} starts from a task that was not there")
        if task.patched and number == 1 and manifest.root is None:
            raise NetworkError("the first task cannot change weights that were there before it")
    if manifest.root is not None and not 0 <= manifest.root < 2**64:
        raise NetworkError(f"{manifest.root} is not the seed of an untrained network")


def require_plausible(widths: Mapping[str, int], units: Mapping[str, int]) -> None:
    """Refuse a base network of far more units than were ever made: the next task may make them."""
    for group, width in widths.items():
        if width > MOST_WIDER * max(1, units.get(group, 0)):
            raise NetworkError(
                f"{group} has {units.get(group, 0):,} units, its base network {width:,}: more than "
                f"{MOST_WIDER:,} times as many"
            )


def _births(manifest: Manifest, architecture: Architecture) -> dict[str, Tensor]:
    groups = architecture.layout.groups if manifest.tasks else {}
    require_plausible(groups, {group: len(stamps) for group, stamps in manifest.born.items()})
    if set(manifest.born) != set(groups):
        raise NetworkError(f"there are births of {list(manifest.born)}, not of {list(groups)}")
    for group, stamps in manifest.born.items():
        if stamps != sorted(stamps):
            raise NetworkError(f"the births of {group} decrease")
        if not stamps or stamps[0] < 1 or stamps[-1] > len(manifest.tasks):
            raise NetworkError(f"the births of {group} are not at tasks that were learned")
        if stamps[0] > 1:
            raise NetworkError(f"{group} has no units for task 1")
    return {group: torch.tensor(manifest.born[group], dtype=torch.long) for group in groups}


def check_shapes(network: GrowingNetwork, private_shape: PrivateShape) -> None:
    layout = network.architecture.layout
    private = layout.tensors.keys() - network.shared.keys()
    for number, known in enumerate(network.tasks, 1):
        if known.private.keys() != private:
            raise NetworkError(f"the tensors of task {known.name!r} are not those of its network")
        for name, tensor in known.private.items():
            _check_shape(tensor, private_shape(network, number, name), name)
        for name, patch in known.patches.items():
            _check_patch(network, number, name, patch)
    hidden = {group: len(stamps) for group, stamps in network.born.items()}
    outputs = {known.outputs for known in network.tasks}
    if len(outputs) > 1 and not private.issuperset(layout.task_owned):
        raise NetworkError(f"one head serves all tasks, which have {sorted(outputs)} outputs")
    widths = layout.widths(hidden, *(outputs if len(outputs) == 1 else [1]))
    for name, tensor in network.shared.items():
        _check_shape(tensor, layout.tensors[name].shape(widths), name)
    for name, tensor in network.memory.items():
        free = tensor.ndim == 0 or name.startswith(OWN)  # a count, or of the method's own shape
        about = tensor if free else network.shared[name.rpartition("/")[2]]
        dtype = torch.uint8 if name.startswith(BITS) else torch.float32
        _check_shape(tensor, tuple(about.shape), name, dtype)


def _check_patch(network: GrowingNetwork, number: int, name: str, patch: Patch) -> None:
    if name not in network.shared:
        raise NetworkError(f"there is a patch of {name}, which no task shares")
    patch.require_within(network.entries(name, max(1, number - 1)))
    _require_finite(patch, name)


def _require_finite(patch: Patch, name: str) -> None:
    if not bool(torch.isfinite(patch.values).all()):
        raise NetworkError(f"a patch of {name} holds numbers that are not finite")


def _check_shape(
    tensor: Tensor, expected: tuple[int, ...], name: str, dtype: torch.dtype = torch.float32
) -> None:
    if tuple(tensor.shape) != expected or tensor.dtype != dtype:
        wanted = str(dtype).removeprefix("torch.")
        raise NetworkError(
            f"{name} is {tensor.dtype} of shape {tuple(tensor.shape)}, not {wanted} of {expected}"
        )
    if not bool(torch.isfinite(tensor).all()):
        raise NetworkError(f"{name} holds numbers that are not finite")
