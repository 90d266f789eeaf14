"""From traced graphs to a layout and two programs: groups of units, axes, and sizes as formulas."""

import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, final

import torch
from torch import Tensor

from lifelong.networks.layout import (
    HEAD,
    INPUTS,
    OUTPUTS,
    Axis,
    Layout,
    NetworkError,
    Segment,
    TensorSpec,
    fixed_axis,
    units_axis,
)
from lifelong.networks.nn_modules import require_names
from lifelong.networks.traced.dims import Dim
from lifelong.networks.traced.program import (
    BATCH,
    DEVICE,
    GETITEM,
    Argument,
    Atom,
    Call,
    Named,
    Program,
    Size,
    Value,
    Word,
    creates,
    size_of,
)
from lifelong.networks.traced.rules import Kind
from lifelong.networks.traced.trace import (
    Graph,
    Node,
    Tracer,
    argument_names,
    arguments_of,
    operation_of,
    shape_of,
)

_IGNORED = ("pin_memory", "layout", "generator")  # arguments that change no value


@final
class Builder:
    """Names the groups of units of a traced module, and writes its programs.

    Attributes:
        constants: names of tensors that never change: frozen parts, and buffers that are no
            statistics.
    """

    def __init__(
        self, tracer: Tracer, graphs: Sequence[Graph], head: str, frozen: Sequence[str]
    ) -> None:
        self._tracer, self._graphs = tracer, graphs
        used = [name for graph in graphs for name in _used(graph)]
        names = [name for name in dict.fromkeys(used) if not name.startswith(f"{head}.")]
        require_names(names)
        held = [name for name in names if _within(name, frozen)]
        for name in held:
            self._fix(name, f"{name}: frozen")
        self.constants = [name for name in names if name in held or self._is_constant(name)]
        for name in self.constants:
            self._fix(name, f"{name}: never changes")
        self._names = [name for name in tracer.tensors if name in set(names) - {*self.constants}]
        self._order = [name for name in dict.fromkeys(used) if name in self._names]
        self.features = graphs[0].dims[graphs[0].features]
        self._fix_what_cannot_grow()
        self._groups = dict(self._found_groups())
        self._sizes = {group: leaf.size for leaf, group in self._groups.items()}

    def _is_constant(self, name: str) -> bool:
        """A buffer that no normalisation layer keeps."""
        tensor = self._tracer.tensors[name]
        trained = name in self._tracer.parameters
        return not trained and (self._kind(name) != "buffer" or not tensor.is_floating_point())

    def _fix(self, name: str, why: str) -> None:
        for dim in self._tracer.dims[name]:
            dim.fix(why)

    def _kind(self, name: str) -> Kind:
        tensor = self._tracer.tensors[name]
        return self._tracer.kinds.get(name, "weight" if tensor.ndim > 1 else "bias")

    def _roles(self, name: str) -> Iterator[tuple[Dim, str]]:
        read = self._tracer.read.get(name, set())
        for place, dim in enumerate(self._tracer.dims[name]):
            yield dim, "in" if place in read else "out"

    def _fix_what_cannot_grow(self) -> None:
        for graph in self._graphs:
            self._fix_tied(graph)
            for result in graph.dims.values():
                for one in result:
                    for dim in one if isinstance(one, list) else [one]:
                        _keep_one_factor(dim)
        for name in self._names:
            for dim in self._tracer.dims[name]:
                _keep_one_factor(dim)
        for name in self._names:
            out = [dim for dim, role in self._roles(name) if role == "out" and dim.free()]
            for dim in out[1:]:
                dim.fix(f"{name}: has two axes of units that it computes")
        receiving = {
            leaf
            for name in self._names
            for dim, role in self._roles(name)
            if role == "out"
            for leaf in dim.leaves()
        }
        for name in self._names:
            for leaf in (leaf for dim in self._tracer.dims[name] for leaf in dim.leaves()):
                if leaf not in receiving:
                    leaf.fix(f"{name}: reads what no weights compute")
        self._fix_unreadable()

    def _fix_tied(self, graph: Graph) -> None:
        """A tensor that different operations use, such as an embedding that is a head too."""
        uses: dict[str, set[str]] = {}
        for node in graph.nodes:
            for read in node.all_input_nodes:
                if read in graph.tensors:
                    uses.setdefault(graph.tensors[read], set()).add(operation_of(node))
        for name, operations in uses.items():
            if len(operations) > 1 and not name.endswith("num_batches_tracked"):
                self._fix(name, f"{name}: used by different operations")

    def _fix_unreadable(self) -> None:
        """Fix units whose number cannot be read off the shape of a tensor."""
        readable = {
            leaf for name in self._names for dim in self._tracer.dims[name] for leaf in _alone(dim)
        }
        for name in self._names:
            for leaf in (leaf for dim in self._tracer.dims[name] for leaf in dim.leaves()):
                if leaf not in readable:
                    leaf.fix(f"{name}: only in concatenations")

    def _found_groups(self) -> Iterator[tuple[Dim, str]]:
        """Free leaves, named by the layer that first computes them."""
        found: set[Dim] = set()
        taken = {INPUTS, OUTPUTS}
        for name in self._order:
            for dim, role in self._roles(name):
                for leaf in dim.leaves():
                    if role == "in" or leaf.fixed or leaf in found:
                        continue
                    layer = name.rpartition(".")[0] or name
                    group = layer if layer not in taken else f"{name}.units"
                    found.add(leaf)
                    taken.add(group)
                    yield leaf, group

    def layout(self, inputs: tuple[int, ...]) -> Layout:
        tensors = {name: self._spec(name) for name in self._names}
        outputs = units_axis(OUTPUTS, "out")
        if len(self.features) != 2:
            raise NetworkError(
                f"the head must read rows of features, not values with {len(self.features)} dims"
            )
        read = self._axis(self.features[1], "in")  # type: ignore[arg-type]
        weight, bias = HEAD
        tensors[weight] = TensorSpec((outputs, read), "weight", "task")
        tensors[bias] = TensorSpec((outputs,), "bias", "task")
        return Layout(inputs, dict(self._sizes), tensors, self._reasons())

    def _spec(self, name: str) -> TensorSpec:
        kind, tensor = self._kind(name), self._tracer.tensors[name]
        axes = tuple(self._axis(dim, role) for dim, role in self._roles(name))
        initial = self._tracer.starts.get(name)
        if kind in ("bias", "scale") and tensor.numel():
            first = float(tensor.flatten()[0])
            initial = first if bool((tensor == first).all()) else None
        return TensorSpec(axes, kind, "task" if kind == "buffer" else "shared", initial)

    def _axis(self, dim: Dim, role: str) -> Axis:
        segments = tuple(self._segments(dim))
        if not any(segment.group for segment in segments):
            return fixed_axis(dim.size)
        return Axis(segments, role)  # type: ignore[arg-type]

    def _segments(self, dim: Dim) -> Iterator[Segment]:
        root = dim.root
        if not any(leaf in self._groups for leaf in root.leaves()):
            yield Segment(None, span=root.size)
        elif root.kind == "leaf":
            yield Segment(self._groups[root])
        elif root.kind == "sum":
            for part in root.parts:
                yield from self._segments(part)
        else:
            parts = root.parts
            grows = [any(leaf in self._groups for leaf in part.leaves()) for part in parts]
            place = grows.index(True)
            before = math.prod(part.size for part in parts[:place])
            after = math.prod(part.size for part in parts[place + 1 :])
            for one in self._segments(parts[place]):
                yield Segment(one.group, one.repeat * before, one.span * after)

    def _reasons(self) -> dict[str, str]:
        """Per layer of which no units grow, why."""
        reasons: dict[str, str] = {}
        for name in self._order:
            layer = name.rpartition(".")[0] or name
            if self._kind(name) == "weight" and layer not in self._sizes:
                last = [dim for dim, role in self._roles(name) if role == "out"][:2]
                fixed = [leaf.fixed for dim in last for leaf in dim.leaves() if leaf.fixed]
                grows = any(leaf in self._groups for dim in last for leaf in dim.leaves())
                telling = [why for why in fixed if not why.endswith("the vocabulary")]
                if fixed and not grows:
                    reasons.setdefault(layer, str((telling or fixed)[0]))
        return reasons

    def size(self, dim: Dim) -> Size:
        """The size of a dim as a formula."""
        root = dim.root
        if root is self._tracer.batch.root:
            return Size(((1, (BATCH,)),))
        if root in self._groups:
            return Size(((1, (self._groups[root],)),))
        if root.kind == "leaf" or not any(self._varies(leaf) for leaf in root.leaves()):
            return Size(((root.size, ()),))
        if root.kind == "sum":
            return Size(tuple(term for part in root.parts for term in self.size(part).terms))
        whole = Size(((1, ()),))
        for part in root.parts:
            whole = whole.times(self.size(part))
        return whole

    def _varies(self, leaf: Dim) -> bool:
        return leaf in self._groups or leaf is self._tracer.batch.root

    def costs(self) -> tuple[Size, ...]:
        """Multiply-adds of the calls, per row."""
        found = []
        for dims in self._graphs[0].costs:
            whole = Size(((1, ()),))
            for dim in dims:
                whole = whole.times(self.size(dim))
            found.append(Size(tuple((n, _without_rows(symbols)) for n, symbols in whole.terms)))
        return tuple(found)

    def program(self, graph: Graph, layout: Layout) -> Program:
        return _Writer(self, graph).written(dict(_readers(layout)))


