"""Networks as ONNX graphs, written layer by layer.

A graph that is written from our own layers takes milliseconds, needs only the package `onnx` and
reads like the network. `torch.onnx` takes a second per task and cannot express a network whose
widths depend on an input, which the file for all tasks has; `export` uses it for architectures of
other layers.
"""

from collections.abc import Callable, Mapping, Sequence
from itertools import count
from typing import TYPE_CHECKING, Any, TypeAlias, final

import numpy as np
from torch import Tensor

from lifelong.deployment.facts import ExportError, answer_name, labels_of
from lifelong.extras import require_extra
from lifelong.learners.predicting import Predictor
from lifelong.networks.columns import Columns
from lifelong.networks.growing import LearnedTask, Network
from lifelong.networks.layout import HEAD
from lifelong.networks.sequential import (
    Convolution,
    Flatten,
    Layer,
    Linear,
    MaxPool,
    Relu,
    Sequential,
)
from lifelong.tasks.kinds import Kind

if TYPE_CHECKING:
    from onnx import ModelProto

OPSETS = (("", 17), ("ai.onnx.ml", 3))  # of 2022; of what is used here, 16 and 2 are the newest
IR_VERSION = 8  # what runtimes of that time read
INPUTS, TASK, LABELS, ANSWERS = "inputs", "task", "labels", "answers"
NUMBERS = "numbers"  # that an estimator predicts, in the unit of its labels
FLOAT, INT64, DOUBLE = 1, 7, 11  # numbers of types in ONNX
MOST_BYTES = 2**31 - 2**20  # of a protobuf message

Named: TypeAlias = Callable[[str], str]  # from a tensor's name to that of the value in the graph


def task_graph(
    known: LearnedTask, network: Predictor, facts: Mapping[str, str]
) -> "ModelProto | None":
    """The network of one task; None if its layers are not ours."""
    graph = Graph()
    graph.input(INPUTS, FLOAT, network.inputs)
    logits = network_logits(graph, network, INPUTS)
    if logits is None:
        return None
    outputs = [graph.named(_answers(graph, known.kind, logits), answer_name(known))]
    if not known.kind.is_regression:
        outputs.append(graph.named(_labels(graph, known, outputs[0]), LABELS))
    return graph.model(outputs, facts)


def network_logits(graph: "Graph", network: Predictor, inputs: str) -> str | None:
    """What a network computes from a value of the graph; None if its layers are not ours."""
    if isinstance(network, Columns) and isinstance(network.architecture, Sequential):
        return _columns(graph, inputs, network.architecture.layers, network.columns)
    if isinstance(network, Network) and isinstance(network.architecture, Sequential):
        tensors, layers = network.tensors, network.architecture.layers
        return _chain(graph, inputs, layers, lambda n: graph.tensor(n, tensors[n]))
    return None


def all_tasks_graph(
    tasks: Sequence[tuple[LearnedTask, Predictor]], facts: Mapping[str, str]
) -> "ModelProto":
    """The networks of all tasks, with the task's number, from 1, as a second input.

    What a task shares with a later one, as a prefix of each axis, is stored once.
    """
    architecture = _common_architecture([network for _, network in tasks])
    stored = {
        name: _Prefixes([network.tensors[name] for _, network in tasks])
        for name in architecture.layout.tensors
    }
    once, apart = (sum(getattr(one, what) for one in stored.values()) for what in ("once", "apart"))
    if once >= apart:
        raise ExportError(
            f"one file for all {len(tasks)} tasks would hold {once:,} numbers, and a file for each "
            f"{apart:,} together: nothing is shared; export each task by its name"
        )
    graph = Graph()
    graph.input(INPUTS, FLOAT, architecture.inputs)
    graph.ask_for_the_task()
    logits = _chain(graph, INPUTS, architecture.layers, lambda name: stored[name].at(graph, name))
    answers = graph.named(
        _answers_by_task(graph, [known.kind for known, _ in tasks], logits), ANSWERS
    )
    return graph.model([answers], facts)


