"""From a module to data: `torch.export`, then the dims of every value, then programs and layout."""

import operator
import warnings
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, Literal, TypeAlias, final

import torch
from torch import Tensor, fx, nn

from lifelong.networks.layout import NetworkError
from lifelong.networks.nn_modules import named_tensors, other_names
from lifelong.networks.traced.dims import Dim, Mismatch, constant
from lifelong.networks.traced.program import GETITEM, RANDOM, require_known
from lifelong.networks.traced.rules import RULES, Dims, Kind, Operation, Result

# Rows of the example while it is traced: a prime that is no size of a layer, so that a dim of rows
# is not taken for one of units.
ROWS = 61

Node: TypeAlias = fx.Node
Mode: TypeAlias = Literal["evaluation", "training"]


@final
@dataclass(frozen=True, eq=False)
class Graph:
    """A traced module in one mode, with what its calls do to dims.

    Attributes:
        nodes: all calls in order, up to the head.
        features: the value that the head reads.
        tensors: names of parameters and buffers, by the node that stands for them.
        sizes: by call and argument, dims whose sizes it is.
    """

    nodes: tuple[Node, ...]
    features: Node
    x: Node
    tensors: Mapping[Node, str]
    dims: dict[Node, Result] = field(default_factory=dict)
    sizes: dict[Node, dict[str, Dim | list[Dim]]] = field(default_factory=dict)
    costs: list[list[Dim]] = field(default_factory=list)


@final
class Tracer:
    """Reads a module in both modes; the dims of its tensors are the same in both."""

    def __init__(
        self, module: nn.Module, example: Tensor, head: str, frozen: Sequence[str] = ()
    ) -> None:
        self._module, self._head, self._frozen = module, head, frozen
        self._example = _rows_of(example)
        parameters, buffers = named_tensors(module, head, frozen)
        self.tensors = {n: t.detach() for n, t in {**parameters, **buffers}.items()}
        self.parameters = set(parameters)
        self._others = other_names(module, head, frozen)
        self.dims = {name: [Dim(n) for n in t.shape] for name, t in self.tensors.items()}
        self.batch = Dim(ROWS, fixed="the rows")
        self._inputs = [constant(n, "the inputs") for n in example.shape[1:]]
        self.kinds: dict[str, Kind] = {}
        self.read: dict[str, set[int]] = {}
        self.starts: dict[str, float] = {}

    def graph(self, mode: Mode) -> Graph:
        """The calls in this mode."""
        exported = _exported(self._module, self._example, mode, self._frozen)
        signature = exported.graph_signature
        given = {**signature.inputs_to_parameters, **signature.inputs_to_buffers}
        names = {node: self._others.get(name, name) for node, name in given.items()}
        for node, constant_name in signature.inputs_to_lifted_tensor_constants.items():
            names[node] = self._constant(f"constant.{constant_name}", exported, constant_name)
        nodes = tuple(exported.graph.nodes)
        by_name = {node.name: node for node in nodes if node.op == "placeholder"}
        tensors = {by_name[node]: name for node, name in names.items()}
        weight = f"{self._head}.weight"
        head = _head_call(nodes, tensors, self._head, self._others.get(weight, weight))
        calls = tuple(node for node in nodes[: nodes.index(head)] if node.op == "call_function")
        graph = Graph(calls, head.args[0], by_name[signature.user_inputs[0]], tensors)  # type: ignore[arg-type]
        graph.dims[graph.x] = [self.batch, *self._inputs]
        for node, name in tensors.items():
            graph.dims[node] = self.dims[name]
        for node in calls:
            self._follow(graph, node)
        return graph

    def _constant(self, name: str, exported: Any, key: str) -> str:
        found = exported.constants[key]
        self.tensors.setdefault(name, found)
        self.dims.setdefault(name, [constant(n) for n in found.shape])
        return name

    def _follow(self, graph: Graph, node: Node) -> None:
        shape = shape_of(node)
        if shape is None:  # a number, such as the number of rows
            return
        if node.target is operator.getitem:
            several, place = node.args
            graph.dims[node] = graph.dims[several][place]  # type: ignore[index,assignment]
            return
        if not isinstance(node.target, torch._ops.OpOverload):
            raise NetworkError(
                f"{type(self._module).__name__} calls {node.target}, which is no single operation: "
                "a part of its forward runs under torch.no_grad or another context. Name parts "
                "that never move in frozen=... instead, or use `lifelong.adapt`, which takes a "
                "module as it is"
            )
        operation = self._operation(graph, node, shape)
        try:
            if operation.name not in RULES:
                raise Mismatch(f"{operation.name} has no rule")
            found = RULES[operation.name].apply(operation)
            _require_shape(found, shape)
            graph.dims[node] = found
            graph.sizes[node] = operation.sizes
            graph.costs.extend(operation.cost)
        except (Mismatch, KeyError, IndexError, TypeError) as error:
            graph.dims[node] = self._unknown(graph, node, shape, f"{operation.where}: {error}")

    def _operation(self, graph: Graph, node: Node, shape: list[Any]) -> Operation:
        given = arguments_of(node)
        tensors = {
            name: graph.tensors[value]
            for name, value in given.items()
            if isinstance(value, Node) and value in graph.tensors
        }
        return Operation(
            operation_of(node).rpartition(".")[0],
            _where(node),
            {name: _seen(graph, value) for name, value in given.items()},
            tensors,
            shape,
            self.batch,
            {},
            self.kinds,
            self.read,
            [],
            self.starts,
        )

    def _unknown(self, graph: Graph, node: Node, shape: list[Any], why: str) -> Result:
        """Fix whatever the call touches: it runs as it did, and nothing around it grows."""
        for read in node.all_input_nodes:
            for dim in _flat(graph.dims.get(read, [])):
                dim.fix(why)
        if shape and isinstance(shape[0], list):
            return [self._fixed(one, why) for one in shape]
        return self._fixed(shape, why)

    def _fixed(self, shape: list[int], why: str) -> Dims:
        return [self.batch if size == ROWS else constant(size, why) for size in shape]


