"""What has happened, as sums: events of this process, and how trainers spent their time.

Plans use none of it; people see it, and a trainer may use only so many node-hours.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, fields
from functools import partial
from statistics import median
from typing import Any

from bftrainer_slurm.controller.observe.reports import Work
from bftrainer_slurm.controller.state.schema import GPUS, NODE_SHARE

LATE_S = 10.0  # elements leave much faster, so a job that waits longer has missed a pass
# Bounds of histograms, in seconds. A node comes back within tenths of a second.
_DELAYS_S = (0.5, 1.0, 2.0, 5.0, LATE_S, 30.0, 60.0, 120.0)
_PAUSES_S = (0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0)


@dataclass(slots=True)
class Durations:
    """A histogram of durations; ``within`` counts the durations up to each bound."""

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
    """All counters. They only increase.

    ``plans`` are counted by status, ``pauses`` by direction ("up" if the trainer grew), and
    ``requests`` and ``failed_requests`` by the gateway's method.
    """

    started: int = 0
    ended: Counter[str] = field(default_factory=Counter)  # by how the allocation ended
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

    def note_delay(self, one: Delay) -> None:
        """Count an ordinary job that waited for elements."""
        self.delays.add(one.delay_s)
        self.preempted_elements += one.elements
        self.late_jobs += one.delay_s > LATE_S

    def shown(self) -> dict[str, Any]:
        """Return a copy for the status."""
        return {one.name: _shown(getattr(self, one.name)) for one in fields(self)}


def _shown(value: Any) -> Any:
    if isinstance(value, Durations):
        return value.shown()
    return {key: _shown(one) for key, one in value.items()} if isinstance(value, dict) else value


@dataclass(frozen=True, slots=True)
class Delay:
    """An ordinary job that started later because of elements."""

    time_s: float  # its start (Unix seconds)
    elements: int  # how many were preempted on its nodes; 0: a pass could not start it beside them
    delay_s: float  # how long it waited after the preemption or that pass, to within a second


def summary(delays: Iterable[Delay]) -> dict[str, float | int | None]:
    """Return a summary for admins; delays are in seconds, None if there were none."""
    known = list(delays)
    seconds = [one.delay_s for one in known]
    return {
        "jobs": len(known),
        "elements": sum(one.elements for one in known),
        "late_jobs": sum(one > LATE_S for one in seconds),
        "delay_median_s": median(seconds) if seconds else None,
        "delay_max_s": max(seconds, default=None),
        "delay_sum_s": sum(seconds),
    }


@dataclass(frozen=True, slots=True)
class Totals:
    """What a trainer has had of nodes until now. Times are Unix seconds."""

    grew: int = 0  # allocations
    shrank: int = 0  # those that the controller has ended,
    reclaimed: int = 0  # that Slurm has ended for other jobs,
    ended: int = 0  # and that have ended by themselves
    node_s: float = 0.0  # a part of a node counts as its share
    gpu_s: float = 0.0  # on nodes that jobs share
    with_nodes_s: float = 0.0  # seconds in which it had at least one node
    first_s: float | None = None  # begin of the first allocation
    last_s: float | None = None  # end of the last one; None: it has nodes, or has had none


# ``totals`` has a row for each trainer: all its allocations that have ended. It changes when one
# ends. Until the end of the one before, the time with nodes is counted; since then, and since the
# first of those that had not ended began, the trainer had nodes all the time.
ADD_ENDED = f"""
INSERT INTO totals
SELECT array, start_s, end_s, :how = 'shrank', :how = 'reclaimed', :how = 'ended',
    share * (end_s - start_s), gpus * (end_s - start_s), end_s - since_s
FROM (
    SELECT array, start_s, {NODE_SHARE} AS share, {GPUS} AS gpus,
        max(start_s, :end_s) AS end_s, (
        SELECT min(start_s) FROM allocations WHERE array = :array AND end_s IS NULL
    ) AS since_s
    FROM allocations WHERE array = :array AND task = :task AND end_s IS NULL
) WHERE true
ON CONFLICT (array) DO UPDATE SET
    start_s = min(start_s, excluded.start_s),
    end_s = max(end_s, excluded.end_s),
    shrank = shrank + excluded.shrank,
    reclaimed = reclaimed + excluded.reclaimed,
    ended = ended + excluded.ended,
    node_s = node_s + excluded.node_s,
    gpu_s = gpu_s + excluded.gpu_s,
    with_nodes_s = with_nodes_s + max(0, min(excluded.with_nodes_s, excluded.end_s - end_s))
"""
# The columns of ``Totals``, by ``array``, with what has not ended until ``:now``.
TOTALS = f"""
SELECT array, sum(grew) AS grew, sum(shrank) AS shrank, sum(reclaimed) AS reclaimed,
    sum(ended) AS ended, total(node_s) AS node_s, total(gpu_s) AS gpu_s,
    total(with_nodes_s)
        + coalesce(max(0, :now - max(min(since_s), coalesce(max(end_s), 0))), 0) AS with_nodes_s,
    min(start_s) AS first_s, iif(count(since_s), NULL, max(end_s)) AS last_s
FROM (
    SELECT array, shrank + reclaimed + ended AS grew, shrank, reclaimed, ended,
        node_s, gpu_s, with_nodes_s, start_s, end_s, NULL AS since_s FROM totals
    UNION ALL
    SELECT array, 1, 0, 0, 0, {NODE_SHARE} * max(0, :now - start_s),
        {GPUS} * max(0, :now - start_s), 0, start_s, NULL, start_s
        FROM allocations WHERE end_s IS NULL
)
"""
TOTALS_OF_ONE = f"{TOTALS} WHERE array = :array GROUP BY array"


def totals_of_one(rows: Iterable[Sequence[Any]]) -> Totals:
    """Read the answer to ``TOTALS_OF_ONE``; it has no row for a trainer without allocations."""
    return next((Totals(*tuple(row)[1:]) for row in rows), Totals())


def goodput(
    work: Work | None, totals: Totals, submit_s: float, *, ended: bool, now_s: float
) -> dict[str, float | None]:
    """Return how a trainer's time since its submission was spent, in seconds.

    The time ends now, or with the last allocation of a trainer that has ended. ``lost_s`` is time
    with nodes but without progress: the trainer starts, fails, hangs, or trains steps again (this
    part is ``again_s``). Values that depend on reports are None if there are none.
    """
    since_s = min(known for known in (submit_s, totals.first_s, work and work.since_s) if known)
    until_s = totals.last_s if ended and totals.last_s is not None else now_s
    with_nodes_s = totals.with_nodes_s
    trained_s = rescaling_s = lost_s = again_s = None
    if work is not None:
        trained_s = min(work.trained_s, with_nodes_s)
        rescaling_s = min(work.rescaling_s, with_nodes_s - trained_s)
        lost_s = with_nodes_s - trained_s - rescaling_s
        again_s = min(work.again_s, lost_s)
    return {
        "trained_s": trained_s,
        "waiting_s": max(0.0, until_s - since_s - with_nodes_s),
        "rescaling_s": rescaling_s,
        "lost_s": lost_s,
        "again_s": again_s,
        "with_nodes_s": with_nodes_s,
    }
