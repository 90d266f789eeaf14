"""Models on disk: a directory with a manifest (JSON) and the tensors (safetensors).

The manifest names the file of tensors by its checksum and is replaced in one rename, so that a
directory holds the old model or the new one, whole. Nothing is ever unpickled, and everything that
is read is checked before it is used.
"""

import hashlib
import os
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, TypeAlias, final

import msgspec
import torch
from safetensors import SafetensorError
from safetensors.torch import load, save
from torch import Tensor

from lifelong.disk import digest, digest_of
from lifelong.network import Chain, GrowingNetwork, Known, NetworkError, Skeleton
from lifelong.records import TaskRecord
from lifelong.tasks import Kind

FORMAT = "lifelong model"
VERSION = 2
MANIFEST = "manifest.json"


# The shape that a tensor of a task's own must have: of the network, the task's number, the name.
PrivateShape: TypeAlias = Callable[[GrowingNetwork, int, str], tuple[int, ...]]


class ModelFileError(ValueError):
    """A model that cannot be read; the message says which file and what is wrong with it."""


@final
class _Task(msgspec.Struct, forbid_unknown_fields=True):
    name: str
    kind: Kind
    outputs: int
    private: list[str]


@final
class Manifest(msgspec.Struct, forbid_unknown_fields=True):
    """Everything about a model but its numbers."""

    format: str
    version: int
    method: str
    seed: int
    skeleton: Chain
    settings: dict[str, Any]
    born: dict[str, list[int]]
    tasks: list[_Task]
    memory: list[str]
    records: list[TaskRecord]
    tensors: str
    sha256: str
    seal: str = ""

    def sealed(self) -> "Manifest":
        """With a checksum of itself, so that what was changed by accident is noticed."""
        unsealed = msgspec.structs.replace(self, seal="")
        checksum = hashlib.sha256(msgspec.json.encode(unsealed)).hexdigest()
        return msgspec.structs.replace(self, seal=checksum)


@final
class _Envelope(msgspec.Struct):
    """As much as any version of the format has."""

    format: str = ""
    version: int = 0


def write(
    path: Path,
    *,
    method: str,
    seed: int,
    settings: Any,
    network: GrowingNetwork,
    records: tuple[TaskRecord, ...],
) -> None:
    """Save a model into a directory, which is made if need be; a model in it is replaced."""
    content = save({name: t.cpu().contiguous() for name, t in _tensors(network).items()})
    sha256 = hashlib.sha256(content).hexdigest()
    manifest = Manifest(
        format=FORMAT,
        version=VERSION,
        method=method,
        seed=seed,
        skeleton=_as_chain(network.skeleton),
        settings=msgspec.to_builtins(settings),
        born={group: stamps.tolist() for group, stamps in network.born.items()},
        tasks=[_Task(t.name, t.kind, t.outputs, sorted(t.private)) for t in network.tasks],
        memory=sorted(network.memory),
        records=list(records),
        tensors=f"tensors-{sha256[:16]}.safetensors",
        sha256=sha256,
    ).sealed()
    path.mkdir(parents=True, exist_ok=True)
    _replace(path / manifest.tensors, content)
    _replace(path / MANIFEST, msgspec.json.format(msgspec.json.encode(manifest), indent=1))
    for stale in path.glob("tensors-*.safetensors"):
        if stale.name != manifest.tensors:
            stale.unlink(missing_ok=True)


def checksum(network: GrowingNetwork) -> str:
    """Of all that was learned."""
    births = {f"born/{group}": stamps for group, stamps in network.born.items()}
    tasks = [(known.name, known.kind.value, known.outputs) for known in network.tasks]
    return digest(repr(tasks).encode(), digest_of({**_tensors(network), **births}).encode())


def read(
    path: Path, device: torch.device, private_shape: PrivateShape
) -> tuple[Manifest, GrowingNetwork]:
    """A saved model, every part of it checked."""
    manifest = _manifest(path / MANIFEST)
    name = manifest.tensors
    file = path / name
    if Path(name).name != name:
        raise ModelFileError(f"{path / MANIFEST}: names a file outside its directory, {name!r}")
    content = _content(file)
    if hashlib.sha256(content).hexdigest() != manifest.sha256:
        raise ModelFileError(f"{file}: not what was saved (its checksum differs); it is damaged")
    try:
        # Copied into memory of their own: where in memory a tensor starts may change how a product
        # rounds, and a loaded model must go on as the saved one would have.
        tensors = {key: tensor.clone().to(device) for key, tensor in load(content).items()}
    except SafetensorError as error:
        raise ModelFileError(f"{file}: not a safetensors file: {error}") from error
    try:
        network = _network(manifest, tensors)
        _check_shapes(network, private_shape)
        return manifest, network
    except (NetworkError, KeyError, IndexError) as error:
        raise ModelFileError(f"{path}: manifest and tensors do not fit: {error}") from error


