"""`adapt`: any module as an architecture whose widths stay as they are.

Nothing is traced: the module's own code runs, by `torch.func.functional_call`, with the tensors of
a task. Tasks differ in their heads, in their normalisation statistics, and in patches of weights.
"""

import copy
import math
import threading
import warnings
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Literal, final

import msgspec
import torch
from torch import Tensor, nn
from torch.utils.flop_counter import FlopCounterMode

from lifelong.networks.layout import (
    HEAD,
    OUTPUTS,
    Layout,
    NetworkError,
    Tensors,
    TensorSpec,
    fixed_axis,
    units_axis,
)
from lifelong.networks.nn_modules import (
    global_state_from,
    identity,
    named_tensors,
    other_names,
    require_initials,
    require_module,
    require_names,
)

COUNTERS = "num_batches_tracked"  # of a normalisation layer, which needs it for nothing else
STATISTICS = {"running_mean": 0.0, "running_var": 1.0}  # with their initial values
TOLERANCE = 1e-4  # of the largest output


@final
class AdaptedData(msgspec.Struct, frozen=True, forbid_unknown_fields=True, tag="adapted"):
    """What a model file holds of a module that was not traced: everything but its code.

    Attributes:
        module: name of its class, for people.
        multiply_adds: per row, without the head.
    """

    module: str
    head: str
    dtype: Literal["float32", "int64"]
    layout: Layout
    multiply_adds: int
    constants: tuple[str, ...] = ()
    start: tuple[str, ...] = ()

    def report(self) -> str:
        """What learners change, and what they do not."""
        kinds = dict.fromkeys(("weight", "bias", "scale", "buffer"), 0)
        for name in self.start:
            kinds[self.layout.tensors[name].kind] += math.prod(self.layout.shape(name, {}, 1))
        counted = ", ".join(f"{count:,} in {kind}s" for kind, count in kinds.items() if count)
        lines = [f"{self.module}: no units grow; numbers that tasks may patch: {counted}"]
        if self.constants:
            lines.append(f"never changed: {', '.join(self.constants)}")
        return "\n".join(lines)


MOST_INPUTS = 1 << 26  # numbers in one input


@final
@dataclass(frozen=True, eq=False)
class Adapted:
    """A module as a function of named tensors of its own shapes.

    Attributes:
        constants: tensors that never change: frozen parts, and buffers that are no statistics.
        start: the module's own values, which training starts from.
    """

    data: AdaptedData
    constants: Tensors
    start: Tensors
    _modes: dict[bool, nn.Module] = field(repr=False)
    # While it is called, a module holds the tensors that it was given.
    _lock: threading.Lock = field(default_factory=threading.Lock, repr=False)

    @property
    def layout(self) -> Layout:
        return self.data.layout

    def features(
        self, tensors: Tensors, x: Tensor, generator: torch.Generator | None = None
    ) -> Tensor:
        if self.data.dtype != "float32":
            x = x.to(getattr(torch, self.data.dtype))
        if generator is None:
            return self._call(False, tensors, x)
        with global_state_from(generator, x.device):
            return self._call(True, tensors, x)

    def _call(self, training: bool, tensors: Tensors, x: Tensor) -> Tensor:
        module = self._modes[training]
        given = {name: tensors[name] for name in self.data.start}
        counters = {n: torch.zeros((), dtype=torch.long) for n, _ in _counters(module)}
        constants = {n: t.to(x.device) for n, t in self.constants.items()}
        if training:  # a module may write into its buffers then
            constants |= {n: constants[n].clone() for n in self._buffers if n in constants}
        state = {**given, **constants, **counters}
        with self._lock:
            features: Tensor = torch.func.functional_call(module, state, (x,))
        if training:
            for name in self.layout.buffers:
                if state[name] is not tensors[name]:  # the module put a new tensor in its place
                    tensors[name].copy_(state[name].detach())
        return features

    @cached_property
    def _buffers(self) -> tuple[str, ...]:
        return tuple(name for name, _ in self._modes[True].named_buffers())

    def multiply_adds(self, tensors: Tensors) -> int:
        return self.data.multiply_adds + tensors[HEAD[0]].numel()

    def report(self) -> str:
        """What learners change, and what they do not."""
        return self.data.report()

    def __repr__(self) -> str:
        """By its content, which identifies a checkpoint."""
        content = identity(self.data, {**self.constants, **self.start})
        return f"Adapted({self.data.module}, {content})"


