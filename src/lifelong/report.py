"""A run as one HTML page that stands by itself: nothing is loaded from anywhere."""

from collections.abc import Iterator, Sequence
from typing import Any

import msgspec
from jinja2 import Environment, PackageLoader, StrictUndefined

from lifelong.figures import capacity, growth, matrix
from lifelong.results import MEANING, ResultMatrix
from lifelong.runs import Run

_GROWN = "DEN"
_REFERENCE = "DNN-MTL"


def page(runs: Sequence[Run]) -> str:
    """The page of runs in which DEN was measured against others, DNN-MTL among them."""
    den = _of(runs, _GROWN)
    run = den
    results = den.results
    if results is None:
        raise ValueError(f"the run of {_GROWN} has no result matrix to show")
    sizes = dict(_relative_sizes(runs))
    return (
        _environment()
        .get_template("report.html")
        .render(
            run=run,
            methods=runs,
            den=den,
            results=results,
            meaning=MEANING,
            matrix=_matrix_rows(results),
            units={g: growth.units_by_task(born, len(run.tasks)) for g, born in den.born.items()},
            sizes=sizes,
            settings=_settings(runs),
            matrix_chart=matrix.svg(results),
            growth_chart=growth.svg(den.born, run.widths, run.tasks),
            capacity_chart=capacity.svg(sizes, _REFERENCE),
        )
    )


def forgetting_points(forgetting: float | None) -> str:
    """Forgetting in hundredths, or a dash where there is none to speak of."""
    return "–" if forgetting is None else f"{100 * forgetting + 0.0:.2f}"


def _environment() -> Environment:
    environment = Environment(
        loader=PackageLoader("lifelong"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters["points"] = forgetting_points
    return environment


def _matrix_rows(results: ResultMatrix) -> list[tuple[str, list[str]]]:
    r = results.matrix()
    rows: list[Sequence[float]] = [r[i, : i + 1].tolist() for i in range(len(r))]
    return [
        (name, [f"{score:.4f}" for score in row] + [""] * (len(r) - len(row)))
        for name, row in zip(results.tasks, rows, strict=True)
    ]


def _of(runs: Sequence[Run], method: str) -> Run:
    return next(run for run in runs if run.method == method)


def _relative_sizes(runs: Sequence[Run]) -> Iterator[tuple[str, list[float]]]:
    reference = _of(runs, _REFERENCE).summary.parameters
    for method in runs:
        results = method.results
        if results is not None:
            yield method.method, [size.parameters / reference for size in results.capacity]


def _settings(methods: Sequence[Run]) -> dict[str, dict[str, Any]]:
    """As JSON writes them, a line for each."""
    return {
        run.method: {
            name: msgspec.json.encode(value).decode() for name, value in run.settings.items()
        }
        for run in methods
    }
