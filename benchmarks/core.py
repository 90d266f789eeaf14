"""The figures of docs/results.md: DEN against the batch models, and what each step adds.

    python benchmarks/core.py run mnist-variation --seeds 0 1 2 3 4
    python benchmarks/core.py run permuted-mnist --seeds 0 1 2 3 4 --methods DEN
    python benchmarks/core.py table

A run is one method on one stream with one seed. It is stored in results/core as JSON; a run that is
there is not done again, so that an interrupted command can simply be repeated. Use one thread
(OMP_NUM_THREADS=1) and one process a core.
"""

import argparse
import time
from collections.abc import Callable
from pathlib import Path

import msgspec
import numpy as np
import torch

from lifelong import DEN, Settings, mlp
from lifelong.evaluation.evaluate import evaluate, score
from lifelong.learners.base import Learner
from lifelong.learners.baselines import Joint, Single, TrainingSettings
from lifelong.learners.den import variants
from lifelong.tasks.datasets import load
from lifelong.tasks.streams import Stream

STORE = Path(__file__).resolve().parent.parent / "results" / "core"
WIDTHS = (312, 128)  # the paper's
LEARNED: dict[tuple[str, Settings, int], DEN] = {}  # for DEN-Finetune, which starts from DEN


class Run(msgspec.Struct):
    """One method on one stream with one seed; AUROC of each task at the end, on test rows."""

    method: str
    data: str
    seed: int
    source: str
    tasks: list[str]
    auroc: list[float]
    just_learned: list[float]
    accuracy: list[float]
    valid_loss: list[float]
    relative_capacity: float
    nonzero: int
    seconds: float


def den(settings: Settings) -> Callable[[Stream, int], Run]:
    def run(stream: Stream, seed: int) -> Run:
        start = time.perf_counter()
        learner = DEN(mlp(784, WIDTHS), settings, seed=seed)
        matrix = evaluate(learner, stream)
        LEARNED[stream.source, settings, seed] = learner
        final = matrix.scores["auroc"][-1]
        just = np.diag(matrix.scores["auroc"])
        accuracy = matrix.scores["accuracy"][-1]
        return report(learner, stream, seed, start, final, just, accuracy)

    return run


def single(training: TrainingSettings) -> Callable[[Stream, int], Run]:
    def run(stream: Stream, seed: int) -> Run:
        start = time.perf_counter()
        learner = Single(mlp(784, WIDTHS), training, seed=seed)
        for task in stream:
            learner.learn(task)
        return report_at_end(learner, stream, seed, start)

    return run


def joint(training: TrainingSettings) -> Callable[[Stream, int], Run]:
    def run(stream: Stream, seed: int) -> Run:
        start = time.perf_counter()
        learner = Joint(mlp(784, WIDTHS), training, seed=seed)
        learner.learn_together(list(stream))
        return report_at_end(learner, stream, seed, start)

    return run


def joint_so_far(training: TrainingSettings) -> Callable[[Stream, int], Run]:
    """Each task by a network that has learned it together with all tasks before it.

    What any learner could hope for that keeps all data, and never changes an answer it has given.
    """

    def run(stream: Stream, seed: int) -> Run:
        start, tasks, scores = time.perf_counter(), list(stream), []
        for number, task in enumerate(tasks, 1):
            learner = Joint(mlp(784, WIDTHS), training, seed=seed)
            learner.learn_together(tasks[:number])
            assert task.test is not None
            scores.append(
                score(learner, task.name, task.test, kind=task.kind, outputs=task.outputs)
            )
        final, accuracy = ([s[name] for s in scores] for name in ("auroc", "accuracy"))
        return report(learner, stream, seed, start, final, final, accuracy)

    return run


def finetuned(stream: Stream, seed: int) -> Run:
    start = time.perf_counter()
    learner = LEARNED.pop((stream.source, Settings(), seed), None)
    if learner is None:
        learner = DEN(mlp(784, WIDTHS), seed=seed)
        for task in stream:
            learner.learn(task)
    learner.finetune(list(stream))
    return report_at_end(learner, stream, seed, start)


def report_at_end(learner: Learner, stream: Stream, seed: int, start: float) -> Run:
    scores = [score(learner, t.name, t.test, kind=t.kind, outputs=t.outputs) for t in stream]
    final, accuracy = ([s[name] for s in scores] for name in ("auroc", "accuracy"))
    return report(learner, stream, seed, start, final, final, accuracy)


