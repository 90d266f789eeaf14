"""A saved model behind HTTP: what it answers, what it refuses, and how a newer one takes over."""

import http.client
import json
import logging
import socket
import threading
import time
from contextlib import contextmanager

import numpy as np
import pandas as pd
import pytest
import uvicorn

from builders import inputs_for, quick, small_convnet, small_mlp, stream_for
from lifelong import DEN, Budget, LifelongClassifier, LifelongRegressor, Task
from lifelong.cli.main import main
from lifelong.deployment import answering, serving
from lifelong.deployment.serving import make_app

X = inputs_for(small_mlp(), 3)
ROWS = X.tolist()


def grown(tasks=2, seed=0):
    learner = DEN(small_mlp(), quick(), seed=seed)
    for task in stream_for(small_mlp(), *["one output", "classes", "subtasks"][:tasks]):
        learner.learn(task)
    return learner


@pytest.fixture(scope="module")
def learner():
    return grown()


@pytest.fixture(scope="module")
def model(learner, tmp_path_factory):
    path = tmp_path_factory.mktemp("model")
    learner.save(path)
    return path


@contextmanager
def running(path, **options):
    """A real server in a thread; how to ask it."""
    own = socket.socket()
    own.bind(("127.0.0.1", 0))
    own.listen()
    app = make_app(path, **{"poll": 0.02, **options})
    server = uvicorn.Server(uvicorn.Config(app, lifespan="on", log_level="critical", ws="none"))
    thread = threading.Thread(target=server.run, kwargs={"sockets": [own]})
    thread.start()
    connection = http.client.HTTPConnection(*own.getsockname(), timeout=10)

    def ask(body=None, path="/predict", method="POST", **headers):
        sent = json.dumps(body).encode() if isinstance(body, dict) else body
        given = {"content-type": "application/json", **headers}
        connection.request(method, path, sent, given)
        answer = connection.getresponse()
        content = answer.read()
        kind = answer.headers["content-type"]
        return answer.status, json.loads(
            content
        ) if kind == "application/json" else content.decode()

    try:
        yield ask
    finally:
        connection.close()
        server.should_exit = True
        thread.join()
        own.close()


@pytest.fixture(scope="module")
def ask(model):
    with running(model, most_bytes=20_000) as asked:
        yield asked


@pytest.mark.parametrize("task", ["task 1", "task 2"])
def test_it_answers_as_the_learner_does(learner, ask, task):
    status, found = ask({"task": task, "rows": ROWS})
    assert status == 200
    assert found["task"] == task
    expected = learner.predict_proba(X, task=task)
    np.testing.assert_array_equal(np.float32(found["probabilities"]), expected)
    assert found["labels"] == learner.predict(X, task=task).tolist()


def test_many_rows_are_computed_beside_the_others(learner, ask, monkeypatch):
    monkeypatch.setattr(serving, "AT_ONCE_ROWS", 1)
    status, found = ask({"task": "task 2", "rows": ROWS})
    assert status == 200
    assert found["labels"] == learner.predict(X, task="task 2").tolist()


def test_health_tells_what_is_served(ask):
    status, found = ask(path="/health", method="GET")
    assert status == 200
    assert found == {
        "status": "ok",
        "method": "DEN",
        "tasks": ["task 1", "task 2"],
        "inputs": [6],
    }


