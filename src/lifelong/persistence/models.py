"""Models on disk: a directory with a manifest (JSON) and the tensors (safetensors).

What all tasks share is in one file, what tasks have for themselves in segments: a save adds one for
the tasks that are new, and leaves the others as they are. Files of tensors are named by checksums,
which the manifest holds or implies, and the manifest is replaced in one rename: a directory holds
the complete old model or the complete new one. Model files are not trusted: nothing is unpickled,
and everything is checked before it is used.
"""

import math
import operator
import re
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, TypeAlias, final

import msgspec
import torch
from torch import Tensor, nn

from lifelong.networks.adapted import Adapted, AdaptedData, from_module
from lifelong.networks.growing import BITS, OWN, ROOT, GrowingNetwork, LearnedTask
from lifelong.networks.initial import root_alone
from lifelong.networks.layout import Architecture, NetworkError, Tensors
from lifelong.networks.patches import Patch, apply
from lifelong.networks.sequential import (
    Convolution,
    Linear,
    MaxPool,
    Sequential,
    convnet,
    mlp,
)
from lifelong.networks.traced.architecture import Traced, TracedData, from_data
from lifelong.persistence.files import (
    MOST,
    MOST_DIMS,
    MOST_LAYERS,
    MOST_SIZE,
    MOST_TASKS,
    MOST_TENSORS,
    NOT_DECODED,
    LimitError,
    TensorFileError,
    digest,
    digest_of,
    directory_lock,
    make_directory,
    packed,
    read_file,
    replace_file,
    require_at_most,
    require_decodable,
    require_named,
    unpacked,
)
from lifelong.persistence.segments import (
    Growth,
    Pointer,
    Segment,
    SegmentFacts,
    TaskFacts,
    growth_between,
    joined,
    segment_from,
)
from lifelong.records import TaskRecord

FORMAT = "lifelong model"
VERSION = 7
OLDEST = 3  # version that is still read
WHOLE = 6  # last version without segments
MANIFEST = "manifest.json"
ATTACHED = "attached/"  # prefix of tensors that are not the network's
MOST_UNTRAINED = 64  # entries of a network that is kept as its seed, per byte of its file
MOST_WIDER = 10_000  # times the units that a layer has, that its base network may have
_PATCH, _PLACES, _VALUES = "patch/", "/places", "/values"
_MASK = f"memory/{BITS}"  # start of the name of a packed mask
_CONSTANT = "constant/"
TENSOR_FILES = ("tensors-*.safetensors", "tasks-*.safetensors")
_TENSORS = re.compile(r"(tensors|tasks)-[0-9a-f]{16}\.safetensors")
_OF_TASK = re.compile(rf"{OWN}(?:bits/)?([0-9]{{1,9}})/")  # start of the name of a task's memory


# Expected shape of a private tensor, from the network, the task's number and the tensor's name.
PrivateShape: TypeAlias = Callable[[GrowingNetwork, int, str], tuple[int, ...]]


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


@final
@dataclass(frozen=True, eq=False)
class Attached:
    """What a front end saves with a model: plain data and tensors, which it checks itself."""

    facts: Mapping[str, Any]
    tensors: Mapping[str, Tensor]


@final
@dataclass(frozen=True, eq=False)
class Contents:
    """What a model holds."""

    network: GrowingNetwork
    records: tuple[TaskRecord, ...]
    attached: Attached | None = None

    def together(self, settled: Collection[str]) -> dict[str, Tensor]:
        """What is no single task's, without the memory that is settled in segments."""
        memory = {n: t for n, t in self.network.memory.items() if n not in settled}
        own = {} if self.attached is None else self.attached.tensors
        return (
            self.network.stored_together()
            | {f"memory/{name}": t for name, t in memory.items()}
            | _values(_saveable(self.network.architecture))
            | {ATTACHED + name: tensor for name, tensor in own.items()}
        )