def report(learner: Learner, stream: Stream, seed: int, start: float, *scores: object) -> Run:
    final, just, accuracy = ([float(v) for v in column] for column in scores)
    return Run(
        method="",
        data="",
        seed=seed,
        source=stream.source,
        tasks=list(learner.tasks),
        auroc=final,
        just_learned=just,
        accuracy=accuracy,
        valid_loss=[record.loss for record in learner.records],
        relative_capacity=learner.relative_capacity(),
        nonzero=learner.capacity().nonzero,
        seconds=time.perf_counter() - start,
    )


METHODS: dict[str, Callable[[Stream, int], Run]] = {
    "DEN": den(Settings()),
    "DEN-Finetune": finetuned,
    "DNN-STL": single(TrainingSettings()),
    "DNN-MTL": joint(TrainingSettings()),
    "DNN-MTL of the tasks so far": joint_so_far(TrainingSettings()),
    "DNN-STL without l1": single(TrainingSettings(mu=0.0)),
    "DNN-MTL without l1": joint(TrainingSettings(mu=0.0)),
    "DEN without teaching": den(Settings(distillation=0.0)),
    "DEN without expansion": den(Settings(expand=False)),
    "DEN started at full width": den(Settings(initial_width=1.0)),
    "newcomers only": den(variants.newcomers_only()),
    "DNN-L2-Selective": den(variants.selective_only()),
    "DEN-Dynamic": den(variants.dynamic()),
    "DEN-No-Stamp": den(variants.no_stamp()),
    "DEN to the letter": den(variants.paper_settings()),
}


def run_all(data: str, seeds: list[int], methods: list[str]) -> None:
    for seed in seeds:
        stream = load(data, seed=seed)
        for method in methods:
            file = STORE / f"{data}_{method.replace(' ', '-')}_{seed}.json"
            if file.exists():
                continue
            run = METHODS[method](stream, seed)
            run.method, run.data = method, data
            file.parent.mkdir(parents=True, exist_ok=True)
            aside = file.with_suffix(".partial")
            aside.write_bytes(msgspec.json.encode(run))
            aside.replace(file)
            print(f"{data} {method} seed {seed}: AUROC {np.mean(run.auroc):.4f}", flush=True)


def table() -> None:
    runs = [msgspec.json.decode(p.read_bytes(), type=Run) for p in sorted(STORE.glob("*.json"))]
    for data in sorted({run.data for run in runs}):
        print(f"\n{data}: {next(run.source for run in runs if run.data == data)}\n")
        print("| method | AUROC | forgetting, points | capacity | non-zero | seconds | seeds |")
        print("|---|---|---|---|---|---|---|")
        for method in METHODS:
            chosen = [run for run in runs if (run.data, run.method) == (data, method)]
            if chosen:
                print(row(method, chosen))
        position(data, runs)


def row(method: str, runs: list[Run]) -> str:
    auroc = np.array([np.mean(run.auroc) for run in runs])
    error = auroc.std(ddof=1) / len(auroc) ** 0.5 if len(auroc) > 1 else float("nan")
    lost = [np.mean(np.subtract(run.just_learned, run.auroc)[:-1]) * 100 for run in runs]
    cells = (
        f"{auroc.mean():.4f} ± {error:.4f}",
        f"{np.mean(lost):.2f}",
        f"{np.mean([run.relative_capacity for run in runs]):.3f}",
        f"{np.mean([run.nonzero for run in runs]):,.0f}",
        f"{np.mean([run.seconds for run in runs]):.0f}",
        f"{len(runs)}",
    )
    return f"| {method} | " + " | ".join(cells) + " |"


def position(data: str, runs: list[Run]) -> None:
    """How far DEN is on the way from STL up to MTL, seed by seed."""
    mean = {(r.method, r.seed): float(np.mean(r.auroc)) for r in runs if r.data == data}
    seeds = sorted(s for m, s in mean if m == "DEN" and ("DNN-STL", s) in mean)
    ways = [
        (mean["DEN", s] - mean["DNN-STL", s]) / (mean["DNN-MTL", s] - mean["DNN-STL", s])
        for s in seeds
        if ("DNN-MTL", s) in mean
    ]
    if ways:
        print(f"\nDEN's place between STL (0) and MTL (1): {np.mean(ways):.2f}, {len(ways)} seeds")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    commands = parser.add_subparsers(dest="command", required=True)
    run = commands.add_parser("run")
    run.add_argument("data", choices=["mnist-variation", "permuted-mnist"])
    run.add_argument("--seeds", type=int, nargs="+", default=[0, 1, 2, 3, 4])
    run.add_argument("--methods", nargs="+", choices=METHODS, default=list(METHODS)[:4])
    commands.add_parser("table")
    given = parser.parse_args()
    torch.set_num_threads(1)
    if given.command == "table":
        table()
    else:
        run_all(given.data, given.seeds, given.methods)


if __name__ == "__main__":
    main()
