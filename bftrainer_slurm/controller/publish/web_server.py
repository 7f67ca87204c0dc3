"""An HTTP server in threads of its own: no request can delay the loop, or end it.

It serves any site, and is read-only: it answers GET and nothing else.
"""

from __future__ import annotations

import logging
import socket
import socketserver
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler
from typing import Any, BinaryIO, TypeAlias

logger = logging.getLogger(__name__)

_MOST_AT_ONCE = 32  # connections; further ones are closed
_SILENT_S = 5.0  # after this silence a connection is closed
_LONGEST_S = 30.0  # after this time it is closed in any case, even if a byte comes now and then
_LARGEST_REQUEST = 16_384  # bytes; a longer request is cut off there
_POLL_S = 0.1  # how long the controller may have to wait for the server's end


@dataclass(frozen=True, slots=True)
class Request:
    """A request. ``query`` is as it was sent; names of ``headers`` are lower case."""

    path: str
    query: str = ""
    headers: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Answer:
    """An answer."""

    status: int
    kind: str
    body: bytes
    headers: Mapping[str, str] = field(default_factory=dict)


Site: TypeAlias = Callable[[Request], Answer]


@contextmanager
def serving(address: tuple[str, int] | None, site: Site) -> Iterator[str | None]:
    """Serve a site; yield HOST:PORT, or None if nothing is served.

    If the port is not available, that is only logged: trainers need neither metrics nor pages.
    """
    try:
        server = None if address is None else _Server(address, site)
    except OSError as error:
        logger.error("no page and metrics at %s:%d: %s", *(address or ()), error.strerror or error)
        server = None
    if server is None:
        yield None
        return
    with server:
        host, port = map(str, server.server_address[:2])
        shown = f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
        logger.info("page at http://%s/, metrics at http://%s/metrics", shown, shown)
        threading.Thread(
            target=server.serve_forever, args=(_POLL_S,), name="http", daemon=True
        ).start()
        try:
            yield shown
        finally:
            server.shutdown()


class _Server(socketserver.ThreadingTCPServer):
    """A thread for each connection; they end with the process."""

    allow_reuse_address = True
    daemon_threads = True
    request_queue_size = _MOST_AT_ONCE

    def __init__(self, address: tuple[str, int], site: Site) -> None:
        self.site = site
        self._room = threading.BoundedSemaphore(_MOST_AT_ONCE)
        self._open: dict[socket.socket, float] = {}  # and since when
        host, port = address
        ((self.address_family, _, _, _, found), *_) = socket.getaddrinfo(
            host.strip("[]"), port, type=socket.SOCK_STREAM
        )
        super().__init__(found, _Handler)  # type: ignore[arg-type]

    def process_request(self, request: Any, client_address: Any) -> None:
        if not self._room.acquire(blocking=False):
            self.shutdown_request(request)
            return
        self._open[request] = time.monotonic()
        super().process_request(request, client_address)

    def process_request_thread(self, request: Any, client_address: Any) -> None:
        try:
            super().process_request_thread(request, client_address)
        finally:
            self._open.pop(request, None)
            self._room.release()

    def service_actions(self) -> None:
        """Close connections that take too long; called every ``_POLL_S`` and for each new one."""
        old_s = time.monotonic() - _LONGEST_S
        for request, since_s in list(self._open.items()):
            if since_s < old_s:
                with suppress(OSError):
                    request.shutdown(socket.SHUT_RDWR)

    def handle_error(self, request: Any, client_address: Any) -> None:
        logger.debug("a request of %s ended early", client_address, exc_info=True)


class _Bounded:
    """Reads at most so many bytes of a request."""

    def __init__(self, file: BinaryIO) -> None:
        self._file = file
        self._left = _LARGEST_REQUEST

    def readline(self, limit: int = -1) -> bytes:
        """Read a line, or what is left of the bytes."""
        line = self._file.readline(self._left if limit < 0 else min(limit, self._left))
        self._left -= len(line)
        return line

    def close(self) -> None:
        """Close the file."""
        self._file.close()


class _Handler(BaseHTTPRequestHandler):
    server: _Server
    server_version, sys_version = "bftrainer", ""
    timeout = _SILENT_S

    def setup(self) -> None:
        super().setup()
        self.rfile = _Bounded(self.rfile)  # type: ignore[assignment, arg-type]

    def do_GET(self) -> None:
        """Answer with the site's content."""
        path, _, query = self.path.partition("?")
        headers = {name.lower(): value for name, value in self.headers.items()}
        try:
            answer = self.server.site(Request(path, query, headers))
        except Exception:
            logger.exception("no answer")
            self.send_error(503, "the controller's log says why")
            return
        self.send_response(answer.status)
        self.send_header("Content-Type", answer.kind)
        self.send_header("Content-Length", str(len(answer.body)))
        for name, value in answer.headers.items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(answer.body)

    def log_message(self, format: str, *args: object) -> None:
        """Log nothing: a flood at the port must not flood the log."""
