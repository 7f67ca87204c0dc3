"""Serves an application as the reader does, in a thread of the test's process."""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager

from starlette.types import ASGIApp

from bftrainer_slurm.reader.serving import listener, server_of


@contextmanager
def serve_in_thread(app: ASGIApp, *sockets: socket.socket) -> Iterator[None]:
    """Serve in a thread of its own."""
    server = server_of(app)
    thread = threading.Thread(target=server.run, args=(list(sockets),), daemon=True)
    thread.start()
    try:
        yield
    finally:
        server.should_exit = True
        thread.join()


@contextmanager
def served(app: ASGIApp) -> Iterator[tuple[str, int]]:
    """Serve at a free port of this host; yields its address."""
    port = listener("127.0.0.1", 0)
    with serve_in_thread(app, port):
        yield port.getsockname()
