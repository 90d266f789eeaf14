"""`lifelong serve` against the same server with a constant answer, and under replaced models.

    python benchmarks/serving.py     # a minute and a half; to results.json and serving.json

The servers are processes of their own, and so is whoever asks. Single rows are asked for over eight
connections that stay open, in turns of ours and the constant one. The ratio is of the processor's
seconds per request, which is the inverse of requests per second on a free core. Then a model is
replaced 50 times under load: each answer must be that of the model before or after.
"""

import json
import os
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from statistics import median
from typing import Any

import torch
from side_by_side import figure, publish

from lifelong import DEN, Budget, Settings, Task, mlp

DETAILS = Path(__file__).resolve().parent / "serving.json"
WIDTHS, INPUTS = (312, 128), 784
CONNECTIONS, SECONDS, TURNS, REPLACED = 8, 1.5, 7, 50
TICKS = os.sysconf("SC_CLK_TCK")
CONSTANT = """
import sys, uvicorn
from starlette.applications import Starlette
from starlette.responses import Response
from starlette.routing import Route
from lifelong.deployment.serving import SERVER
async def predict(request):
    return Response(sys.argv[2].encode(), media_type="application/json")
uvicorn.run(Starlette(routes=[Route("/predict", predict, methods=["POST"])]),
            host="127.0.0.1", port=int(sys.argv[1]), **SERVER)
"""


def learned(seed: int, widths: tuple[int, ...] = WIDTHS, inputs: int = INPUTS) -> DEN:
    """A network of full size that has learned next to nothing."""
    generator = torch.Generator().manual_seed(seed)
    settings = Settings(initial_width=1.0, budget=Budget(steps=1))
    learner = DEN(mlp(inputs, widths), settings, seed=seed)
    x, y = torch.randn(24, inputs, generator=generator), torch.arange(24) % 2
    learner.learn(Task("march", (x, y), (x, y)))
    return learner


def free_port() -> int:
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        port: int = one.getsockname()[1]
        return port


class Server:
    """A process that answers on a port."""

    def __init__(self, *command: str, port: int) -> None:
        one_thread = {**os.environ, "OMP_NUM_THREADS": "1"}
        self.port = port
        self._process = subprocess.Popen([sys.executable, *command], env=one_thread)
        end = time.monotonic() + 60
        while socket.socket().connect_ex(("127.0.0.1", port)) != 0:
            if time.monotonic() > end or self._process.poll() is not None:
                raise RuntimeError("the server did not start")
            time.sleep(0.1)

    def seconds(self) -> float:
        """Of the processor, so far."""
        fields = Path(f"/proc/{self._process.pid}/stat").read_text().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / TICKS

    def end(self) -> None:
        self._process.terminate()
        self._process.wait()


class Asker:
    """Connections that stay open, and one request that is sent on them again and again."""

    def __init__(self, port: int, body: bytes) -> None:
        head = (
            "POST /predict HTTP/1.1\r\nhost: 127.0.0.1\r\ncontent-type: application/json\r\n"
            f"content-length: {len(body)}\r\n\r\n"
        )
        self._request = head.encode() + body
        self._sockets = [
            socket.create_connection(("127.0.0.1", port), timeout=30) for _ in range(CONNECTIONS)
        ]

    def round(self) -> list[tuple[int, bytes]]:
        """Status and body of one request on each connection."""
        for one in self._sockets:
            one.sendall(self._request)
        return [_answer(one) for one in self._sockets]

    def __enter__(self) -> "Asker":
        return self

    def __exit__(self, *_: object) -> None:
        for one in self._sockets:
            one.close()


def _answer(one: socket.socket) -> tuple[int, bytes]:
    content = b""
    while b"\r\n\r\n" not in content:
        content += _received(one)
    head, _, body = content.partition(b"\r\n\r\n")
    size = int(head.lower().partition(b"content-length:")[2].split(b"\r\n")[0])
    while len(body) < size:
        body += _received(one)
    return int(head.split()[1]), body


def _received(one: socket.socket) -> bytes:
    part = one.recv(1 << 16)
    if not part:
        raise ConnectionError("the server closed the connection: a request is lost")
    return part


