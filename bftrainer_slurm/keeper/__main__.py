"""Runs a keeper in the foreground: ``python -m bftrainer_slurm.keeper`` is ``bftrainer keeper``."""

from __future__ import annotations

import asyncio
import logging
import os
import resource
import signal
import socket
import sys
from collections.abc import Callable
from pathlib import Path

from bftrainer_slurm.keeper.credentials import CredentialError, Gate, Means, read_secret
from bftrainer_slurm.keeper.home import (
    StateError,
    own_secret,
    own_token,
    read_address,
    write_address,
)
from bftrainer_slurm.keeper.protocol import ProtocolError, parse_addresses
from bftrainer_slurm.keeper.registry import MANY_FILES
from bftrainer_slurm.keeper.rendezvous import ADOPT_S
from bftrainer_slurm.keeper.server import Keeper
from bftrainer_slurm.while_in_charge import place_to_work

logger = logging.getLogger(__name__)
_INTERRUPTED = 130  # what a shell reports after Ctrl-C
_ANNOUNCED = b"announced\n"
_PAUSE_S = 0.2  # srun and salloc send one just before they submit; many may submit at once


class Announcements(asyncio.DatagramProtocol):
    """Calls ``tell`` a moment after a datagram, once for all that come in that moment.

    It says that something was submitted. Anybody can send one, and it may get lost.
    """

    def __init__(self, tell: Callable[[], None]) -> None:
        self._tell = tell
        self._waits = False

    def datagram_received(self, data: bytes, addr: object) -> None:
        """Take a datagram; one with any other text is ignored."""
        if data == _ANNOUNCED and not self._waits:
            self._waits = True
            asyncio.get_running_loop().call_later(_PAUSE_S, self._pass_on)

    def _pass_on(self) -> None:
        self._waits = False
        self._tell()


async def _serve(
    state: Path, host: str, port: int, gate: Gate, hold_s: float, files: int
) -> signal.Signals:
    """Serve until a signal, and return it."""
    keeper = Keeper(gate, hold_s, files, state)
    loop = asyncio.get_running_loop()
    server = await keeper.listen(host, port)
    port = server.sockets[0].getsockname()[1]
    await loop.create_datagram_endpoint(
        lambda: Announcements(keeper.announced), local_addr=(host, port)
    )
    write_address(state, f"{host}:{port}")
    came: asyncio.Queue[signal.Signals] = asyncio.Queue()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, came.put_nowait, number)
    logger.info("keeper at %s:%d, state in %s", host, port, state)
    by = await came.get()
    server.close()  # from Python 3.12 on, to leave it as a context waits for all members to go
    return by


def serve(state: Path, listen: str, means: Means, shared: Path | None = None) -> int:
    """Serve until SIGTERM or SIGINT; return the exit code.

    With a ``shared`` folder it works there, while slurmctld is in charge on this host. ``listen``
    then has the addresses of all hosts.
    """
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(message)s")
    try:
        host, port = own_address(listen)
        with place_to_work("keeper", state, shared) as folder:
            key = read_secret(means.key_file or own_secret(folder))
            # If there was a keeper before, the members of its groups may come back soon.
            hold_s = 0.0 if read_address(folder) is None else ADOPT_S
            only_user = os.getuid() if means.key_file is None else -1
            gate = Gate(own_token(folder), key, only_user, means.munge_socket)
            serving = _serve(folder, host, port, gate, hold_s, _allow_connections())
            by = asyncio.run(serving)
    except (OSError, ProtocolError, CredentialError, StateError) as error:
        print(f"keeper: {error}", file=sys.stderr)
        return 2
    return _INTERRUPTED if by is signal.SIGINT else 0


def own_address(listen: str) -> tuple[str, int]:
    """Return the one of ``HOST:PORT,HOST:PORT`` that is this host's.

    Raises:
        ProtocolError: these are not addresses, or none is this host's.
        OSError: the only one is not this host's.
    """
    addresses = parse_addresses(listen)
    for host, port in addresses:
        try:
            socket.create_server((host, 0)).close()
        except OSError:
            if len(addresses) == 1:
                raise
            continue
        return host, port
    raise ProtocolError(f"none of {listen} is an address of this host; see --listen")


def _allow_connections() -> int:
    """Raise the limit of open files as far as allowed, and return it: each member is one."""
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
    return MANY_FILES if most == resource.RLIM_INFINITY else most


if __name__ == "__main__":
    from bftrainer_slurm.cli.keeper import keeper

    keeper(prog_name="python -m bftrainer_slurm.keeper")