@final
class _Prefixes:
    """The tensors that tasks have under one name: each is a prefix of one of a few larger ones."""

    def __init__(self, tensors: Sequence[Tensor]) -> None:
        self.shapes = [tuple(tensor.shape) for tensor in tensors]
        self.whole: list[Tensor] = []
        self.of: list[int] = []  # by task, which of `whole`
        for tensor in reversed(tensors):  # later ones are larger
            place = next((n for n, one in enumerate(self.whole) if _begins(one, tensor)), None)
            if place is None:
                place = len(self.whole)
                self.whole.append(tensor)
            self.of.insert(0, place)

    @property
    def once(self) -> int:
        return sum(tensor.numel() for tensor in self.whole)

    @property
    def apart(self) -> int:
        return sum(int(np.prod(shape)) for shape in self.shapes)

    def at(self, graph: "Graph", name: str) -> str:
        """The tensor of the task that is asked for."""
        if len(self.whole) == 1:
            value = graph.tensor(name, self.whole[0])
        else:
            value = self._one_of_several(graph, name)
        if all(tuple(self.whole[n].shape) == s for n, s in zip(self.of, self.shapes, strict=True)):
            return value
        ends = graph.by_task(f"{name} shapes", self.shapes)
        starts = graph.constant(f"{name} starts", np.zeros(len(self.shapes[0]), np.int64))
        return graph.add("Slice", value, starts, ends)

    def _one_of_several(self, graph: "Graph", name: str) -> str:
        """All of them lie one after the other."""
        flat = np.concatenate([_array(tensor).reshape(-1) for tensor in self.whole])
        sizes = [tensor.numel() for tensor in self.whole]
        starts = np.cumsum([0, *sizes])
        first = graph.by_task(f"{name} from", [[starts[n]] for n in self.of])
        last = graph.by_task(f"{name} to", [[starts[n + 1]] for n in self.of])
        shape = graph.by_task(f"{name} as", [self.whole[n].shape for n in self.of])
        part = graph.add("Slice", graph.constant(name, flat), first, last)
        return graph.add("Reshape", part, shape)


def _begins(whole: Tensor, tensor: Tensor) -> bool:
    if any(n < m for n, m in zip(whole.shape, tensor.shape, strict=True)):
        return False
    return bool((whole[tuple(slice(0, n) for n in tensor.shape)] == tensor).all())


@final
class Graph:
    """Nodes and constants of a graph that is being written."""

    def __init__(self) -> None:
        require_extra("onnx", extra="export")
        self._inputs: list[Any] = []
        self._nodes: list[Any] = []
        self._constants: dict[str, Any] = {}
        self._number = count(1)
        self._task: str | None = None

    def input(self, name: str, kind: int, shape: Sequence[int]) -> None:
        """A value that comes from outside, of this type of ONNX, with rows first."""
        from onnx import helper

        self._inputs.append(helper.make_tensor_value_info(name, kind, ["rows", *shape]))

    def concat(self, values: Sequence[str]) -> str:
        """Values side by side."""
        return values[0] if len(values) == 1 else self.add("Concat", *values, axis=1)

    def add(self, operation: str, *inputs: str, **attributes: Any) -> str:
        """One more node; the name of its output."""
        from onnx import helper

        output = f"/{operation.lower()}{next(self._number)}"
        node = helper.make_node(operation, list(inputs), [output], name=output, **attributes)
        self._nodes.append(node)
        return output

    def named(self, value: str, name: str) -> str:
        """A value under a name that the world sees."""
        from onnx import helper

        self._nodes.append(helper.make_node("Identity", [value], [name], name=name))
        return name

    def constant(self, name: str, array: np.ndarray[Any, Any]) -> str:
        """A constant of ours; what is inside begins with a slash, since columns have any name."""
        return self._initializer(f"/{name}", array)

    def tensor(self, name: str, tensor: Tensor) -> str:
        """A tensor of the network, under its own name."""
        return self._initializer(name, _array(tensor))

    def _initializer(self, name: str, array: np.ndarray[Any, Any]) -> str:
        from onnx import numpy_helper

        self._constants[name] = numpy_helper.from_array(np.ascontiguousarray(array), name)
        return name

    def ask_for_the_task(self) -> None:
        """Give the graph a second input: the number of a task, from 1."""
        from onnx import TensorProto, helper

        first = self.constant("first task", np.ones((), np.int64))
        self._inputs.append(helper.make_tensor_value_info(TASK, TensorProto.INT64, []))
        self._task = self.add("Sub", TASK, first)

    def by_task(self, name: str, rows: Sequence[Sequence[int]]) -> str:
        """Whole numbers that depend on the task."""
        assert self._task is not None
        table = self.constant(name, np.array([list(row) for row in rows], np.int64))
        row = self.add("Gather", table, self._task, axis=0)
        flat = self.constant("flat", np.array([-1], np.int64))
        return self.add("Reshape", row, flat)  # which tells those who infer shapes that it is flat

    def model(
        self, outputs: Sequence[str], facts: Mapping[str, str], labels: int = INT64
    ) -> "ModelProto":
        """The whole, checked; `labels` is the type of labels."""
        from onnx import checker, helper, shape_inference

        given = {one.name for one in self._inputs}
        inside = {*self._constants, *(name for node in self._nodes for name in node.output)}
        if given & inside or len(given) < len(self._inputs):
            raise ExportError(
                f"a column cannot be named {', '.join(sorted(given & inside))} in an ONNX file, "
                "which has that name for itself; export as torch, without the columns"
            )
        size = sum(constant.ByteSize() for constant in self._constants.values())
        if size > MOST_BYTES:
            raise ExportError(
                f"the network takes {size:,} bytes, but an ONNX file holds {MOST_BYTES:,}; export "
                "it as torch or state-dict"
            )
        types = {LABELS: labels, NUMBERS: DOUBLE}
        graph = helper.make_graph(
            self._nodes,
            "lifelong",
            self._inputs,
            [helper.make_tensor_value_info(n, types.get(n, FLOAT), None) for n in outputs],
            list(self._constants.values()),
        )
        made = helper.make_model(
            graph,
            producer_name="lifelong",
            opset_imports=[helper.make_opsetid(*one) for one in OPSETS],
            ir_version=IR_VERSION,
        )
        helper.set_model_props(made, dict(facts))
        made = shape_inference.infer_shapes(made, strict_mode=True)
        checker.check_model(made, full_check=True)
        return made


