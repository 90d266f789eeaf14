"""`grow`: an ordinary module as an architecture whose layers can grow.

The module is traced in evaluation and in training mode; what each dim runs over is followed through
its operations, and every size is rewritten in terms of widths. The result computes as the module
does, from named tensors of any width, and is plain data. It proves itself on the example.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Literal, final

import msgspec
import torch
from torch import Tensor, nn

from lifelong.networks.growing import Network
from lifelong.networks.initial import uniform
from lifelong.networks.layout import (
    HEAD,
    Layout,
    NetworkError,
    Tensors,
    Widths,
    put,
    trainable,
)
from lifelong.networks.nn_modules import identity, require_module
from lifelong.networks.surgery import append_units, newer_units
from lifelong.networks.traced.build import Builder, tensors_at
from lifelong.networks.traced.data import TracedData
from lifelong.networks.traced.program import (
    BATCH_NORM,
    NOTHING,
    Named,
    Program,
    Runner,
    Value,
)
from lifelong.networks.traced.reading import readers_in, shown
from lifelong.networks.traced.trace import Mode, Tracer, in_mode, require_runnable

TOLERANCE = 1e-4  # of the largest output: rounding of float32 over many layers
MOST_NUMBERS = 2**30  # in a value that two or three rows make
EXACT = 1e-5  # the same, for sums that have one more term
_LAYERS = ("aten.conv", "aten.linear")  # operations whose second argument is a weight


@final
@dataclass(frozen=True, eq=False)
class Traced:
    """A module as a function of named tensors of any width.

    Attributes:
        constants: tensors that never change: frozen parts, masks, tables of positions.
        start: the values of a pretrained module; empty if training starts at random.
    """

    data: TracedData
    constants: Tensors
    start: Tensors

    @property
    def layout(self) -> Layout:
        return self.data.layout

    def features(
        self, tensors: Tensors, x: Tensor, generator: torch.Generator | None = None
    ) -> Tensor:
        return self.run("evaluation" if generator is None else "training", tensors, x, generator)

    def features_holding(
        self, held: Tensors, tensors: Tensors, x: Tensor, generator: torch.Generator
    ) -> Tensor:
        """As in training, with the units that `held` marks, by the name of a statistic, normalised
        as in evaluation.
        """
        return self.run("training", tensors, x, generator, held)

    def run(
        self,
        mode: Mode,
        tensors: Tensors,
        x: Tensor,
        generator: torch.Generator | None = None,
        held: Tensors = NOTHING,
    ) -> Tensor:
        """Features; in training mode without a generator random numbers are PyTorch's global."""
        if self._frozen is not None and tuple(x.shape[1:]) == self._frozen.shape:
            features: Tensor = self._frozen.rest[mode](tensors, x, generator, held=held)
            return features
        whole: Tensor = self._runners[mode](tensors, self._typed(x), generator, held=held)
        return whole

    @cached_property
    def scales(self) -> dict[str, str]:
        """By the name of a weight, the scale of the batch normalisation that follows it."""
        calls, known, found = self.data.evaluation.calls, self.layout.tensors, {}
        for call in calls:
            if call.operation != BATCH_NORM:
                continue
            before, scale = call.arguments[:2]
            layer = (
                calls[before.number - 1] if isinstance(before, Value) and before.number else None
            )
            if layer is None or not layer.operation.startswith(_LAYERS):
                continue
            weight = layer.arguments[1]
            if isinstance(weight, Named) and isinstance(scale, Named):
                found[weight.name] = scale.name
        pairs = {w: s for w, s in found.items() if w in known and s in known}
        return {weight: scale for weight, scale in pairs.items() if known[weight].out == 0}

    @cached_property
    def readers(self) -> dict[str, str | None]:
        """Weights of linear layers and convolutions without groups, and of the head."""
        groups, moved = self.layout.groups, trainable(self.layout.tensors)
        shapes = {name: self.layout.shape(name, groups, 1) for name in moved}
        return {**readers_in(self.data.evaluation, shapes), HEAD[0]: HEAD[1]}

    def show_inputs(self, tensors: Tensors, x: Tensor, see: Callable[[str, Tensor], None]) -> None:
        """Shown when they are computed, so that those of one call are held at a time."""
        program, x = self._evaluation_from(x)
        runner = Runner(program, self.constants, shown(program, self.readers, see))
        with torch.no_grad():
            see(HEAD[0], runner(tensors, x))

    def _evaluation_from(self, x: Tensor) -> tuple[Program, Tensor]:
        """The program for these inputs, or for what frozen parts have computed from inputs."""
        if self._frozen is not None and tuple(x.shape[1:]) == self._frozen.shape:
            return self._frozen.evaluation, x
        return self.data.evaluation, self._typed(x)

    def _typed(self, x: Tensor) -> Tensor:
        return x if self.data.dtype == "float32" else x.to(getattr(torch, self.data.dtype))

    @cached_property
    def _runners(self) -> dict[Mode, Runner]:
        programs: dict[Mode, Program] = {
            "evaluation": self.data.evaluation,
            "training": self.data.training,
        }
        return {mode: Runner(program, self.constants) for mode, program in programs.items()}

    def precomputed(self, x: Tensor) -> Tensor | None:
        """What the frozen parts at the beginning compute, which `features` takes for these inputs;
        None if there are none.
        """
        if self._frozen is None:
            return None
        found: Tensor = self._frozen.first({}, self._typed(x))
        return found

    @cached_property
    def _frozen(self) -> "_Frozen | None":
        """The part of both programs that depends on nothing that is learned."""
        evaluation, training = self.data.evaluation, self.data.training
        constants, same = set(self.data.constants), 0
        for one, other in zip(evaluation.calls, training.calls, strict=False):
            if one != other or not one.names() <= constants or one.symbols():
                break
            same += 1
        ends = {*evaluation.splits()} & {*training.splits()} & {*range(1, same + 1)}
        first, rest = evaluation.split_at(max(ends, default=0))
        if not first.names():
            return None
        after = {"evaluation": rest, "training": training.split_at(max(ends))[1]}
        return self._split(first, after)  # type: ignore[arg-type]

    def _split(self, first: Program, rest: dict[Mode, Program]) -> "_Frozen | None":
        x = torch.empty(2, *self.layout.inputs, device="meta")
        constants = {name: tensor.to("meta") for name, tensor in self.constants.items()}
        shape = tuple(Runner(first, constants)({}, self._typed(x)).shape[1:])
        if shape == self.layout.inputs:  # inputs and what was computed from them look the same
            return None
        runners = {mode: Runner(program, self.constants) for mode, program in rest.items()}
        return _Frozen(Runner(first, self.constants), runners, rest["evaluation"], shape)

    def multiply_adds(self, tensors: Tensors) -> int:
        widths = {
            group: tensors[name].shape[dim] // places
            for group, (name, dim, places) in self.data.evaluation.widths.items()
        }
        return sum(cost.at(widths) for cost in self.data.costs) + tensors[HEAD[0]].numel()

    def report(self) -> str:
        """Which groups of units grow, and what does not, with the reason."""
        return self.data.report()

    def state_dict(self, network: Network) -> dict[str, Tensor]:
        """A task's network under the module's own names, for `load_state_dict(strict=False)`: a
        module counts batches besides.
        """
        renamed = {f"head.{part}": f"{self.data.head}.{part}" for part in ("weight", "bias")}
        own = {renamed.get(name, name): tensor for name, tensor in network.tensors.items()}
        constants = {n: t for n, t in self.constants.items() if not n.startswith("constant.")}
        return {**own, **constants}

    def __repr__(self) -> str:
        """By its content, which identifies a checkpoint."""
        content = identity(self.data, {**self.constants, **self.start})
        return f"Traced({self.data.module}, {content})"