REFUSED = {
    "no JSON": (b"{", 400, "a request is"),
    "no rows": ({"task": "task 1"}, 400, "missing required field `rows`"),
    "an unknown member": ({"rows": ROWS, "tsak": "task 1"}, 400, "unknown field `tsak`"),
    "text for numbers": ({"task": "task 1", "rows": [["1"] * 6]}, 400, "Expected `float`"),
    "nothing for numbers": ({"task": "task 1", "rows": [[None] * 6]}, 400, "Expected `float`"),
    "not a number": (b'{"task":"task 1","rows":[[NaN,1,1,1,1,1]]}', 400, "a request is"),
    "too large a number": ({"task": "task 1", "rows": [[1e39] * 6]}, 400, "must be finite"),
    "far too large": (b'{"task":"task 1","rows":[[1e999,1,1,1,1,1]]}', 400, "a request is"),
    "ragged rows": ({"task": "task 1", "rows": [[1.0] * 6, [1.0]]}, 400, "same number of values"),
    "too few values": ({"task": "task 1", "rows": [[1.0]]}, 400, r"shape (6,), not (1, 1)"),
    "one row bare": ({"task": "task 1", "rows": [1.0] * 6}, 400, "Expected `array`"),
    "no row": ({"task": "task 1", "rows": []}, 400, "inputs must have rows first"),
    "deep": (b'{"rows":' + b"[" * 9000, 400, "a request is"),
    "an unknown task": ({"task": "nine", "rows": ROWS}, 404, "no task is named 'nine'; there are"),
    "no task": ({"rows": ROWS}, 400, "no task was named; there are 'task 1', 'task 2'"),
    "too many bytes": ({"task": "task 1", "rows": [[1.0] * 6] * 2000}, 413, "20,000 bytes; send"),
}


@pytest.mark.parametrize("what", REFUSED)
def test_what_cannot_be_answered_is_refused_with_what_to_do(ask, what):
    body, status, message = REFUSED[what]
    found = ask(body)
    assert found[0] == status
    assert message in found[1]["error"]
    assert ask({"task": "task 1", "rows": ROWS})[0] == 200


def test_bytes_without_a_length_are_counted_too(ask):
    status, found = ask(iter([b"[" * 15_000] * 2))  # in chunks
    assert status == 413
    assert "20,000 bytes" in found["error"]


@pytest.mark.parametrize("kind", ["text/plain", "application/x-www-form-urlencoded", ""])
def test_what_any_page_could_send_is_not_taken(ask, kind):
    status, found = ask({"task": "task 1", "rows": ROWS}, **{"content-type": kind})
    assert status == 415
    assert "application/json" in found["error"]


@pytest.mark.parametrize("host", ["localhost", "localhost:8000", "[::1]:80", "127.0.0.1:1"])
def test_its_own_names_are_answered(ask, host):
    assert ask({"task": "task 1", "rows": ROWS}, host=host)[0] == 200


@pytest.mark.parametrize("host", ["evil.example", "evil.example:8000", "localhost.evil", ""])
@pytest.mark.parametrize("path", ["/predict", "/health", "/metrics"])
def test_another_name_of_the_host_is_not_answered(ask, host, path):
    method = "POST" if path == "/predict" else "GET"
    status, said = ask({"task": "task 1", "rows": ROWS}, path, method, host=host)
    assert status == 400
    assert "its names are 127.0.0.1, [::1], localhost" in said["error"]


@pytest.mark.parametrize(
    ("path", "method", "status"), [("/", "GET", 404), ("/predict", "GET", 405), ("/x", "PUT", 404)]
)
def test_other_paths_are_named(ask, path, method, status):
    found, said = ask(path=path, method=method)
    assert found == status
    assert "POST /predict" in said["error"]


def test_metrics_count_requests_rows_and_refusals(model):
    with running(model) as ask:
        ask({"task": "task 1", "rows": ROWS})
        ask({"task": "task 1", "rows": ROWS[:1]})
        ask({"task": "nine", "rows": ROWS})
        status, text = ask(path="/metrics", method="GET")
    assert status == 200
    assert 'lifelong_requests_total{status="200",task="task 1"} 2.0' in text
    assert 'lifelong_requests_total{status="404",task=""} 1.0' in text
    assert 'lifelong_rows_total{task="task 1"} 4.0' in text
    assert "lifelong_request_seconds_count 3.0" in text
    assert "lifelong_tasks 2.0" in text


def test_an_error_of_ours_is_logged_and_not_told(model, monkeypatch, caplog):
    def breaks(*_):
        raise ZeroDivisionError("secret of the server")

    monkeypatch.setattr(answering._OfLearner, "answer", breaks)
    with running(model) as ask:
        status, found = ask({"task": "task 1", "rows": ROWS})
        assert status == 500
        assert found == {"error": "an error of the server; its log says which"}
        assert "secret of the server" in caplog.text
        assert 'status="500",task="task 1"' in ask(path="/metrics", method="GET")[1]


