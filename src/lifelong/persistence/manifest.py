"""The manifest of a saved model: its members, and what is refused when it is read.

Model files are not trusted: size, format, version, limits and checksum are checked before anything
in a manifest is used.
"""

import re
from pathlib import Path
from typing import Any, final

import msgspec

from lifelong.networks.adapted import AdaptedData
from lifelong.networks.sequential import Sequential
from lifelong.networks.traced.data import TracedData
from lifelong.persistence.files import (
    MOST,
    MOST_DIMS,
    MOST_LAYERS,
    MOST_SIZE,
    MOST_TASKS,
    MOST_TENSORS,
    NOT_DECODED,
    LimitError,
    digest,
    read_file,
    require_at_most,
    require_decodable,
    require_named,
)
from lifelong.persistence.segments import Pointer, TaskFacts
from lifelong.records import TaskRecord

FORMAT = "lifelong model"
VERSION = 8
OLDEST = 3  # version that is still read
WHOLE = 6  # last version without segments
MANIFEST = "manifest.json"
TENSOR_FILES = ("tensors-*.safetensors", "tasks-*.safetensors")


class ModelFileError(ValueError):
    """A model that cannot be read or written; the message says which file, why, and what to do."""


@final
class Manifest(msgspec.Struct, forbid_unknown_fields=True):
    """Everything about a model except its tensors.

    Attributes:
        architecture: of an mlp or convnet; None for a module.
        module: a module of the user's; its constants are among the tensors.
        tasks, records, memory: in the file only up to version 6, for they are in the segments.
        shapes: of the tensors in the file of tensors.
        root: seed of the untrained network that tasks may start from.
        bytes, sha256: size and checksum of that file.
        attached: what a front end keeps with the model, such as what it knows of a table's columns;
            its tensors are in the same file.
        era: number of times that this file was written anew; slabs of other eras no longer count.
        count: number of tasks in the segments.
        last: the last segment, which names the one before it.
        seal: checksum of the manifest itself.
    """

    format: str
    version: int
    method: str
    seed: int
    architecture: Sequential | None
    settings: dict[str, Any]
    born: dict[str, list[int]]
    shapes: dict[str, list[int]]
    bytes: int
    sha256: str
    tasks: list[TaskFacts] = []
    memory: list[str] = []
    records: list[TaskRecord] = []
    era: int = 0
    count: int = 0
    last: Pointer | None = None
    module: TracedData | AdaptedData | None = None
    attached: dict[str, Any] | None = None
    root: int | None = None
    seal: str = ""

    @property
    def file(self) -> str:
        """Name of the file of tensors."""
        return f"tensors-{self.sha256[:16]}.safetensors"

    def sealed(self) -> "Manifest":
        """The manifest with its own checksum, which detects accidental changes."""
        unsealed = msgspec.structs.replace(self, seal="")
        return msgspec.structs.replace(self, seal=digest(msgspec.json.encode(unsealed)))


@final
class _Envelope(msgspec.Struct):
    """The members that every version of the format has."""

    format: str = ""
    version: int = 0


def read_manifest(path: Path) -> Manifest:
    """The manifest of a saved model alone, decoded, but not compared with its tensors."""
    return decoded(path / MANIFEST, content_of(path / MANIFEST, most=MOST))


def content_of(file: Path, *, size: int | None = None, most: int | None = None) -> bytes:
    try:
        return read_file(file, size, most)
    except OSError as error:
        if file.name == MANIFEST and isinstance(error, FileNotFoundError | NotADirectoryError):
            raise ModelFileError(
                f"{file.parent}: not a saved model: it has no {MANIFEST}; give the directory that "
                "`save` wrote"
            ) from error
        raise ModelFileError(f"{file}: cannot be read: {error.strerror}") from error
    except MemoryError as error:
        raise ModelFileError(f"{file}: larger than the memory that there is") from error


def decoded(file: Path, content: bytes) -> Manifest:
    try:
        require_decodable(content)
        envelope = msgspec.json.decode(content, type=_Envelope)
    except NOT_DECODED as error:
        raise ModelFileError(f"{file}: not a manifest: {error}") from error
    if envelope.format != FORMAT:
        raise ModelFileError(f"{file}: not a {FORMAT}, but {envelope.format!r}")
    if not OLDEST <= envelope.version <= VERSION:
        raise ModelFileError(
            f"{file}: has format version {envelope.version}, but this release reads {OLDEST} to "
            f"{VERSION}; "
            + ("a newer release reads it" if envelope.version > VERSION else "an older one does")
        )
    try:
        members = msgspec.json.decode(content, type=dict[str, Any])
        seal = digest(msgspec.json.encode({**members, "seal": ""}))
        manifest = msgspec.convert(_in_this_version(members), Manifest)
        _check_limits(manifest)
    except LimitError as error:
        raise ModelFileError(f"{file}: {error}") from error
    except NOT_DECODED as error:
        raise ModelFileError(f"{file}: damaged: {error}") from error
    if manifest.seal != seal:
        raise ModelFileError(f"{file}: not what was saved (its checksum differs); it is damaged")
    require_checksum(file, manifest.sha256)
    _require_form(file, manifest)
    return manifest


def _in_this_version(members: dict[str, Any]) -> dict[str, Any]:
    """The members of a manifest under their current names."""
    names = {"skeleton": "architecture"} if members["version"] == OLDEST else {}
    return {names.get(name, name): value for name, value in members.items()}


def _check_limits(manifest: Manifest) -> None:
    """Refuse more than a file may hold; what is done with the rest is linear in its size."""
    shapes, architecture = manifest.shapes, manifest.architecture
    require_at_most(MOST_TASKS, "tasks", max(manifest.count, len(manifest.tasks)))
    require_at_most(MOST_LAYERS, "layers", 0 if architecture is None else len(architecture.layers))
    require_at_most(MOST_TENSORS, "tensors", len(shapes))
    require_at_most(MOST_DIMS, "sizes in a shape", max(map(len, shapes.values()), default=0))
    require_named([manifest.method, *manifest.born, *manifest.memory, *shapes])
    named = ((task.name, *task.private, *task.patched) for task in manifest.tasks)
    require_named(name for names in named for name in names)
    sizes = [size for shape in shapes.values() for size in shape]
    require_at_most(MOST_SIZE, "places on an axis", max(sizes, default=0))
    if min(sizes, default=0) < 0:
        raise LimitError("it holds a shape below zero")


def require_within_limits(path: Path, manifest: Manifest) -> None:
    try:
        _check_limits(manifest)
    except LimitError as error:
        raise ModelFileError(f"{path}: {error}") from error


def require_checksum(file: Path, checksum: str) -> None:
    if not re.fullmatch("[0-9a-f]{64}", checksum):
        raise ModelFileError(f"{file}: {checksum[:99]!r} is not the checksum of a file")


def _require_form(file: Path, manifest: Manifest) -> None:
    """Refuse segments before there were any, and afterwards what is in them."""
    segments = manifest.last is not None or manifest.count > 0
    whole = bool(manifest.tasks or manifest.records or manifest.memory)
    if segments if manifest.version <= WHOLE else whole:
        raise ModelFileError(f"{file}: its members are not those of version {manifest.version}")
