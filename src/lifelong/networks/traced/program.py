"""A traced module as data: a list of calls of known operations, which is run call by call.

A program is saved as JSON and checked when it is read. It holds no code: an operation is a name
that is looked up among PyTorch's, and an argument is a number, a word, an earlier value, a named
tensor, or a size in terms of the widths.
"""

import math
import operator
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, partial
from types import MappingProxyType
from typing import Any, Literal, TypeAlias, final

import msgspec
import torch
from torch import Tensor

from lifelong.networks.layout import NetworkError, Tensors, Widths
from lifelong.networks.nn_modules import global_state_from

BATCH = "batch"  # the symbol of the number of rows
GETITEM = "getitem"
MOST_CALLS = 50_000
MOST_ARGUMENTS = 1000  # in one list


@final
class Value(msgspec.Struct, frozen=True, tag="value"):
    """The result of an earlier call: 0 for the input, n for the n-th call."""

    number: int


@final
class Named(msgspec.Struct, frozen=True, tag="tensor"):
    """A tensor of the network, or a constant of the architecture."""

    name: str


@final
class Size(msgspec.Struct, frozen=True, tag="size"):
    """A whole number that depends on widths: a sum of terms, each a coefficient times symbols.

    A symbol is a group, for its number of units, or `BATCH`.
    """

    terms: tuple[tuple[int, tuple[str, ...]], ...]

    def at(self, widths: Widths) -> int:
        return sum(
            coefficient * math.prod([widths[symbol] for symbol in symbols])
            for coefficient, symbols in self.terms
        )

    @property
    def symbols(self) -> set[str]:
        return {symbol for _, symbols in self.terms for symbol in symbols}

    def times(self, other: "Size") -> "Size":
        return Size(
            tuple(
                (a * b, tuple(sorted((*left, *right))))
                for a, left in self.terms
                for b, right in other.terms
            )
        )


@final
class Word(msgspec.Struct, frozen=True, tag="word"):
    """A dtype or memory format of PyTorch, the device of the input, or a number that JSON lacks."""

    kind: Literal["dtype", "memory_format", "device", "float"]
    name: str


DEVICE = Word("device", "")
BATCH_NORM = "aten.batch_norm.default"
NOTHING: Mapping[str, Tensor] = MappingProxyType({})
NO_FUNCTIONS: Mapping[int, Callable[..., Any]] = MappingProxyType({})
Atom: TypeAlias = bool | int | float | str | Value | Named | Size | Word | None
Argument: TypeAlias = Atom | list[Atom]


