"""Models on disk: a directory with a manifest (JSON) and the tensors (safetensors).

What all tasks share is in one file, what tasks have for themselves in segments: a save adds one for
the tasks that are new, and leaves the others as they are. Files of tensors are named by checksums,
which the manifest holds or implies, and the manifest is replaced in one rename: a directory holds
the complete old model or the complete new one. Model files are not trusted: nothing is unpickled,
and everything is checked before it is used.
"""

import operator
import re
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, final

import msgspec
import torch
from torch import Tensor

from lifelong.networks.adapted import Adapted
from lifelong.networks.growing import OWN, GrowingNetwork, LearnedTask
from lifelong.networks.layout import Architecture, NetworkError, Tensors
from lifelong.networks.sequential import Sequential
from lifelong.networks.traced.architecture import Traced
from lifelong.persistence.files import (
    MOST,
    MOST_TASKS,
    LimitError,
    digest,
    digest_of,
    directory_lock,
    make_directory,
    packed,
    read_file,
    replace_file,
    require_at_most,
    require_named,
)
from lifelong.persistence.manifest import (
    FORMAT,
    MANIFEST,
    VERSION,
    Manifest,
    ModelFileError,
    decoded,
)
from lifelong.persistence.rebuilding import (
    all_tensors,
    own_tensors,
    require_plausible,
)
from lifelong.persistence.segments import (
    Growth,
    Pointer,
    Segment,
    SegmentFacts,
    TaskFacts,
    growth_between,
)
from lifelong.records import TaskRecord

ATTACHED = "attached/"  # prefix of tensors that are not the network's
_TENSORS = re.compile(r"(tensors|tasks)-[0-9a-f]{16}\.safetensors")
_OF_TASK = re.compile(rf"{OWN}(?:bits/)?([0-9]{{1,9}})/")  # start of the name of a task's memory


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
            | own_tensors(_saveable(self.network.architecture))
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
    decoded(path / MANIFEST, text)  # refuses to write what could not be read again
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
            require_plausible(architecture.layout.groups, units)
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
    return digest(tasks.encode(), digest_of({**all_tensors(network), **births}).encode())


def not_finite(network: GrowingNetwork, before: GrowingNetwork) -> str | None:
    """Name of a tensor with a NaN or infinite entry, which could not be loaded; None if none.

    Tasks that were there before are not looked at again.
    """
    known = len(before.tasks) if _begins_with(network.tasks, before.tasks) else 0
    memory = {n: t for n, t in network.memory.items() if before.memory.get(n) is not t}
    tensors = {**network.stored_together(), **network.stored_by_tasks(known), **memory}
    broken = (name for name, t in tensors.items() if not bool(torch.isfinite(t).all()))
    return next(broken, None)