def _without_rows(symbols: tuple[str, ...]) -> tuple[str, ...]:
    return tuple(symbol for symbol in symbols if symbol != BATCH)


def _used(graph: Graph) -> list[str]:
    """Tensors that the features depend on, in the order of their first use."""
    needed = needed_calls(graph)
    return [
        graph.tensors[read]
        for node in graph.nodes
        if node in needed
        for read in _read_by(graph, node)
        if read in graph.tensors
    ]


def needed_calls(graph: Graph) -> set[Node]:
    """Calls that the features depend on. A call in place counts although nobody reads its result,
    unless it counts batches.
    """
    needed: set[Node] = set()
    left = [graph.features, *(node for node in graph.nodes if _writes(graph, node))]
    while left:
        node = left.pop()
        if node not in needed and node.op == "call_function":
            needed.add(node)
            left.extend(_read_by(graph, node))
    return needed


def _writes(graph: Graph, node: Node) -> bool:
    """Whether the call changes a value in place, which must not be a tensor of the network."""
    if shape_of(node) is None or operation_of(node) == GETITEM:
        return False
    name = operation_of(node).split(".")[1]
    if not name.endswith("_") or name.endswith("__") or not node.args:
        return False
    target = _origin(node.args[0])
    if graph.tensors.get(target, "").endswith("num_batches_tracked"):
        return False
    if target is graph.x or target in graph.tensors:
        written = graph.tensors.get(target, "its input")
        raise NetworkError(
            f"{name} writes into {written}; a module must not change its input or its weights "
            "while it computes: use the operation that returns a new tensor, or inplace=False"
        )
    return True