def until(true, seconds=60):
    end = time.monotonic() + seconds
    while not true():
        assert time.monotonic() < end
        time.sleep(0.01)


def test_a_newer_model_is_taken_over_and_a_broken_one_is_not(tmp_path, caplog):
    learner = grown(1)
    learner.save(tmp_path)
    caplog.set_level(logging.ERROR, "lifelong.serving")
    with running(tmp_path) as ask:
        assert ask({"rows": ROWS})[0] == 200
        learner.learn(stream_for(small_mlp(), "one output", "classes")[1])
        learner.save(tmp_path)
        until(lambda: len(ask(path="/health", method="GET")[1]["tasks"]) == 2)
        status, found = ask({"task": "task 2", "rows": ROWS})
        assert status == 200
        assert found["labels"] == learner.predict(X, task="task 2").tolist()
        (tmp_path / "aside").write_text("{}")
        (tmp_path / "aside").rename(tmp_path / "manifest.json")
        until(lambda: 'outcome="failed"} 1.0' in ask(path="/metrics", method="GET")[1])
        assert ask({"task": "task 2", "rows": ROWS}) == (200, found)
        assert "served on" in caplog.text
        (tmp_path / "manifest.json").unlink()
        until(lambda: 'outcome="failed"} 2.0' in ask(path="/metrics", method="GET")[1])
        assert ask({"task": "task 2", "rows": ROWS}) == (200, found)


def test_no_request_is_lost_while_models_are_replaced(tmp_path):
    first, second = grown(2), grown(2, seed=1)
    first.save(tmp_path)
    allowed = [m.predict(X, task="task 2").tolist() for m in (first, second)]
    wanted = [m.predict_proba(X, task="task 2") for m in (first, second)]
    seen: set[bytes] = set()
    with running(tmp_path, poll=0.01) as ask:

        def replace():
            for number in range(1000):
                (second, first)[number % 2].save(tmp_path, overwrite=True)
                time.sleep(0.03)
                if number >= 8 and len(seen) == 2:
                    return

        thread = threading.Thread(target=replace)
        thread.start()
        while thread.is_alive():
            status, found = ask({"task": "task 2", "rows": ROWS})
            assert status == 200
            assert found["labels"] in allowed
            seen.add(np.float32(found["probabilities"]).tobytes())
        thread.join()
        loads = ask(path="/metrics", method="GET")[1]
    assert seen == {w.numpy().tobytes() for w in wanted}
    assert 'lifelong_model_loads_total{outcome="failed"}' not in loads


def test_images_and_numbers_are_served_too(tmp_path):
    x = inputs_for(small_convnet(), 30)
    y = x.mean(dim=(1, 2, 3))[:, None]
    learner = DEN(small_convnet(), quick())
    learner.learn(Task("mean", (x, y), (x, y), kind="regression"))
    learner.save(tmp_path)
    with running(tmp_path) as ask:
        status, found = ask({"rows": x[:2].tolist()})
    assert status == 200
    expected = learner.predict(x[:2], task="mean")
    np.testing.assert_array_equal(np.float32(found["predictions"]), expected)


def months(front=LifelongClassifier):
    """A table of numbers, text and gaps, and an estimator that has learned two months of it."""
    generator = np.random.default_rng(0)
    size = generator.normal(size=60)
    kind = np.where(generator.random(60) < 0.5, "new", "old").astype(object)
    kind[::7] = None
    table = pd.DataFrame({"size": size * 1000, "kind": kind, "flag": size > 0.3})
    high = np.where(size + (kind == "new") > 0.5, "high", "low")
    y = high if front is LifelongClassifier else size * 7 + 100
    estimator = front(network=(8,), budget=Budget(steps=40))
    estimator.partial_fit(table, y, task="march")
    estimator.partial_fit(table.assign(size=table["size"] + 20_000), y, task="april")
    return table, estimator


@pytest.fixture(scope="module")
def tables(tmp_path_factory):
    table, estimator = months()
    path = tmp_path_factory.mktemp("months")
    estimator.save(path)
    with running(path) as asked:
        yield table[:9], estimator, asked


def records(table):
    return json.loads(table.to_json(orient="records"))