def _manifest(file: Path) -> Manifest:
    content = _content(file)
    try:
        envelope = msgspec.json.decode(content, type=_Envelope)
    except (msgspec.MsgspecError, UnicodeDecodeError) as error:
        raise ModelFileError(f"{file}: not a manifest: {error}") from error
    if envelope.format != FORMAT:
        raise ModelFileError(f"{file}: not a {FORMAT}, but {envelope.format!r}")
    if envelope.version != VERSION:
        raise ModelFileError(
            f"{file}: has format version {envelope.version}, but this release reads {VERSION}; "
            + ("a newer release reads it" if envelope.version > VERSION else "save it anew")
        )
    try:
        manifest = msgspec.json.decode(content, type=Manifest)
    except (msgspec.MsgspecError, UnicodeDecodeError) as error:
        raise ModelFileError(f"{file}: damaged: {error}") from error
    if manifest.seal != manifest.sealed().seal:
        raise ModelFileError(f"{file}: not what was saved (its checksum differs); it is damaged")
    return manifest


def _content(file: Path) -> bytes:
    try:
        return file.read_bytes()
    except OSError as error:
        raise ModelFileError(f"{file}: cannot be read: {error.strerror}") from error


def _replace(file: Path, content: bytes) -> None:
    """Write aside, make sure that it is on the disk, and rename."""
    aside = file.with_name(f".{file.name}.{os.getpid()}")
    try:
        with aside.open("wb") as stream:
            stream.write(content)
            stream.flush()
            os.fsync(stream.fileno())
        aside.replace(file)
    finally:
        aside.unlink(missing_ok=True)


def _as_chain(skeleton: Skeleton) -> Chain:
    if not isinstance(skeleton, Chain):
        raise TypeError(f"only networks made by mlp or convnet can be saved, not {skeleton!r}")
    return skeleton


def _tensors(network: GrowingNetwork) -> dict[str, Tensor]:
    private = {
        f"task/{number}/{name}": tensor
        for number, known in enumerate(network.tasks, 1)
        for name, tensor in known.private.items()
    }
    memory = {f"memory/{name}": t for name, t in network.memory.items()}
    return {f"shared/{name}": t for name, t in network.shared.items()} | private | memory


def _network(manifest: Manifest, tensors: Mapping[str, Tensor]) -> GrowingNetwork:
    skeleton = manifest.skeleton
    born = {group: _stamps(group, manifest.born[group]) for group in manifest.born}
    # In the skeleton's order, and not in that of the file, which says nothing: random numbers are
    # drawn tensor by tensor.
    shared = {
        name: tensors[f"shared/{name}"] for name in skeleton.axes if f"shared/{name}" in tensors
    }
    tasks = tuple(
        Known(
            task.name,
            task.kind,
            task.outputs,
            {n: tensors[f"task/{number}/{n}"] for n in skeleton.axes if n in task.private},
        )
        for number, task in enumerate(manifest.tasks, 1)
    )
    memory = {name: tensors[f"memory/{name}"] for name in manifest.memory}
    network = GrowingNetwork(skeleton, shared, born, tasks, memory)
    if len(_tensors(network)) != len(tensors):
        raise NetworkError("there are tensors that belong to no task")
    return network


def _stamps(group: str, stamps: list[int]) -> Tensor:
    if stamps != sorted(stamps) or (stamps and stamps[0] < 1):
        raise NetworkError(f"the births of {group} decrease")
    return torch.tensor(stamps, dtype=torch.long)


def _check_shapes(network: GrowingNetwork, private_shape: PrivateShape) -> None:
    skeleton = network.skeleton
    for number, known in enumerate(network.tasks, 1):
        if set(network.shared) | set(known.private) != set(skeleton.axes):
            raise NetworkError(f"the tensors of task {known.name!r} are not those of its network")
        for name, tensor in known.private.items():
            _check_shape(tensor, private_shape(network, number, name), name)
    widths = {group: len(stamps) for group, stamps in network.born.items()}
    for name, tensor in network.shared.items():
        # A head is among the shared tensors only where all tasks have the same outputs.
        outputs = network.tasks[0].outputs if network.tasks else 1
        _check_shape(tensor, skeleton.shape(name, widths, outputs), name)
    for name, tensor in network.memory.items():
        about = name.partition("/")[2]
        _check_shape(tensor, tuple(network.shared[about].shape), name)


def _check_shape(tensor: Tensor, expected: tuple[int, ...], name: str) -> None:
    if tuple(tensor.shape) != expected or tensor.dtype != torch.float32:
        raise NetworkError(
            f"{name} is {tensor.dtype} of shape {tuple(tensor.shape)}, not float32 of {expected}"
        )
    if not bool(torch.isfinite(tensor).all()):
        raise NetworkError(f"{name} holds numbers that are not finite")