def per_request(server: Server, body: bytes, seconds: float) -> tuple[float, float]:
    """The processor's seconds per request, and requests per second of the clock."""
    with Asker(server.port, body) as asker:
        count, began, used = 0, time.perf_counter(), server.seconds()
        while time.perf_counter() - began < seconds:
            answers = asker.round()
            if any(status != 200 for status, _ in answers):
                raise RuntimeError(f"refused: {answers[0]}")
            count += len(answers)
        return (server.seconds() - used) / count, count / (time.perf_counter() - began)


def replaced_under_load(place: Path, server: Server, body: bytes, times: int) -> dict[str, int]:
    """How many answers came, and how many of them were of neither model or not there at all."""
    models = [learned(0), learned(1)]
    row = torch.linspace(-1, 1, INPUTS)[None]
    allowed = [model.predict_proba(row, task="march").tolist() for model in models]
    done = threading.Event()

    def replace() -> None:
        for number in range(times):
            models[(number + 1) % 2].save(place, overwrite=True)
            time.sleep(0.15)
        done.set()

    thread = threading.Thread(target=replace)
    thread.start()
    answers: list[tuple[int, bytes]] = []
    asked = 0
    with Asker(server.port, body) as asker:
        while not done.is_set():
            asked += CONNECTIONS
            answers += asker.round()
    thread.join()
    found = [json.loads(body)["probabilities"] for status, body in answers if status == 200]
    seen = [found.count(one) for one in allowed]
    return {
        "asked": asked,
        "answered": len(found),
        "lost": asked - len(found),
        "of neither model": len(found) - sum(seen),
        "of the first": seen[0],
        "of the second": seen[1],
        "replaced": times,
    }


@contextmanager
def servers(place: Path, body: bytes) -> Iterator[tuple[Server, Server]]:
    """Ours and the constant one, which answers as ours did once."""
    ports = free_port(), free_port()
    command = ["-c", "from lifelong.cli import command; command()", "serve", str(place)]
    started = [Server(*command, "--port", str(ports[0]), "--poll", "0.05", port=ports[0])]
    try:
        with Asker(ports[0], body) as asker:
            answer = asker.round()[0][1].decode()
        started.append(Server("-c", CONSTANT, str(ports[1]), answer, port=ports[1]))
        yield started[0], started[1]
    finally:
        for server in started:
            server.end()


def rates(inputs: int, widths: tuple[int, ...], *, replaced: int = 0) -> dict[str, Any]:
    """Ours against the constant answer for rows of so many numbers, and replaced under load."""
    row = torch.linspace(-1, 1, inputs).tolist()
    body = json.dumps({"task": "march", "rows": [row]}).encode()
    with tempfile.TemporaryDirectory() as directory:
        place = Path(directory) / "model"
        learned(0, widths, inputs).save(place)
        with servers(place, body) as (ours, constant):
            for server in (ours, constant):
                per_request(server, body, 0.5)
            pairs = [
                (per_request(ours, body, SECONDS), per_request(constant, body, SECONDS))
                for _ in range(TURNS)
            ]
            under_load = replaced_under_load(place, ours, body, replaced) if replaced else None
    return {
        "numbers per row": inputs,
        "seconds per request, ours / constant": median(m[0] / t[0] for m, t in pairs),
        "requests per second, ours": round(median(mine[1] for mine, _ in pairs)),
        "requests per second, constant": round(median(theirs[1] for _, theirs in pairs)),
        "replaced under load": under_load,
    }


def main() -> None:
    found = [rates(20, (64, 32)), rates(INPUTS, WIDTHS, replaced=REPLACED)]
    DETAILS.write_text(json.dumps(found, indent=1) + "\n")
    print(DETAILS.read_text())
    publish(
        [
            figure(
                f"serve, one row of {one['numbers per row']} numbers / constant answer",
                one["seconds per request, ours / constant"],
                2.0,
            )
            for one in found
        ]
    )


if __name__ == "__main__":
    torch.set_num_threads(1)
    main()
