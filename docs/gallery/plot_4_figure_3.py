"""
Reproduce Figure 3 in an hour
=============================

Figure 3 of the paper compares DEN with other methods, over the tasks and over the size of the
network. You make a small version of it in seconds, then see what the whole one takes. It needs
``pip install 'lifelong[experiments]'``.
"""

# %%
# A recipe
# --------
# A *recipe* is a whole experiment: data, network, methods, settings, seeds. It has two sizes, the
# paper's and a small one. ``rehearsal`` is Figure 3 on scikit-learn's digits and needs no files.

import tempfile
from pathlib import Path

from lifelong.experiments.recipes import recipe

chosen = recipe("rehearsal", "small")
print(chosen.title)
print("small:", chosen.reduced)
print(", ".join(dict.fromkeys(entry.method for entry in chosen.entries)))

# %%
# Make the runs
# -------------
# On the command line: ``lifelong run rehearsal --methods DEN DNN DNN-EWC --parts tasks --seeds
# 0``. A run is stored when it is finished, and is never made twice; after Ctrl-C or a kill the
# same command resumes. The command makes several runs at once, in processes of their own; here
# they are made one by one.

from lifelong.experiments.collect import collect
from lifelong.experiments.perform import perform
from lifelong.experiments.runner import jobs_of

out = Path(tempfile.mkdtemp())
methods = ("DEN", "DNN", "DNN-EWC")
for job in jobs_of(chosen, seeds=(0,), methods=methods, parts=("tasks",), out=out, device="cpu"):
    perform(job)

# %%
# A table of them, as ``lifelong table rehearsal`` prints it:

from lifelong.reproduction.measured import rows

found = collect(chosen, out, seeds=(0,), methods=methods, parts=("tasks",)).measured
for row in rows(found):
    print(f"{row.label:10} AUROC {row.auroc.value:.2f}  capacity {row.capacity.value:.2f}")

# %%
# The whole figure
# ----------------
# This is what to type for one seed with the paper's network and data:
#
# .. code-block:: text
#
#     lifelong run figure3-variation --size paper --seeds 0
#     lifelong table figure3-variation --size paper
#     lifelong figure figure3-variation --size paper
#
# The finished runs are stored with the project. They tell how long that takes, and the figure can
# be drawn at once. Filled marks are means over seeds, hollow ones a single seed, bands one
# standard error.

import matplotlib.pyplot as plt

from lifelong.reproduction.figures import write_figure

paper = recipe("figure3-variation", "paper")
stored = collect(paper, Path.cwd().parent.parent / "results", seeds=paper.seeds).measured
seconds = sum(each.run.summary.seconds for each in stored if each.run.seed == 0)
print(f"seed 0: {seconds / 60:.0f} minutes of learning on one core")
(file,) = write_figure(paper.name, paper.size, stored, out, ("png",))
figure = plt.figure(figsize=(8, 8 * 0.52))
figure.add_axes((0, 0, 1, 1)).imshow(plt.imread(file))
figure.axes[0].set_axis_off()

# %%
# The data here is a look-alike of the paper's, so that only comparisons between methods carry
# over, not absolute numbers. :doc:`../reproduction` gives each claim of the paper a verdict;
# :doc:`../experiments` describes recipes, stored runs and how settings are chosen.
