"""Runs a keeper in the foreground: ``python -m bftrainer_slurm.keeper --state DIR``."""

from __future__ import annotations

import argparse
import asyncio
import fcntl
import logging
import os
import resource
import signal
import socket
import sys
from functools import partial
from pathlib import Path

from bftrainer_slurm.controller.publish.history import answer
from bftrainer_slurm.keeper.announcements import Announcements
from bftrainer_slurm.keeper.credentials import (
    JOB,
    METHODS,
    MUNGE,
    SECRET,
    CredentialError,
    Means,
    read_secret,
)
from bftrainer_slurm.keeper.gate import Gate
from bftrainer_slurm.keeper.groups import ADOPT_S
from bftrainer_slurm.keeper.home import own_secret, own_token, read_address, write_address
from bftrainer_slurm.keeper.leading import wait_to_lead
from bftrainer_slurm.keeper.private import StateError, private_folder
from bftrainer_slurm.keeper.protocol import ProtocolError, parse_addresses
from bftrainer_slurm.keeper.server import Keeper
from bftrainer_slurm.keeper.sessions import MANY_FILES
from bftrainer_slurm.keeper.vouchers import ByMunge, OneUser, SiteKey, Voucher


async def _serve(
    state: Path, token: str, host: str, port: int, gate: Gate, hold_s: float, files: int
) -> None:
    identity = os.urandom(8).hex()
    past = partial(answer, state / "history.sqlite")
    keeper = Keeper(gate, token, identity, hold_s, files=files, past=past)
    loop = asyncio.get_running_loop()
    server = await loop.create_server(keeper.entrance, host, port, backlog=1024)
    port = server.sockets[0].getsockname()[1]
    await loop.create_datagram_endpoint(
        lambda: Announcements(loop, keeper.announced), local_addr=(host, port)
    )
    write_address(state, f"{host}:{port}")
    stop = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop.set)
    async with server:
        await stop.wait()


def serve(state: Path, listen: str, means: Means, shared: Path | None = None) -> int:
    """Serve until SIGTERM or SIGINT; return the exit code.

    With a ``shared`` folder: while this is the host whose keeper works. ``listen`` then has the
    addresses of all hosts.
    """
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(message)s")
    try:
        host, port = own_address(listen)
        _check(means)
        private_folder(state)
        with (state / "keeper.lock").open("w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            gate = Gate(_voucher(state, means))
            # Where a keeper was before, the members of its groups are about to come back.
            hold_s = ADOPT_S
            if shared is not None:
                wait_to_lead("keeper", shared, state)
            elif read_address(state) is None:
                hold_s = 0.0
            token = own_token(shared or state)
            asyncio.run(_serve(state, token, host, port, gate, hold_s, _allow_connections()))
    except BlockingIOError:
        print(f"keeper: another one serves {state}", file=sys.stderr)
        return 2
    except (OSError, ProtocolError, CredentialError, StateError) as error:
        print(f"keeper: {error}", file=sys.stderr)
        return 2
    return 0


def own_address(listen: str) -> tuple[str, int]:
    """Return the one of ``HOST:PORT,HOST:PORT`` at which this host can be reached.

    Raises:
        ProtocolError: these are no addresses, or none is this host's.
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


def _check(means: Means) -> None:
    if (means.key_file is not None) != (means.method == JOB):
        raise CredentialError(f"--method {JOB} and --key-file PATH go together")


def _voucher(state: Path, means: Means) -> Voucher:
    if means.key_file is not None:
        return SiteKey(read_secret(means.key_file))
    if means.method == MUNGE:
        return ByMunge(means.munge_socket)
    return OneUser(read_secret(own_secret(state)))


def _allow_connections() -> int:
    """Allow and return as many open files as this process may have: each member is one."""
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
    return MANY_FILES if most == resource.RLIM_INFINITY else most


def main() -> int:
    """Read the command line, and serve."""
    parser = argparse.ArgumentParser(
        prog="python -m bftrainer_slurm.keeper",
        description="Brings the trainers' members together and takes the elements' notes.",
    )
    parser.add_argument("--state", type=Path, required=True, help="the controller's state folder")
    parser.add_argument(
        "--listen",
        default="127.0.0.1:0",
        metavar="HOST:PORT",
        help="a name the nodes reach it by; with --shared those of all hosts, with commas between",
    )
    parser.add_argument(
        "--shared", type=Path, metavar="DIR", help="a folder that all hosts for the keeper see"
    )
    parser.add_argument(
        "--method",
        choices=METHODS,
        default=SECRET,
        help="how members prove whose they are: a secret of the only user, MUNGE, or a secret of "
        "their job",
    )
    parser.add_argument("--munge-socket", metavar="PATH", help="munged's, if not the usual one")
    parser.add_argument("--key-file", type=Path, metavar="PATH", help="the site's key, for 'job'")
    arguments = parser.parse_args()
    means = Means(arguments.method, arguments.munge_socket, arguments.key_file)
    return serve(arguments.state, arguments.listen, means, arguments.shared)


if __name__ == "__main__":
    sys.exit(main())
