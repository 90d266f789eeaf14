"""An estimator of tables as one ONNX graph: columns in, labels as they were in the data out."""

import json
from typing import TYPE_CHECKING, Any

import numpy as np

from lifelong.deployment.columns import column_facts, example, prepared_inputs
from lifelong.deployment.facts import ExportError, task_facts
from lifelong.deployment.graphs import DOUBLE, INPUTS, INT64, LABELS, NUMBERS, Graph, network_logits
from lifelong.learners.base import AnyLearner
from lifelong.tables.frames import Table

if TYPE_CHECKING:
    from onnx import ModelProto

    from lifelong.estimator.base import LifelongEstimator

PROBABILITIES = "probabilities"
_TYPES = {"O": 8, "U": 8, "b": 9, "i": INT64, "f": DOUBLE}  # of labels, by NumPy's kinds


def table_graph(estimator: "LifelongEstimator", task: str) -> "ModelProto":
    """What an estimator predicts for rows of a task, from their columns."""
    any_estimator: Any = estimator
    learner: AnyLearner = any_estimator.learner_
    known, network = learner.predictor(task)
    number = learner.tasks.index(task) + 1
    preparation = any_estimator.preparation_
    facts = {**task_facts(learner, known), **column_facts(preparation)}
    graph = Graph()
    inputs = prepared_inputs(graph, preparation, number)
    shape = np.array([-1, *network.inputs])
    if len(network.inputs) > 1:
        inputs = graph.add("Reshape", inputs, graph.constant("shape", shape))
    logits = network_logits(graph, network, inputs)
    if logits is None:
        raise ExportError(
            "an estimator's columns can be exported with networks of mlp and convnet only; export "
            "its learner_ for the network alone"
        )
    if known.kind.is_regression:
        outputs = [_numbers(graph, logits, any_estimator.tasks_[task])]
        return graph.model(outputs, facts)
    classes = any_estimator.task_classes_[task]
    outputs = [_probabilities(graph, logits, len(classes)), _labels(graph, logits, classes)]
    facts["classes"] = json.dumps(classes.tolist())
    return graph.model(outputs, facts, _TYPES[classes.dtype.kind])


def checked_rows(estimator: "LifelongEstimator") -> tuple[Table, dict[str, np.ndarray[Any, Any]]]:
    """Rows to check a graph with: as a table, and as the graph takes them."""
    preparation = estimator.preparation_
    columns = example(preparation, 40)
    table = Table(columns, 40, preparation.named)
    if all(column.dtype != object for column in columns.values()) and _numbers_only(preparation):
        return table, {INPUTS: np.stack(list(columns.values()), axis=1)}
    return table, {name: _fed(column)[:, None] for name, column in columns.items()}


def _numbers_only(preparation: Any) -> bool:
    return bool(preparation.plain_numbers >= 0)


def _fed(column: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    if column.dtype != object:
        return column
    return np.array(["" if value is None else value for value in column], dtype=object)


def _probabilities(graph: Graph, logits: str, classes: int) -> str:
    if classes > 2:
        return graph.named(graph.add("Softmax", logits, axis=1), PROBABILITIES)
    high = graph.add("Sigmoid", logits)
    low = graph.add("Sigmoid", graph.add("Neg", logits))
    return graph.named(graph.concat([low, high]), PROBABILITIES)


def _labels(graph: Graph, logits: str, classes: np.ndarray[Any, Any]) -> str:
    values = graph.constant("classes", classes)
    if len(classes) > 2:
        place = graph.add("ArgMax", logits, axis=1, keepdims=0)
    else:
        zero = graph.constant("zero", np.zeros((), np.float32))
        column = graph.constant("column", np.array([1], np.int64))
        high = graph.add("Cast", graph.add("GreaterOrEqual", logits, zero), to=INT64)
        place = graph.add("Squeeze", high, column)
    return graph.named(graph.add("Gather", values, place, axis=0), LABELS)


def _numbers(graph: Graph, logits: str, facts: Any) -> str:
    """In the unit of the labels."""
    wide = graph.add("Cast", logits, to=DOUBLE)
    spread = graph.add("Mul", wide, graph.constant("spread", np.array(facts.spread)))
    told = graph.add("Add", spread, graph.constant("center", np.array(facts.center)))
    column = graph.constant("column", np.array([1], np.int64))
    return graph.named(graph.add("Squeeze", told, column), NUMBERS)
