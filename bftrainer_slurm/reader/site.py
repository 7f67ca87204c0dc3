"""The reader as an ASGI application: its addresses, and who may use them.

The port serves the page, its API and the metrics. The socket in the state folder, which only the
controller's account can open, serves ``/history`` to a keeper that has authenticated the user.
"""

from __future__ import annotations

import ipaddress
import json
import pwd
import socket
import time
from collections.abc import Callable
from pathlib import Path

from prometheus_client import generate_latest
from prometheus_client.metrics_core import Metric
from prometheus_client.registry import Collector
from starlette.applications import Starlette
from starlette.datastructures import Headers, MutableHeaders
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.middleware.gzip import GZipMiddleware
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Mount, Route
from starlette.staticfiles import StaticFiles
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from bftrainer_slurm.controller.state.history import HistoryError
from bftrainer_slurm.reader import stories
from bftrainer_slurm.reader.facts import Facts, RequestError
from bftrainer_slurm.reader.metrics import families
from bftrainer_slurm.reader.questions import Questions

ASSETS = Path(__file__).parent / "assets"
_HEADERS = {
    "Content-Security-Policy": "default-src 'none'; script-src 'self'; style-src 'self'; "
    "connect-src 'self'; img-src 'self'; base-uri 'none'; form-action 'none'; "
    "frame-ancestors 'none'",
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Cache-Control": "no-cache",
}
_NOT_KEPT = {"Cache-Control": "no-store"}
_SMALL = 512  # bytes, not worth compressing
_TEXT = "text/plain; version=0.0.4; charset=utf-8"  # every Prometheus reads this


def site(
    history: Path,
    facts: Facts,
    secret: str,
    host: str = "",
    clock: Callable[[], float] = time.time,
) -> Starlette:
    """Return the application; ``host`` is the name under which the admin serves the page."""
    questions = Questions(history, facts, secret, clock)

    def question(request: Request) -> Response:
        words = request.path_params["version"], request.path_params["name"]
        sent = request.headers.get("authorization", "")
        answer = questions.answer(*words, request.url.query, sent)
        return Response(answer, media_type="application/json", headers=_NOT_KEPT)

    def metrics(_: Request) -> Response:
        now = facts.latest()
        known = _Collected(list(families(now.status, now.age_s, now.keeper)))
        return Response(generate_latest(known), media_type=_TEXT)

    def past(request: Request) -> Response:
        return _answer_history(request, history, facts, clock())

    routes = [
        Route("/metrics", metrics),
        Route("/api/{version}/{name:path}", question),
        Route("/history/{what}", past),
        Mount("/", StaticFiles(directory=ASSETS, html=True)),
    ]
    names = frozenset({"", "localhost", host.lower(), socket.gethostname().lower()})
    wrong = dict.fromkeys((RequestError, HistoryError, HTTPException), _error_response)
    return Starlette(
        routes=routes,
        middleware=[Middleware(_Guard, names), Middleware(GZipMiddleware, _SMALL)],
        exception_handlers={**wrong, Exception: _failure_response},
    )


def _answer_history(request: Request, history: Path, facts: Facts, now_s: float) -> Response:
    """Answer the keeper, which has authenticated the user, about the history."""
    if request.client is not None:
        raise HTTPException(404)
    what, asked = request.path_params["what"], request.query_params
    user = _user_name(int(asked["user"])) if "user" in asked else None
    private = _jobs_private(facts)
    try:
        since_s = float(asked["since"])
        found = stories.read_history(history, what, since_s, now_s, user, private=private)
    except ValueError as error:
        raise RequestError(str(error)) from error
    return Response(json.dumps(found, separators=(",", ":")), media_type="application/json")


def _jobs_private(facts: Facts) -> bool:
    """Return whether users may see only their own jobs; true while there is no status."""
    try:
        return bool(facts.latest().status.get("jobs_private", True))
    except RequestError:
        return True


def _user_name(user: int) -> str:
    """Return a user's name; empty if it is unknown."""
    try:
        return pwd.getpwuid(user).pw_name
    except (KeyError, OverflowError):
        return ""


def _error_response(_: Request, error: Exception) -> Response:
    if isinstance(error, HTTPException):
        more = dict(error.headers or {})
        return JSONResponse({"error": error.detail}, error.status_code, headers=_NOT_KEPT | more)
    status = error.status if isinstance(error, RequestError) else 503
    return JSONResponse({"error": str(error)}, status, headers=_NOT_KEPT)


def _failure_response(_: Request, error: Exception) -> Response:
    return JSONResponse({"error": "the reader's log says why"}, 500, headers=_NOT_KEPT)


class _Collected(Collector):
    """Gives Prometheus's client metrics that are made already."""

    def __init__(self, known: list[Metric]) -> None:
        self._known = known

    def collect(self) -> list[Metric]:
        """Return the metrics."""
        return self._known


class _Guard:
    """Refuses requests whose Host is neither an address nor in ``names``; adds the page's headers.

    Another site's name that points here (DNS rebinding) would let its pages read ours.
    """

    def __init__(self, app: ASGIApp, names: frozenset[str]) -> None:
        self._app, self._names = app, names

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return

        async def send_with_headers(message: Message) -> None:
            if message["type"] == "http.response.start":
                headers = MutableHeaders(scope=message)
                for name, value in _HEADERS.items():
                    headers.setdefault(name, value)
            await send(message)

        app = self._app
        if not self._is_allowed(Headers(scope=scope).get("host", "")):
            app = JSONResponse({"error": "use an address, localhost or this host's name"}, 421)
        await app(scope, receive, send_with_headers)

    def _is_allowed(self, host: str) -> bool:
        name = host if host.endswith("]") else host.rsplit(":", 1)[0]
        try:
            ipaddress.ip_address(name.strip("[]"))
        except ValueError:
            return name.lower() in self._names
        return True
