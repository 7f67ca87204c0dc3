"""Runs a keeper in the foreground: ``python -m bftrainer_slurm.keeper --state DIR``."""

from __future__ import annotations

import argparse
import asyncio
import fcntl
import logging
import os
import signal
import sys
from pathlib import Path

from bftrainer_slurm.keeper.home import own_token, write_address
from bftrainer_slurm.keeper.protocol import MAX_LINE, ProtocolError, parse_address
from bftrainer_slurm.keeper.server import Keeper
from bftrainer_slurm.keeper.stores import Stores


async def _serve(state: Path, host: str, port: int) -> None:
    keeper = Keeper(Stores(host), own_token(state), identity=os.urandom(8).hex())
    server = await asyncio.start_server(keeper.serve, host, port, limit=MAX_LINE, backlog=512)
    write_address(state, f"{host}:{server.sockets[0].getsockname()[1]}")
    stop = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, stop.set)
    async with server:
        await stop.wait()


def serve(state: Path, listen: str) -> int:
    """Serve until SIGTERM or SIGINT; return the exit code."""
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(message)s")
    try:
        host, port = parse_address(listen)
        state.mkdir(parents=True, exist_ok=True)
        with (state / "keeper.lock").open("w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            asyncio.run(_serve(state, host, port))
    except BlockingIOError:
        print(f"keeper: another one serves {state}", file=sys.stderr)
        return 2
    except (OSError, ProtocolError) as error:
        print(f"keeper: {error}", file=sys.stderr)
        return 2
    return 0


def main() -> int:
    """Read the command line, and serve."""
    parser = argparse.ArgumentParser(
        prog="python -m bftrainer_slurm.keeper",
        description="Hosts torchrun's rendezvous stores and takes the elements' notes.",
    )
    parser.add_argument("--state", type=Path, required=True, help="the controller's state folder")
    parser.add_argument(
        "--listen", default="127.0.0.1:0", metavar="HOST:PORT", help="a name the nodes reach it by"
    )
    arguments = parser.parse_args()
    return serve(arguments.state, arguments.listen)


if __name__ == "__main__":
    sys.exit(main())
