"""Twelve monthly tables with drift, categories and missing values: one model that keeps learning
against gradient-boosted trees made anew each month.

    OMP_NUM_THREADS=1 python benchmarks/tables.py --out benchmarks/tables.json

Each month is scored on its own test rows, ours after all months were learned: nothing is forgotten.
"""

import argparse
import json
import pickle
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import torch
from numpy.typing import NDArray
from sklearn.ensemble import HistGradientBoostingClassifier
from sklearn.metrics import accuracy_score, roc_auc_score

from lifelong import LifelongClassifier

MONTHS, ROWS, TEST = 12, 1000, 2000


def months(
    seed: int, rows: int = ROWS, test: int = TEST
) -> list[tuple[pd.DataFrame, Any, Any, Any]]:
    """Per month a training table with its labels, and a test table with its own.

    A customer's risk depends on seven numbers, on a region, a plan and a shop: by smooth curves, by
    steps and by interactions. The weights of these walk at random from month to month, prices drift
    upwards, new shops open, and numbers are missing more often for some plans than for others.
    """
    generator = np.random.default_rng([seed, 7])
    weights = generator.normal(size=10)
    of_region, of_plan = generator.normal(size=6) * 0.7, generator.normal(size=4) * 0.7
    of_shop = generator.normal(size=30) * 0.6
    made = []
    for month in range(MONTHS):
        weights = weights + 0.15 * generator.normal(size=10)
        of_shop = of_shop + 0.1 * generator.normal(size=30)
        open_shops = 14 + month
        tables = [
            _month(generator, count, month, open_shops, weights, of_region, of_plan, of_shop)
            for count in (rows, test)
        ]
        (x, y), (x_test, y_test) = tables
        made.append((x, y, x_test, y_test))
    return made


def _month(
    generator: np.random.Generator,
    count: int,
    month: int,
    open_shops: int,
    weights: NDArray[np.float64],
    of_region: NDArray[np.float64],
    of_plan: NDArray[np.float64],
    of_shop: NDArray[np.float64],
) -> tuple[pd.DataFrame, NDArray[np.str_]]:
    price = np.exp(generator.normal(size=count) * 0.5 + 3 + 0.03 * month)
    age = generator.uniform(18, 80, count)
    visits = generator.poisson(4, count).astype(float)
    debt = generator.exponential(1000, count)
    tenure = generator.gamma(2, 12, count)
    load = generator.normal(size=count)
    usage = 0.6 * load + 0.8 * generator.normal(size=count)
    region, plan = generator.integers(6, size=count), generator.integers(4, size=count)
    shop = generator.integers(open_shops, size=count)
    effects = np.stack(
        [
            np.log(price) - 3,
            np.sin(age / 8),
            (age > 65) * 2.0,
            np.log1p(visits) - 1.5,
            (debt > 2000) * 1.5,
            np.sqrt(debt) / 20 - 1.3,
            np.exp(-tenure / 10) * 2 - 0.6,
            load * usage,
            load,
            (plan == 2) * usage,
        ]
    )
    risk = weights @ effects + of_region[region] + of_plan[plan] + of_shop[shop]
    y = np.where(risk + generator.logistic(size=count) > 0, "leaves", "stays")
    frame = pd.DataFrame(
        {
            "price": price,
            "age": age,
            "visits": visits,
            "debt": debt,
            "tenure": tenure,
            "load": load,
            "usage": usage,
            "region": pd.Categorical([f"region {r}" for r in region]),
            "plan": pd.Categorical([f"plan {p}" for p in plan]),
            "shop": pd.Categorical([f"shop {s}" for s in shop]),
        }
    )
    for name, share in {"debt": 0.1, "tenure": 0.15, "usage": 0.05}.items():
        gone = generator.random(count) < share * (1 + (plan == 1))
        frame.loc[gone, name] = np.nan
    return frame, y


def measure(seed: int, rows: int = ROWS, **parameters: Any) -> dict[str, Any]:
    """Both on the tables of one seed: mean over months of scores on that month's test rows."""
    tables = months(seed, rows)
    ours = LifelongClassifier(random_state=seed, **parameters)
    told: dict[str, dict[str, list[float]]] = {
        who: {"auroc": [], "accuracy": [], "seconds": []} for who in ("lifelong", "trees")
    }
    bytes_of_trees = 0
    for month, (x, y, x_test, y_test) in enumerate(tables, 1):
        began = time.perf_counter()
        ours.partial_fit(x, y, task=f"month {month}")
        told["lifelong"]["seconds"].append(time.perf_counter() - began)
        began = time.perf_counter()
        trees = HistGradientBoostingClassifier(random_state=seed).fit(x, y)
        told["trees"]["seconds"].append(time.perf_counter() - began)
        bytes_of_trees += len(pickle.dumps(trees))
        _score(told["trees"], y_test, trees.predict_proba(x_test), trees.classes_)
    for month, (_, _, x_test, y_test) in enumerate(
        tables, 1
    ):  # after all months: none is forgotten
        task = f"month {month}"
        p = ours.predict_proba(x_test, task=task)
        _score(told["lifelong"], y_test, p, ours.task_classes_[task])
    with tempfile.TemporaryDirectory() as place:
        ours.save(Path(place) / "model")
        size = sum(file.stat().st_size for file in (Path(place) / "model").iterdir())
    means = {who: {k: float(np.mean(v)) for k, v in each.items()} for who, each in told.items()}
    means["lifelong"]["bytes"], means["trees"]["bytes"] = size, bytes_of_trees
    return {"seed": seed, **means}


def _score(
    into: dict[str, list[float]], y: NDArray[Any], p: NDArray[Any], classes: NDArray[Any]
) -> None:
    into["auroc"].append(float(roc_auc_score(y == classes[1], p[:, 1])))
    into["accuracy"].append(float(accuracy_score(y, classes[p.argmax(axis=1)])))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--rows", type=int, default=ROWS, help="training rows per month")
    parser.add_argument("--out", type=Path)
    given = parser.parse_args()
    torch.set_num_threads(1)
    made = []
    for seed in range(given.seeds):
        made.append(measure(seed, given.rows))
        print(json.dumps(made[-1]), flush=True)
    mean = {
        who: {k: float(np.mean([one[who][k] for one in made])) for k in made[0][who]}
        for who in ("lifelong", "trees")
    }
    print(json.dumps(mean))
    if given.out:
        about = {"months": MONTHS, "rows": given.rows, "test rows": TEST}
        given.out.write_text(json.dumps({**about, "mean": mean, "seeds": made}, indent=1) + "\n")


if __name__ == "__main__":
    main()