@final
class Call(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One operation, such as "aten.conv2d.default", with its arguments."""

    operation: str
    arguments: list[Argument] = []
    named: dict[str, Argument] = {}

    def atoms(self) -> list[Atom]:
        given = [*self.arguments, *self.named.values()]
        return [atom for one in given for atom in (one if isinstance(one, list) else [one])]

    def names(self) -> set[str]:
        """The tensors that it reads."""
        return {atom.name for atom in self.atoms() if isinstance(atom, Named)}

    @property
    def statistics(self) -> str | None:
        """The running mean that a batch normalisation has."""
        mean = self.arguments[3] if self.operation == BATCH_NORM else None
        return mean.name if isinstance(mean, Named) else None

    def symbols(self) -> set[str]:
        """The groups whose widths it depends on."""
        sizes = [atom for atom in self.atoms() if isinstance(atom, Size)]
        return {symbol for size in sizes for symbol in size.symbols} - {BATCH}


@final
class Program(msgspec.Struct, frozen=True, dict=True, forbid_unknown_fields=True):
    """The calls in order; the features are the value numbered `result`.

    Attributes:
        widths: where the width of a group can be read: a tensor, its dim, and the places there of
            one unit.
    """

    calls: tuple[Call, ...]
    result: int
    widths: dict[str, tuple[str, int, int]]

    @cached_property
    def symbols(self) -> tuple[str, ...]:
        """Groups whose widths the calls depend on."""
        return tuple(sorted({symbol for call in self.calls for symbol in call.symbols()}))

    def split_at(self, number: int) -> tuple["Program", "Program"]:
        """The first calls, and the others as a program whose input is the value of that number."""
        first = Program(self.calls[:number], number, self.widths)
        rest = tuple(_renumbered(call, number) for call in self.calls[number:])
        return first, Program(rest, self.result - number, self.widths)

    def splits(self) -> list[int]:
        """Numbers of the values that all later calls depend on instead of on any earlier one."""
        earliest, found = self.result, []
        for number in range(len(self.calls), 0, -1):
            if earliest >= number:
                found.append(number)
            read = [
                atom.number for atom in self.calls[number - 1].atoms() if isinstance(atom, Value)
            ]
            earliest = min([earliest, *read])
        return found[::-1]

    def names(self) -> set[str]:
        """The tensors that it reads."""
        return {name for call in self.calls for name in call.names()}

    def check(self, tensors: Collection[str]) -> None:
        """Refuse calls of unknown operations, and references to what is not there."""
        if len(self.calls) > MOST_CALLS:
            raise NetworkError(
                f"a program of {len(self.calls):,} calls; {MOST_CALLS:,} are allowed"
            )
        if not 0 <= self.result <= len(self.calls):
            raise NetworkError("a program whose result is no value of it")
        for number, call in enumerate(self.calls, 1):
            require_known(call.operation)
            if creates(call.operation) and call.named.get("device") != DEVICE:
                raise NetworkError(f"call {number} of a program makes a tensor on no known device")
            for atom in call.atoms():
                self._check_atom(atom, number, tensors)

    def _check_atom(self, atom: Atom, number: int, tensors: Collection[str]) -> None:
        known = True
        if isinstance(atom, Value):
            known = 0 <= atom.number < number
        elif isinstance(atom, Named):
            known = atom.name in tensors
        elif isinstance(atom, Size):
            known = atom.symbols <= {BATCH, *self.widths}
        elif isinstance(atom, Word):
            known = _known_word(atom)
        if not known:
            raise NetworkError(f"call {number} of a program refers to {atom}, which is not there")


def _renumbered(call: Call, by: int) -> Call:
    def moved(atom: Atom) -> Atom:
        return Value(atom.number - by) if isinstance(atom, Value) else atom

    def argument(given: Argument) -> Argument:
        return [moved(atom) for atom in given] if isinstance(given, list) else moved(given)

    named = {name: argument(given) for name, given in call.named.items()}
    return Call(call.operation, [argument(given) for given in call.arguments], named)


def _known_word(word: Word) -> bool:
    if word.kind == "float":
        return word.name in ("inf", "-inf", "nan")
    kinds = {"dtype": torch.dtype, "memory_format": torch.memory_format}
    return word.kind == "device" or isinstance(getattr(torch, word.name, None), kinds[word.kind])


@final
@dataclass(frozen=True, eq=False)
class _Step:
    """A prepared call: what is known beforehand, and where the rest comes from.

    A source is 0 for values, 1 for tensors, 2 for sizes, 3 for the device of the input, 4 for
    constants.
    """

    function: Callable[..., Any]
    arguments: list[Any]
    named: dict[str, Any]
    fills: tuple[tuple[int, int, Any], ...]
    lists: tuple[tuple[int, tuple[tuple[int, int, Any], ...]], ...]
    named_fills: tuple[tuple[str, int, Any], ...]
    random: bool
    done: tuple[int, ...]
    statistics: str | None  # running mean of a batch normalisation


@final
class Runner:
    """Runs a program, which is prepared once."""

    def __init__(
        self,
        program: Program,
        constants: Tensors,
        instead: Mapping[int, Callable[..., Any]] = NO_FUNCTIONS,
    ) -> None:
        """`instead` has, by the number of a call, a function to call in place of its operation."""
        self._result, self._count = program.result, len(program.calls) + 1
        self._constants = constants
        self._by_device: dict[torch.device, Tensors] = {}
        self._widths = [(g, *program.widths[g]) for g in program.symbols]
        self._sizes: dict[Size, int] = {}
        done: dict[int, list[int]] = {}
        for value, last in _last_uses(program).items():
            done.setdefault(last, []).append(value)
        self._steps = [
            self._step(call, tuple(done.get(number, ())))
            for number, call in enumerate(program.calls, 1)
        ]
        for number, function in instead.items():
            self._steps[number - 1] = replace(self._steps[number - 1], function=function)

    def __call__(
        self,
        tensors: Tensors,
        x: Tensor,
        generator: torch.Generator | None = None,
        watch: Callable[[Any], None] | None = None,
        held: Tensors = NOTHING,
    ) -> Any:
        """The result; `watch` sees every value.

        `held` marks, by the name of a running mean, the units that are normalised by their running
        statistics in training too, which stay as they are.
        """
        values: list[Any] = [None] * self._count
        values[0] = x
        widths = {g: tensors[name].shape[dim] // places for g, name, dim, places in self._widths}
        widths[BATCH] = x.shape[0]  # not len(x), which would be a constant while it is exported
        sizes = [size.at(widths) for size in self._sizes]
        device, constants = x.device, self._constants_on(x.device)
        sources: tuple[Any, ...] = (values, tensors, sizes, {"device": device}, constants)
        for number, step in enumerate(self._steps, 1):
            arguments = step.arguments.copy()
            for place, source, key in step.fills:
                arguments[place] = sources[source][key]
            for place, parts in step.lists:
                arguments[place] = filled = arguments[place].copy()
                for where, source, key in parts:
                    filled[where] = sources[source][key]
            named = step.named
            if step.named_fills or step.random:
                named = dict(named)
                for name, source, key in step.named_fills:
                    named[name] = sources[source][key]
                if step.random:
                    named["generator"] = generator
            function = step.function
            if held:
                marks = held.get(step.statistics or "")
                function = function if marks is None else partial(_held_batch_norm, marks)
            values[number] = function(*arguments, **named)
            if watch is not None:
                watch(values[number])
            for old in step.done:  # as a module frees what it is done with
                values[old] = None
        return values[self._result]

    def _constants_on(self, device: torch.device) -> Tensors:
        found = self._by_device.get(device)
        if found is None:
            found = {name: tensor.to(device) for name, tensor in self._constants.items()}
            self._by_device[device] = found
        return found

    def _step(self, call: Call, done: tuple[int, ...]) -> _Step:
        function, random = function_of(call.operation)
        arguments: list[Any] = []
        fills, lists = [], []
        for place, given in enumerate(call.arguments):
            if isinstance(given, list):
                parts = [(where, *self._source(atom)) for where, atom in enumerate(given)]
                arguments.append([value for _, source, value in parts])
                dynamic = tuple((where, s, key) for where, s, key in parts if s is not None)
                if dynamic:
                    lists.append((place, dynamic))
                continue
            source, value = self._source(given)
            arguments.append(value)
            if source is not None:
                fills.append((place, source, value))
        named, named_fills = {}, []
        for name, given in call.named.items():
            if isinstance(given, list):
                parts = [(0, *self._source(atom)) for atom in given]
                if any(source is not None for _, source, _ in parts):
                    raise NetworkError(f"{call.operation}: {name} must come by its place")
                named[name] = [value for _, _, value in parts]
                continue
            source, value = self._source(given)
            if source is None:
                named[name] = value
            else:
                named_fills.append((name, source, value))
        return _Step(
            function,
            arguments,
            named,
            tuple(fills),
            tuple(lists),
            tuple(named_fills),
            random,
            done,
            call.statistics,
        )

    def _source(self, atom: Atom) -> tuple[int | None, Any]:
        match atom:
            case Value(number):
                return 0, number
            case Named(name):
                return (4, name) if name in self._constants else (1, name)
            case Size():
                return 2, self._sizes.setdefault(atom, len(self._sizes))
            case Word("float", name):
                return None, float(name)
            case Word("device", _):
                return 3, "device"
            case Word(_, name):
                return None, getattr(torch, name)
            case _:
                return None, atom


def _last_uses(program: Program) -> dict[int, int]:
    """Per value, the number of the call that reads it last; the result is kept."""
    last: dict[int, int] = {}
    for number, call in enumerate(program.calls, 1):
        last |= {atom.number: number for atom in call.atoms() if isinstance(atom, Value)}
    last.pop(program.result, None)
    return last


# Looked up in PyTorch's Python functions where there is one: faster than through `torch.ops`.
_DIRECT = {
    f"aten.{name}.default": getattr(torch, name)
    for name in (
        *("conv1d", "conv2d", "conv3d", "batch_norm", "layer_norm", "group_norm", "relu"),
        *("sigmoid", "tanh", "cat", "matmul", "embedding", "reshape", "permute", "unsqueeze"),
    )
} | {
    "aten.linear.default": torch.nn.functional.linear,
    "aten.gelu.default": torch.nn.functional.gelu,
    "aten.adaptive_avg_pool2d.default": torch.nn.functional.adaptive_avg_pool2d,
    "aten.add.Tensor": torch.add,
    "aten.mul.Tensor": torch.mul,
    "aten.softmax.int": torch.softmax,
    "aten.flatten.using_ints": torch.flatten,
    "aten.transpose.int": torch.transpose,
    "aten.select.int": torch.select,
    "aten.unbind.int": torch.unbind,
    "aten.mean.dim": torch.mean,
    # Not a view alone: a kernel lays out its result as it likes, on another device otherwise.
    "aten.view.default": torch.reshape,
    "aten.expand.default": Tensor.expand,
    "aten.contiguous.default": Tensor.contiguous,
    GETITEM: operator.getitem,
}


def _held_batch_norm(
    held: Tensor,
    x: Tensor,
    weight: Tensor | None,
    bias: Tensor | None,
    mean: Tensor,
    var: Tensor,
    training: bool,
    *rest: Any,
) -> Tensor:
    """Batch normalisation whose `held` channels are in evaluation mode."""
    if not training:
        return torch.batch_norm(x, weight, bias, mean, var, training, *rest)
    # Copies, because gradients may need the statistics that were given.
    kept, moved = ((mean.clone(), var.clone()) for _ in range(2))
    by_batch = torch.batch_norm(x, weight, bias, *moved, training, *rest)
    still = torch.batch_norm(x, weight, bias, *kept, False, *rest)
    for now, after in zip((mean, var), moved, strict=True):
        now.copy_(torch.where(held, now, after))
    return torch.where(held.reshape(1, -1, *[1] * (x.ndim - 2)), still, by_batch)


def _dropout(
    x: Tensor, p: float, train: bool, *, generator: torch.Generator | None = None
) -> Tensor:
    if not train or p == 0:
        return x
    return x * _kept(torch.empty_like(x), p, generator)


def _dropout_(
    x: Tensor, p: float, train: bool, *, generator: torch.Generator | None = None
) -> Tensor:
    return x.copy_(_dropout(x, p, train, generator=generator))


def _feature_dropout(
    x: Tensor, p: float, train: bool, *, generator: torch.Generator | None = None
) -> Tensor:
    if not train or p == 0:
        return x
    mask = x.new_empty(*x.shape[:2], *[1] * (x.ndim - 2))
    return x * _kept(mask, p, generator)


def _kept(mask: Tensor, p: float, generator: torch.Generator | None) -> Tensor:
    """1 / (1 - p) with probability 1 - p, else 0."""
    if p == 1:
        return mask.zero_()
    return mask.bernoulli_(1 - p, generator=_on(mask, generator)).div_(1 - p)


def _on(tensor: Tensor, generator: torch.Generator | None) -> torch.Generator | None:
    """A generator on the tensor's device, seeded by the learner's, which is on the CPU."""
    if generator is None or tensor.device.type in ("cpu", "meta"):
        return generator
    seed = int(torch.randint(2**62, (), generator=generator))
    return torch.Generator(tensor.device).manual_seed(seed)


def _bernoulli_(
    tensor: Tensor, p: float = 0.5, *, generator: torch.Generator | None = None
) -> Tensor:
    return tensor.bernoulli_(p, generator=_on(tensor, generator))


def _rand_like(x: Tensor, *, generator: torch.Generator | None = None, **_kinds: Any) -> Tensor:
    return torch.rand(x.shape, dtype=x.dtype, device=x.device, generator=_on(x, generator))


def _randn_like(x: Tensor, *, generator: torch.Generator | None = None, **_kinds: Any) -> Tensor:
    return torch.randn(x.shape, dtype=x.dtype, device=x.device, generator=_on(x, generator))


def _attention(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attn_mask: Tensor | None = None,
    dropout_p: float = 0.0,
    is_causal: bool = False,
    *,
    scale: float | None = None,
    generator: torch.Generator | None = None,
) -> Tensor:
    """Attention; with dropout step by step, since PyTorch's kernel draws from the global state."""
    if dropout_p == 0:
        return torch.nn.functional.scaled_dot_product_attention(
            query, key, value, attn_mask, 0.0, is_causal, scale=scale
        )
    factor = 1 / math.sqrt(query.shape[-1]) if scale is None else scale
    scores = query @ key.transpose(-2, -1) * factor
    if is_causal:
        ahead = torch.ones(scores.shape[-2:], dtype=torch.bool, device=scores.device).triu(1)
        scores = scores.masked_fill(ahead, -math.inf)
    if attn_mask is not None and attn_mask.dtype == torch.bool:
        scores = scores.masked_fill(~attn_mask, -math.inf)
    elif attn_mask is not None:
        scores = scores + attn_mask
    return _dropout(torch.softmax(scores, dim=-1), dropout_p, True, generator=generator) @ value


def _recurrent(
    function: Callable[..., Any],
    *arguments: Any,
    generator: torch.Generator | None = None,
) -> Any:
    """A recurrent network, whose dropout between layers draws from the global state."""
    if generator is None:
        return function(*arguments)
    x: Tensor = arguments[0]
    with global_state_from(generator, x.device):
        return function(*arguments)


# Operations that draw random numbers: from the generator that training passes on.
RANDOM: Mapping[str, Callable[..., Any]] = {
    "aten.dropout.default": _dropout,
    "aten.dropout_.default": _dropout_,
    "aten.feature_dropout.default": _feature_dropout,
    "aten.bernoulli_.float": _bernoulli_,
    "aten.rand_like.default": _rand_like,
    "aten.randn_like.default": _randn_like,
    "aten.scaled_dot_product_attention.default": _attention,
    "aten.lstm.input": partial(_recurrent, torch.lstm),
    "aten.gru.input": partial(_recurrent, torch.gru),
    "aten.rnn_tanh.input": partial(_recurrent, torch.rnn_tanh),
    "aten.rnn_relu.input": partial(_recurrent, torch.rnn_relu),
}
# Without tensors among their arguments, but known.
_CREATORS = ("arange", "full", "zeros", "ones", "empty", "scalar_tensor", "linspace", "eye")
# Namespaces of operations that other packages registered rules for.
registered: set[str] = set()


def function_of(operation: str) -> tuple[Callable[..., Any], bool]:
    """The function of an operation, and whether it takes a generator."""
    if operation in RANDOM:
        return RANDOM[operation], True
    return _DIRECT.get(operation) or overload(operation), False


def overload(operation: str) -> Any:
    """PyTorch's operation of this name."""
    found: Any = torch.ops
    for part in operation.split("."):
        found = getattr(found, part, None)
    if not isinstance(found, torch._ops.OpOverload):
        raise NetworkError(f"{operation!r} is no operation of this version of PyTorch")
    return found


def creates(operation: str) -> bool:
    """Whether the operation makes a tensor without having one."""
    return operation.startswith("aten.") and operation.split(".")[1] in _CREATORS


def require_known(operation: str) -> None:
    """Refuse an operation that could do anything else than compute with tensors."""
    if operation == GETITEM or operation in RANDOM or operation in _DIRECT:
        return
    parts = operation.split(".")
    if len(parts) != 3 or not all(part.isidentifier() for part in parts):
        raise NetworkError(f"{operation!r} is not the name of an operation")
    namespace, name, _ = parts
    if namespace != "aten" and f"{namespace}.{name}" not in registered:
        raise NetworkError(
            f"{operation!r} is not an operation of PyTorch's; register a rule for it first"
        )
    found = overload(operation)
    if torch.Tag.nondeterministic_seeded in found.tags:
        raise NetworkError(f"{operation!r} draws random numbers from PyTorch's global state")
    if not _computes(found, creator=creates(operation)):
        raise NetworkError(f"{operation!r} does more than to compute a tensor from tensors")


def _computes(found: Any, *, creator: bool) -> bool:
    """Tensors and numbers in, tensors out; `aten.from_file` is not such an operation."""
    kinds = [str(argument.type) for argument in found._schema.arguments]
    if any("Storage" in kind or "Stream" in kind for kind in kinds):
        return False
    returns = [str(one.type) for one in found._schema.returns]
    computed = bool(returns) and all("Tensor" in kind for kind in returns)
    return computed and (creator or any("Tensor" in kind for kind in kinds))


def size_of(dims: Sequence[tuple[int, tuple[str, ...]]]) -> Size | int:
    """A size, or a plain number if it depends on no symbol."""
    size = Size(tuple(dims))
    return size if size.symbols else size.at({})