@final
@dataclass(frozen=True, eq=False)
class _Frozen:
    """A program in two parts; `shape` is that of a row between them, and `evaluation` the second
    part in evaluation mode.
    """

    first: Runner
    rest: dict[Mode, Runner]
    evaluation: Program
    shape: tuple[int, ...]


def from_data(data: TracedData, constants: Tensors, start: Tensors) -> Traced:
    """A traced module from a file, which is not trusted: it is checked, and run on tensors without
    values, before it is used.
    """
    data.check()
    traced = Traced(data, constants, start)
    for name, tensor in start.items():
        shape = data.layout.shape(name, data.layout.groups, 1)
        if tuple(tensor.shape) != shape or tensor.dtype != torch.float32:
            raise NetworkError(f"{name} of a pretrained module must be float32 of {shape}")
        if not bool(torch.isfinite(tensor).all()):
            raise NetworkError(f"{name} of a pretrained module is not finite")
    _dry_run(traced)
    return traced


def _dry_run(traced: Traced) -> None:
    """Run both programs on tensors without values, and again with one more row and one more unit in
    each group: refuse one that fails, that needs too much memory, or whose features are not what
    the head reads.
    """
    groups = traced.layout.groups
    for program in (traced.data.evaluation, traced.data.training):
        runner = Runner(program, {n: t.to("meta") for n, t in traced.constants.items()})
        for more in (0, 1):
            widths = {group: units + more for group, units in groups.items()}
            _dry_run_at(traced, runner, widths, rows=2 + more)