@final
@dataclass(frozen=True, eq=False)
class Written:
    """What the files of a model hold, so that the next save writes only what is new.

    Attributes:
        manifest: as it is in the file.
        segments: names of their files.
        settled: names of the memory in them.
    """

    contents: Contents
    manifest: Manifest
    segments: tuple[str, ...] = ()
    settled: frozenset[str] = frozenset()

    def precedes(self, now: Contents) -> bool:
        """Whether nothing in the segments has changed since."""
        before, after = self.contents, now
        count = len(before.network.tasks)
        return (
            before.network.architecture is after.network.architecture
            and before.network.root == after.network.root
            and _begins_with(after.network.tasks, before.network.tasks)
            and _begins_with(after.records, before.records)
            and all(r.number > count for r in after.records[len(before.records) :])
            and all(after.network.memory.get(n) is before.network.memory[n] for n in self.settled)
        )


@final
@dataclass
class Directory:
    """What a learner knows of a directory that it has saved to or loaded from.

    Attributes:
        marks: checksums of the manifests of its models there, and what the last ones stand for.
        tidy: whether there can be no other files of tensors than those of the model.
    """

    marks: dict[str, Written | None] = field(default_factory=dict)
    tidy: bool = False


@final
@dataclass(frozen=True, eq=False)
class Saved:
    """A loaded model, what is attached to it, and what its directory is known by."""

    manifest: Manifest
    network: GrowingNetwork
    attached: Attached | None
    directory: Directory


@final
@dataclass(frozen=True, eq=False)
class _Plan:
    """What a save writes: what is shared, unless it is there already, and what tasks have added."""

    together: Mapping[str, Tensor] | None
    segment: Segment | None
    before: Written | None = None

    @property
    def settled(self) -> frozenset[str]:
        before = frozenset() if self.before is None else self.before.settled
        added = () if self.segment is None else self.segment.tensors
        start = "memory/"
        new = [name.removeprefix(start) for name in added if name.startswith(start)]
        return before.union(new) if new else before


def write(
    path: Path,
    *,
    method: str,
    seed: int,
    settings: Any,
    contents: Contents,
    directory: Directory,
    overwrite: bool,
) -> None:
    """Save a model into a directory, which is created if needed.

    Of a model that the directory is known by, only what is new is written. Another one is replaced
    only with `overwrite`, which writes everything.
    """
    _require_saveable(path, contents.network)
    head = partial(_manifest, contents, method=method, seed=seed, settings=settings)
    try:
        make_directory(path)
        with directory_lock(path):
            found = None if overwrite else _known_mark(path, directory)
            before = None if found is None else directory.marks[found]
            plan = _extension(before, contents) or _whole(contents)
            _write_files(path, head, plan, contents, directory)
            if found is not None and found != next(reversed(directory.marks)):
                directory.marks[found] = None  # so that its tensors are not kept in memory
    except LimitError as error:
        raise ModelFileError(f"{path}: the model cannot be saved: {error}") from error
    except OSError as error:
        raise ModelFileError(
            f"{path}: the model cannot be written: {error.strerror}; what was there before is "
            "there still, or this one is, whole: mend this, or save elsewhere"
        ) from error


def _write_files(
    path: Path,
    head: Callable[..., Manifest],
    plan: _Plan,
    contents: Contents,
    directory: Directory,
) -> None:
    manifest, names, files = _packed(head, plan)
    text = msgspec.json.format(msgspec.json.encode(manifest), indent=1)
    _decoded(path / MANIFEST, text)  # refuses to write what could not be read again
    tidy, directory.tidy = directory.tidy, False
    directory.marks.pop(digest(text), None)  # the last one is the newest
    directory.marks[digest(text)] = Written(contents, manifest, names, plan.settled)
    for name, content in files.items():
        replace_file(path / name, content)
    replace_file(path / MANIFEST, text)
    directory.tidy = _tidy_up(path, manifest, names, plan.before if tidy else None)