def _rows_of(example: Tensor) -> Tensor:
    times = -(-ROWS // len(example))
    return example.repeat(times, *[1] * (example.ndim - 1))[:ROWS]


@contextmanager
def in_mode(module: nn.Module, mode: Mode, frozen: Sequence[str] = ()) -> Iterator[None]:
    """The module in this mode, frozen parts in evaluation mode; then as it was."""
    modes = {part: part.training for part in module.modules()}
    try:
        module.train(mode == "training")
        for name in frozen:
            module.get_submodule(name).eval()
        yield
    finally:
        for part, training in modes.items():
            part.training = training


def _exported(module: nn.Module, example: Tensor, mode: Mode, frozen: Sequence[str]) -> Any:
    """The module as calls of PyTorch's operations."""
    dynamic = ({0: torch.export.Dim.DYNAMIC},)
    try:
        with (
            warnings.catch_warnings(),
            torch.random.fork_rng(devices=[]),
            in_mode(module, mode, frozen),
        ):
            warnings.simplefilter("ignore")
            # Not strict: the module's own Python runs once, on tensors without values.
            return torch.export.export(module, (example,), dynamic_shapes=dynamic, strict=False)
    except Exception as error:  # whatever the module's own code raises
        told = str(error).strip().splitlines() or [type(error).__name__]
        raise NetworkError(
            f"{type(module).__name__} cannot be traced in {mode} mode: {told[0]}; its forward must "
            "take one tensor with rows first, and must not branch on values or on the number of "
            "rows (x.shape[0] may differ, len(x) is one number). `lifelong.adapt` takes modules "
            "that cannot be traced"
        ) from error


def _head_call(
    nodes: tuple[Node, ...], tensors: Mapping[Node, str], head: str, weight: str
) -> Node:
    """The call of the head, which must be the last one and read rows of features."""
    calls = [
        node
        for node in nodes
        if node.op == "call_function"
        and operation_of(node) == "aten.linear.default"
        and tensors.get(node.args[1]) == weight  # type: ignore[arg-type]
    ]
    linears = sorted(
        name.removesuffix(".weight")
        for name in {
            tensors.get(node.args[1], "")  # type: ignore[arg-type]
            for node in nodes
            if node.op == "call_function" and operation_of(node) == "aten.linear.default"
        }
        if name  # a weight that is computed has none
    )
    if len(calls) != 1:
        raise NetworkError(
            f"head={head!r} must be the name of a Linear layer that the module calls once, not "
            f"{len(calls)} times; it calls {', '.join(linears) or 'none'}. A head whose weight is "
            "computed, as by weight_norm, is none"
        )
    output = next(node for node in nodes if node.op == "output")
    if output.args[0] != (calls[0],) and output.args[0] != [calls[0]]:
        raise NetworkError(
            f"the module must return the outputs of its head {head!r} as they are, one tensor "
            "without softmax or sigmoid, because tasks bring their own losses"
        )
    return calls[0]


def arguments_of(node: Node) -> dict[str, Any]:
    """All arguments of a call by name, with the defaults of those that were not given."""
    schema = node.target._schema  # type: ignore[union-attr]
    given = dict(zip((argument.name for argument in schema.arguments), node.args, strict=False))
    defaults = {argument.name: argument.default_value for argument in schema.arguments}
    return {**defaults, **given, **node.kwargs}


def argument_names(node: Node) -> list[str]:
    return [argument.name for argument in node.target._schema.arguments]  # type: ignore[union-attr]


def operation_of(node: Node) -> str:
    return GETITEM if node.target is operator.getitem else str(node.target)


def shape_of(node: Node) -> list[Any] | None:
    """Of the result, or of each of several; None for a plain number."""
    value = node.meta.get("val")
    if isinstance(value, Tensor):
        return [_hint(size) for size in value.shape]
    if isinstance(value, list | tuple):
        return [[_hint(size) for size in one.shape] for one in value]
    return None


def _hint(size: int | torch.SymInt) -> int:
    return size if isinstance(size, int) else int(size.node.hint)


def _where(node: Node) -> str:
    stack = list((node.meta.get("nn_module_stack") or {}).values())
    path = stack[-1][0] if stack else ""
    name = operation_of(node).split(".")[1] if "." in operation_of(node) else node.name
    return f"{path} ({name})" if path else name


def _seen(graph: Graph, value: Any) -> Any:
    """An argument as rules see it."""
    if isinstance(value, Node):
        return graph.dims.get(value, value.meta.get("val"))
    if isinstance(value, list | tuple):
        return [_seen(graph, one) for one in value]
    return value


def _flat(result: Result) -> Iterable[Dim]:
    for one in result:
        if isinstance(one, Dim):
            yield one
        else:
            yield from one


def _require_shape(found: Result, shape: list[Any]) -> None:
    sizes = [[dim.size for dim in one] if isinstance(one, list) else one.size for one in found]
    if sizes != shape:
        raise Mismatch(f"the rule gives {sizes}, not {shape}")


def require_runnable(graph: Graph, mode: Mode) -> None:
    """Refuse calls that cannot be run as a pure function."""
    for node in graph.nodes:
        if shape_of(node) is None:
            continue
        name = operation_of(node)
        try:
            require_known(name)
        except NetworkError as error:
            raise NetworkError(
                f"{_where(node)}: {error}. `lifelong.adapt` takes a module as it is"
            ) from error
        if mode == "evaluation" and name in RANDOM and _draws(node):
            raise NetworkError(f"{_where(node)} draws random numbers in evaluation mode")


def _draws(node: Node) -> bool:
    given = arguments_of(node)
    if "dropout_p" in given:
        return bool(given["dropout_p"])
    return bool(given.get("train", True))