def _origin(value: Any) -> Node:
    """The value whose memory this one shares."""
    node: Node = value
    while node.op == "call_function" and node.target is not None:
        schema = getattr(node.target, "_schema", None)
        shares = schema is not None and any(one.alias_info for one in schema.returns)
        if not shares and operation_of(node) != GETITEM:
            break
        node = node.args[0]  # type: ignore[assignment]
    return node


def _read_by(graph: Graph, node: Node) -> list[Node]:
    """Values that a call reads; sizes are formulas and are not read."""
    resized = graph.sizes.get(node, {})
    names = [] if operation_of(node) == GETITEM else argument_names(node)
    given = list(zip(names or [""] * len(node.args), node.args, strict=False))
    given += list(node.kwargs.items())
    flat = [
        value
        for name, one in given
        if name not in resized
        for value in (one if isinstance(one, list | tuple) else [one])
    ]
    return [value for value in flat if isinstance(value, Node) and _is_value(graph, value)]


def _is_value(graph: Graph, node: Node) -> bool:
    return node in graph.dims or shape_of(node) is not None


def _alone(dim: Dim) -> Iterator[Dim]:
    """Leaves whose size can be read off that of this dim: a leaf, or the factor that is free."""
    if dim.kind == "leaf":
        yield dim.root
    elif dim.kind == "product":
        free = [part for part in dim.parts if part.free()]
        if len(free) == 1:
            yield from _alone(free[0])


def _readers(layout: Layout) -> Iterator[tuple[str, tuple[str, int, int]]]:
    """Where widths are read off; not off a head, since features are computed without one."""
    for name, spec in layout.tensors.items():
        if name in HEAD:
            continue
        for dim, axis in enumerate(spec.axes):
            if len(axis.segments) == 1 and axis.segments[0].group in layout.groups:
                one = axis.segments[0]
                yield str(one.group), (name, dim, one.repeat * one.span)


