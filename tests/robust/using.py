"""What a user does with a model that was loaded: predict, learn, save, load again, look at it."""

import io
import tempfile
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any, TypeAlias

import msgspec
import numpy as np
import torch
from rich.console import Console

from lifelong.estimator.base import LifelongEstimator
from lifelong.evaluation.measure import model_run
from lifelong.evaluation.runs import Run
from lifelong.learners.base import Learner
from lifelong.learners.baselines import Joint
from lifelong.networks.adapted import Adapted
from lifelong.networks.growing import LearnedTask
from lifelong.persistence.files import digest, digest_of
from lifelong.persistence.models import Contents, _described, _manifest
from lifelong.report.inspection import show
from lifelong.report.page import page
from lifelong.tasks.kinds import Kind
from lifelong.tasks.task import Task
from lifelong.training.budget import Budget

Model: TypeAlias = "Learner[Any] | LifelongEstimator"
QUICK = Budget(steps=4, batch_size=16, check_every=2, patience=1)
ROWS = 16


def use(model: Model, load: Callable[[str | Path], Model], report: bool = False) -> None:
    """All of it; a model that was loaded must bear it. `report` takes much longer than the rest."""
    predict_all(model)
    learn_one_more(model)
    with tempfile.TemporaryDirectory() as place:
        model.save(place)
        again = load(place)
        learner = _learner(again)
        assert learner.tasks == _learner(model).tasks
        predict_all(again)
        if learner.tasks and not isinstance(learner.network.architecture, Adapted):
            inspect(model_run(Path(place)), report)


def inspect(run: Run, report: bool) -> None:
    show(run, Console(file=io.StringIO(), width=100))
    if report:
        page([run])


def state_key(model: Model) -> str:
    """Checksum of all that a loaded model is: its answers and what it learns depend on no more."""
    learner = _learner(model)
    network, method, seed = learner.network, learner.method, learner.seed
    contents = Contents(network, learner.records, learner.attached)
    about = {"shapes": {}, "bytes": 0, "sha256": ""}
    facts = _manifest(contents, method=method, seed=seed, settings=learner.settings, **about)
    tasks = [_described(known) for known in network.tasks]
    return digest(
        msgspec.json.encode((facts, tasks, learner.records)),
        digest_of({**contents.together(()), **network.stored_by_tasks(0)}).encode(),
    )


def predict_all(model: Model) -> None:
    """For every task, or for the first and the last few of very many."""
    tasks = model.tasks if len(model.tasks) <= 20 else (*model.tasks[:10], *model.tasks[-10:])
    for name in tasks:
        if isinstance(model, Learner):
            model.predict(_inputs(model, 2), task=name)
        else:
            model.predict(_table(model, 2), task=name)
    if not isinstance(model, Learner):
        model.predict(_table(model, 2))  # of whichever tasks are found
        model.find_task(_table(model, 2))


def learn_one_more(model: Model) -> None:
    name = "one more"
    while name in model.tasks:
        name += "!"
    if not isinstance(model, Learner):
        x = _table(model, ROWS)
        y = np.arange(ROWS) % 2
        model.partial_fit(x, y.astype(float) if _is_regressor(model) else y, task=name)
        return
    if isinstance(model, Joint):
        return  # it learns all tasks at once
    # How long a training takes is for the settings to say.
    budget = replace(model.settings.budget, steps=2, batch_size=ROWS, epochs=None)
    quick = model.with_settings(replace(model.settings, budget=budget))
    quick.learn(_task(model, name))
    model._learned = quick._learned


def _task(model: Learner[Any], name: str) -> Task:
    first = model.network.tasks[0] if model.network.tasks else None
    one_head = getattr(model.settings, "heads", "own") == "one" and first is not None
    x = _inputs(model, ROWS)
    if not one_head:
        y = torch.arange(ROWS) % 2
        return Task(name, (x, y), (x, y))
    assert first is not None
    y = _labels(first)
    return Task(name, (x, y), (x, y), kind=first.kind, outputs=first.outputs)


def _labels(first: LearnedTask) -> torch.Tensor:
    if first.kind is Kind.CLASSES:
        return torch.arange(ROWS) % first.outputs + first.first
    y = (torch.arange(ROWS)[:, None] + torch.arange(first.outputs)) % 2
    return y.float() if first.kind.is_regression else y


def _inputs(model: Learner[Any], rows: int) -> torch.Tensor:
    draw = torch.Generator().manual_seed(5)
    return torch.randn(rows, *model.network.architecture.layout.inputs, generator=draw)


def _learner(model: Model) -> Learner[Any]:
    return model if isinstance(model, Learner) else model.learner_


def _is_regressor(model: LifelongEstimator) -> bool:
    return model.front == "regressor"


def _table(model: LifelongEstimator, rows: int) -> Any:
    return np.random.default_rng(5).normal(size=(rows, model.n_features_in_))