def _packed(
    head: Callable[..., Manifest], plan: _Plan
) -> tuple[Manifest, tuple[str, ...], dict[str, bytes]]:
    """The manifest, the names of all segments, and the files that are new."""
    before, files = plan.before, {}
    names = () if before is None else before.segments
    last = None if before is None else before.manifest.last
    if plan.segment is not None:
        content = plan.segment.packed()
        last = Pointer(len(content), digest(content))
        names, files[last.file] = (*names, last.file), content
    if plan.together is None:
        assert before is not None
        known = before.manifest
        about = {name: getattr(known, name) for name in ("shapes", "bytes", "sha256", "era")}
        return head(**about, last=last).sealed(), names, files
    content = packed(plan.together)
    manifest = head(
        shapes={name: list(tensor.shape) for name, tensor in plan.together.items()},
        bytes=len(content),
        sha256=digest(content),
        era=0 if before is None else before.manifest.era + 1,
        last=last,
    ).sealed()
    return manifest, names, {**files, manifest.file: content}


def _manifest(
    contents: Contents, *, method: str, seed: int, settings: Any, **about: Any
) -> Manifest:
    network, attached = contents.network, contents.attached
    architecture = _saveable(network.architecture)
    return Manifest(
        format=FORMAT,
        version=VERSION,
        method=method,
        seed=seed,
        architecture=architecture if isinstance(architecture, Sequential) else None,
        module=None if isinstance(architecture, Sequential) else architecture.data,
        settings=msgspec.to_builtins(settings),
        born={group: stamps.tolist() for group, stamps in network.born.items()},
        count=len(network.tasks),
        attached=None if attached is None else msgspec.to_builtins(attached.facts),
        root=network.root,
        **about,
    )


def _require_saveable(path: Path, network: GrowingNetwork) -> None:
    """Refuse what could not be read again, before anything is written."""
    architecture = _saveable(network.architecture)
    try:
        require_at_most(MOST_TASKS, "tasks", len(network.tasks))
        require_named(known.name for known in network.tasks)
        if network.tasks:
            units = {group: len(stamps) for group, stamps in network.born.items()}
            _require_plausible(architecture.layout.groups, units)
    except (LimitError, NetworkError) as error:
        raise ModelFileError(f"{path}: the model cannot be saved: {error}") from error


def _saveable(architecture: Architecture) -> Sequential | Traced | Adapted:
    if not isinstance(architecture, Sequential | Traced | Adapted):
        made = "mlp, convnet, grow or adapt"
        raise TypeError(f"networks made by {made} are saved, not {architecture!r}")
    return architecture


def _whole(now: Contents) -> _Plan:
    segment = _segment(now, 0, None, {}) if now.network.tasks else None
    return _Plan(now.together(()), segment)


def _extension(before: Written | None, now: Contents) -> _Plan | None:
    """What is new since; None if what is in the segments has changed."""
    if before is None or not before.precedes(now):
        return None
    count = len(before.contents.network.tasks)
    memory = _memory_of_tasks(now.network, count)
    together = now.together(before.settled | memory.keys())
    growth = _growth(before.contents.together(before.settled), together)
    if len(now.network.tasks) == count:
        return _Plan(together if growth != {} else None, None, before)
    segment = _segment(now, count, before.manifest.last, memory)
    if growth is None:
        return _Plan(together, segment, before)
    return _Plan(None, segment.with_growth(growth, before.manifest.era), before)


def _growth(before: Tensors, now: Tensors) -> dict[str, Growth] | None:
    """How shared tensors have grown; None if anything else has changed."""
    if before.keys() != now.keys():
        return None
    found: dict[str, Growth] = {}
    for name, tensor in now.items():
        growth = growth_between(before[name], tensor)
        if growth is None:
            return None
        if growth.slabs:
            found[name] = growth
    return found


def _segment(now: Contents, after: int, last: Pointer | None, memory: Tensors) -> Segment:
    """What the tasks after this one have added."""
    tasks = [_described(known) for known in now.network.tasks[after:]]
    records = [record for record in now.records if record.number > after]
    own = now.network.stored_by_tasks(after) | {f"memory/{n}": t for n, t in memory.items()}
    return Segment(SegmentFacts(last, tasks, records), own)


def _memory_of_tasks(network: GrowingNetwork, after: int) -> dict[str, Tensor]:
    """The part of a network's memory whose names begin with the number of a task after this one."""
    numbered = {name: _OF_TASK.match(name) for name in network.memory}
    return {
        name: network.memory[name]
        for name, found in numbered.items()
        if found is not None and after < int(found[1]) <= len(network.tasks)
    }