def adapt(
    module: nn.Module, example: Tensor, *, head: str = "fc", frozen: Sequence[str] = ()
) -> Adapted:
    """Any module as an architecture that does not grow: tasks patch its weights.

    Training starts from the module's own values. `DEN(adapt(module, x), Settings(split="weights"))`
    learns the first task with them, or keeps them near if they are pretrained; each further task
    stores a head, statistics and the weights that it changes most.

    Args:
        module: takes one tensor with rows first, and returns the outputs of its head.
        example: a few inputs. Inputs that are whole numbers are tokens.
        head: name of the last Linear layer; every task gets its own.
        frozen: names of parts that never change.
    """
    require_module(module, example, head, {"frozen": frozen})
    _require_momentum(module)
    modes = _modes(module, head, frozen)
    _, buffers = named_tensors(module, head, frozen)
    numbers = [name for name, buffer in buffers.items() if buffer.dtype == torch.float32]
    candidate = _adapted(module, example, head, frozen, modes, numbers)
    _prove(candidate, module, example)
    written = _written(candidate, example)
    adapted = _adapted(module, example, head, frozen, modes, written)
    counted = msgspec.structs.replace(adapted.data, multiply_adds=_count(adapted, example))
    return Adapted(counted, adapted.constants, adapted.start, modes)


def _adapted(
    module: nn.Module,
    example: Tensor,
    head: str,
    frozen: Sequence[str],
    modes: dict[bool, nn.Module],
    written: Sequence[str],
) -> Adapted:
    """The module as an architecture.

    The buffers named `written` are statistics like those of a normalisation layer, whatever they
    are called: the module writes into them while it is trained.
    """
    parameters, buffers = named_tensors(module, head, frozen)
    own = {n: t.detach().clone() for n, t in {**parameters, **buffers}.items()}
    specs = dict(_specs(module, head, frozen, written))
    require_names(n for n in own if not n.startswith(f"{head}."))
    start = {name: own[name] for name in specs if name not in HEAD}
    constants = {
        name: tensor
        for name, tensor in own.items()
        if name not in specs and not name.startswith(f"{head}.") and not name.endswith(COUNTERS)
    }
    data = AdaptedData(
        type(module).__name__,
        head,
        "float32" if example.is_floating_point() else "int64",
        Layout(tuple(example.shape[1:]), {}, specs),
        0,
        tuple(constants),
        tuple(start),
    )
    return Adapted(data, constants, start, modes)


def from_module(
    data: AdaptedData, constants: Tensors, start: Tensors, module: nn.Module
) -> Adapted:
    """A saved architecture with the module whose code it needs."""
    saved = {n: tuple(t.shape) for n, t in {**constants, **start}.items()}
    parameters, buffers = named_tensors(module, data.head, tuple(saved))
    given = {**parameters, **buffers}
    shapes = {n: tuple(t.shape) for n, t in given.items() if not n.endswith(COUNTERS)}
    others = {n for n in shapes if n not in saved and not n.startswith(f"{data.head}.")}
    if others or any(shapes.get(name) != shape for name, shape in saved.items()):
        raise NetworkError(
            f"a {type(module).__name__} has other tensors than the {data.module} that was saved"
        )
    names = {n for n in data.layout.tensors if n not in HEAD}
    if names != set(start) or data.layout.groups or not set(HEAD) <= set(data.layout.tensors):
        raise NetworkError("its layout is not that of a module")
    require_initials(data.layout)
    frozen = [n for n, _ in module.named_modules() if n and _all_constant(n, data.constants, given)]
    adapted = Adapted(data, constants, start, _modes(module, data.head, frozen))
    _require_inputs(adapted)
    return adapted


