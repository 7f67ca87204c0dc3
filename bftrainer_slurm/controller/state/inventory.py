"""Which nodes there are, when they were out of service, and when a controller was looking.

For people only: no decision uses it.
"""

from __future__ import annotations

import math

from bftrainer_slurm.controller.observe.snapshot import Snapshot
from bftrainer_slurm.controller.state.database import Database, Spans, put
from bftrainer_slurm.model import Node

_EVERY_S = 60.0  # how often to write that a controller still looks
_UNSEEN_S = 300.0  # longer gaps between looks count as not observed


class Inventory:
    """Compares each reading of the nodes with the last one, and writes the changes.

    Costs nothing if nothing was read again.
    """

    def __init__(self, database: Database) -> None:
        self._database = database
        self._outages = Spans(database, "outages")
        self._known: tuple[frozenset[str], frozenset[str]] | None = None  # all, out of service
        self._read: tuple[Node, ...] = ()
        self._began_s = self._noted_s = -math.inf

    def update(self, snapshot: Snapshot) -> None:
        """Take in a snapshot."""
        now_s = snapshot.time_s
        since_s = now_s - self._noted_s
        if snapshot.nodes is self._read and 0 <= since_s < _EVERY_S:
            return
        if not 0 <= since_s < _UNSEEN_S:
            self._began_s = now_s
        if snapshot.nodes is not self._read:
            self._note_changes(snapshot)
        self._read, self._noted_s = snapshot.nodes, now_s
        self._database.write(put("watches", self._began_s, now_s))

    def _note_changes(self, snapshot: Snapshot) -> None:
        nodes, out = self._known or self._as_left()
        names = snapshot.all_nodes
        outside = names - snapshot.in_service
        self._known = names, outside
        self._database.write(
            *(("DELETE FROM nodes WHERE node = ?", (node,)) for node in nodes - names),
            *(put("nodes", node) for node in names - nodes),
        )
        self._outages.change(out - outside, outside - out, snapshot.time_s)

    def _as_left(self) -> tuple[frozenset[str], frozenset[str]]:
        """Return what the previous controller has written."""
        nodes = self._database.read("SELECT node FROM nodes")
        return frozenset(node for (node,) in nodes), frozenset(self._outages.open())
