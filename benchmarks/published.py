"""The baselines against published figures: Permuted MNIST, one head for all tasks.

    python benchmarks/published.py run EWC --seed 1           # the published strength, test rows
    python benchmarks/published.py try EWC --strength 1000    # another: 4 tasks, validation rows
    python benchmarks/published.py table

The set-up is that of van de Ven and Tolias (2019), domain-incremental: two hidden layers of 1,000,
images padded to 32 x 32, pixels from 0 to 1, Adam 1e-4, batch 256, 5,000 steps a task, no early
stopping, ten tasks. The strengths, Fisher's information over all labels and an Adam that goes on
from task to task are those of the authors' released code. "EWC-anew" starts Adam anew for each
task; "EWC-sampled" does so too, and draws a label for each example.
Every outcome is a JSON file in results/published; what is there is not done again.
"""

import argparse
import time
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import torch

from lifelong import Budget, mlp
from lifelong.evaluation.evaluate import evaluate
from lifelong.learners.base import Learner
from lifelong.learners.baselines import (
    EWC,
    SI,
    EWCSettings,
    Finetuning,
    SequentialSettings,
    SISettings,
)
from lifelong.tasks.datasets import load

STORE = Path(__file__).resolve().parent.parent / "results" / "published"
BUDGET = Budget(steps=5000, batch_size=256, learning_rate=1e-4, check_every=5000)
PUBLISHED = {
    "DNN": "0.7851 ± 0.0024",
    "EWC": "0.9431 ± 0.0011",
    "EWC-anew": "0.9431 ± 0.0011",
    "EWC-sampled": "0.9431 ± 0.0011",
    "SI": "0.9533 ± 0.0011",
}
STRENGTHS = {"DNN": 0.0, "EWC": 100.0, "EWC-anew": 100.0, "EWC-sampled": 100.0, "SI": 10.0}
EWCS: dict[str, Any] = {
    "EWC": {"adam": "carried"},
    "EWC-anew": {},
    "EWC-sampled": {"labels": "sampled"},
}
TRIED = ("EWC", "EWC-sampled", "SI")
TRIED_ON = 100
TRIED_TASKS = 4


class Outcome(msgspec.Struct):
    """Mean accuracy over the tasks after the last; `rows` says on which part of the data."""

    method: str
    strength: float
    seed: int
    tasks: int
    rows: str
    accuracy: float
    by_task: list[float]
    just_learned: list[float]
    seconds: float


def learner(method: str, strength: float, seed: int) -> Learner[Any]:
    base: dict[str, Any] = {"mu": 0.0, "heads": "one", "budget": BUDGET}
    network = mlp(32 * 32, [1000, 1000])
    if method in EWCS:
        return EWC(network, EWCSettings(strength=strength, **EWCS[method], **base), seed=seed)
    if method == "SI":
        return SI(network, SISettings(strength=strength, **base), seed=seed)
    return Finetuning(network, SequentialSettings(**base), seed=seed)


def outcome(method: str, strength: float, seed: int, tasks: int, rows: str) -> Outcome:
    file = STORE / f"{rows}_{method}_{strength:g}_{seed}.json"
    if file.exists():
        return msgspec.json.decode(file.read_bytes(), type=Outcome)
    stream = load("permuted-mnist", seed, standardise="range", padding=2).first(tasks)
    given = stream.validated() if rows == "valid" else stream
    start = time.perf_counter()
    scores = evaluate(learner(method, strength, seed), given).scores["accuracy"]
    found = Outcome(
        method=method,
        strength=strength,
        seed=seed,
        tasks=tasks,
        rows=rows,
        accuracy=float(scores[-1].mean()),
        by_task=scores[-1].tolist(),
        just_learned=np.diag(scores).tolist(),
        seconds=time.perf_counter() - start,
    )
    STORE.mkdir(parents=True, exist_ok=True)
    aside = file.with_suffix(".partial")
    aside.write_bytes(msgspec.json.encode(found))
    aside.replace(file)
    return found


def stored(rows: str, method: str) -> list[Outcome]:
    files = sorted(STORE.glob(f"{rows}_{method}_*.json"))
    return [msgspec.json.decode(file.read_bytes(), type=Outcome) for file in files]


def table() -> None:
    print("| method | published | ours | just learned | strength | seeds |")
    print("|---|---|---|---|---|---|")
    for method, published in PUBLISHED.items():
        runs = stored("test", method)
        for strength in sorted({run.strength for run in runs}):
            print(_line(method, published, [run for run in runs if run.strength == strength]))
    for method in TRIED:
        tried = sorted(stored("valid", method), key=lambda one: one.strength)
        shown = ", ".join(f"{one.strength:g}: {one.accuracy:.4f}" for one in tried)
        if tried:
            print(f"\n{method} tried on {TRIED_TASKS} tasks of seed {TRIED_ON}: {shown}")


def _line(method: str, published: str, runs: list[Outcome]) -> str:
    ours = np.array([run.accuracy for run in runs])
    error = f" ± {ours.std(ddof=1) / len(ours) ** 0.5:.4f}" if len(ours) > 1 else ""
    fresh = np.mean([run.just_learned for run in runs])
    seeds = ", ".join(str(run.seed) for run in runs)
    return (
        f"| {method} | {published} | {ours.mean():.4f}{error} | {fresh:.4f} "
        f"| {runs[0].strength:g} | {seeds} |"
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    commands = parser.add_subparsers(dest="command", required=True)
    attempt = commands.add_parser("try")
    attempt.add_argument("method", choices=TRIED)
    attempt.add_argument("--strength", type=float, nargs="+", required=True)
    run = commands.add_parser("run")
    run.add_argument("method", choices=PUBLISHED)
    run.add_argument("--seed", type=int, nargs="+", default=[1])
    commands.add_parser("table")
    given = parser.parse_args()
    torch.set_num_threads(1)
    if given.command == "table":
        table()
    elif given.command == "try":
        for strength in given.strength:
            print(outcome(given.method, strength, TRIED_ON, TRIED_TASKS, "valid"), flush=True)
    else:
        for seed in given.seed:
            print(outcome(given.method, STRENGTHS[given.method], seed, 10, "test"), flush=True)


if __name__ == "__main__":
    main()
