"""What was learned of a table's columns, as part of an ONNX graph.

A table of numbers only is one input, its columns in order. Otherwise each column is an input of its
own name, with one value per row: numbers as double, NaN where one is missing; text as strings,
the empty string where it is missing.
"""

import json
from collections.abc import Sequence
from itertools import pairwise
from typing import Any

import msgspec
import numpy as np

from lifelong.deployment.facts import ExportError
from lifelong.deployment.graphs import DOUBLE, FLOAT, INPUTS, INT64, Graph
from lifelong.tables.preparation import FAR, Category, Number, Preparation, Value

STRING = 8  # number of the type in ONNX
_ML = "ai.onnx.ml"


def prepared_inputs(graph: Graph, preparation: Preparation, task: int) -> str:
    """The inputs of the network, as a task sees the columns."""
    numbers = [column for column in preparation.columns if isinstance(column, Number)]
    categories = [column for column in preparation.columns if isinstance(column, Category)]
    if not categories:
        graph.input(INPUTS, DOUBLE, [len(numbers)])
        return _numbers(graph, numbers, INPUTS, task)
    for column in preparation.columns:
        graph.input(column.name, STRING if _is_text(column) else DOUBLE, [1])
    parts = [_category(graph, column, task) for column in categories]
    if numbers:
        values = graph.concat([number.name for number in numbers])
        parts.insert(0, _numbers(graph, numbers, values, task))
    return graph.concat(parts)


def column_facts(preparation: Preparation) -> dict[str, str]:
    """The columns by name and type, in order, and all that is known of them."""
    kinds = {c.name: "text" if _is_text(c) else "number" for c in preparation.columns}
    known = msgspec.json.encode(preparation).decode()
    return {"columns": json.dumps(kinds), "preparation": known}


def example(preparation: Preparation, rows: int) -> dict[str, np.ndarray[Any, Any]]:
    """Rows with ordinary, far, missing and unknown values, to check a graph with."""
    generator = np.random.default_rng(0)
    return {c.name: _example(c, rows, generator) for c in preparation.columns}


def _example(
    column: Number | Category, rows: int, generator: np.random.Generator
) -> np.ndarray[Any, Any]:
    odd = generator.random(rows)
    if isinstance(column, Number):
        scale = column.scales[-1]
        values = scale.mean + scale.deviation * generator.normal(size=rows)
        values[odd < 0.2] = scale.mean + 20 * (scale.deviation or 1.0)
        values[odd > 0.8] = np.nan
        return values
    text = _is_text(column)
    known = [*column.values, "no such category" if text else -12345.5]
    chosen = np.array(known, dtype=object)[generator.integers(len(known), size=rows)]
    chosen[odd > 0.8] = None
    return chosen if text else np.array([np.nan if v is None else v for v in chosen], float)


def _is_text(column: Number | Category) -> bool:
    if isinstance(column, Number):
        return False
    kinds = {isinstance(value, str) for value in column.values}
    if len(kinds) > 1:
        raise ExportError(
            f"column {column.name!r} holds text and numbers, which no input of ONNX can; make it "
            "text before the first task is learned, or export as torch, without the columns"
        )
    return kinds != {False}


def _numbers(graph: Graph, numbers: list[Number], values: str, task: int) -> str:
    """Scaled numbers, ramps and flags, as `Preparation` computes them."""
    scales = [number.scale(task) for number in numbers]

    def row(name: str, entries: Sequence[float]) -> str:
        return graph.constant(name, np.array([list(entries)], np.float64))

    far, one, near = (row(n, [v]) for n, v in (("far", FAR), ("one", 1.0), ("near", FAR - 1)))
    missing = graph.add("IsNaN", values)
    filled = graph.add("Where", missing, row("medians", [s.median for s in scales]), values)
    centred = graph.add("Sub", filled, row("means", [s.mean for s in scales]))
    z = graph.add("Div", centred, row("deviations", [s.deviation or 1.0 for s in scales]))
    size = graph.add("Abs", z)
    beyond = graph.add("Log", graph.add("Sub", graph.add("Max", size, far), near))
    squeezed = graph.add("Mul", graph.add("Sign", z), graph.add("Add", far, beyond))
    parts = [graph.add("Where", graph.add("Greater", size, far), squeezed, z)]
    ramps = [
        (place, *ramp) for place, n in enumerate(numbers) for ramp in _ramps(n, n.scale(task).edges)
    ]
    if ramps:
        places, lows, widths, used = zip(*ramps, strict=True)
        read = graph.add("Gather", filled, _indices(graph, "ramped", list(places)), axis=1)
        risen = graph.add("Div", graph.add("Sub", read, row("lows", lows)), row("widths", widths))
        none = row("none", [0.0])
        held = graph.add("Min", graph.add("Max", risen, none), one)
        parts.append(graph.add("Mul", held, row("used", used)))
    flagged = [place for place, number in enumerate(numbers) if number.missing]
    if flagged:
        flags = graph.add("Gather", missing, _indices(graph, "flagged", flagged), axis=1)
        parts.append(graph.add("Cast", flags, to=DOUBLE))
    return graph.add("Cast", graph.concat(parts), to=FLOAT)


def _ramps(number: Number, edges: tuple[float, ...]) -> list[tuple[float, float, float]]:
    """Where each begins, how wide it is, and whether the task has it."""
    there = [(low, high - low, 1.0) for low, high in pairwise(edges)]
    return there + [(0.0, 1.0, 0.0)] * (number.ramps - len(there))


def _category(graph: Graph, column: Category, task: int) -> str:
    """One place of each row is 1, or none."""
    places = column.places(task)
    other = 1 if 0 < column.other <= task else -1
    at = _places_of_text if _is_text(column) else _places_of_numbers
    found = at(graph, column.name, places, other)
    every = graph.constant(f"{column.name} places", np.arange(column.width)[None])
    return graph.add("Cast", graph.add("Equal", found, every), to=FLOAT)


def _places_of_text(graph: Graph, name: str, places: dict[Value, int], other: int) -> str:
    keys = {"": 0, **{str(value): place for value, place in places.items()}}
    return graph.add(
        "LabelEncoder",
        name,
        domain=_ML,
        keys_strings=list(keys),
        values_int64s=list(keys.values()),
        default_int64=other,
    )


def _places_of_numbers(graph: Graph, name: str, places: dict[Value, int], other: int) -> str:
    """The place of the value that a number equals; sums of one place each, above `other`."""
    missing = graph.add("Cast", graph.add("IsNaN", name), to=INT64)
    above = [*(place - other for place in places.values()), -other]
    hits = [missing]
    if places:
        values = graph.constant(f"{name} values", np.array([list(places)], np.float64))
        hits.insert(0, graph.add("Cast", graph.add("Equal", name, values), to=INT64))
    steps = graph.constant(f"{name} steps", np.array([above], np.int64))
    axis = _indices(graph, "columns", [1])
    hit = graph.add("ReduceSum", graph.add("Mul", graph.concat(hits), steps), axis, keepdims=1)
    return graph.add("Add", hit, graph.constant(f"{name} other", np.array([[other]], np.int64)))


def _indices(graph: Graph, name: str, places: list[int]) -> str:
    return graph.constant(name, np.array(places, np.int64))