def _described(known: LearnedTask) -> TaskFacts:
    private, patched = sorted(known.private), sorted(known.patches)
    return TaskFacts(
        known.name, known.kind, known.outputs, private, known.first, patched, known.parent
    )


def _begins_with(longer: Sequence[object], start: Sequence[object]) -> bool:
    """Whether these are the same objects, and not only equal: what was learned is immutable."""
    return len(longer) >= len(start) and all(map(operator.is_, longer, start))


def _known_mark(path: Path, directory: Directory) -> str | None:
    """Checksum of the manifest that is there; None if there is none."""
    try:
        found = digest(read_file(path / MANIFEST, most=MOST))
    except FileNotFoundError:
        return None
    if found not in directory.marks:
        raise ModelFileError(
            f"{path}: holds a model that this learner has neither loaded nor saved there; perhaps "
            "someone else saved it in the meantime. Load that one and go on with it, save "
            "elsewhere, or pass overwrite=True to replace it"
        )
    return found


def _tidy_up(
    path: Path, manifest: Manifest, segments: Collection[str], before: Written | None
) -> bool:
    """Delete files of tensors that the model no longer has. One that stays is harmless; whether
    none does.

    `before` is what the directory held, if nothing else can be there: to list it takes longer the
    more tasks there are.
    """
    kept = {manifest.file, *segments}
    if before is not None:
        there = [before.manifest.file]
    else:
        there = [file.name for file in path.iterdir() if _TENSORS.fullmatch(file.name)]
    try:
        for name in there:
            if name not in kept:
                (path / name).unlink()
    except OSError:
        return False
    return True


def checksum(network: GrowingNetwork) -> str:
    """Checksum of all that was learned."""
    births = {f"born/{group}": stamps for group, stamps in network.born.items()}
    tasks = repr([(known.name, known.kind.value, known.outputs) for known in network.tasks])
    if network.root is not None:
        tasks += repr((network.root, [known.parent for known in network.tasks]))
    return digest(tasks.encode(), digest_of({**_tensors(network), **births}).encode())


def not_finite(network: GrowingNetwork, before: GrowingNetwork) -> str | None:
    """Name of a tensor with a NaN or infinite entry, which could not be loaded; None if none.

    Tasks that were there before are not looked at again.
    """
    known = len(before.tasks) if _begins_with(network.tasks, before.tasks) else 0
    memory = {n: t for n, t in network.memory.items() if before.memory.get(n) is not t}
    tensors = {**network.stored_together(), **network.stored_by_tasks(known), **memory}
    broken = (name for name, t in tensors.items() if not bool(torch.isfinite(t).all()))
    return next(broken, None)


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
        network = _network(manifest, there, module)
        _check_shapes(network, private_shape)
    except (NetworkError, KeyError) as error:
        raise ModelFileError(f"{path}: manifest and tensors do not fit: {error}") from error
    contents = Contents(network, tuple(manifest.records), attached)
    return Saved(manifest, network, attached, Directory({files.mark: files.written(contents)}))


def read_manifest(path: Path) -> Manifest:
    """The manifest of a saved model alone, decoded, but not compared with its tensors."""
    return _decoded(path / MANIFEST, _content(path / MANIFEST, most=MOST))


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
    content = _content(path / MANIFEST, most=MOST)
    manifest = _decoded(path / MANIFEST, content)
    try:
        together = _read_tensors(path / manifest.file, manifest)
        return _joined(path, digest(content), manifest, together, _segments(path, manifest))
    except ModelFileError:
        # Another process may have saved in between: then the manifest has changed.
        if tries == 0 or _content(path / MANIFEST, most=MOST) == content:
            raise
        return _files(path, tries - 1)


def _segments(path: Path, manifest: Manifest) -> dict[str, Segment]:
    """By the names of their files, the first one first."""
    found: dict[str, Segment] = {}
    pointer, left = manifest.last, manifest.count
    while pointer is not None:
        file = path / pointer.file
        _require_checksum(file, pointer.sha256)
        content = _content(file, size=pointer.bytes)
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
        _require_within_limits(path, whole)
    return _Files(
        mark,
        manifest,
        whole,
        tensors,
        tuple(segments),
        frozenset(name.removeprefix(start) for name in settled),
    )


