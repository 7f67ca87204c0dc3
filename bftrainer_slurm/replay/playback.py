"""Plays back a log's ordinary jobs beside trainers: which wait or start, and how late.

The log says when Slurm started each job. Here the job starts then if enough nodes are idle. If
trainers have its nodes, it starts as in Slurm: a moment later by the main scheduler, a pass later
by backfill. A late job also ends that much later, and the next jobs on its nodes may wait for it.
The order of the log stays, even if Slurm would find a better order.
"""

from __future__ import annotations

import math
from bisect import bisect_right
from collections import defaultdict
from collections.abc import Iterable, Sequence, Set
from dataclasses import dataclass
from heapq import heappop, heappush

from bftrainer_slurm.model import BackfillPass, WaitingJob
from bftrainer_slurm.replay.ordinary import Change, Pass
from bftrainer_slurm.replay.trace import Trace

# The main scheduler over elements that end politely: 0.2 to 0.3 s (docs/internals/bench-impact.md).
PREEMPTION_S = 0.3


@dataclass(frozen=True, slots=True)
class PlayedJob:
    """A job of the log. Times are Unix seconds; ``start_s`` is infinite if it never started.

    It waits from ``eligible_s`` on and leaves the queue at ``gone_s``. ``takes`` are the nodes
    (numbers in the trace) whose holes end when it starts; its other nodes were in no hole.
    """

    eligible_s: float
    start_s: float
    gone_s: float
    nodes: int
    takes: tuple[int, ...] = ()
    backfilled: bool = False
    priority: int = 0
    partition: str = ""
    limit_s: float = math.inf


@dataclass(frozen=True, slots=True)
class Started:
    """A job that started in the log, and how much later it starts beside trainers.

    ``missed`` counts passes that began while it waited for trainers. If it still waits at the end,
    it counts as late until then.
    """

    late_s: float
    missed: int
    preempted: bool


