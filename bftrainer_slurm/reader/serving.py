"""The reader's process: its port, its socket in the state folder, limits for connections."""

from __future__ import annotations

import asyncio
import logging
import os
import socket
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import uvicorn
from starlette.types import ASGIApp
from uvicorn.protocols.http.h11_impl import H11Protocol

from bftrainer_slurm.controller.publish.keys import key_in
from bftrainer_slurm.keeper.client import KeeperClient, KeeperError
from bftrainer_slurm.keeper.home import READER_SOCKET, read_address, read_token
from bftrainer_slurm.reader.facts import Facts
from bftrainer_slurm.reader.site import site
from bftrainer_slurm.while_in_charge import place_to_work

logger = logging.getLogger(__name__)

_MOST_AT_ONCE = 32  # connections to the port; further ones are closed
_SILENT_S = 5.0  # a connection without a whole request for so long is closed
_LONGEST_S = 30.0  # every connection is closed after this time
_LARGEST_REQUEST = 16_384  # bytes
_END_S = 1  # how long unfinished answers may take when the process ends
_NICE = 10  # the controller on this host comes first


class _Connection(H11Protocol):
    """A connection for one request. uvicorn alone would wait for ever for slow clients."""

    _ends: Sequence[asyncio.TimerHandle] = ()

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        later = self.loop.call_later
        self._ends = later(_SILENT_S, self._close_if_silent), later(_LONGEST_S, transport.abort)
        if self.client is not None and len(self.connections) > _MOST_AT_ONCE:
            transport.abort()

    def connection_lost(self, exc: Exception | None) -> None:
        for one in self._ends:
            one.cancel()
        super().connection_lost(exc)

    def _close_if_silent(self) -> None:
        if self.cycle is None:
            self.transport.abort()


def server_of(app: ASGIApp) -> uvicorn.Server:
    """Return what serves an application within our limits."""
    return uvicorn.Server(
        uvicorn.Config(
            app,
            loop="asyncio",
            http=_Connection,
            ws="none",
            lifespan="off",
            log_config=None,
            log_level=logging.ERROR,  # a flood at the port must not flood the log
            access_log=False,
            proxy_headers=False,
            server_header=False,
            headers=[("Connection", "close")],
            timeout_graceful_shutdown=_END_S,
            h11_max_incomplete_event_size=_LARGEST_REQUEST,
        )
    )


def listener(host: str, port: int) -> socket.socket:
    """Listen on a port.

    Raises:
        OSError: the port cannot be used; ``filename`` names it.
    """
    try:
        ((family, _, _, _, address), *_) = socket.getaddrinfo(
            host.strip("[]"), port, type=socket.SOCK_STREAM
        )
        return socket.create_server(address[:2], family=family, backlog=_MOST_AT_ONCE)
    except OSError as error:
        raise OSError(error.errno, error.strerror, f"{host}:{port}") from error


def own_socket(folder: Path) -> socket.socket:
    """Listen on the socket in the state folder, which nobody else can open."""
    path = folder / READER_SOCKET
    path.unlink(missing_ok=True)
    own = socket.socket(socket.AF_UNIX)
    own.bind(str(path))
    own.listen(_MOST_AT_ONCE)
    return own


def run(state: Path, address: tuple[str, int] | None, shared: Path | None = None) -> None:
    """Serve until SIGTERM or SIGINT.

    Without ``address`` there is no page. With a ``shared`` folder it works there, while slurmctld
    is in charge on this host.

    Raises:
        OSError, StateError: the port or the folder cannot be used, or another reader uses it.
    """
    os.nice(_NICE)
    with place_to_work("reader", state, shared) as folder:
        sockets = [own_socket(folder)]
        if address is not None:
            sockets.append(listener(*address))
            host, number = map(str, sockets[-1].getsockname()[:2])
            shown = f"[{host}]:{number}" if ":" in host else f"{host}:{number}"
            logger.info("page at http://%s/, metrics at http://%s/metrics", shown, shown)
        facts = Facts(lambda: _read_status(folder))
        app = site(folder / "history.sqlite", facts, key_in(folder), (address or ("",))[0])
        server_of(app).run(sockets)


def _read_status(folder: Path) -> tuple[float, dict[str, Any] | None]:
    address = read_address(folder)
    if not address:
        raise KeeperError("there is no keeper yet")
    return KeeperClient(address, read_token(folder)).status()