def _chain(graph: Graph, value: str, layers: Sequence[Layer], named: Named) -> str:
    for layer in layers:
        value = _layer(graph, layer, value, named)
    return _linear(graph, value, named, HEAD)


def _columns(
    graph: Graph, value: str, layers: Sequence[Layer], columns: Sequence[Mapping[str, Tensor]]
) -> str:
    """As `Columns.logits` computes it: each column reads those before it."""

    def named(number: int) -> Named:
        return lambda name: graph.tensor(f"{number + 1}.{name}", columns[number][name])

    states = [value]
    for layer in layers:
        if not isinstance(layer, Linear | Convolution):
            states = [_layer(graph, layer, state, named(0)) for state in states]
            continue
        below = [graph.concat(states[: number + 1]) for number in range(len(columns))]
        states = [_layer(graph, layer, read, named(n)) for n, read in enumerate(below)]
    return _linear(graph, graph.concat(states), named(len(columns) - 1), HEAD)


def _layer(graph: Graph, layer: Layer, value: str, named: Named) -> str:
    match layer:
        case Linear():
            return _linear(graph, value, named, _parts(layer))
        case Convolution(kernel=kernel, padding=padding):
            tensors = map(named, _parts(layer))
            sides = {"kernel_shape": [kernel] * 2, "pads": [padding] * 4}
            return graph.add("Conv", value, *tensors, **sides)
        case MaxPool(size):
            return graph.add("MaxPool", value, kernel_shape=[size] * 2, strides=[size] * 2)
        case Flatten():
            return graph.add("Flatten", value, axis=1)
        case Relu():
            return graph.add("Relu", value)


def _parts(layer: Linear | Convolution) -> tuple[str, ...]:
    """Names of the weight and of the bias, if there is one: an operator may have none."""
    weight, bias = f"{layer.name}.weight", f"{layer.name}.bias"
    return (weight, bias) if layer.bias else (weight,)


def _linear(graph: Graph, value: str, named: Named, names: tuple[str, ...]) -> str:
    return graph.add("Gemm", value, *map(named, names), transB=1)


def _answers(graph: Graph, kind: Kind, logits: str) -> str:
    if kind.is_regression:
        return logits
    if kind is Kind.BINARY:
        return graph.add("Sigmoid", logits)
    return graph.add("Softmax", logits, axis=1)


def _answers_by_task(graph: Graph, kinds: Sequence[Kind], logits: str) -> str:
    """Each kind's own link, if there are several, and the task decides among them."""
    links = {kind: _answers(graph, kind, logits) for kind in dict.fromkeys(kinds)}
    (_, answers), *others = links.items()
    for kind, other in others:
        flags = graph.by_task(f"is {kind.value}", [[int(kind is one)] for one in kinds])
        answers = graph.add("Where", graph.add("Cast", flags, to=9), other, answers)
    return answers


def _labels(graph: Graph, known: LearnedTask, answers: str) -> str:
    """As `predict` returns them."""
    if known.kind is Kind.CLASSES:
        best = graph.add("ArgMax", answers, axis=1, keepdims=0)
        labels = graph.constant("classes", np.array(labels_of(known), np.int64))
        return graph.add("Gather", labels, best, axis=0)
    half = graph.constant("half", np.array(0.5, np.float32))
    labels = graph.add("Cast", graph.add("GreaterOrEqual", answers, half), to=7)
    if known.outputs > 1:
        return labels
    return graph.add("Squeeze", labels, graph.constant("columns", np.array([1], np.int64)))


def _common_architecture(networks: Sequence[Predictor]) -> Sequential:
    first = networks[0]
    if isinstance(first, Network) and isinstance(first.architecture, Sequential):
        return first.architecture
    raise ExportError(
        "one file for all tasks can be made of networks that are one chain of layers, as DEN's by "
        f"mlp or convnet, not of {type(first).__name__}; export each task by its name"
    )


def _array(tensor: Tensor) -> np.ndarray[Any, Any]:
    array: np.ndarray[Any, Any] = tensor.detach().cpu().numpy()
    return array