class OrdinaryJobs:
    """Plays the log back. Nodes that look alike are interchangeable.

    If trainers have a job's nodes and other nodes are idle, the job takes the idle ones. Nodes of
    the log and of the cluster then change places: ``_place`` maps a node of the log to a node of
    the cluster.
    """

    def __init__(
        self,
        trace: Trace,
        jobs: Sequence[PlayedJob] = (),
        passes: Sequence[Pass] = (),
        kinds: Sequence[frozenset[str]] = (),
    ) -> None:
        """Take a trace and its jobs; ``kinds`` are the partitions of each node of the trace.

        Without jobs only the holes are known: a node is taken at once when its hole ends.
        """
        self.names, self._jobs = trace.nodes, jobs
        self.kinds = kinds or (frozenset[str](),) * len(trace.nodes)
        self._began_s = [one.began_s for one in passes]
        self._ended_s = sorted(one.ended_s for one in passes)
        self._place = list(range(len(trace.nodes)))
        self._origin = list(range(len(trace.nodes)))
        self._free: set[int] = set()  # nodes of the cluster that no ordinary job has
        self._holes: dict[frozenset[str], set[int]] = defaultdict(set)  # the log's, by kind
        self._late_s = [0.0] * len(trace.nodes)  # how much later the log's nodes are freed
        self._returning: list[
            tuple[float, int]
        ] = []  # a heap: when a late job leaves, and its node
        self._ready: list[int] = []  # jobs that the log has started, and that wait
        self._over_s: dict[
            int, float
        ] = {}  # nodes that the log's job left while it still waits here
        self._preempted: set[int] = set()
        self._promised: set[str] = set()
        self._waiting: dict[int, WaitingJob] = {}
        self._seen: tuple[WaitingJob, ...] | None = ()
        self.started: dict[int, Started] = {}
        self._events = _events_of(trace, jobs)
        self._next = 0
        self._now_s = -math.inf

    # What the simulated cluster asks.

    def next_s(self) -> float:
        """Return when the next event is."""
        event_s = self._events[self._next][0] if self._next < len(self._events) else math.inf
        returning_s = self._returning[0][0] if self._returning else math.inf
        return min(event_s, returning_s, self._next_look_s())

    def waiting(self) -> tuple[WaitingJob, ...]:
        """Return the jobs that wait for nodes."""
        if self._seen is None:
            self._seen = tuple(self._waiting.values())
        return self._seen

    def last_pass(self, now_s: float) -> BackfillPass | None:
        """Return the last pass, as sdiag tells it."""
        number = bisect_right(self._began_s, now_s)
        return BackfillPass(math.floor(self._began_s[number - 1]), False) if number else None

    def promised(self) -> Set[str]:
        """Return the nodes of jobs for which the last pass has preempted elements."""
        return self._promised

    def starts_elements(self, from_s: float, to_s: float) -> bool:
        """Return whether Slurm starts elements then: at the end of a pass, or if no job waits."""
        ended = bisect_right(self._ended_s, to_s) > bisect_right(self._ended_s, from_s)
        return ended or not self._waiting

    def advance(self, now_s: float, harvested: Set[str]) -> Change:
        """Apply all events up to ``now_s``; elements run on the ``harvested`` nodes."""
        before_s, self._now_s = self._now_s, now_s
        change, waited = Change(), set(self._ready)
        while self._returning and self._returning[0][0] <= now_s:
            self._leave(heappop(self._returning)[1], change)
        moments = set()
        while self._next < len(self._events) and self._events[self._next][0] <= now_s:
            at_s, kind, number = self._events[self._next]
            self._next += 1
            moments.add(at_s)
            self._apply(kind, number, at_s, change)
        change.times = len(moments)
        backfill = bisect_right(self._began_s, now_s) > bisect_right(self._began_s, before_s)
        if backfill:
            self._promised.clear()
        left = set(harvested) if self._ready else set()
        in_order = sorted(self._ready, key=lambda one: (-self._jobs[one].priority, one))
        for number in in_order:
            again = backfill or (change.freed and not self._jobs[number].backfilled)
            if again or number not in waited:
                self._try_to_start(number, change, left)
        return change

    def close(self, end_s: float) -> list[Started]:
        """Return the delays of all jobs that the log has started up to ``end_s``."""
        for number in self._ready:
            self._record_start(number, end_s - self._jobs[number].start_s)
        return list(self.started.values())

    # Inside.

    def _next_look_s(self) -> float:
        """Return when the next backfill pass begins or ends, if a job waits."""
        if not self._ready and not self._waiting:
            return math.inf
        looks = (self._began_s, self._ended_s)
        places = ((times, bisect_right(times, self._now_s)) for times in looks)
        return min((times[at] for times, at in places if at < len(times)), default=math.inf)

    def _apply(self, kind: int, number: int, at_s: float, change: Change) -> None:
        if kind == _HOLE and self._is_claimed(number):
            self._over_s[number] = at_s
        elif kind == _HOLE:
            self._holes[self.kinds[number]].add(number)
            self._return(number, at_s, change)
        elif kind == _QUEUED:
            self._queue(number)
        elif kind == _GONE:
            self._unqueue(number)
        elif kind == _STARTED:
            for node in self._jobs[number].takes:
                self._holes[self.kinds[node]].discard(node)
            self._ready.append(number)
        else:
            self._holes[self.kinds[number]].discard(number)
            if self._place[number] in self._free:
                self._take([number], change)

    def _try_to_start(self, number: int, change: Change, left: set[str]) -> None:
        """Start a job if its nodes are idle, or if the main scheduler can preempt elements."""
        job = self._jobs[number]
        chosen, cleared = self._choose(job.takes, left)
        if len(chosen) < len(job.takes):
            return
        if cleared:
            names = {self.names[self._place[node]] for node in cleared}
            change.cleared |= names
            left -= names
            self._preempted.add(number)
            if job.backfilled:
                self._promised |= {self.names[self._place[node]] for node in chosen}
                return
        self._swap(job.takes, chosen)
        self._take(job.takes, change)
        self._ready.remove(number)
        late_s = self._now_s - job.start_s + (PREEMPTION_S if cleared else 0.0)
        for node in job.takes:
            self._late_s[node] = late_s
            if node in self._over_s:
                self._holes[self.kinds[node]].add(node)
                self._return(node, self._over_s.pop(node), change)
        self._unqueue(number)
        self._record_start(number, late_s)

    def _return(self, node: int, at_s: float, change: Change) -> None:
        """Free one of the log's nodes at ``at_s``, or later if its job started late."""
        late_s, self._late_s[node] = self._late_s[node], 0.0
        if late_s > 0:
            heappush(self._returning, (at_s + late_s, self._place[node]))
        else:
            self._leave(self._place[node], change)

    def _is_claimed(self, node: int) -> bool:
        return any(node in self._jobs[number].takes for number in self._ready)

    def _choose(self, takes: Sequence[int], harvested: Set[str]) -> tuple[list[int], list[int]]:
        """Return the log's nodes that a job gets, and which of them have elements."""
        idle: list[int] = []
        ours: list[int] = []
        self._sort(takes, harvested, idle, ours)
        if len(idle) < len(takes):
            kinds = dict.fromkeys(self.kinds[node] for node in takes)
            for kind in kinds:
                others = sorted(self._holes[kind].difference(takes))
                self._sort(others, harvested, idle, ours)
        chosen = [*idle, *ours][: len(takes)]
        return chosen, chosen[len(idle) :]

    def _sort(
        self, nodes: Iterable[int], harvested: Set[str], idle: list[int], ours: list[int]
    ) -> None:
        for node in nodes:
            if self._place[node] in self._free:
                (ours if self.names[self._place[node]] in harvested else idle).append(node)

    def _swap(self, takes: Sequence[int], chosen: Sequence[int]) -> None:
        wanted, others = set(takes).difference(chosen), set(chosen).difference(takes)
        for one, other in zip(sorted(wanted), sorted(others), strict=True):
            place = self._place
            place[one], place[other] = place[other], place[one]
            self._origin[place[one]], self._origin[place[other]] = one, other

    def _take(self, nodes: Iterable[int], change: Change) -> None:
        places = {self._place[node] for node in nodes}
        names = {self.names[place] for place in places}
        self._free -= places
        change.taken |= names
        change.freed -= names

    def _leave(self, place: int, change: Change) -> None:
        origin = self._origin[place]
        if origin not in self._holes[self.kinds[origin]] and not self._is_claimed(origin):
            return  # the node is down by now
        self._free.add(place)
        change.freed.add(self.names[place])
        change.taken.discard(self.names[place])

    def _queue(self, number: int) -> None:
        job = self._jobs[number]
        self._waiting[number] = WaitingJob(
            number,
            job.partition,
            job.nodes,
            priority=job.priority,
            submit_s=job.eligible_s,
            minutes=math.ceil(job.limit_s / 60) if math.isfinite(job.limit_s) else None,
        )
        self._seen = None

    def _unqueue(self, number: int) -> None:
        if self._waiting.pop(number, None) is not None:
            self._seen = None

    def _record_start(self, number: int, late_s: float) -> None:
        start_s = self._jobs[number].start_s
        began = bisect_right(self._began_s, start_s + late_s) - bisect_right(self._began_s, start_s)
        self.started[number] = Started(late_s, began, number in self._preempted)


# In the order in which they happen at one moment; a trace's events of one moment keep their order.
_DOWN, _HOLE, _QUEUED, _GONE, _STARTED = range(5)


def _events_of(trace: Trace, jobs: Sequence[PlayedJob]) -> list[tuple[float, int, int]]:
    """Return moment, kind, and number of the job or of the log's node, in order."""
    taken = {(node, job.start_s) for job in jobs for node in job.takes}
    rows = zip(trace.time_s.tolist(), trace.node.tolist(), trace.idle.tolist(), strict=True)
    events = [
        (time_s, _HOLE if idle else _DOWN, node)
        for time_s, node, idle in rows
        if idle or (node, time_s) not in taken
    ]
    for number, job in enumerate(jobs):
        if job.eligible_s < job.gone_s:
            events.append((job.eligible_s, _QUEUED, number))
        if job.start_s < trace.end_s:
            events.append((job.start_s, _STARTED, number))
        elif job.eligible_s < job.gone_s < trace.end_s:
            events.append((job.gone_s, _GONE, number))
    return sorted(events, key=lambda event: (event[0], max(event[1], _HOLE)))
