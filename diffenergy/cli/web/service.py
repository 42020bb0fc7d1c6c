"""The HTTP service: commands under `/api/v1/`, the page, health and metrics."""

import asyncio
import collections
import contextlib
import dataclasses
import json
import time
from collections.abc import AsyncIterator, Callable, Mapping
from pathlib import Path
from typing import Any, Final

from starlette.applications import Starlette
from starlette.middleware import Middleware
from starlette.middleware.cors import CORSMiddleware
from starlette.requests import Request
from starlette.responses import (
    PlainTextResponse,
    RedirectResponse,
    Response,
    StreamingResponse,
)
from starlette.routing import Route
from starlette.types import ASGIApp, Receive, Scope, Send

from . import forms, openapi
from .jobs import FAULT, Job, Reply, offered
from .workers import CANCELLED, LOOK, Budget, Refused, Workers

API: Final = "/api/v1"
BODY: Final = 2_000_000
"""B that a request may have at most."""
_NESTED: Final = 40
"""Levels of lists and objects that a request may have at most."""
_REMEMBERED: Final = 1000
"""Answers that are kept for the same question."""
_STATUS: Final = {0: 200, 1: 500, 2: 400, 3: 409, 4: 409}
"""HTTP status by exit status of the command."""


@dataclasses.dataclass(frozen=True)
class Settings:
    """What a server is started with; see the flags of `diffenergy web`."""

    hosts: tuple[str, ...] = ("localhost", "127.0.0.1", "[::1]")
    origins: tuple[str, ...] = ()
    folder: Path | None = None
    workers: int = 2
    queue: int = 100
    budget: Budget = Budget(120.0, 4e9)


class Checked:
    """Refuses requests that name another host."""

    def __init__(self, app: ASGIApp, hosts: tuple[str, ...]):
        self._app, self._hosts = app, hosts

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            return await self._app(scope, receive, send)
        headers = dict(scope["headers"])
        host = headers.get(b"host", b"").decode("latin-1")
        name = host if host.endswith("]") else host.rpartition(":")[0] or host
        if name.lower() not in self._hosts:
            refused = Refused(
                400, "bad_input",
                f"`Host` is '{host[:200]}'; allowed are {', '.join(self._hosts)} "
                "(`--allow-host` adds one).",
            )  # fmt: skip
            return await _refusal(refused)(scope, receive, send)

        await self._app(scope, receive, send)


def _json(content: Any, status: int = 200) -> Response:
    return Response(json.dumps(content), status, media_type="application/json")


def _refusal(refused: Refused) -> Response:
    response = _json({"error": refused.error()}, refused.status)
    if refused.status in (429, 503):
        response.headers["Retry-After"] = "1"
    return response


async def body_of(request: Request) -> dict[str, Any]:
    """The object that a request has as its body."""
    kind = request.headers.get("content-type", "").partition(";")[0].strip()
    if kind != "application/json":
        raise Refused(
            415, "bad_input",
            f"`Content-Type` is '{kind[:100]}'; allowed is application/json.",
        )  # fmt: skip
    body = b""
    async for part in request.stream():
        body += part
        if len(body) > BODY:
            raise Refused(413, "too_large", f"`body` has over {BODY:,} B; send less.")
    try:
        content = json.loads(body.decode(), parse_constant=_no_constant)
        if _depth(content) > _NESTED:
            raise ValueError(f"over {_NESTED} levels of lists and objects")
    except (ValueError, RecursionError) as error:
        text = f"`body` cannot be read ({str(error)[:100]}); send a JSON object."
        raise Refused(400, "bad_input", text) from None
    if not isinstance(content, dict):
        raise Refused(400, "bad_input", "`body` is no object; send fields by name.")
    return content


def _depth(content: Any) -> int:
    """Levels of lists and objects."""
    inner = content.values() if isinstance(content, dict) else content
    return (
        1 + max(map(_depth, inner)) if inner and isinstance(content, dict | list) else 0
    )


def _no_constant(name: str):
    raise ValueError(f"{name} is none of JSON")


