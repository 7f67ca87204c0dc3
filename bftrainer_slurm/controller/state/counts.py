"""For people only, no decision uses it: how often things have happened, and how long they took.

And which nodes there are, when they were out of service, when a controller was looking, and which
jobs had to preempt; ``decide.available`` tries to prevent that.
"""

from __future__ import annotations

import math
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, fields
from functools import partial
from statistics import median
from typing import Any

from bftrainer_slurm.controller.observe.snapshot import Snapshot
from bftrainer_slurm.controller.state.database import Database, Spans, put
from bftrainer_slurm.controller.state.phases import Ended, Event
from bftrainer_slurm.model import Node, Queue
from bftrainer_slurm.slurm.gateway import Gateway, GatewayError

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


_SOON_S = 60.0  # how soon a job starts on nodes taken for it, without passes
_PASSES = 2.5  # or within so many intervals of backfill: it takes nodes in one pass, for the next
# Slurm ends a reclaimed element first, and only then gives the node to the job that needs it; until
# then the node looks idle, and the job may not be seen to wait: it was submitted since, say.
_AT_LEAST_S = 5.0
_CLOCK_S = 1.0  # Slurm tells starts in whole seconds
LATE_S = 10.0  # an element is gone much sooner: a job that waits longer has missed a pass


@dataclass(frozen=True, slots=True)
class Preemption:
    """An ordinary job that started at ``time_s`` (Unix seconds) on nodes of ``elements``.

    ``delay_s`` is how long it had to wait after they were told to leave, to within a second.
    """

    time_s: float
    elements: int
    delay_s: float


class Preemptions:
    """Follows from look to look which jobs get the nodes of preempted elements."""

    def __init__(self) -> None:
        # Nodes on which nobody has started yet: since when a job that waits has had them taken, and
        # until when they are left to a job that nobody has seen (Unix seconds).
        self._taken: dict[str, float] = {}
        self._left: dict[str, float] = {}

    @property
    def nodes(self) -> frozenset[str]:
        """The nodes that were taken for a job, and on which no job has started yet."""
        return frozenset(self._taken) | frozenset(self._left)

    def look(
        self, events: Iterable[Event], queue: Queue, backfill_s: float | None, now_s: float
    ) -> list[Preemption]:
        """Return the jobs that have started where elements were; ``backfill_s`` None: no passes.

        An element that ends while no job waits was not preempted.
        """
        within_s = max(_SOON_S, _PASSES * (backfill_s or 0.0))
        for event in events:
            if isinstance(event, Ended) and event.how == "reclaimed":
                self._taken[event.node] = event.began_s
                self._left[event.node] = now_s + _AT_LEAST_S
            else:
                self._taken.pop(event.node, None)
                self._left.pop(event.node, None)
        found = [
            Preemption(run.start_s, len(taken), max(0.0, run.start_s - min(taken.values())))
            for run in (queue.ordinary_runs if self._taken else ())
            if (taken := self._taken_for(run.nodes, run.start_s))
        ]
        waits = bool(queue.asking)
        self._taken = {
            node: since_s
            for node, since_s in self._taken.items()
            if waits and node not in queue.ordinary_nodes and now_s - since_s < within_s
        }
        self._left = {
            node: until_s
            for node, until_s in self._left.items()
            if node not in queue.ordinary_nodes and now_s < until_s
        }
        return found

    def _taken_for(self, nodes: Iterable[str], start_s: float) -> dict[str, float]:
        known = {node: self._taken[node] for node in nodes if node in self._taken}
        return {node: at_s for node, at_s in known.items() if start_s > at_s - _CLOCK_S}


class Starts:
    """Follows from look to look how many ordinary jobs start, also those that end at once."""

    def __init__(self) -> None:
        self._known: frozenset[tuple[int, float]] | None = None

    def look(self, queue: Queue) -> int:
        """Return how many have started since the last look; the first one tells nothing."""
        known, self._known = self._known, queue.ordinary_starts
        return 0 if known is None else len(self._known - known)


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


# Seconds. A node comes back within tenths of one; a job that waits longer than LATE_S has missed
# a pass.
_DELAYS_S = (0.5, 1.0, 2.0, 5.0, LATE_S, 30.0, 60.0, 120.0)
# What looks cost beside the queue (docs/internals/rpcs.md).
_LOOK_RPCS = {"nodes": 2, "reservations": 1, "last_pass": 1, "configuration": 3}
_PAUSES_S = (0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0)


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

    def shown(self) -> dict[str, Any]:
        """Return a copy for the status."""
        return {one.name: _shown(getattr(self, one.name)) for one in fields(self)}


def _shown(value: Any) -> Any:
    if isinstance(value, Durations):
        return value.shown()
    return {key: _shown(one) for key, one in value.items()} if isinstance(value, dict) else value


class MeteredGateway:
    """Wraps a gateway, and counts and times the calls of each of its methods in ``counts``.

    ``draw`` is told how many RPCs a look is about to take.
    """

    def __init__(self, gateway: Gateway, counts: Counts, draw: Callable[[int], None]) -> None:
        self._gateway = gateway
        self._counts = counts
        self._draw = draw

    def __getattr__(self, name: str) -> Any:
        request = getattr(self._gateway, name)
        if not callable(request):
            return request

        def ask(*words: Any, **more: Any) -> Any:
            began_s = time.monotonic()
            self._draw(self._gateway.queue_rpcs if name == "queue" else _LOOK_RPCS.get(name, 0))
            try:
                return request(*words, **more)
            except GatewayError:
                self._counts.failed_requests[name] += 1
                raise
            finally:
                self._counts.requests[name].add(time.monotonic() - began_s)

        return ask
