"""The paper's claims, and the verdict on each from stored runs.

A claim is a number or a comparison. Our value is a mean over seeds with its standard error;
comparisons are made per seed, since methods share a seed's data and order of tasks. One rule per
kind of claim decides the verdict (`VERDICTS` states the rules in words).
"""

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal, TypeAlias, final

import msgspec
import numpy as np

from lifelong.evaluation.results import ResultMatrix
from lifelong.evaluation.runs import Run
from lifelong.reproduction.measured import Mean, Measured, Row, look_alike, mean, plain, rows
from lifelong.reproduction.series import auroc_of

Verdict: TypeAlias = Literal[
    "reproduced", "better", "not reproduced", "not comparable", "not measured"
]
Judge: TypeAlias = Callable[[Mean], Verdict]

SAME = 1.0  # points of AUROC within which the paper's "almost the same" holds
LEVEL = 0.5  # points below STL that still count as its level
PAPER_ERROR = 0.01  # the standard error that the paper gives for AUROC

# Recipes of Figure 3, and the share of STL's capacity (%) at which the paper's DEN matches STL.
FIGURE_3 = {
    "figure3-variation": 18.0,
    "figure3-cifar100": 60.3,
    "figure3-awa": 11.9,
    "figure3-animals50": 11.9,
}

VERDICTS = {
    "a number": "reproduced within two standard errors of ours and the paper's together, better or "
    "not reproduced outside; a capacity is reproduced within 10 %",
    "an AUROC on other data": "not comparable: on a look-alike of the paper's data set only "
    "comparisons between methods carry over",
    "above": "reproduced if the difference, seed by seed, is above zero by more than two standard "
    "errors",
    "at least": "reproduced if the difference is not below zero by more than two standard errors",
    "almost the same": f"reproduced if the difference is above -{SAME:g} point",
    "a share of STL's capacity": f"of the smallest DEN measured that is at most {LEVEL:g} points "
    "below STL; reproduced up to 1.1 times the paper's share, better below 0.9 of it",
}


@final
class Finding(msgspec.Struct, frozen=True, omit_defaults=True):
    """One line of the summary.

    Attributes:
        claim: in words.
        decimals: with which its numbers are printed.
        order: whether it is a step of the order DEN ≥ Progressive > EWC > L2.
    """

    claim: str
    data: str
    paper: str
    ours: float | None
    stderr: float | None
    seeds: int
    verdict: Verdict
    command: str
    decimals: int = 2
    order: bool = False


@final
@dataclass(frozen=True)
class Evidence:
    """The stored runs of one recipe."""

    recipe: str
    size: str
    data: str
    command: str
    measured: Sequence[Measured]

    @property
    def look_alike(self) -> bool:
        """Whether the data only imitates the paper's."""
        return look_alike(self.measured)

    def row(self, method: str) -> Row | None:
        return plain(self.measured).get(method)


def findings(evidence: Mapping[str, Evidence]) -> list[Finding]:
    """Every number and every claim, in the paper's order, whether it could be measured or not."""
    found: list[Finding] = []
    for recipe, share in FIGURE_3.items():
        found += _figure3(evidence[recipe], share)
    found += _figure4(evidence["figure4"])
    found += _figure5(evidence["figure5"])
    return found + _permuted(evidence["permuted"])


def _figure3(of: Evidence, share: float) -> list[Finding]:
    on_variation = of.recipe == "figure3-variation"
    batch = (
        [
            _differs(of, "DEN is above DNN-STL", "DEN", "DNN-STL", "> 0", above),
            _differs(of, "DEN is above DNN-MTL", "DEN", "DNN-MTL", "> 0", above),
        ]
        if on_variation
        else [_differs(of, "DEN is almost as good as DNN-STL", "DEN", "DNN-STL", "≈ 0", same)]
    )
    return [
        *batch,
        *_order(of),
        _share_of_stl(of, share),
        *_finetuned(of, "+0.05 to +4.8"),
    ]


def _order(of: Evidence) -> list[Finding]:
    progressive, ewc, l2 = "DNN-Progressive", "DNN-EWC", "DNN-L2"
    return [
        msgspec.structs.replace(step, order=True)
        for step in (
            _differs(of, "order: DEN is at least Progressive", "DEN", progressive, "≥ 0", at_least),
            _differs(of, "order: Progressive is above EWC", progressive, ewc, "> 0", above),
            _differs(of, "order: EWC is above L2", ewc, l2, "> 0", above),
        )
    ]


def _finetuned(of: Evidence, paper: str) -> list[Finding]:
    return [
        _differs(of, f"DEN-Finetune is above {batch}", "DEN-Finetune", batch, paper, above)
        for batch in ("DNN-STL", "DNN-MTL")
    ]


