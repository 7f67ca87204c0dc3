"""Tracks how long Slurm leaves nodes on (``SuspendTime``). docs/admin-guide.md says what we do."""

from __future__ import annotations

import math
from collections.abc import Mapping, Set

from bftrainer_slurm.controller.observe.snapshot import Snapshot
from bftrainer_slurm.slurm.nodelists import expand

# An element is sent to a node only if it surely starts there before Slurm switches the node off:
# if it has not started by then, a look holds it again.
_LEAD_S = 60.0
_MOST_LEAD = 0.5  # of SuspendTime


class PowerSaving:
    """Tracks when nodes were last busy with any job, trainers' included."""

    def __init__(self) -> None:
        self._busy_s: dict[str, float] = {}  # Unix seconds; not known of the others
        self._ended_s: dict[str, float] = {}  # when an ordinary job ended, maybe unseen

    def look(self, snapshot: Snapshot, busy: Set[str | None]) -> None:
        """Take in a snapshot; jobs, ordinary or of trainers, are on the ``busy`` nodes."""
        for nodes, end_s in snapshot.queue.ordinary_ends:
            for node in expand(nodes):
                self._ended_s[node] = max(end_s, self._ended_s.get(node, -math.inf))
        sources = self._busy_s, self._ended_s, snapshot.configuration.busy_s
        self._busy_s = {
            node: snapshot.time_s
            if node in busy
            else max(known_s.get(node, -math.inf) for known_s in sources)
            for node in snapshot.configuration.suspend_s
        }

    def going_off(
        self, snapshot: Snapshot, since_s: Mapping[str, float], keep_awake_s: float
    ) -> tuple[frozenset[str], frozenset[str]]:
        """Return the nodes to which no element may be sent, and those which elements leave.

        ``since_s`` says when the last ordinary job left each node. Elements leave ``keep_awake_s``
        after the time at which Slurm would have switched the node off without them.
        """
        now_s = snapshot.time_s
        soon, now = set[str](), set[str]()
        for node, suspend_s in snapshot.configuration.suspend_s.items():
            left_s = max(since_s.get(node, now_s), self._ended_s.get(node, -math.inf))
            until_s = left_s + suspend_s + keep_awake_s
            off_s = self._busy_s.get(node, -math.inf) + suspend_s
            if now_s >= min(off_s, until_s) - min(_LEAD_S, _MOST_LEAD * suspend_s):
                soon.add(node)
            if now_s >= until_s:
                now.add(node)
        return frozenset(soon), frozenset(now)
