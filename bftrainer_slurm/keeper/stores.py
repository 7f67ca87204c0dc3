"""The rendezvous stores: one torch TCPStore server for each run of a trainer.

A run is one life of a rendezvous: stock c10d closes a run id for good in several situations (see
DESIGN.md), so a trainer that lost all its elements starts again with a new id and a new store.
"""

from __future__ import annotations

import socket
from collections.abc import Callable
from dataclasses import dataclass

from bftrainer_slurm.keeper.store_host import StoreHost

MAX_RUNS = 1_000
MAX_UNKNOWN = 100  # of trainers whose owner the controller has not named: anybody may ask for one
REMEMBERED = 20_000
_BACKLOG = 512


class TooManyRunsError(RuntimeError):
    """More trainers than the keeper hosts stores for."""


@dataclass(frozen=True, slots=True)
class Run:
    """One life of a trainer's rendezvous, and where its store listens."""

    id: str
    host: str
    port: int


class Stores:
    """The runs of all trainers, by array id. The newest run of a trainer is the one in use.

    ``known`` says whether the controller has named a trainer's owner. Where the process that
    hosts the stores ends, all runs end with it.
    """

    def __init__(self, host: str, known: Callable[[int], bool] = lambda array: True) -> None:
        self._host = host
        self._known = known
        self._stores = StoreHost()
        self._stores.ensure()
        self._runs: dict[int, Run] = {}
        self._begun: dict[int, int] = {}

    def run(self, array: int) -> Run:
        """Return the trainer's run, begun now if it has none.

        Raises:
            TooManyRunsError: 1,000 stores are open already, or 100 of trainers nobody knows.
        """
        if self._stores.ensure():
            self._runs.clear()
        if array not in self._runs:
            self._runs[array] = self._begin(array)
        return self._runs[array]

    def name(self, array: int) -> str:
        """Return the id of the trainer's run, also of one that has not begun yet."""
        if array in self._runs:
            return self._runs[array].id
        return f"{array}.{self._begun.get(array, 0) + 1}"

    def end(self, array: int) -> None:
        """Close the trainer's run, if it has one; its next element begins another."""
        run = self._runs.pop(array, None)
        if run is not None:
            self._stores.close(run.id)

    def stop(self) -> None:
        """Close all stores."""
        self._stores.stop()

    def _begin(self, array: int) -> Run:
        unknown = [one for one in self._runs if not self._known(one)]
        if not self._known(array) and len(unknown) >= MAX_UNKNOWN:
            raise TooManyRunsError("too many trainers that no controller knows have stores")
        if len(self._runs) - len(unknown) >= MAX_RUNS:
            raise TooManyRunsError(f"{MAX_RUNS} rendezvous stores are open already")
        attempt = self._begun.pop(array, 0) + 1
        self._begun[array] = attempt
        if len(self._begun) > REMEMBERED:
            del self._begun[next(iter(self._begun))]
        with socket.create_server((self._host, 0), backlog=_BACKLOG) as listener:
            run = Run(f"{array}.{attempt}", self._host, listener.getsockname()[1])
            self._stores.open(run.id, listener)
        return run
