"""The rendezvous stores: one torch TCPStore server for each run of a trainer.

A run is one life of a rendezvous: stock c10d closes a run id for good in several situations (see
DESIGN.md), so a trainer that lost all its elements starts again with a new id and a new store.
"""

from __future__ import annotations

import socket
from dataclasses import dataclass, field
from datetime import timedelta

from torch.distributed import TCPStore  # type: ignore[attr-defined]

MAX_RUNS = 1000
_TIMEOUT = timedelta(seconds=60)


class TooManyRunsError(RuntimeError):
    """More trainers than the keeper hosts stores for."""


@dataclass(frozen=True, slots=True)
class Run:
    """One life of a trainer's rendezvous, and where its store listens."""

    id: str
    host: str
    port: int
    store: TCPStore = field(repr=False, compare=False)


class Stores:
    """The runs of all trainers, by array id. The newest run of a trainer is the one in use."""

    def __init__(self, host: str) -> None:
        self._host = host
        self._runs: dict[int, Run] = {}
        self._begun: dict[int, int] = {}

    def run(self, array: int) -> Run:
        """Return the trainer's run, begun now if it has none.

        Raises:
            TooManyRunsError: 1,000 stores are open already.
        """
        if array not in self._runs:
            self._runs[array] = self._begin(array)
        return self._runs[array]

    def end(self, array: int) -> None:
        """Close the trainer's run, if it has one; its next element begins another."""
        self._runs.pop(array, None)

    def _begin(self, array: int) -> Run:
        if len(self._runs) >= MAX_RUNS:
            raise TooManyRunsError(f"{MAX_RUNS} rendezvous stores are open already")
        attempt = self._begun[array] = self._begun.get(array, 0) + 1
        listener = socket.create_server((self._host, 0), backlog=512)
        port: int = listener.getsockname()[1]
        # The store owns the descriptor from here on.
        store = TCPStore(
            self._host,
            port,
            is_master=True,
            wait_for_workers=False,
            timeout=_TIMEOUT,
            master_listen_fd=listener.detach(),
        )
        return Run(f"{array}.{attempt}", self._host, port, store)