def _figure4(of: Evidence) -> list[Finding]:
    table = {
        "DNN-L2": (0.7440, 1.0),
        "L2-Selective": (0.7499, 1.0),
        "DEN-Constant-13": (0.7611, 1.55),
        "DEN-Constant-20": (0.7580, 1.89),
        "DEN-Dynamic": (0.7684, 1.56),
    }
    numbers = [
        finding
        for method, (auroc, capacity) in table.items()
        for finding in (_auroc(of, method, auroc), _capacity(of, method, capacity))
    ]
    selective, dynamic = "L2-Selective", "DEN-Dynamic"
    return [
        *numbers,
        _differs(of, "selective retraining is above L2", selective, "DNN-L2", "+2", above),
        *(
            _differs(of, f"Dynamic is above {other}", dynamic, other, "> 0", above)
            for other in ("DNN-L2", selective, "DEN-Constant-13", "DEN-Constant-20")
        ),
        _ratio(of, "capacity of Dynamic over Constant-20's", dynamic, "DEN-Constant-20", _size),
        *(
            _ratio(
                of, f"training time of selective retraining over {other}'s", selective, other, _time
            )
            for other in ("DNN-L2", "DNN-L1")
        ),
        _selects_less_above(of),
    ]


def _figure5(of: Evidence) -> list[Finding]:
    flat = "loses nothing of tasks 1, 4, 7 by the end (points lost)"
    later = "on tasks 4 and 7, at the end"
    return [
        _loses(of, f"Progressive {flat}", "DNN-Progressive", "0", none_lost),
        _loses(of, f"DEN {flat}", "DEN", "0", none_lost),
        _loses(
            of, "DEN without timestamps loses a little (points lost)", "DEN-No-Stamp", "> 0", lost
        ),
        _loses(of, "L2 holds task 1 (points lost)", "DNN-L2", "≈ 0", held, tasks=(1,)),
        _differs(of, f"EWC is above L2 {later}", "DNN-EWC", "DNN-L2", "> 0", above, _later_tasks),
        _differs(
            of,
            f"DEN is above Progressive {later}",
            "DEN",
            "DNN-Progressive",
            "> 0",
            above,
            _later_tasks,
        ),
        _differs(
            of,
            f"DEN without timestamps is above Progressive {later}",
            "DEN-No-Stamp",
            "DNN-Progressive",
            "> 0",
            above,
            _later_tasks,
        ),
    ]


def _permuted(of: Evidence) -> list[Finding]:
    baselines = ("DNN", "DNN-L2", "DNN-EWC", "DNN-Progressive")
    return [
        *(_differs(of, f"DEN is above {other}", "DEN", other, "> 0", above) for other in baselines),
        *_order(of),
        _capacity(of, "DEN", 1.39),
        *_finetuned(of, "> 0"),
    ]


# The rules of the verdicts.


def above(difference: Mean) -> Verdict:
    return "reproduced" if difference.value > 2 * (difference.error or 0.0) else "not reproduced"


def at_least(difference: Mean) -> Verdict:
    return "reproduced" if difference.value >= -2 * (difference.error or 0.0) else "not reproduced"


def same(difference: Mean) -> Verdict:
    return "reproduced" if difference.value > -SAME else "not reproduced"


def none_lost(points: Mean) -> Verdict:
    return "reproduced" if abs(points.value) < 0.05 else "not reproduced"


def held(points: Mean) -> Verdict:
    return "reproduced" if points.value < SAME else "not reproduced"


def lost(points: Mean) -> Verdict:
    return "reproduced" if points.value >= 0.05 else "not reproduced"


def below_one(ratio: Mean) -> Verdict:
    return "reproduced" if ratio.value + 2 * (ratio.error or 0.0) < 1 else "not reproduced"


def near_auroc(paper: float) -> Judge:
    def judge(ours: Mean) -> Verdict:
        if abs(ours.value - paper) <= 2 * math.hypot(ours.error or 0.0, PAPER_ERROR):
            return "reproduced"
        return "better" if ours.value > paper else "not reproduced"

    return judge


def not_comparable(_ours: Mean) -> Verdict:
    return "not comparable"


def near_capacity(paper: float, margin: float = 0.1) -> Judge:
    def judge(ours: Mean) -> Verdict:
        if ours.value > (1 + margin) * paper:
            return "not reproduced"
        return "reproduced" if ours.value >= (1 - margin) * paper else "better"

    return judge


# The measurements.


def _finding(
    of: Evidence, claim: str, paper: str, ours: Mean | None, judge: Judge, decimals: int = 2
) -> Finding:
    """A claim without runs is listed as not measured."""
    if ours is None:
        return Finding(claim, of.data, paper, None, None, 0, "not measured", of.command, decimals)
    value, error = round(ours.value, 6), None if ours.error is None else round(ours.error, 6)
    return Finding(
        claim, of.data, paper, value, error, ours.seeds, judge(ours), of.command, decimals
    )