def _keep_one_factor(dim: Dim) -> None:
    """Of a product, only the first factor that can grow may; in a concatenation each part may."""
    root = dim.root
    if root.kind == "product":
        free = [part for part in root.parts if part.free()]
        for part in free[1:]:
            part.fix("inside of a unit")
        before = root.parts[: root.parts.index(free[0])] if free else []
        if free and free[0].kind == "sum" and math.prod(part.size for part in before) > 1:
            free[0].fix("a concatenation inside of parts")
    for part in root.parts:
        _keep_one_factor(part)


def _within(name: str, modules: Sequence[str]) -> bool:
    return any(name == module or name.startswith(f"{module}.") for module in modules)


@final
class _Writer:
    """Writes the calls of one graph."""

    def __init__(self, builder: Builder, graph: Graph) -> None:
        self._builder, self._graph = builder, graph
        self._numbers: dict[Node, Atom] = {graph.x: Value(0)}
        self._numbers |= {node: Named(name) for node, name in graph.tensors.items()}

    def written(self, widths: dict[str, tuple[str, int, int]]) -> Program:
        needed, calls = needed_calls(self._graph), []
        for node in self._graph.nodes:
            if node not in needed:
                continue
            if _does_nothing(node):
                self._numbers[node] = self._numbers[node.args[0]]  # type: ignore[index]
                continue
            calls.append(self._call(node))
            self._numbers[node] = Value(len(calls))
        result = self._numbers[self._graph.features]
        if not isinstance(result, Value):
            raise NetworkError("the head must read what the module computes from its input")
        return Program(tuple(calls), result.number, widths)

    def _call(self, node: Node) -> Call:
        resized = self._graph.sizes.get(node, {})
        if operation_of(node) == GETITEM:
            return Call(GETITEM, [self._argument(one) for one in node.args])
        names = argument_names(node)
        arguments: list[Argument] = [
            self._size(resized[name]) if name in resized else self._argument(given)
            for name, given in zip(names, node.args, strict=False)
        ]
        named = {
            name: self._size(resized[name]) if name in resized else self._argument(given)
            for name, given in node.kwargs.items()
            if name not in _IGNORED
        }
        missing = [n for n in resized if n not in named and names.index(n) >= len(node.args)]
        named |= {name: self._size(resized[name]) for name in missing}
        if creates(operation_of(node)):
            named["device"] = DEVICE
        return Call(operation_of(node), arguments, named)

    def _size(self, dims: Dim | list[Dim]) -> Argument:
        if isinstance(dims, list):
            return [size_of(self._builder.size(dim).terms) for dim in dims]
        return size_of(self._builder.size(dims).terms)

    def _argument(self, given: Any) -> Argument:
        if isinstance(given, list | tuple):
            return [self._atom(one) for one in given]
        return self._atom(given)

    def _atom(self, given: Any) -> Atom:
        if isinstance(given, Node):
            return self._numbers[given] if given in self._numbers else _of_rows(given)
        if isinstance(given, torch.dtype):
            return Word("dtype", str(given).removeprefix("torch."))
        if isinstance(given, torch.memory_format):
            return Word("memory_format", str(given).removeprefix("torch."))
        if isinstance(given, torch.device):
            return DEVICE
        if isinstance(given, float) and not math.isfinite(given):
            return Word("float", str(given))
        if given is None or isinstance(given, bool | int | float | str):
            return given
        raise NetworkError(f"a call with {given!r}, which a file cannot hold")


def _does_nothing(node: Node) -> bool:
    name = operation_of(node)
    dropout = name in ("aten.dropout.default", "aten.feature_dropout.default")
    return dropout and not arguments_of(node)["train"]


def _of_rows(node: Node) -> Atom:
    """A number that depends on the number of rows, as a formula."""
    expression = node.meta["val"].node.expr
    symbols = sorted(expression.free_symbols, key=str)
    polynomial = expression.as_poly(*symbols) if len(symbols) == 1 else None
    if polynomial is None or any(c != int(c) for c in polynomial.coeffs()):
        raise NetworkError(f"the module computes {expression} from the number of rows")
    terms = tuple((int(c), (BATCH,) * power) for (power,), c in polynomial.terms())
    return size_of(terms)


def tensors_at(names: Sequence[str], tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Copies of these tensors, contiguous as from a file, whatever a module's memory format is:
    rounding and views depend on it.
    """
    plain = torch.contiguous_format
    return {name: tensors[name].detach().clone(memory_format=plain) for name in names}
