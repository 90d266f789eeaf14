"""Models read from disk, which are not trusted: everything is checked before it is used."""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import final

import msgspec
import torch
from torch import Tensor, nn

from lifelong.networks.growing import BITS, GrowingNetwork
from lifelong.networks.layout import NetworkError
from lifelong.persistence.files import (
    MOST,
    TensorFileError,
    digest,
    unpacked,
)
from lifelong.persistence.manifest import (
    MANIFEST,
    WHOLE,
    Manifest,
    ModelFileError,
    content_of,
    decoded,
    require_checksum,
    require_within_limits,
)
from lifelong.persistence.models import ATTACHED, Attached, Contents, Directory, Written
from lifelong.persistence.rebuilding import (
    CONSTANT,
    PATCH,
    PLACES,
    PrivateShape,
    check_shapes,
    network_from,
)
from lifelong.persistence.segments import (
    Segment,
    joined,
    segment_from,
)

_MASK = f"memory/{BITS}"  # start of the name of a packed mask


@final
@dataclass(frozen=True, eq=False)
class Saved:
    """A loaded model, what is attached to it, and what its directory is known by."""

    manifest: Manifest
    network: GrowingNetwork
    attached: Attached | None
    directory: Directory


def read(
    path: Path,
    device: torch.device,
    method: str,
    private_shape: PrivateShape,
    module: nn.Module | None = None,
) -> Saved:
    """Load a model of this method, and check every part of it.

    `module` has the code of a model whose module was not traced.
    """
    files = _files(path)
    manifest, tensors = files.manifest, files.tensors
    if manifest.method != method:
        raise ModelFileError(f"{path}: holds a {manifest.method}, which {method} cannot load")
    try:
        attached = _taken(manifest, tensors)
        there = {name: t.to(device) for name, t in tensors.items()}
        network = network_from(manifest, there, module)
        check_shapes(network, private_shape)
    except (NetworkError, KeyError) as error:
        raise ModelFileError(f"{path}: manifest and tensors do not fit: {error}") from error
    contents = Contents(network, tuple(manifest.records), attached)
    return Saved(manifest, network, attached, Directory({files.mark: files.written(contents)}))


def _taken(manifest: Manifest, tensors: dict[str, Tensor]) -> Attached | None:
    """What is attached to a model; its tensors are removed from those of the network."""
    names = [name for name in tensors if name.startswith(ATTACHED)]
    own = {name.removeprefix(ATTACHED): tensors.pop(name) for name in names}
    if manifest.attached is None and own:
        raise NetworkError("there are tensors of an attachment that the manifest does not have")
    return None if manifest.attached is None else Attached(manifest.attached, own)


@final
@dataclass(frozen=True, eq=False)
class _Files:
    """All that is in the files of a model.

    Attributes:
        mark: checksum of the manifest as it is in the file.
        alone: the manifest as it is there, and `manifest` with what is in the segments.
    """

    mark: str
    alone: Manifest
    manifest: Manifest
    tensors: dict[str, Tensor]
    segments: tuple[str, ...]
    settled: frozenset[str]

    def written(self, contents: Contents) -> Written | None:
        if self.alone.version <= WHOLE:
            return None  # the next save writes everything in the new form
        return Written(contents, self.alone, self.segments, self.settled)


def _files(path: Path, tries: int = 10) -> _Files:
    """Manifest and tensors of the same save."""
    content = content_of(path / MANIFEST, most=MOST)
    manifest = decoded(path / MANIFEST, content)
    try:
        together = _read_tensors(path / manifest.file, manifest)
        return _joined(path, digest(content), manifest, together, _segments(path, manifest))
    except ModelFileError:
        # Another process may have saved in between: then the manifest has changed.
        if tries == 0 or content_of(path / MANIFEST, most=MOST) == content:
            raise
        return _files(path, tries - 1)


def _segments(path: Path, manifest: Manifest) -> dict[str, Segment]:
    """By the names of their files, the first one first."""
    found: dict[str, Segment] = {}
    pointer, left = manifest.last, manifest.count
    while pointer is not None:
        file = path / pointer.file
        require_checksum(file, pointer.sha256)
        content = content_of(file, size=pointer.bytes)
        if digest(content) != pointer.sha256:
            raise ModelFileError(
                f"{file}: not what was saved (its checksum differs); it is damaged"
            )
        try:
            found[file.name] = segment_from(content)
        except TensorFileError as error:
            raise ModelFileError(f"{file}: {error}") from error
        pointer = found[file.name].facts.before
        left -= len(found[file.name].facts.tasks)
        if left < 0:
            break
    if left:
        raise ModelFileError(f"{path}: its segments do not hold {manifest.count} tasks")
    return dict(reversed(found.items()))


def _joined(
    path: Path,
    mark: str,
    manifest: Manifest,
    together: Mapping[str, Tensor],
    segments: Mapping[str, Segment],
) -> _Files:
    parts, tensors = list(segments.values()), dict(together)
    try:
        live = [part.growth for part in parts if part.facts.era == manifest.era]
        tensors |= joined(together, live)
    except TensorFileError as error:
        raise ModelFileError(f"{path}: its segments do not fit: {error}") from error
    for part in parts:
        if not tensors.keys().isdisjoint(part.tensors):
            raise ModelFileError(f"{path}: a tensor is in several of its files")
        tensors |= part.tensors
    start = "memory/"
    settled = (n for part in parts for n in part.tensors if n.startswith(start))
    whole = manifest
    if manifest.version > WHOLE:
        whole = msgspec.structs.replace(
            manifest,
            tasks=[task for part in parts for task in part.facts.tasks],
            records=[record for part in parts for record in part.facts.records],
            memory=[n.removeprefix(start) for n in sorted(tensors) if n.startswith(start)],
            bytes=sum(tensor.nbytes for tensor in tensors.values()),
        )
        require_within_limits(path, whole)
    return _Files(
        mark,
        manifest,
        whole,
        tensors,
        tuple(segments),
        frozenset(name.removeprefix(start) for name in settled),
    )


def _read_tensors(file: Path, manifest: Manifest) -> dict[str, Tensor]:
    # Nothing is read that is larger than it says, and nothing says more than it has.
    entries = {name: math.prod(shape) for name, shape in manifest.shapes.items()}
    if sum(_least_size(name) * count for name, count in entries.items()) > manifest.bytes:
        raise ModelFileError(f"{file}: too small for the tensors that the manifest lists")
    content = content_of(file, size=manifest.bytes)
    if digest(content) != manifest.sha256:
        raise ModelFileError(f"{file}: not what was saved (its checksum differs); it is damaged")
    try:
        tensors = unpacked(content)
    except TensorFileError as error:
        raise ModelFileError(f"{file}: {error}") from error
    if {name: list(tensor.shape) for name, tensor in tensors.items()} != manifest.shapes:
        raise ModelFileError(f"{file}: holds other tensors than the manifest lists")
    return tensors


def _least_size(name: str) -> int:
    """Bytes that an entry of this tensor takes at least."""
    if name.startswith((_MASK, CONSTANT)):
        return 1
    return 4 if not name.startswith(PATCH) else 1 if name.endswith(PLACES) else 2