def _dry_run_at(traced: Traced, runner: Runner, widths: Widths, rows: int) -> None:
    data, layout, meta = traced.data, traced.layout, torch.device("meta")
    try:
        shapes = {n: layout.shape(n, widths, 1) for n in layout.tensors}
        tensors = {n: torch.empty(shape, device=meta) for n, shape in shapes.items()}
        x = torch.empty(rows, *layout.inputs, dtype=getattr(torch, data.dtype), device=meta)
        features = runner(tensors, x, torch.Generator(), _refuse_large)
        shape, expected = tuple(features.shape), (rows, shapes[HEAD[0]][1])
    except Exception as error:  # an operation may raise anything
        raise NetworkError(f"its program cannot be run: {error}") from error
    if shape != expected or features.dtype != torch.float32:
        raise NetworkError(f"its program gives {shape}, but the head reads {expected}")


def _refuse_large(value: object) -> None:
    for tensor in value if isinstance(value, list | tuple) else [value]:
        if isinstance(tensor, Tensor) and tensor.numel() > MOST_NUMBERS:
            raise NetworkError(f"a value of {tensor.numel():,} numbers for a few rows")


def grow(
    module: nn.Module,
    example: Tensor,
    *,
    head: str = "fc",
    frozen: Sequence[str] = (),
    fixed: Sequence[str] = (),
    pretrained: bool = False,
) -> Traced:
    """A module as an architecture that every learner accepts. The module stays what it was.

    >>> from torch import nn
    >>> import lifelong
    >>> module = nn.Sequential(nn.Linear(20, 16), nn.ReLU(), nn.Linear(16, 2))
    >>> lifelong.grow(module, torch.randn(3, 20), head="2").layout.groups
    {'0': 16}

    Args:
        module: takes one tensor with rows first, and returns the outputs of its head.
        example: a few inputs. Inputs that are whole numbers are tokens.
        head: name of the last Linear layer; every task gets its own.
        frozen: names of parts that never move and never grow; they keep the module's values.
        fixed: names of parts whose widths do not change, but whose weights do.
        pretrained: whether training starts from the module's values instead of at random.
    """
    require_module(module, example, head, {"frozen": frozen, "fixed": fixed})
    if len(example) == 1:  # which a batch normalisation in training mode refuses
        example = torch.cat([example, example])
    tracer = Tracer(module, example, head, frozen)
    graphs = tracer.graph("evaluation"), tracer.graph("training")
    for graph, mode in zip(graphs, ("evaluation", "training"), strict=True):
        require_runnable(graph, mode)  # type: ignore[arg-type]
    for name in fixed:
        for tensor, dims in tracer.dims.items():
            if tensor.startswith(f"{name}."):
                for dim in dims:
                    dim.fix(f"{tensor}: named in fixed")
    builder = Builder(tracer, graphs, head, frozen)
    layout = builder.layout(tuple(example.shape[1:]))
    if not layout.groups:
        why = "; ".join(f"{layer} ({reason})" for layer, reason in layout.fixed.items())
        raise NetworkError(
            f"no layer of {type(module).__name__} can grow: {why or 'it has no hidden layers'}. "
            "`lifelong.adapt` takes a module whose widths stay as they are"
        )
    evaluation, training = (builder.program(graph, layout) for graph in graphs)
    shared = [name for name in layout.tensors if name not in HEAD]
    values = tensors_at(shared, tracer.tensors)
    data = TracedData(
        type(module).__name__,
        head,
        "float32" if example.is_floating_point() else "int64",
        layout,
        evaluation,
        training,
        builder.costs(),
        tuple(builder.constants),
        tuple(values) if pretrained else (),
    )
    constants = tensors_at(builder.constants, tracer.tensors)
    traced = Traced(data, constants, values if pretrained else {})
    own = _own_network(traced, values, module)
    _dry_run(traced)
    _prove(traced, own, module, example, frozen)
    silent = _silences(traced, own, example[:2])
    measured = msgspec.structs.replace(layout, silent=silent)
    return Traced(msgspec.structs.replace(data, layout=measured), constants, traced.start)