def _differs(
    of: Evidence,
    claim: str,
    left: str,
    right: str,
    paper: str,
    judge: Judge,
    measure: Callable[[Run], float] = auroc_of,
) -> Finding:
    ours = _paired(of.row(left), of.row(right), lambda a, b: 100 * (measure(a) - measure(b)))
    return _finding(of, f"{claim} (points of AUROC)", paper, ours, judge)


def _ratio(
    of: Evidence, claim: str, left: str, right: str, measure: Callable[[Run], float]
) -> Finding:
    ours = _paired(of.row(left), of.row(right), lambda a, b: measure(a) / measure(b))
    return _finding(of, claim, "< 1", ours, below_one)


def _auroc(of: Evidence, method: str, paper: float) -> Finding:
    row = of.row(method)
    ours = None if row is None else row.auroc
    stated = f"{paper:.4f} ± {PAPER_ERROR}"
    judge = not_comparable if of.look_alike else near_auroc(paper)
    return _finding(of, f"AUROC of {method}", stated, ours, judge, decimals=4)


def _capacity(of: Evidence, method: str, paper: float) -> Finding:
    row = of.row(method)
    ours = None if row is None else row.capacity
    return _finding(of, f"capacity of {method}", f"{paper:g}", ours, near_capacity(paper))


def _loses(
    of: Evidence,
    claim: str,
    method: str,
    paper: str,
    judge: Judge,
    tasks: Sequence[int] = (1, 4, 7),
) -> Finding:
    row = of.row(method)
    ours = None if row is None else row.mean(lambda run: _points_lost(run, tasks))
    return _finding(of, claim, paper, ours, judge)


def _selects_less_above(of: Evidence) -> Finding:
    """The share of its layer's units that a task selects, the last layer's over the first's."""
    row = of.row("L2-Selective")
    ours = None if row is None else row.mean(_last_over_first)
    claim = "upper layers are selected less than lower: share of the last layer over the first's"
    return _finding(of, claim, "< 1", ours, below_one)


def _share_of_stl(of: Evidence, paper: float) -> Finding:
    claim = "DEN reaches STL's level with this share of STL's capacity (%)"
    stl = of.row("DNN-STL")
    grown = [row for row in rows(of.measured) if row.method == "DEN"]
    if stl is None or not grown:
        return _finding(of, claim, f"{paper:g}", None, above)
    on_level = [row for row in grown if _is_level(row, stl)]
    if not on_level:
        best = max(grown, key=lambda row: row.auroc.value)
        behind = _paired(best, stl, lambda a, b: 100 * (auroc_of(a) - auroc_of(b)))
        never = "DEN reaches STL's level; the best DEN measured against STL (points of AUROC)"
        return _finding(of, never, f"at {paper:g} % of its capacity", behind, _never)
    smallest = min(on_level, key=lambda row: row.capacity.value)
    ours = _paired(smallest, stl, lambda a, b: 100 * a.summary.capacity / b.summary.capacity)
    return _finding(of, claim, f"{paper:g}", ours, near_capacity(paper))


def _never(_behind: Mean) -> Verdict:
    return "not reproduced"


def _is_level(row: Row, stl: Row) -> bool:
    behind = _paired(row, stl, lambda a, b: 100 * (auroc_of(a) - auroc_of(b)))
    return behind is not None and behind.value >= -LEVEL


def _paired(left: Row | None, right: Row | None, of: Callable[[Run, Run], float]) -> Mean | None:
    """The differences per seed; None if no seed has both."""
    if left is None or right is None:
        return None
    others = {run.seed: run for run in right.runs}
    values = [of(run, others[run.seed]) for run in left.runs if run.seed in others]
    return mean(values) if values else None


def _points_lost(run: Run, tasks: Iterable[int]) -> float | None:
    """Points lost since each task was learned, the mean over these tasks."""
    r = _matrix(run)
    there = [task - 1 for task in tasks if r is not None and task < len(r)]
    if r is None or not there:
        return None
    return float(100 * np.mean([r[j, j] - r[-1, j] for j in there]))


def _later_tasks(run: Run) -> float:
    scores = run.scores["auroc"]
    return float(np.mean([scores[task - 1] for task in (4, 7) if task <= len(scores)]))


def _last_over_first(run: Run) -> float | None:
    layers = list(run.widths)
    later = run.records[1:]
    if not later:
        return None
    first, last = (
        np.mean([record.groups[layer].selected for record in later]) / run.widths[layer]
        for layer in (layers[0], layers[-1])
    )
    return float(last / first) if first else None


def _matrix(run: Run) -> np.ndarray[tuple[int, ...], np.dtype[np.float64]] | None:
    results: ResultMatrix | None = run.results
    return None if results is None else results.matrix()


def _time(run: Run) -> float:
    return run.summary.seconds


def _size(run: Run) -> float:
    return run.summary.capacity