def _require_within_limits(path: Path, manifest: Manifest) -> None:
    try:
        _check_limits(manifest)
    except LimitError as error:
        raise ModelFileError(f"{path}: {error}") from error


def _decoded(file: Path, content: bytes) -> Manifest:
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
    _require_checksum(file, manifest.sha256)
    _require_form(file, manifest)
    return manifest


def _require_checksum(file: Path, checksum: str) -> None:
    if not re.fullmatch("[0-9a-f]{64}", checksum):
        raise ModelFileError(f"{file}: {checksum[:99]!r} is not the checksum of a file")


def _require_form(file: Path, manifest: Manifest) -> None:
    """Refuse segments before there were any, and afterwards what is in them."""
    segments = manifest.last is not None or manifest.count > 0
    whole = bool(manifest.tasks or manifest.records or manifest.memory)
    if segments if manifest.version <= WHOLE else whole:
        raise ModelFileError(f"{file}: its members are not those of version {manifest.version}")


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


def _in_this_version(members: dict[str, Any]) -> dict[str, Any]:
    """The members of a manifest under their current names."""
    names = {"skeleton": "architecture"} if members["version"] == OLDEST else {}
    return {names.get(name, name): value for name, value in members.items()}


def _read_tensors(file: Path, manifest: Manifest) -> dict[str, Tensor]:
    # Nothing is read that is larger than it says, and nothing says more than it has.
    entries = {name: math.prod(shape) for name, shape in manifest.shapes.items()}
    if sum(_least_size(name) * count for name, count in entries.items()) > manifest.bytes:
        raise ModelFileError(f"{file}: too small for the tensors that the manifest lists")
    content = _content(file, size=manifest.bytes)
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
    if name.startswith((_MASK, _CONSTANT)):
        return 1
    return 4 if not name.startswith(_PATCH) else 1 if name.endswith(_PLACES) else 2


def _content(file: Path, *, size: int | None = None, most: int | None = None) -> bytes:
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


def _values(architecture: "Sequential | Traced | Adapted") -> dict[str, Tensor]:
    """Tensors of the architecture itself."""
    if isinstance(architecture, Sequential):
        return {}
    constants = {f"{_CONSTANT}{name}": t for name, t in architecture.constants.items()}
    return constants | {f"start/{name}": t for name, t in architecture.start.items()}


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
    constants = {name: tensors[f"{_CONSTANT}{name}"] for name in module.constants}
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


def _tensors(network: GrowingNetwork) -> dict[str, Tensor]:
    return network.stored() | {f"memory/{name}": t for name, t in network.memory.items()}


def _network(
    manifest: Manifest, tensors: Mapping[str, Tensor], given: nn.Module | None = None
) -> GrowingNetwork:
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
    if len(_tensors(network)) + len(_values(architecture)) != len(tensors):
        raise NetworkError("there are tensors that belong to no task")
    return network


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
        part = f"{_PATCH}{ROOT}/{name}"
        if part + _PLACES in tensors:
            patch = Patch(tensors[part + _PLACES].cpu(), tensors[part + _VALUES])
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
    parts = {name: f"{_PATCH}{number}/{name}" for name in names}
    return {
        name: Patch(tensors[part + _PLACES].cpu(), tensors[part + _VALUES])
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


def _require_plausible(widths: Mapping[str, int], units: Mapping[str, int]) -> None:
    """Refuse a base network of far more units than were ever made: the next task may make them."""
    for group, width in widths.items():
        if width > MOST_WIDER * max(1, units.get(group, 0)):
            raise NetworkError(
                f"{group} has {units.get(group, 0):,} units, its base network {width:,}: more than "
                f"{MOST_WIDER:,} times as many"
            )


def _births(manifest: Manifest, architecture: Architecture) -> dict[str, Tensor]:
    groups = architecture.layout.groups if manifest.tasks else {}
    _require_plausible(groups, {group: len(stamps) for group, stamps in manifest.born.items()})
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


def _check_shapes(network: GrowingNetwork, private_shape: PrivateShape) -> None:
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
