"""How often things have happened, how long they took, which nodes there were, and who looked.

For people only: no decision uses it.
"""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Iterable
from dataclasses import dataclass, field, fields
from functools import partial
from statistics import median
from typing import Any

from bftrainer_slurm.controller.observe.snapshot import Snapshot
from bftrainer_slurm.controller.state.database import Database, Spans, put
from bftrainer_slurm.model import Node

LATE_S = 10.0  # an element is gone much sooner: a job that waits longer has missed a pass
# Seconds. A node comes back within tenths of one; a job that waits longer than LATE_S has missed
# a pass.
_DELAYS_S = (0.5, 1.0, 2.0, 5.0, LATE_S, 30.0, 60.0, 120.0)
_PAUSES_S = (0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0)
_EVERY_S = 60.0  # how often to write that a controller still looks
_UNSEEN_S = 300.0  # longer gaps between looks count as not observed


@dataclass(slots=True)
class Durations:
    """A histogram of durations; ``within`` counts those up to each bound."""

    bounds_s: tuple[float, ...] = ()
    count: int = 0
    sum_s: float = 0.0
    within: Counter[float] = field(default_factory=Counter)

    def add(self, seconds: float) -> None:
        """Add a duration."""
        self.count += 1
        self.sum_s += seconds
        self.within.update(bound for bound in self.bounds_s if seconds <= bound)

    def shown(self) -> dict[str, Any]:
        """Return the counts for the status."""
        within = [[bound, self.within[bound]] for bound in self.bounds_s]
        return {"count": self.count, "sum_s": self.sum_s, "within": within}


@dataclass(slots=True)
class Counts:
    """All counts. None of them ever falls.

    ``ended`` is by the way a stay on a node ended, ``plans`` by their status, ``pauses`` by whether
    the trainer grew (up), ``requests`` and ``failed_requests`` by the gateway's method.
    """

    started: int = 0
    ended: Counter[str] = field(default_factory=Counter)
    preempted_elements: int = 0
    late_jobs: int = 0
    delays: Durations = field(default_factory=partial(Durations, _DELAYS_S))
    plans: Counter[str] = field(default_factory=Counter)
    solving: Durations = field(default_factory=Durations)
    pauses: dict[str, Durations] = field(
        default_factory=lambda: {way: Durations(_PAUSES_S) for way in ("up", "down")}
    )
    looks: Durations = field(default_factory=Durations)
    requests: defaultdict[str, Durations] = field(default_factory=lambda: defaultdict(Durations))
    failed_requests: Counter[str] = field(default_factory=Counter)

    def note_request(self, method: str, took_s: float, failed: bool) -> None:
        """Count a request to Slurm."""
        self.requests[method].add(took_s)
        if failed:
            self.failed_requests[method] += 1

    def shown(self) -> dict[str, Any]:
        """Return a copy for the status."""
        return {one.name: _shown(getattr(self, one.name)) for one in fields(self)}


def _shown(value: Any) -> Any:
    if isinstance(value, Durations):
        return value.shown()
    return {key: _shown(one) for key, one in value.items()} if isinstance(value, dict) else value


class Inventory:
    """Which nodes there are, when they were out of service, and when a controller was looking.

    It compares each reading of the nodes with the last one, and writes the changes: none, at no
    cost, if nothing was read again.
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


@dataclass(frozen=True, slots=True)
class Preemption:
    """An ordinary job that started at ``time_s`` (Unix seconds) on nodes of ``elements``.

    ``delay_s`` is how long it had to wait after they were told to leave, to within a second.
    """

    time_s: float
    elements: int
    delay_s: float


def summary(preemptions: Iterable[Preemption]) -> dict[str, float | int | None]:
    """Return the summary that admins see; delays are in seconds, None if there were none."""
    known = list(preemptions)
    seconds = [one.delay_s for one in known]
    return {
        "jobs": len(known),
        "elements": sum(one.elements for one in known),
        "late_jobs": sum(one > LATE_S for one in seconds),
        "delay_median_s": median(seconds) if seconds else None,
        "delay_max_s": max(seconds, default=None),
        "delay_sum_s": sum(seconds),
    }