class Service:
    """Answers by worker processes, counts, and remembers."""

    def __init__(self, settings: Settings):
        self.settings = settings
        self.names = offered(settings.folder)
        self._workers: Workers | None = None
        self._remembered = collections.OrderedDict[Any, Reply]()
        self._counts = collections.Counter[tuple[str, int]]()
        self._seconds = collections.defaultdict[str, float](float)

    @property
    def workers(self) -> Workers:
        """The processes; they are there while the server runs."""
        if self._workers is None:
            raise RuntimeError("the server has not started")
        return self._workers

    @contextlib.asynccontextmanager
    async def lifespan(self, app: Starlette) -> AsyncIterator[None]:
        """Context in which the processes run."""
        x = self.settings
        self._workers = Workers(x.workers, x.queue, x.folder, x.budget)
        try:
            yield
        finally:
            self._workers.close()

    async def reply(
        self, job: Job, tell: Callable[[str], None], request: Request
    ) -> Reply:
        """Answer of a process, or the one remembered; ends the work where who asked has
        gone. Raises `Refused`."""
        key = json.dumps([*vars(job).values()])
        if key in self._remembered:
            self._remembered.move_to_end(key)
            return self._remembered[key]
        work = asyncio.ensure_future(self.workers.ask(job, tell))
        try:
            while not (await asyncio.wait({work}, timeout=LOOK))[0]:
                if await request.is_disconnected():
                    raise Refused(*CANCELLED)
            reply = work.result()
        finally:
            work.cancel()
        if reply.status in (0, 2, 3) and self.settings.folder is None:
            self._remembered[key] = reply
            if len(self._remembered) > _REMEMBERED:
                self._remembered.popitem(last=False)
        return reply

    def command_of(self, request: Request) -> str:
        """The command that the address names."""
        name = request.path_params["name"]
        if name not in self.names:
            allowed = ", ".join(self.names)
            text = f"`{name[:100]}` is no command here; allowed are {allowed}."
            raise Refused(404, "bad_input", text)
        return name

    @contextlib.contextmanager
    def counted(self, name: str):
        """Context of a request; gives what sets its status."""
        begin, status = time.monotonic(), [500]
        try:
            yield status
        except (Refused, asyncio.CancelledError) as error:
            status[0] = error.status if isinstance(error, Refused) else CANCELLED[0]
            raise
        finally:
            self._counts[name, status[0]] += 1
            self._seconds[name] += time.monotonic() - begin

    async def api(self, request: Request) -> Response:
        """The JSON of a command."""
        name = request.path_params["name"]
        with self.counted(name if name in self.names else "unknown") as status:
            job = Job(self.command_of(request), await body_of(request))
            reply = await self.reply(job, lambda _: None, request)
            status[0] = _STATUS[reply.status]
        if reply.error is not None:
            return _json({"error": reply.error}, status[0])
        return Response(reply.json, media_type="application/json")

    async def shown(self, request: Request) -> Response:
        """Lines of JSON for the page: progress, then the answer or an error."""
        name, body = self.command_of(request), await body_of(request)
        prefix, charts = body.pop("prefix", "a"), body.pop("charts", False)
        if prefix not in ("a", "b", "c") or not isinstance(charts, bool):
            raise Refused(400, "bad_input", "`prefix` is a letter of the page.")
        job = Job(name, body, f"{prefix}-", charts)
        return StreamingResponse(
            self._lines(job, request), media_type="application/x-ndjson"
        )

    async def _lines(self, job: Job, request: Request) -> AsyncIterator[str]:
        lines = asyncio.Queue[str | None]()

        def tell(line: str):
            lines.put_nowait(json.dumps({"progress": line}))

        async def answer() -> Mapping[str, Any]:
            try:
                with self.counted(job.command) as status:
                    reply = await self.reply(job, tell, request)
                    status[0] = _STATUS[reply.status]
            except Refused as refused:
                return {"error": refused.error()}
            if reply.error is not None:
                return {"error": reply.error}
            return {"html": reply.html, "json": reply.json, "line": reply.line}

        work = asyncio.ensure_future(answer())
        work.add_done_callback(lambda _: lines.put_nowait(None))
        try:
            while (line := await lines.get()) is not None:
                yield line + "\n"
            yield json.dumps(await work) + "\n"
        finally:
            work.cancel()

    async def openapi(self, request: Request) -> Response:
        """The service as OpenAPI 3.1 describes it."""
        return _json(openapi.document(self.names, self.settings.folder))

    async def health(self, request: Request) -> Response:
        """Whether every process runs."""
        alive = sum(x.process.is_alive() for x in self.workers.all)
        good = alive == len(self.workers.all)
        content = {"status": "ok" if good else "degraded", "workers": alive}
        return _json(content, 200 if good else 503)

    async def metrics(self, request: Request) -> Response:
        """Counts, as Prometheus reads them."""
        lines = ["# TYPE diffenergy_requests_total counter"]
        lines += [
            f'diffenergy_requests_total{{command="{name}",status="{status}"}} {count}'
            for (name, status), count in sorted(self._counts.items())
        ]
        lines += ["# TYPE diffenergy_request_seconds_total counter"]
        lines += [
            f'diffenergy_request_seconds_total{{command="{name}"}} {seconds:.6f}'
            for name, seconds in sorted(self._seconds.items())
        ]
        for name, kind, value in (
            ("compilations_total", "counter", self.workers.compiled),
            ("workers_replaced_total", "counter", self.workers.replaced),
            ("queue_length", "gauge", self.workers.waiting),
        ):
            lines += [f"# TYPE diffenergy_{name} {kind}", f"diffenergy_{name} {value}"]
        return PlainTextResponse("\n".join(lines) + "\n")

    async def page(self, request: Request) -> Response:
        """The form of a command."""
        name = self.command_of(request)
        html = forms.page(name, tuple(self.names), self.settings.folder)
        return Response(html, media_type="text/html")


def build(settings: Settings) -> Starlette:
    """The application; its processes start with it."""
    service = Service(settings)

    async def home(request: Request) -> Response:
        return RedirectResponse("/estimate")

    async def asset(request: Request) -> Response:
        text, kind = forms.asset(request.path_params["file"])
        return Response(text, media_type=kind) if kind else PlainTextResponse("", 404)

    async def failed(request: Request, error: Exception) -> Response:
        if isinstance(error, Refused):
            return _refusal(error)
        return _refusal(Refused(500, "fault", FAULT))

    methods, headers = ["GET", "POST"], ["Content-Type"]
    middleware = [
        Middleware(Checked, settings.hosts),
        Middleware(CORSMiddleware, settings.origins, methods, headers),
    ]
    routes = [
        Route("/", home),
        Route("/health", service.health),
        Route("/metrics", service.metrics),
        Route("/openapi.json", service.openapi),
        Route("/static/{file}", asset),
        Route(f"{API}/{{name}}", service.api, methods=["POST"]),
        Route("/answer/{name}", service.shown, methods=["POST"]),
        Route("/{name}", service.page),
    ]
    return Starlette(
        routes=routes, middleware=middleware, lifespan=service.lifespan,
        exception_handlers={Exception: failed, Refused: failed},
    )  # fmt: skip
