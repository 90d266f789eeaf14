"""Random sequences of operations against a simple truth: a learner is what its history says.

The history of a learner is the list of what it has learned successfully. Two learners with the same
history are the same to the bit, whatever failed, was stopped, saved or loaded on the way; and a
directory holds the last model that was saved there.
"""

import os
import tempfile
from pathlib import Path
from typing import Any, TypeAlias

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, precondition, rule
from torch import Tensor

from builders import (
    CountedExamples,
    answers,
    contents,
    inputs_for,
    quick,
    same,
    small_mlp,
    task_for,
    with_rows,
)
from lifelong.learners.den import DEN
from lifelong.persistence import checkpoint as journal
from lifelong.persistence.manifest import ModelFileError
from lifelong.tasks.kinds import TaskError
from lifelong.training.budget import Budget

History: TypeAlias = tuple[str, ...]
SETTINGS = quick(
    budget=Budget(steps=8, batch_size=16, learning_rate=0.02, check_every=4, patience=2)
)
NAMES = ("a", "b", "c", "d")
TASKS = {
    name: task_for(small_mlp(), kind, seed, name)
    for seed, (name, kind) in enumerate(
        zip(NAMES, ("one output", "subtasks", "one output", "subtasks"), strict=True)
    )
}
X = inputs_for(small_mlp(), 7)
TRUTH: dict[History, dict[str, Tensor]] = {}  # what a history comes to, as it was found first


def state(learner):
    return {**contents(learner), **{f"p {n}": p for n, p in answers(learner, X).items()}}


def _from(name, breaks_at=None):
    task = TASKS[name]
    return with_rows(task, train=CountedExamples(task.train, breaks_at, KeyboardInterrupt))


class Histories(RuleBasedStateMachine):
    def __init__(self):
        super().__init__()
        self.home = tempfile.TemporaryDirectory()
        self.learner, self.history = DEN(small_mlp(), SETTINGS), ()
        self.saved: dict[str, History] = {}  # by directory
        self.known: set[str] = set()  # where this learner loaded or saved it
        self.others = 0
        self.patch = pytest.MonkeyPatch()
        self.patch.setattr(journal, "APART", 0)
        self.patch.setattr(os, "fsync", lambda _: None)

    def teardown(self):
        self.patch.undo()
        self.home.cleanup()

    def path(self, name):
        return Path(self.home.name) / name

    def checkpoint(self, name):
        return self.path("checkpoint of " + " ".join([*self.history, name]))

    def agree(self, learner, history):
        found = state(learner)
        assert same(found, TRUTH.setdefault(history, found)), history
        assert learner.tasks == tuple(one for one in history if one in NAMES)

    @rule(name=st.sampled_from(NAMES), checkpoint=st.booleans())
    def learn(self, name, checkpoint):
        """With a checkpoint, perhaps go on from where it was broken off."""
        if name in self.history:
            with pytest.raises(TaskError, match="learned already"):
                self.learner.learn(TASKS[name])
        else:
            self.learner.learn(
                _from(name), checkpoint=self.checkpoint(name) if checkpoint else None
            )
            self.history = (*self.history, name)
        self.agree(self.learner, self.history)

    @rule(name=st.sampled_from(NAMES), at=st.integers(1, 30), checkpoint=st.booleans())
    def fail(self, name, at, checkpoint):
        """Break off in the midst of it."""
        if name in self.history:
            return
        try:
            place = self.checkpoint(name) if checkpoint else None
            self.learner.learn(_from(name, breaks_at=at), checkpoint=place)
        except KeyboardInterrupt:
            pass
        else:
            self.history = (*self.history, name)
        self.agree(self.learner, self.history)

    @precondition(lambda self: self.learner.tasks)
    @rule()
    def finetune(self):
        self.learner.finetune([TASKS[name] for name in self.learner.tasks])
        self.history = (*self.history, "finetuned")
        self.agree(self.learner, self.history)

    @rule(name=st.sampled_from("xy"), overwrite=st.booleans())
    def save(self, name, overwrite):
        mine = name not in self.saved or name in self.known
        if mine or overwrite:
            self.learner.save(self.path(name), overwrite=overwrite)
            self.saved[name] = self.history
            self.known.add(name)
        else:
            with pytest.raises(ModelFileError, match="in the meantime"):
                self.learner.save(self.path(name))
        if name in self.saved:
            self.agree(DEN.load(self.path(name)), self.saved[name])

    @rule(name=st.sampled_from("xy"))
    def save_by_another(self, name):
        self.others += 1
        other = DEN(small_mlp(), SETTINGS, seed=self.others)
        other.save(self.path(name), overwrite=True)
        self.saved[name] = (f"another's with seed {self.others}",)
        self.known.discard(name)

    @rule(name=st.sampled_from("xy"))
    def load(self, name):
        if name not in self.saved:
            with pytest.raises(ModelFileError):
                DEN.load(self.path(name))
            return
        self.learner, self.history = DEN.load(self.path(name)), self.saved[name]
        self.known = {name}
        self.agree(self.learner, self.history)

    @rule()
    def predict(self):
        self.agree(self.learner, self.history)


TestHistories: Any = Histories.TestCase
TestHistories.settings = settings(max_examples=12, stateful_step_count=10, deadline=None)
