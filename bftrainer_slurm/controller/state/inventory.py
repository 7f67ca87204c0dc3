"""Which nodes there are, when they were out of service, and when a controller has looked at all.

Only for people who look back: no decision is made from it.
"""

from __future__ import annotations

import math
from collections.abc import Iterable

from bftrainer_slurm.controller.observe.snapshot import Snapshot
from bftrainer_slurm.controller.state.database import Database, Statement
from bftrainer_slurm.model import Node

_EVERY_S = 60.0  # so often is written that somebody still looks
_UNSEEN_S = 300.0  # without a look: nobody knows what was between

_NEW_NODE = "INSERT OR IGNORE INTO nodes VALUES (?)"
_GONE_NODE = "DELETE FROM nodes WHERE node = ?"
_END = "UPDATE outages SET end_s = max(start_s, ?) WHERE node = ? AND end_s IS NULL"
_BEGIN = "INSERT INTO outages (node, start_s) VALUES (?, ?)"
_WATCH = "INSERT OR REPLACE INTO watches VALUES (?, ?)"


class Inventory:
    """Compares each reading of the nodes with the last one, and writes what has changed.

    Costs nothing where nothing was read anew.
    """

    def __init__(self, database: Database) -> None:
        self._database = database
        self._known: tuple[set[str], set[str]] | None = None  # all nodes, those out of service
        self._read: tuple[Node, ...] = ()
        self._began_s = self._noted_s = -math.inf

    def update(self, snapshot: Snapshot, partition: str) -> None:
        """Take in a snapshot."""
        now_s = snapshot.time_s
        since_s = now_s - self._noted_s
        if snapshot.nodes is self._read and 0 <= since_s < _EVERY_S:
            return
        if not 0 <= since_s < _UNSEEN_S:
            self._began_s = now_s
        statements: list[Statement] = [(_WATCH, (self._began_s, now_s))]
        if snapshot.nodes is not self._read:
            statements += self._changes(snapshot, partition)
        self._read, self._noted_s = snapshot.nodes, now_s
        self._database.write_together(*statements)

    def _changes(self, snapshot: Snapshot, partition: str) -> Iterable[Statement]:
        """Return the statements that write what is otherwise than it was."""
        nodes, out = self._known or self._as_left()
        now_s, names = snapshot.time_s, set(snapshot.nodes_of(partition))
        outside = names - snapshot.in_service(partition)
        self._known = names, outside
        return [
            *((_GONE_NODE, (node,)) for node in nodes - names),
            *((_NEW_NODE, (node,)) for node in names - nodes),
            *((_END, (now_s, node)) for node in out - outside),
            *((_BEGIN, (node, now_s)) for node in outside - out),
        ]

    def _as_left(self) -> tuple[set[str], set[str]]:
        """Return what the controller before has written."""
        nodes = self._database.read("SELECT node FROM nodes")
        out = self._database.read("SELECT node FROM outages WHERE end_s IS NULL")
        return {node for (node,) in nodes}, {node for (node,) in out}
