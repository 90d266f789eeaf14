"""A saved model behind HTTP: rows in, answers out; a newly saved model is taken over while serving.

Requests are not trusted: their size is limited before they are decoded, only JSON is taken (which a
page of another site cannot send unasked), and an error of ours is logged here and told as no more
than that.
"""

import asyncio
import logging
import time
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any, final

import msgspec

from lifelong.deployment.answering import Answering, RefusedError, load_answering
from lifelong.extras import require_extra
from lifelong.persistence.manifest import MANIFEST, ModelFileError
from lifelong.printing import printable
from lifelong.tasks.kinds import TaskError

require_extra("uvicorn", "starlette", "prometheus_client", extra="serve")

import uvicorn  # noqa: E402
from prometheus_client import (  # noqa: E402
    CONTENT_TYPE_LATEST,
    CollectorRegistry,
    Counter,
    Gauge,
    Histogram,
    generate_latest,
)
from starlette.applications import Starlette  # noqa: E402
from starlette.requests import Request  # noqa: E402
from starlette.responses import Response  # noqa: E402
from starlette.routing import Route  # noqa: E402
from starlette.types import Receive, Scope, Send  # noqa: E402

HOST = "127.0.0.1"
LOCAL_NAMES = ("127.0.0.1", "localhost", "[::1]")
MOST_BYTES = 1 << 20  # of a request
MOST_AT_ONCE = 256  # requests; with their bytes they bound the memory
AT_ONCE_ROWS = 32  # more are computed in a thread, so that others need not wait for them
SERVER: Mapping[str, Any] = {
    "lifespan": "on",
    "ws": "none",
    "log_level": "warning",
    "access_log": False,
    "server_header": False,
    "proxy_headers": False,
    "limit_concurrency": MOST_AT_ONCE,
}
_LOG = logging.getLogger("lifelong.serving")
# The traceback is for the log, and not for who asked.
_FAILED = {"error": "an error of the server; its log says which"}
_PATHS = {"error": "there are POST /predict, GET /health and GET /metrics"}


