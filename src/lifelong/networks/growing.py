"""Networks as data: an architecture, tensors by name, and the task at which each unit was born.

Units are only ever appended, so the network as of a task is a prefix of every axis. A task may also
overwrite entries between older units: a patch, which holds for this task and those that start from
it.
"""

import math
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import final

import torch
from torch import Tensor

from lifelong.networks.initial import (
    Initialise,
    enlarged,
    resting_value,
    root_alone,
    root_tensors,
)
from lifelong.networks.layout import (
    HEAD,
    Architecture,
    Region,
    Tensors,
    TensorSpec,
    logits,
    put,
    take,
)
from lifelong.networks.patches import Patch, apply, difference, old_region
from lifelong.tasks.kinds import Kind
from lifelong.tasks.task import Task

ROOT = 0  # number of the untrained network, as a parent
OWN = "own/"  # prefix of tensors in a method's memory that belong to no shared tensor
BITS = "own/bits/"  # of those, masks: eight entries to a byte


@final
@dataclass(frozen=True, eq=False)
class Network:
    """A network as one task sees it: everything that a prediction for this task needs.

    `born` holds, per hidden group, the number of the task at which each unit was added. Values
    are never changed in place: surgery and training return new networks.
    """

    architecture: Architecture
    tensors: Tensors
    born: Mapping[str, Tensor]

    def width(self, group: str) -> int:
        return self.widths[group]

    @cached_property
    def widths(self) -> dict[str, int]:
        """Units per group, including inputs and outputs."""
        outputs = len(self.tensors[HEAD[1]])
        return self.architecture.layout.widths(_hidden(self.born), outputs)

    @property
    def inputs(self) -> tuple[int, ...]:
        """Shape of one input."""
        return self.architecture.layout.inputs

    @property
    def device(self) -> torch.device:
        return self.tensors[HEAD[1]].device

    def multiply_adds(self) -> int:
        """Per row."""
        return self.architecture.multiply_adds(self.tensors)

    def with_tensors(self, tensors: Tensors) -> "Network":
        return replace(self, tensors=tensors)

    def only(self, names: Collection[str]) -> dict[str, Tensor]:
        """The tensors of these names."""
        return {name: self.tensors[name] for name in names}

    def logits(self, x: Tensor) -> Tensor:
        return logits(self.architecture, self.tensors, x)


def first_network(
    architecture: Architecture, widths: Mapping[str, int], outputs: int, make: Initialise
) -> Network:
    """A network of these widths whose units are all born with task 1.

    At the widths of a pretrained module it has that module's values.
    """
    layout = architecture.layout
    tensors = {
        name: make(spec, layout.shape(name, widths, outputs))
        for name, spec in layout.tensors.items()
    }
    if widths == layout.groups:
        device = tensors[HEAD[1]].device
        tensors |= {name: t.to(device, copy=True) for name, t in architecture.start.items()}
    born = {group: torch.ones(widths[group], dtype=torch.long) for group in layout.groups}
    return Network(architecture, tensors, born)


@final
@dataclass(frozen=True, eq=False)
class LearnedTask:
    """A learned task: the meaning of its outputs, its private tensors, and what it changed.

    Attributes:
        patches: by name of a shared tensor, the entries between older units that it overwrites.
        parent: number of the task that it started from; `ROOT` for the untrained network, None
            for the task before it.
    """

    name: str
    kind: Kind
    outputs: int
    private: Tensors
    first: int = 0  # number of the first class
    patches: Mapping[str, Patch] = field(default_factory=dict)
    parent: int | None = None