def _require_inputs(adapted: Adapted) -> None:
    """Refuse inputs that the module does not take: a file says of which shape they are."""
    inputs = adapted.layout.inputs
    if min(inputs, default=1) < 1 or math.prod(inputs) > MOST_INPUTS:
        raise NetworkError(f"inputs of shape {inputs} are none, or more than {MOST_INPUTS:,}")
    try:
        x = torch.zeros(1, *inputs, device=next(iter(adapted.start.values())).device)
        with torch.no_grad():
            features = adapted.features(adapted.start, x)
    except (RuntimeError, ValueError, TypeError, IndexError) as error:
        reason = str(error).splitlines()[0]
        raise NetworkError(f"its module takes no inputs of shape {inputs}: {reason}") from error
    weight, bias = (adapted.layout.shape(name, {}, 1) for name in HEAD)
    if (weight, bias) != (tuple(features.shape), (1,)):
        made = tuple(features.shape)[1:]
        raise NetworkError(f"its module makes {made} of them, but its head is of {weight}, {bias}")


def _all_constant(name: str, constants: Sequence[str], given: Tensors) -> bool:
    """Whether a part has parameters, and all of them are constants: it was frozen."""
    inside = [n for n in given if n.startswith(f"{name}.") and not n.endswith(COUNTERS)]
    return bool(inside) and all(n in constants for n in inside)


def _require_momentum(module: nn.Module) -> None:
    for name, part in module.named_modules():
        if "Norm" in type(part).__name__ and getattr(part, "momentum", 0.1) is None:
            raise NetworkError(
                f"{name} averages over all batches (momentum=None), of which a task cannot keep "
                "count; give it a momentum such as 0.1"
            )


def _specs(
    module: nn.Module, head: str, frozen: Sequence[str], written: Sequence[str]
) -> Iterator[tuple[str, TensorSpec]]:
    parameters, buffers = named_tensors(module, head, frozen)
    scales = {f"{n}.weight" for n, part in module.named_modules() if "Norm" in type(part).__name__}
    for name, parameter in parameters.items():
        if name.startswith((f"{head}.", *(f"{part}." for part in frozen))):
            continue
        axes = tuple(fixed_axis(size) for size in parameter.shape)
        one = "scale" if name in scales else "bias"
        yield name, TensorSpec(axes, "weight" if parameter.ndim > 1 else one)  # type: ignore[arg-type]
    for name, buffer in buffers.items():
        initial = STATISTICS.get(name.rpartition(".")[2])
        statistic = initial is not None or name in written
        if not statistic or name.startswith(tuple(f"{part}." for part in frozen)):
            continue
        axes = tuple(fixed_axis(size) for size in buffer.shape)
        yield name, TensorSpec(axes, "buffer", "task", initial)
    read = module.get_submodule(head).in_features
    assert isinstance(read, int)
    outputs = units_axis(OUTPUTS, "out")
    yield HEAD[0], TensorSpec((outputs, fixed_axis(read)), "weight", "task")
    yield HEAD[1], TensorSpec((outputs,), "bias", "task")


def _counters(module: nn.Module) -> Iterator[tuple[str, Tensor]]:
    return ((n, b) for n, b in module.named_buffers() if n.endswith(COUNTERS))


def _modes(module: nn.Module, head: str, frozen: Sequence[str]) -> dict[bool, nn.Module]:
    """The module without its head and without values, in evaluation and in training mode."""
    modes = {}
    for training in (False, True):
        bare = _bare_copy(module, head).train(training)
        for name in frozen:
            bare.get_submodule(name).eval()
        parent, _, last = head.rpartition(".")
        setattr(bare.get_submodule(parent), last, nn.Identity())
        modes[training] = bare
    return modes