def _own_network(traced: Traced, values: Tensors, module: nn.Module) -> Network:
    """The network of the module's own values."""
    head = module.get_submodule(traced.data.head)
    assert isinstance(head, nn.Linear)
    weight = head.weight.detach()
    # A Linear without bias has None there, whatever its annotation says.
    bias = weight.new_zeros(len(weight)) if head.bias is None else head.bias.detach()
    born = {g: torch.ones(n, dtype=torch.long) for g, n in traced.layout.groups.items()}
    return Network(traced, {**values, HEAD[0]: weight, HEAD[1]: bias}, born)


def _prove(
    traced: Traced, own: Network, module: nn.Module, example: Tensor, frozen: Sequence[str]
) -> None:
    """Refuse a program that computes something else than the module, in either mode."""
    modes: tuple[Mode, ...] = ("evaluation", "training")
    for mode in modes:
        state = {n: t.detach().clone() for n, t in module.state_dict(keep_vars=True).items()}
        tensors = {n: t.clone() for n, t in own.tensors.items()}
        with torch.no_grad(), torch.random.fork_rng(devices=[]), in_mode(module, mode, frozen):
            torch.manual_seed(0)
            want = _called(module, state, example)
            torch.manual_seed(0)
            features = traced.run(mode, tensors, example)
            got = nn.functional.linear(features, tensors[HEAD[0]], tensors[HEAD[1]])
        _require_close(want, got, f"in {mode} mode the traced program")


def _called(module: nn.Module, state: dict[str, Tensor], example: Tensor) -> Tensor:
    try:
        # A tied weight is in the state under each of its names.
        found: Tensor = torch.func.functional_call(module, state, (example,), tie_weights=False)
    except Exception as error:  # whatever the module's own code raises
        raise NetworkError(
            f"{type(module).__name__} cannot be called with the example of {example.dtype}: "
            f"{error}. Inputs that are whole numbers are tokens; others are example.float()"
        ) from error
    return found


def _require_close(want: Tensor, got: Tensor, what: str) -> None:
    far = float((want - got).abs().max() / want.abs().max().clamp_min(1e-6))
    if not far <= TOLERANCE:
        raise NetworkError(
            f"{what} computes something else than the module: off by {far:.1e} of the largest "
            "output. Name parts whose widths should not change in fixed=..., or use lifelong.adapt"
        )


def _silences(
    traced: Traced, own: Network, example: Tensor
) -> dict[str, Literal["negative", "zero", "never"]]:
    """Per group, when a unit sends nothing; and the proof that appended units that nobody reads
    change nothing.
    """
    with torch.no_grad():
        before = own.logits(example)
        found: dict[str, Literal["negative", "zero", "never"]] = {}
        for group in traced.layout.groups:
            one = append_units(own, {group: 1}, 2, uniform(torch.Generator().manual_seed(0)))
            silent = _with_new(one, 0.0, read=True)
            _require_close(before, silent.logits(example), f"with a silent new unit in {group} it")
            found[group] = _level(one, example, before)
    return found


def _level(one: Network, example: Tensor, before: Tensor) -> Literal["negative", "zero", "never"]:
    for level, bias in (("negative", -1.0), ("zero", 0.0)):
        quiet = _with_new(_with_new(one, 0.0, kind="weight"), bias, kind="bias")
        far = (quiet.logits(example) - before).abs().max() / before.abs().max().clamp_min(1e-6)
        if float(far) <= EXACT:
            return level  # type: ignore[return-value]
    return "never"


def _with_new(network: Network, value: float, *, read: bool = False, kind: str = "") -> Network:
    """The network with this value wherever new units are read, or in what they compute with."""
    newer = newer_units(network, 2)
    tensors = dict(network.tensors)
    for name, spec in network.architecture.layout.tensors.items():
        if read and spec.reads(network.born):
            region = spec.region(network.widths, into=newer)
        elif spec.kind == kind and spec.owner == "shared" and spec.out is not None:
            region = spec.region(network.widths, out=newer)
        else:
            continue
        tensors[name] = tensors[name].clone()
        put(tensors[name], region, value)
    return network.with_tensors(tensors)