def test_rows_of_a_table_are_answered_by_name_or_in_order(tables):
    table, estimator, ask = tables
    status, found = ask({"task": "march", "rows": records(table)})
    assert status == 200
    assert found["labels"] == estimator.predict(table, task="march").tolist()
    assert found["classes"] == ["high", "low"]
    expected = estimator.predict_proba(table, task="march")
    np.testing.assert_allclose(found["probabilities"], expected, atol=1e-9)
    ordered = json.loads(table.to_json(orient="values"))
    assert ask({"task": "march", "rows": ordered}) == (200, found)
    swapped = [dict(reversed(row.items())) for row in records(table)]
    assert ask({"task": "march", "rows": swapped}) == (200, found)
    assert ask(path="/health", method="GET")[1]["columns"] == ["size", "kind", "flag"]


def test_the_task_of_rows_of_a_table_is_found(tables):
    table, estimator, ask = tables
    status, found = ask({"rows": records(table)})
    assert status == 200
    names, sure = estimator.find_task(table)
    assert found["tasks"] == names.tolist()
    np.testing.assert_allclose(found["sure"], sure)
    assert found["labels"] == estimator.predict(table).tolist()


@pytest.mark.parametrize(
    ("rows", "message"),
    [
        ([], "there are no rows"),
        ([{"size": 1, "kind": "new"}], "columns are missing: 'flag'"),
        ([{"size": 1, "kind": "new", "flag": True, "x": 1}], "columns are new: 'x'"),
        ([[1, "new", True], [1, "new"]], "same columns"),
        ([[1, "new", True], {"size": 1, "kind": "new", "flag": True}], "same columns"),
        ([{"size": 1, "kind": "n", "flag": 1}, {"size": 1, "kind": "n", "x": 1}], "same columns"),
        ([[1, "new"]], "same columns"),
        ([["text", "new", True]], "column 'size': holds text"),
        ([[1, ["new"], True]], "a request is"),
        ([[1e999, "new", True]], "a request is"),
    ],
)
def test_rows_that_are_not_of_the_table_are_refused(tables, rows, message):
    body = json.dumps({"task": "march", "rows": rows}).replace("Infinity", "1e999")
    status, found = tables[2](body.encode())
    assert status == 400
    assert message in found["error"]


def test_a_regressor_answers_in_the_unit_of_its_labels(tmp_path):
    table, estimator = months(LifelongRegressor)
    estimator.save(tmp_path)
    with running(tmp_path) as ask:
        status, found = ask({"task": "april", "rows": records(table[:3])})
    assert status == 200
    expected = estimator.predict(table[:3], task="april")
    np.testing.assert_allclose(found["predictions"], expected, rtol=1e-9)


@pytest.mark.parametrize(
    ("given", "said"),
    [
        (["--port", "0"], "--port must be 1 to 65535, not 0"),
        (["--max-bytes", "0"], "--max-bytes must be above 0"),
        (["--poll", "0"], "--poll 0.01 to 86400 seconds"),
        ([], "not a saved model: it has no manifest.json"),
    ],
)
def test_the_command_refuses_in_a_line(given, said, tmp_path, capsys):
    with pytest.raises(SystemExit):
        main(["serve", str(tmp_path), *given])
    assert said in capsys.readouterr().err


def test_the_command_listens_on_this_machine_only_unless_told(model, monkeypatch, capsys):
    ran = []
    monkeypatch.setattr(serving.uvicorn, "run", lambda app, **options: ran.append((app, options)))
    main(["serve", str(model), "--port", "8123"])
    assert "http://127.0.0.1:8123/predict" in capsys.readouterr().out
    main(["serve", str(model), "--host", "0.0.0.0"])
    main(["serve", str(model), "--host", "0.0.0.0", "--hosts", "models.example"])
    assert [options["host"] for _, options in ran] == ["127.0.0.1", "0.0.0.0", "0.0.0.0"]
    hosts = [app.hosts for app, _ in ran]
    assert "localhost" in hosts[0]
    assert "*" not in hosts[0]
    assert hosts[1] == {"*"}
    assert "models.example" in hosts[2]
    assert "*" not in hosts[2]
    assert all(not options["server_header"] for _, options in ran)
