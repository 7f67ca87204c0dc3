"""An HTTP server for Prometheus, in threads of its own: nothing that it is sent holds up the loop.

What is served is in ``metrics``.
"""

from __future__ import annotations

import logging
import socket
import socketserver
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler
from typing import Any

from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.metrics_core import Metric
from prometheus_client.registry import Collector

logger = logging.getLogger(__name__)

Source = Callable[[], Iterable[Metric]]

_TEXT = "text/plain; version=0.0.4; charset=utf-8"  # which every Prometheus reads
_MOST_AT_ONCE = 16  # connections; further ones are hung up on
_SILENT_S = 5.0  # then a connection is hung up on
_POLL_S = 0.1  # so long the controller may have to wait for the server's end
_KEEP_S = 1.0  # whoever asks within it gets the same answer


@contextmanager
def serving(address: tuple[str, int] | None, source: Source) -> Iterator[str | None]:
    """Serve what ``source`` returns at ``/metrics``; yield HOST:PORT, None: nothing is served.

    A port that cannot be had is logged, and nothing else: trainers need no metrics.
    """
    try:
        server = None if address is None else _Server(address, _Page(source))
    except OSError as error:
        logger.error("no metrics at %s:%d: %s", *(address or ()), error.strerror or error)
        server = None
    if server is None:
        yield None
        return
    with server:
        host, port = map(str, server.server_address[:2])
        shown = f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
        logger.info("metrics at http://%s/metrics", shown)
        threading.Thread(
            target=server.serve_forever, args=(_POLL_S,), name="metrics", daemon=True
        ).start()
        yield shown
        server.shutdown()


class _Page(Collector):
    """The text that is served."""

    def __init__(self, source: Source) -> None:
        self._source = source
        self._registry = CollectorRegistry()
        self._registry.register(self)
        self._lock = threading.Lock()
        self._text, self._made_s = b"", float("-inf")

    def describe(self) -> list[Metric]:
        """Nothing: the registry would ask the source before there is anything to say."""
        return []

    def collect(self) -> Iterable[Metric]:
        """Return the metrics."""
        return self._source()

    def text(self) -> bytes:
        """Return them as Prometheus reads them."""
        with self._lock:
            if time.monotonic() - self._made_s >= _KEEP_S:
                self._text = generate_latest(self._registry)
                self._made_s = time.monotonic()
            return self._text


class _Server(socketserver.ThreadingTCPServer):
    """A thread a connection; they end with the process."""

    allow_reuse_address = True
    daemon_threads = True
    request_queue_size = _MOST_AT_ONCE

    def __init__(self, address: tuple[str, int], page: _Page) -> None:
        self.page = page
        self._room = threading.BoundedSemaphore(_MOST_AT_ONCE)
        host, port = address
        ((self.address_family, _, _, _, found), *_) = socket.getaddrinfo(
            host.strip("[]"), port, type=socket.SOCK_STREAM
        )
        super().__init__(found, _Handler)  # type: ignore[arg-type]

    def process_request(self, request: Any, client_address: Any) -> None:
        if not self._room.acquire(blocking=False):
            self.shutdown_request(request)
            return
        super().process_request(request, client_address)

    def process_request_thread(self, request: Any, client_address: Any) -> None:
        try:
            super().process_request_thread(request, client_address)
        finally:
            self._room.release()

    def handle_error(self, request: Any, client_address: Any) -> None:
        logger.debug("a scrape from %s ended early", client_address, exc_info=True)


class _Handler(BaseHTTPRequestHandler):
    server: _Server
    server_version, sys_version = "bftrainer", ""
    timeout = _SILENT_S

    def do_GET(self) -> None:
        """Answer with the metrics, whatever the query asks for."""
        if self.path.partition("?")[0] != "/metrics":
            self.send_error(404, "only /metrics is here")
            return
        try:
            text = self.server.page.text()
        except Exception:
            logger.exception("no metrics")
            self.send_error(503, "the controller's log says why")
            return
        self.send_response(200)
        self.send_header("Content-Type", _TEXT)
        self.send_header("Content-Length", str(len(text)))
        self.end_headers()
        self.wfile.write(text)

    def log_message(self, format: str, *args: object) -> None:
        """Say nothing: who floods the port must not flood the log."""