@final
class ServedModel:
    """The model in a directory, and the newest one that was saved there."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._seen = self._stamp()
        self.answering: Answering = load_answering(path)

    def reload(self) -> bool | None:
        """Load the model if another was saved: whether there was one; None if it cannot be read.

        Whoever has taken `answering` before goes on with the old one.
        """
        stamp = self._stamp()
        if stamp == self._seen:
            return False
        self._seen = stamp  # before loading: what is saved meanwhile is seen next time
        try:
            self.answering = load_answering(self._path)
        except ModelFileError as error:
            _LOG.error("the model before it is served on: %s", printable(error))
            return None
        return True

    def _stamp(self) -> tuple[int, ...]:
        """Differs for every model that is saved: each is a new file, renamed into place."""
        try:
            found = (self._path / MANIFEST).stat()
        except OSError:
            return ()
        return found.st_ino, found.st_mtime_ns, found.st_size


def make_app(
    path: str | Path,
    *,
    poll: float = 1.0,
    most_bytes: int = MOST_BYTES,
    hosts: Sequence[str] = LOCAL_NAMES,
) -> "Application":
    """The application that answers for a saved model.

    Args:
        path: directory that `save` wrote.
        poll: seconds between looks for a newly saved model.
        most_bytes: of a request.
        hosts: names under which it may be called; "*" for any.
    """
    return Application(ServedModel(Path(path)), poll, most_bytes, hosts)


def serve(
    path: str | Path,
    *,
    host: str = HOST,
    port: int = 8000,
    hosts: Sequence[str] = (),
    poll: float = 1.0,
    most_bytes: int = MOST_BYTES,
    ready: Callable[[], None] = lambda: None,
) -> None:
    """Serve a saved model until the process is told to stop; open requests are answered first."""
    allowed = (*LOCAL_NAMES, *hosts) if host in (*LOCAL_NAMES, "::1") or hosts else ("*",)
    app = make_app(path, poll=poll, most_bytes=most_bytes, hosts=allowed)
    ready()
    uvicorn.run(app, host=host, port=port, **SERVER)


@final
class Application:
    """An application of ASGI, which servers such as uvicorn run.

    Requests to predict are answered here, for speed; what is asked rarely is left to Starlette.
    """

    def __init__(
        self, model: ServedModel, poll: float, most_bytes: int, hosts: Sequence[str]
    ) -> None:
        self._model, self._poll, self._most_bytes = model, poll, most_bytes
        self.hosts = frozenset(hosts)
        self._metrics = _Metrics()
        self._metrics.tasks.set(len(model.answering.tasks))
        self._others = Starlette(
            routes=[
                Route("/health", self.health, methods=["GET"]),
                Route("/metrics", self.metrics, methods=["GET"]),
            ],
            exception_handlers={404: _missing, 405: _missing, 500: _failed},
            lifespan=self._reloading,
        )

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request, or begin and end with the server."""
        if scope["type"] != "http":
            await self._others(scope, receive, send)
            return
        headers: dict[bytes, bytes] = dict(scope["headers"])
        if not self._is_ours(headers.get(b"host", b"").decode("latin-1")):
            names = ", ".join(sorted(self.hosts))
            await _send(send, 400, {"error": f"not called by its name; its names are {names}"})
        elif scope["path"] != "/predict":
            await self._others(scope, receive, send)
        elif scope["method"] != "POST":
            await _send(send, 405, _PATHS)
        else:
            await self._predict(headers, receive, send)

    def _is_ours(self, host: str) -> bool:
        """Else a page of another site could have its own name lead here."""
        name, colon, port = host.rpartition(":")
        return "*" in self.hosts or (name if colon and port.isdecimal() else host) in self.hosts

    @asynccontextmanager
    async def _reloading(self, _app: Starlette) -> AsyncIterator[None]:
        """Look for a newly saved model for as long as the application runs."""
        looking = asyncio.create_task(self._look())
        try:
            yield
        finally:
            looking.cancel()
            with suppress(asyncio.CancelledError):
                await looking

    async def _look(self) -> None:
        while True:
            await asyncio.sleep(self._poll)
            try:
                loaded = await asyncio.to_thread(self._model.reload)
            except Exception:  # whatever happens, the model before is served on
                _LOG.exception("looking for a new model failed")
                loaded = None
            if loaded is not False:
                self._metrics.loads.labels("failed" if loaded is None else "ok").inc()
                self._metrics.tasks.set(len(self._model.answering.tasks))

    async def _predict(self, headers: dict[bytes, bytes], receive: Receive, send: Send) -> None:
        began = time.perf_counter()
        answering = self._model.answering  # the same for the whole request
        task, status, rows = "", 500, 0
        found: object = _FAILED
        try:
            asked = answering.read(await self._body(headers, receive))
            task, rows = asked.task or "", asked.count
            if rows <= AT_ONCE_ROWS:
                found = answering.answer(asked)
            else:
                found = await asyncio.to_thread(answering.answer, asked)
            status = 200
        except RefusedError as refusal:
            found, status = {"error": str(refusal)}, refusal.status
        except TaskError as error:
            found, status = {"error": str(error)}, 400
        except Exception:  # told to the log, and not to who asked
            _LOG.exception("a request to predict failed")
        self._metrics.count(task, status, rows, time.perf_counter() - began)
        await _send(send, status, found)

    async def health(self, _request: Request) -> Response:
        """That it serves, and what."""
        return _json({"status": "ok", **self._model.answering.about()})

    async def metrics(self, _request: Request) -> Response:
        """Counters in Prometheus's text format."""
        return Response(generate_latest(self._metrics.registry), media_type=CONTENT_TYPE_LATEST)

    async def _body(self, headers: dict[bytes, bytes], receive: Receive) -> bytes:
        kind = headers.get(b"content-type", b"").partition(b";")[0].strip()
        if kind != b"application/json":
            raise RefusedError(415, "rows come as JSON: send content-type application/json")
        body, more = b"", True
        while more:
            message = await receive()
            if message["type"] == "http.disconnect":
                raise RefusedError(499, "who asked is gone")  # the status that nginx has for it
            body += message.get("body", b"")
            more = message.get("more_body", False)
            if len(body) > self._most_bytes:
                raise RefusedError(
                    413, f"a request may have {self._most_bytes:,} bytes; send fewer rows at once"
                )
        return body


@final
class _Metrics:
    """Counters of one application."""

    def __init__(self) -> None:
        self.registry = registry = CollectorRegistry()
        self.requests = Counter(
            "lifelong_requests", "Requests to predict", ["task", "status"], registry=registry
        )
        self.rows = Counter("lifelong_rows", "Rows predicted", ["task"], registry=registry)
        self.seconds = Histogram(
            "lifelong_request_seconds",
            "From a request's headers to its answer",
            buckets=(0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 1.0, 10.0),
            registry=registry,
        )
        self.loads = Counter(
            "lifelong_model_loads", "Newly saved models", ["outcome"], registry=registry
        )
        self.tasks = Gauge("lifelong_tasks", "Tasks that the model knows", registry=registry)
        self._by_outcome: dict[tuple[str, int], tuple[Counter, Counter]] = {}

    def count(self, task: str, status: int, rows: int, seconds: float) -> None:
        """One request; rows count if they were answered."""
        found = self._by_outcome.get((task, status))
        if found is None:
            labelled = self.requests.labels(task, str(status)), self.rows.labels(task)
            found = self._by_outcome[task, status] = labelled
        found[0].inc()
        if status == 200:
            found[1].inc(rows)
        self.seconds.observe(seconds)


async def _send(send: Send, status: int, value: object) -> None:
    content = msgspec.json.encode(value)
    size = str(len(content)).encode()
    headers = [(b"content-type", b"application/json"), (b"content-length", size)]
    await send({"type": "http.response.start", "status": status, "headers": headers})
    await send({"type": "http.response.body", "body": content})


def _json(value: object, status: int = 200) -> Response:
    return Response(msgspec.json.encode(value), status, media_type="application/json")


async def _missing(_request: Request, error: Exception) -> Response:
    return _json(_PATHS, getattr(error, "status_code", 404))


async def _failed(_request: Request, _error: Exception) -> Response:
    return _json(_FAILED, 500)