@final
@dataclass(frozen=True, eq=False)
class GrowingNetwork:
    """All that was learned: shared tensors, births of their units, and each task's own tensors.

    Tasks are numbered from 1. Immutable, like `Network`: learning a task returns a new value.

    Attributes:
        shared: each entry as it was when its units were born; later changes are in the patches.
        root: seed of the untrained network of the units that are born with task 1; None if tasks
            do not start from it. With a root, task 1 is a patch of it like any other, and what is
            shared takes no space but for units that were born later.
        memory: what a method keeps of earlier tasks to learn the next one, such as the importance
            of each weight. A name is a word and the shared tensor whose shape it has, as in
            "importance/hidden1.weight"; or begins with "own/", for any shape. Predictions need it
            only if the method says so, as for the masks of its tasks, whose names begin with
            "own/bits/" and which are packed into bytes.
    """

    architecture: Architecture
    shared: Tensors = field(default_factory=dict)
    born: Mapping[str, Tensor] = field(default_factory=dict)
    tasks: tuple[LearnedTask, ...] = ()
    memory: Tensors = field(default_factory=dict)
    root: int | None = None
    # Cached views. Not an argument of __init__, so that `replace` starts with an empty cache.
    _as_of: dict[int, Network] = field(init=False, default_factory=dict, repr=False)
    _starts: dict[int, Tensors] = field(init=False, default_factory=dict, repr=False)

    @cached_property
    def numbers(self) -> dict[str, int]:
        """Task numbers by name, from 1."""
        return {known.name: number for number, known in enumerate(self.tasks, 1)}

    def everything(self) -> dict[str, Tensor]:
        """All tensors: shared ones by name, private ones as "NUMBER.NAME"."""
        return {**self.shared, **self.private()}

    def private(self, between: str = ".") -> dict[str, Tensor]:
        """The tasks' own tensors, as "NUMBER.NAME"."""
        return {
            f"{number}{between}{name}": tensor
            for number, known in enumerate(self.tasks, 1)
            for name, tensor in known.private.items()
        }

    def specs(self) -> dict[str, TensorSpec]:
        """Declarations of the tensors of `everything`."""
        declared = self.architecture.layout.tensors
        private = {
            f"{number}.{name}": declared[name]
            for number, known in enumerate(self.tasks, 1)
            for name in known.private
        }
        return {**{name: declared[name] for name in self.shared}, **private}

    def patches(self, between: str = ".") -> dict[str, Patch]:
        """All patches, as "NUMBER.NAME"."""
        return {
            f"{number}{between}{name}": patch
            for number, known in enumerate(self.tasks, 1)
            for name, patch in known.patches.items()
        }

    def base_parameters(self) -> int:
        """Parameters of the base network with one head per task: the size of DNN-MTL."""
        return self.architecture.layout.parameters([known.outputs for known in self.tasks])

    def as_of(self, number: int) -> Network:
        """The network as of task `number`: a prefix of every axis, and the task's own head.

        The prefixes are contiguous, so that rounding does not depend on what was appended since.
        """
        return self.view(number, self._prefix)

    def view(self, number: int, make: Callable[[int], Network]) -> Network:
        """The network of task `number` as `make` makes it. A few views are cached, so a network has
        one kind of view only.
        """
        found = self._as_of.get(number)
        if found is None:
            found = make(number)
            if len(self._as_of) >= 4:
                self._as_of.clear()
            self._as_of[number] = found
        return found

    def _prefix(self, number: int) -> Network:
        private = self.tasks[number - 1].private
        shared = self._between(number, self.lineage(number))
        return Network(self.architecture, {**shared, **private}, self._born_by(number))

    def lineage(self, number: int) -> tuple[int, ...]:
        """Numbers of a task and of those that it inherits from, the first one first."""
        first, line = (1 if self.root is None else ROOT), [number]
        while line[-1] > first:
            parent = self.tasks[line[-1] - 1].parent
            line.append(line[-1] - 1 if parent is None else parent)
        return tuple(line[::-1])

    @property
    def current(self) -> Tensors:
        """The shared tensors as the last task knows them."""
        return self.start_from(len(self.tasks))

    def start_from(self, parent: int) -> Tensors:
        """The shared tensors of all units as a task begins that starts from `parent`.

        Units that `parent` does not inherit are silent: their entries are zero.
        """
        if not self._has_patches:
            return self.shared
        if parent not in self._starts:
            self._starts[parent] = self._between(len(self.tasks), self.lineage(parent))
        return self._starts[parent]

    @cached_property
    def _has_patches(self) -> bool:
        return any(known.patches or known.parent is not None for known in self.tasks) or (
            self.root is not None
        )

    def _between(self, number: int, lineage: tuple[int, ...]) -> dict[str, Tensor]:
        """The shared tensors between units born up to task `number`, as this lineage knows them."""
        regions, specs = self.regions(number), self.architecture.layout.tensors
        tensors = {name: take(t, regions[name]).contiguous() for name, t in self.shared.items()}
        if not self._has_patches:
            return tensors
        if not {*range(2, number + 1)}.issubset(lineage):
            tensors = self._inherited(tensors, number, lineage)
        changed = {n for task in lineage if task != ROOT for n in self.tasks[task - 1].patches}
        tensors.update({name: tensors[name].clone() for name in changed})
        now = self._widths(number)
        for task in lineage:
            patches = self.tasks[task - 1].patches if task != ROOT else {}
            before = self._widths(max(1, task - 1)) if patches else now
            for name, patch in patches.items():
                apply(patch, tensors[name], specs[name], before, now)
        return tensors

    def _inherited(
        self, tensors: Tensors, number: int, lineage: tuple[int, ...]
    ) -> dict[str, Tensor]:
        """The tensors with zeros where an entry was not born with a task of the lineage."""
        specs, born = self.architecture.layout.tensors, self._born_by(number)
        heirs = torch.tensor([1, *lineage])  # what is born with task 1 is everyone's, or the root's
        return {
            name: torch.where(
                torch.isin(_births(specs[name], born), heirs).to(tensor.device), tensor, 0.0
            )
            for name, tensor in tensors.items()
        }

    def overwritten(self, number: int) -> dict[str, int]:
        """By shared tensor, how many entries task `number` overwrites."""
        before = max(1, number - 1)
        return {
            name: patch.overwritten(self.entries(name, before))
            for name, patch in self.tasks[number - 1].patches.items()
        }

    def entries(self, name: str, number: int) -> int:
        """Size of a shared tensor as of task `number`."""
        return math.prod(self.architecture.layout.tensors[name].shape(self._widths(number)))

    def _widths(self, number: int) -> dict[str, int]:
        return self.architecture.layout.widths(_hidden(self._born_by(number)), 0)

    def regions(self, number: int) -> dict[str, Region]:
        """Per shared tensor, the entries between units born up to task `number`."""
        known = _hidden(self._born_by(number))
        units = {group: torch.arange(width) for group, width in known.items()}
        specs, widths = self.architecture.layout.tensors, _hidden(self.born)
        return {name: specs[name].region(widths, out=units, into=units) for name in self.shared}

    def _born_by(self, number: int) -> dict[str, Tensor]:
        return {group: stamps[stamps <= number] for group, stamps in self.born.items()}

    def without_stamps(self, number: int) -> Network:
        """The whole network with the head of task `number` (DEN-No-Stamp)."""
        known, layout = self.tasks[number - 1], self.architecture.layout
        born = self._born_by(number)
        private = {
            name: enlarged(
                tensor,
                layout.tensors[name],
                layout.widths(_hidden(born), known.outputs),
                layout.widths(_hidden(self.born), known.outputs),
                lambda spec, size: torch.full(size, resting_value(spec)),
            )
            for name, tensor in known.private.items()
        }
        return Network(self.architecture, {**self.current, **private}, self.born)

    @cached_property
    def statistics(self) -> dict[str, Tensor]:
        """The statistics of the last task, which a new task starts from."""
        last = self.tasks[-1].private if self.tasks else {}
        return {name: last[name] for name in self.architecture.layout.buffers if name in last}

    def with_head(self, weight: Tensor, bias: Tensor, parent: int | None = None) -> Network:
        """The whole network with the head of a new task, which starts from `parent`."""
        head = dict(zip(HEAD, (weight, bias), strict=True))
        shared = self.start_from(len(self.tasks) if parent is None else parent)
        return Network(self.architecture, {**shared, **self.statistics, **head}, self.born)

    def remember(
        self, task: Task, network: Network, private: Collection[str] | None = None
    ) -> "GrowingNetwork":
        """This network after `task` was learned as `network`.

        The tensors named `private` become the task's own; by default those that the layout says.
        """
        names = self.architecture.layout.task_owned if private is None else private
        own = network.only(names)
        shared = {name: t for name, t in network.tensors.items() if name not in own}
        known = LearnedTask(task.name, task.kind, task.outputs, own, task.first)
        return replace(self, shared=shared, born=network.born, tasks=(*self.tasks, known))

    def patched_by(
        self, task: Task, network: Network, parent: int | None = None
    ) -> "GrowingNetwork":
        """This network after `task` was learned as `network`, which started from `parent`.

        What differs from the start becomes the task's patch; earlier tasks keep what they have.
        """
        after = self.remember(task, network)
        if not self.tasks and self.root is None:
            return after
        here = self if self.tasks else self._untrained(network)
        specs, shared, patches = self.architecture.layout.tensors, dict(after.shared), {}
        then, now = here._widths(max(1, len(self.tasks))), after._widths(len(after.tasks))
        last = len(self.tasks)
        before = here.start_from(last if parent is None else parent) if last else here.shared
        for name, born_with in here.shared.items():
            region = old_region(specs[name], then, now)
            patch = difference(before[name], take(shared[name], region).contiguous())
            if len(patch):
                patches[name] = patch
            shared[name] = shared[name].clone()
            put(shared[name], region, born_with)
        known = replace(after.tasks[-1], patches=patches, parent=parent)
        return replace(after, shared=shared, tasks=(*self.tasks, known))

    def _untrained(self, network: Network) -> "GrowingNetwork":
        """This network, which has learned nothing, with the root as its shared tensors."""
        assert self.root is not None
        names = [n for n in network.tensors if n not in self.architecture.layout.task_owned]
        root = root_tensors(self.architecture, names, network.widths, self.root)
        shared = {name: tensor.to(network.device) for name, tensor in root.items()}
        return replace(self, shared=shared, born=network.born)

    @cached_property
    def _birth_patches(self) -> dict[str, Patch]:
        """With a root: what the shared tensors hold beside it, which is units born later.

        Cached: sizes, checksums and files ask for it, and the root is drawn anew each time.
        """
        assert self.root is not None
        widths, now = self._widths(1), self._widths(len(self.tasks))
        alone = root_alone(self.architecture, list(self.shared), widths, now, self.root)
        found = {n: difference(alone[n].to(t.device), t) for n, t in self.shared.items()}
        return {name: patch for name, patch in found.items() if len(patch)}

    def stored(self) -> dict[str, Tensor]:
        """All that predictions need, as it is stored. A root is kept as its seed."""
        return self.stored_together() | self.stored_by_tasks()

    def stored_together(self) -> dict[str, Tensor]:
        """Of what is stored, that which is no single task's."""
        if self.root is None:
            return {f"shared/{name}": tensor for name, tensor in self.shared.items()}
        return _stored_patches(ROOT, self._birth_patches)

    def stored_by_tasks(self, after: int = 0) -> dict[str, Tensor]:
        """Of what is stored, that which belongs to the tasks after this one."""
        found: dict[str, Tensor] = {}
        for number, known in enumerate(self.tasks[after:], after + 1):
            found |= {f"task/{number}/{name}": t for name, t in known.private.items()}
            found |= _stored_patches(number, known.patches)
        return found


def _stored_patches(number: int, patches: Mapping[str, Patch]) -> dict[str, Tensor]:
    places = {f"patch/{number}/{name}/places": patch.places for name, patch in patches.items()}
    values = {f"patch/{number}/{name}/values": patch.values for name, patch in patches.items()}
    return places | values


def _births(spec: TensorSpec, born: Mapping[str, Tensor]) -> Tensor:
    """Per entry of a tensor, the number of the task at which the younger of its units was born."""
    births = torch.ones((), dtype=torch.long)
    for axis in spec.axes:
        stamps = [
            born[s.group].repeat_interleave(s.span).repeat(s.repeat)
            if s.group is not None and s.group in born
            else torch.ones(s.repeat * s.span, dtype=torch.long)
            for s in axis.segments
        ]
        births = torch.maximum(births[..., None], torch.cat(stamps))
    return births


def _hidden(born: Mapping[str, Tensor]) -> dict[str, int]:
    return {group: len(stamps) for group, stamps in born.items()}


def parameters(tensors: Tensors) -> int:
    return sum(tensor.numel() for tensor in tensors.values())


def nonzero(tensors: Tensors) -> int:
    return sum(int(torch.count_nonzero(tensor)) for tensor in tensors.values())
