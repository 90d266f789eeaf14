"""
From a CSV per month to a served model
======================================

Every month brings a table of customers, with a column that says who left. You learn the months one
after another without keeping old tables, write the model as an ONNX file, and ask it over HTTP. It
needs ``pip install 'lifelong[tables,export,serve]' pandas matplotlib``.
"""

# %%
# Three months
# ------------
# The tables are made up by a seeded function, so that this page can be built anywhere. What makes
# customers leave changes from month to month, a new town appears in May, and some ages are missing.

import tempfile
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd

MONTHS = ("march", "april", "may")
place = Path(tempfile.mkdtemp())


def customers(month: str, seed: int, rows: int = 500) -> pd.DataFrame:
    """Customers of a month: first the young leave, later those who pay much."""
    number = MONTHS.index(month)
    generator = np.random.default_rng([seed, number])
    age = generator.uniform(18, 80, rows)
    price = generator.gamma(4, 10, rows)
    town = generator.choice(["Bern", "Chur", "Genf"][: 2 + (month == "may")], rows)
    risk = (number - 1) * (price / 20 - 2) - (2 - number) * (age - 45) / 15 + (town == "Chur")
    left = np.where(risk + generator.normal(size=rows) > 0, "yes", "no")
    age[generator.random(rows) < 0.05] = np.nan
    return pd.DataFrame({"age": age, "price": price, "town": town, "left": left}).round(1)


for month in MONTHS:
    customers(month, seed=0).to_csv(place / f"{month}.csv", index=False)
print((place / "march.csv").read_text()[:100])

# %%
# Learn month after month
# -----------------------
# ``LifelongClassifier`` follows scikit-learn's conventions; each ``partial_fit`` learns one more
# task. Scaling, missing values and categories are its business, and are saved with the model.

from lifelong import Budget, LifelongClassifier

model = LifelongClassifier(budget=Budget(steps=600, check_every=20, patience=4))
for month in MONTHS:
    table = pd.read_csv(place / f"{month}.csv")
    model.partial_fit(table.drop(columns="left"), table["left"], task=month)
    model.save(place / "model")
print(model.tasks, f"{model.learner_.capacity().bytes:,} bytes")

# %%
# On the command line the same is ``lifelong learn model march.csv --target left``, then
# ``april.csv``, and so on: it makes the model if there is none, and resumes after a kill.
#
# Every month's answer stays available. Each row below is a month that was learned, each column
# new customers of a month; the score is the share of correct answers. The diagonal is what
# counts, and the rest shows that the months do differ.

fresh = [customers(month, seed=1) for month in MONTHS]
scores = np.array(
    [
        [model.score(rows.drop(columns="left"), rows["left"], task=task) for rows in fresh]
        for task in MONTHS
    ]
)
figure, axes = plt.subplots(figsize=(4, 3), layout="constrained")
axes.imshow(scores, cmap="Blues", vmin=0.3, vmax=1)
for (row, column), score in np.ndenumerate(scores):
    axes.text(column, row, f"{score:.2f}", ha="center", color="white" if score > 0.7 else "black")
axes.set(xticks=range(3), xticklabels=MONTHS, yticks=range(3), yticklabels=MONTHS)
axes.set(xlabel="new customers of", ylabel="answered as of")

# %%
# A file for other runtimes
# -------------------------
# An ONNX file takes the columns as they are. Before it is written it is run, and must answer as
# the model does.

from lifelong.deployment.export import export

made = export(model, place / "may.onnx", task="may")
print(f"largest difference from the model's own answers: at most 1e-5: {made.difference <= 1e-5}")

# %%
# A server
# --------
# ``lifelong serve model --port 8000`` serves a saved model, and takes over a newly saved one
# without losing a request. Here the same server runs in a thread.

import json
import socket
import threading
from urllib.request import Request, urlopen

import uvicorn

from lifelong.deployment.serving import make_app

listening = socket.create_server(("127.0.0.1", 0))
server = uvicorn.Server(uvicorn.Config(make_app(place / "model"), log_level="critical"))
thread = threading.Thread(target=server.run, kwargs={"sockets": [listening]})
thread.start()
address = f"http://127.0.0.1:{listening.getsockname()[1]}/predict"
asked = {"task": "may", "rows": [{"age": 30, "price": 90, "town": "Genf"}]}
answer = urlopen(Request(address, json.dumps(asked).encode(), {"content-type": "application/json"}))
print(json.loads(answer.read())["labels"])
server.should_exit = True
thread.join()

# %%
# :doc:`../tables` has the rules for columns, and what to do with rows whose month is not known;
# :doc:`../deploy` has the formats, the server's options and watchers.