def _bare_copy(module: nn.Module, head: str) -> nn.Module:
    """A copy without values. What has several names still has them, so that a call ties them."""
    try:
        bare = copy.deepcopy(module)
    except Exception as error:  # whatever a part of the module raises
        raise NetworkError(
            f"{type(module).__name__} cannot be copied: {str(error).strip()}. A weight under "
            "torch.nn.utils.weight_norm cannot; torch.nn.utils.parametrizations.weight_norm can"
        ) from error
    others = other_names(bare, head)
    bare.to("meta").requires_grad_(False)
    for other, name in others.items():
        parent, _, last = other.rpartition(".")
        part = bare.get_submodule(parent)
        held = part._parameters if last in part._parameters else part._buffers
        source, _, own = name.rpartition(".")
        kept = bare.get_submodule(source)
        held[last] = (kept._parameters if own in kept._parameters else kept._buffers)[own]  # type: ignore[assignment]
    return bare


def _prove(adapted: Adapted, module: nn.Module, example: Tensor) -> None:
    """Refuse a module that does more with its head than to return what that computes, or that
    changes what it computes with.
    """
    head = module.get_submodule(adapted.data.head)
    tensors = {name: tensor.clone() for name, tensor in adapted.start.items()}
    fixed = {name: tensor.clone() for name, tensor in adapted.constants.items()}
    modes = {part: part.training for part in module.modules()}
    try:
        with torch.no_grad(), torch.random.fork_rng(devices=[]):
            want = module.eval()(example)
            features = adapted.features(tensors, example)
            got = head(features)
    except Exception as error:  # whatever the module's own code raises
        raise NetworkError(
            f"{type(module).__name__} cannot be called with the example, without its head: {error}"
        ) from error
    finally:
        for part, training in modes.items():
            part.training = training
    changed = [*_changed(adapted.start, tensors), *_changed(fixed, adapted.constants)]
    if changed:
        raise NetworkError(
            f"{type(module).__name__} writes into {', '.join(changed)} in evaluation mode, so that "
            "answers would depend on those before; write only where self.training is true"
        )
    right = isinstance(want, Tensor) and features.ndim == 2 and want.shape == got.shape
    if not right or not float((want - got).abs().max()) <= TOLERANCE * float(want.abs().max()):
        raise NetworkError(
            f"the module must return the outputs of its head {adapted.data.head!r} as they are, "
            "one row for each input, without softmax or sigmoid: tasks bring their own losses"
        )


def _written(adapted: Adapted, example: Tensor) -> list[str]:
    """Tensors of a task that a training call writes into."""
    x = torch.cat([example, example])  # a batch normalisation refuses a single row
    tensors = {name: tensor.clone() for name, tensor in adapted.start.items()}
    # Not by their values: an average that has converged is written with what it was.
    versions = {name: tensor._version for name, tensor in tensors.items()}
    try:
        with torch.no_grad():
            features = adapted.features(tensors, x, torch.Generator().manual_seed(0))
    except Exception as error:  # whatever the module's own code raises
        raise NetworkError(
            f"{adapted.data.module} cannot be called in training mode: {error}"
        ) from error
    expected = (len(x), adapted.layout.shape(HEAD[0], {}, 1)[1])
    if not isinstance(features, Tensor) or tuple(features.shape) != expected:
        raise NetworkError(
            f"{adapted.data.module} must return the outputs of its head in training mode too, one "
            "tensor with a row for each input; without other outputs beside it"
        )
    return [name for name, tensor in tensors.items() if tensor._version > versions[name]]


def _changed(before: Tensors, after: Tensors) -> list[str]:
    return [
        name
        for name, tensor in before.items()
        if not torch.equal(torch.nan_to_num(tensor), torch.nan_to_num(after[name]))
    ]


def _count(adapted: Adapted, example: Tensor) -> int:
    """Multiply-adds per row."""
    with warnings.catch_warnings(), torch.no_grad(), FlopCounterMode(display=False) as counter:
        warnings.simplefilter("ignore")
        adapted.features(adapted.start, example[:1])
    return int(counter.get_total_flops()) // 2
