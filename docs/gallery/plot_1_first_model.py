"""
Your first model in ten minutes
===============================

You teach one network five tasks, one after another, watch what an ordinary network forgets and
what a growing one keeps, and save the model. It needs ``pip install 'lifelong[experiments]'`` and
no data: the images come with scikit-learn.
"""

# %%
# The tasks
# ---------
# A *task* is a question with labelled rows. Here each task is a handwritten digit: is it this
# digit, or another? A *stream* is the tasks in the order in which they arrive. When the second
# task arrives, the rows of the first are no longer there.

import matplotlib.pyplot as plt
import numpy as np

from lifelong.tasks.datasets import load

stream = load("digits", seed=0).first(5)
for task in stream:
    print(task.name, "-", len(task.train), "rows to learn from,", len(task.test), "to test on")

# %%
# An image has 8 by 8 pixels. These are the first positive rows of each task.

figure, panels = plt.subplots(1, 5, figsize=(7, 1.7))
for panel, task in zip(panels, stream, strict=True):
    row = int(np.flatnonzero(task.train.y[:, 0].numpy())[0])
    panel.imshow(task.train.x[row].reshape(8, 8), cmap="gray_r")
    panel.set_title(task.name, fontsize=9)
    panel.set_axis_off()

# %%
# An ordinary network forgets
# ---------------------------
# *Fine-tuning* trains one network on each task in turn. ``evaluate`` lets it learn the stream,
# and after each task scores every task learned so far. The score is AUROC: the probability that a
# positive row gets a higher answer than a negative one. 1 is perfect, 0.5 is guessing.

from lifelong import Budget, mlp
from lifelong.evaluation.evaluate import evaluate
from lifelong.learners.registry import METHODS

budget = Budget(steps=600, learning_rate=2e-3, check_every=20, patience=4)  # for small data
network = mlp(64, [64, 32])  # 64 pixels, two hidden layers
fine_tuned = METHODS["DNN"].make(network, budget=budget, seed=0)
forgets = evaluate(fine_tuned, stream)
print(forgets.matrix().round(3))

# %%
# Row i is the state after task i, column j is task j. Read a column downwards: the score of a
# task falls while later ones are learned.
#
# A growing network does not
# --------------------------
# ``DEN`` is a Dynamically Expandable Network. For each new task it selects the units that the
# task needs, retrains only these, adds units where that is not enough, and copies units that
# would change too much for the tasks before. :doc:`../den` explains how, with drawings.

from lifelong import DEN, Settings

learner = DEN(network, Settings(budget=budget), seed=0)
keeps = evaluate(learner, stream)
print(keeps.matrix().round(3))

# %%
# Every column is constant: the answers for a task are computed by the network *as of* that task,
# and nothing that the network used then has changed. This holds to the last bit.

figure, axes = plt.subplots(figsize=(7, 3), layout="constrained")
first = stream.names[0]
after = np.arange(1, len(stream) + 1)
axes.plot(after, forgets.curve(first), "s--", color="#aa3377", label="fine-tuning")
axes.plot(after, keeps.curve(first), "o-", color="#005f87", label="DEN")
axes.set(xlabel="tasks learned", ylabel=f"AUROC of {first}", xticks=after)
axes.legend(frameon=False)
axes.grid(alpha=0.3)

# %%
# What it cost
# ------------
# A growing network is larger in the end than it began. *Capacity* is what it stores, in bytes,
# over the bytes of one ordinary network with an output for each task.

size = learner.capacity().bytes
print(f"{size:,} bytes, {learner.relative_capacity():.2f} times the ordinary network")

# %%
# Each unit is stamped with the task at which it was born. A row of the picture is a task, a
# column a unit, and the colour of a unit is its birth: later tasks read many units of earlier
# ones, and bring some of their own.

figure, panels = plt.subplots(1, 2, figsize=(7, 2.2), layout="constrained", width_ratios=[3, 2])
for panel, (layer, used) in zip(panels, learner.sharing().used.items(), strict=True):
    born = learner.network.born[layer].numpy()
    panel.imshow(np.where(used, born, np.nan), cmap="viridis", vmin=1, vmax=5, aspect="auto")
    panel.set(title=layer, xlabel="units, in order of birth", yticks=range(5))
panels[0].set_yticklabels(stream.names)
panels[1].set_yticklabels([])

# %%
# Predict, save, load
# -------------------
# A prediction names its task. A saved model is a directory with tensors and JSON; it contains no
# code.

import tempfile

test = next(iter(stream)).test.x[:3]
with tempfile.TemporaryDirectory() as place:
    learner.save(f"{place}/model")
    again = DEN.load(f"{place}/model")
print(again.tasks)
print(again.predict_proba(test, task=first).equal(learner.predict_proba(test, task=first)))

# %%
# Where to go from here: :doc:`plot_2_csv_to_server` for tables of your own,
# :doc:`plot_3_own_network` for a network of your own, :doc:`../choosing` for other methods.
