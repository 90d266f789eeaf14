"""
Bring your own network
======================

You take an ordinary ``nn.Module`` with convolutions, batch normalisation and a residual
connection, and let it grow. It needs ``pip install 'lifelong[experiments]'``.
"""

# %%
# The module
# ----------
# Nothing in it is special. Its last layer, the head, is a ``Linear``; every task gets a head of
# its own.

import matplotlib.pyplot as plt
import numpy as np
import torch
from torch import nn

import lifelong


class Net(nn.Module):
    """Two convolutions with a residual connection."""

    def __init__(self) -> None:
        super().__init__()
        self.conv1, self.norm1 = nn.Conv2d(1, 8, 3, padding=1), nn.BatchNorm2d(8)
        self.conv2, self.norm2 = nn.Conv2d(8, 8, 3, padding=1), nn.BatchNorm2d(8)
        self.wide = nn.Linear(8 * 4, 24)
        self.fc = nn.Linear(24, 1)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = torch.relu(self.norm1(self.conv1(x)))
        x = torch.relu(x + self.norm2(self.conv2(x)))
        x = nn.functional.adaptive_avg_pool2d(x, 2)
        return self.fc(torch.relu(self.wide(x.flatten(1))))


torch.manual_seed(0)
architecture = lifelong.grow(Net(), torch.randn(2, 1, 8, 8))
print(architecture.report())

# %%
# ``grow`` traced the module, found which of its dimensions run over the same units, and checked
# on the example that the traced network answers as the module does. A *group* is a set of units
# that grow together: the residual connection makes one group of the outputs of both convolutions.
#
# Three tasks
# -----------
# Images instead of vectors: the arrays of scikit-learn's digits, as 8 by 8 pixels with one channel.

from sklearn.datasets import load_digits

from lifelong import DEN, Budget, Settings, Task

images = torch.tensor(load_digits().images[:, None] / 8 - 1, dtype=torch.float32)
labels = torch.tensor(load_digits().target)
rows = torch.randperm(len(images), generator=torch.Generator().manual_seed(0))
train, valid, test = rows[:800], rows[800:1100], rows[1100:]


def asks(digit: int) -> Task:
    """Is it this digit?"""
    y = (labels == digit).long()
    parts = ((images[part], y[part]) for part in (train, valid, test))
    return Task(f"is it a {digit}?", *parts)


budget = Budget(steps=120, learning_rate=5e-3, check_every=20, patience=2)
learner = DEN(architecture, Settings(initial_width=0.5, budget=budget), seed=0)
for digit in (3, 8, 5):
    record = learner.learn(asks(digit))
    print(record.task, {group: found.units for group, found in record.groups.items()})

# %%
# The units of each group, by the task at which they were born:

figure, axes = plt.subplots(figsize=(6, 2.4), layout="constrained")
for number, colour in enumerate(("#005f87", "#ddaa33", "#aa3377"), start=1):
    counts = [int((born == number).sum()) for born in learner.network.born.values()]
    below = [int((born < number).sum()) for born in learner.network.born.values()]
    axes.barh(list(learner.network.born), counts, left=below, color=colour, label=f"task {number}")
axes.set(xlabel="units", title="who was born when")
axes.legend(frameon=False)

# %%
# How good is it on the rows that were held back?

from lifelong.evaluation.metrics import auroc

for digit in (3, 8, 5):
    task = asks(digit)
    answers = learner.predict_proba(images[test], task=task.name)
    score = auroc("binary", np.asarray(labels[test] == digit)[:, None], np.asarray(answers))
    print(task.name, f"AUROC {score:.2f}")

# %%
# When a module cannot be traced
# ------------------------------
# ``adapt`` runs the module's own code and needs no tracing. Its units cannot grow, but tasks can
# overwrite single weights: a *patch* (:doc:`../patches`). Use it for pretrained modules too.

adapted = lifelong.adapt(Net(), torch.randn(2, 1, 8, 8), head="fc")
patched = DEN(adapted, Settings(split="weights", budget=budget), seed=0)
for digit in (3, 8):
    record = patched.learn(asks(digit))
    print(record.task, sum(record.changed.values()), "weights overwritten")

# %%
# :doc:`../modules` says what grows and what does not, what happens to normalisation and dropout,
# and which methods take such networks.
