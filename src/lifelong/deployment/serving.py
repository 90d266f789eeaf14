"""A saved model behind HTTP: rows in, answers out; a newly saved model is taken over while serving.

Requests are not trusted: their size is limited before they are decoded, only JSON is taken (which a
page of another site cannot send unasked), and an error of ours is logged here and told as no more
than that.
"""

import asyncio
import logging
import time
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import final

import msgspec

from lifelong.deployment.answering import Answering, RefusedError, load_answering
from lifelong.extras import require_extra
from lifelong.persistence.models import MANIFEST, ModelFileError
from lifelong.printing import printable
from lifelong.tasks.task import TaskError

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
from starlette.middleware import Middleware  # noqa: E402
from starlette.middleware.trustedhost import TrustedHostMiddleware  # noqa: E402
from starlette.requests import ClientDisconnect, Request  # noqa: E402
from starlette.responses import Response  # noqa: E402
from starlette.routing import Route  # noqa: E402

HOST = "127.0.0.1"
LOCAL_NAMES = ("127.0.0.1", "localhost", "[::1]")
MOST_BYTES = 1 << 20  # of a request
MOST_AT_ONCE = 256  # requests; with their bytes they bound the memory
AT_ONCE_ROWS = 32  # more are computed in a thread, so that others need not wait for them
_LOG = logging.getLogger("lifelong.serving")
# The traceback is for the log, and not for who asked.
_FAILED = {"error": "an error of the server; its log says which"}


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
) -> Starlette:
    """The application that answers for a saved model.

    Args:
        path: directory that `save` wrote.
        poll: seconds between looks for a newly saved model.
        most_bytes: of a request.
        hosts: names under which it may be called; "*" for any.
    """
    endpoints = _Endpoints(ServedModel(Path(path)), poll, most_bytes)
    return Starlette(
        routes=[
            Route("/predict", endpoints.predict, methods=["POST"]),
            Route("/health", endpoints.health, methods=["GET"]),
            Route("/metrics", endpoints.metrics, methods=["GET"]),
        ],
        middleware=[Middleware(TrustedHostMiddleware, allowed_hosts=list(hosts))],
        exception_handlers={404: _missing, 405: _missing, 500: _failed},
        lifespan=endpoints.reloading,
    )


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
    uvicorn.run(
        app,
        host=host,
        port=port,
        lifespan="on",
        ws="none",
        log_level="warning",
        access_log=False,
        server_header=False,
        proxy_headers=False,
        limit_concurrency=MOST_AT_ONCE,
    )


@final
class _Endpoints:
    """What the paths answer."""

    def __init__(self, model: ServedModel, poll: float, most_bytes: int) -> None:
        self._model, self._poll, self._most_bytes = model, poll, most_bytes
        self._metrics = _Metrics()
        self._metrics.tasks.set(len(model.answering.tasks))

    @asynccontextmanager
    async def reloading(self, _app: Starlette) -> AsyncIterator[None]:
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

    async def predict(self, request: Request) -> Response:
        """Answers for the rows of a request."""
        began = time.perf_counter()
        answering = self._model.answering  # the same for the whole request
        task, status = "", 500
        try:
            asked = answering.read(await self._body(request))
            task = asked.task or ""
            if asked.count <= AT_ONCE_ROWS:
                found = answering.answer(asked)
            else:
                found = await asyncio.to_thread(answering.answer, asked)
            self._metrics.rows.labels(task).inc(asked.count)
            status = 200
            return _json(found)
        except RefusedError as refusal:
            status = refusal.status
            return _json({"error": str(refusal)}, status)
        except TaskError as error:
            status = 400
            return _json({"error": str(error)}, status)
        except ClientDisconnect:
            status = 499  # as nginx has it: nobody is there to answer
            return Response(status_code=400)
        except Exception:  # here, since it would close the connection further up
            _LOG.exception("a request to predict failed")
            return _json(_FAILED, 500)
        finally:
            self._metrics.requests.labels(task, str(status)).inc()
            self._metrics.seconds.observe(time.perf_counter() - began)

    async def health(self, _request: Request) -> Response:
        """That it serves, and what."""
        return _json({"status": "ok", **self._model.answering.about()})

    async def metrics(self, _request: Request) -> Response:
        """Counters in Prometheus's text format."""
        return Response(generate_latest(self._metrics.registry), media_type=CONTENT_TYPE_LATEST)

    async def _body(self, request: Request) -> bytes:
        if request.headers.get("content-type", "").partition(";")[0].strip() != "application/json":
            raise RefusedError(415, "rows come as JSON: send content-type application/json")
        parts, size = [], 0
        async for part in request.stream():
            size += len(part)
            if size > self._most_bytes:
                raise RefusedError(
                    413, f"a request may have {self._most_bytes:,} bytes; send fewer rows at once"
                )
            parts.append(part)
        return b"".join(parts)


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


def _json(value: object, status: int = 200) -> Response:
    return Response(msgspec.json.encode(value), status, media_type="application/json")


async def _missing(_request: Request, error: Exception) -> Response:
    status = getattr(error, "status_code", 404)
    return _json({"error": "there are POST /predict, GET /health and GET /metrics"}, status)


async def _failed(_request: Request, _error: Exception) -> Response:
    return _json(_FAILED, 500)
