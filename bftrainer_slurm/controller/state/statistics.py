"""Adds up what has happened: events of this process, allocations, how trainers spent their time.

Plans use none of it; people see it, and a trainer may use only so many node-hours.
"""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Iterable
from dataclasses import dataclass, field, fields, replace
from functools import partial
from statistics import median
from typing import Any, TypeAlias

from bftrainer_slurm.controller.observe.reports import Work

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
class NodeTime:
    """The times in which a trainer had at least one node. Times are Unix seconds."""

    seconds: float = 0.0  # the sum of all such times that have ended
    open_s: float | None = None  # when the present such time began; None: no node now
    first_s: float | None = None  # begin of the first allocation
    last_s: float | None = None  # end of the last allocation


def node_time(allocations: Iterable[tuple[float, float | None]]) -> NodeTime:
    """Return when a trainer had nodes; ``allocations`` are starts and ends (None: still open)."""
    in_order = sorted(allocations, key=lambda one: one[0])
    if not in_order:
        return NodeTime()
    seconds, first_s = 0.0, in_order[0][0]
    begin = end = first_s
    for start_s, end_s in in_order:
        if start_s > end:
            seconds, begin, end = seconds + end - begin, start_s, start_s
        end = math.inf if end_s is None else max(end, end_s)
    last_s = max((end_s for _, end_s in in_order if end_s is not None), default=None)
    if end == math.inf:
        return NodeTime(seconds, begin, first_s, last_s)
    return NodeTime(seconds + end - begin, None, first_s, last_s)


def goodput(
    work: Work | None, times: NodeTime, submit_s: float, *, ended: bool, now_s: float
) -> dict[str, float | None]:
    """Return how a trainer's time since its submission was spent, in seconds.

    The time ends now, or with the last allocation of a trainer that has ended. ``lost_s`` is time
    with nodes but without progress: the trainer starts, fails, hangs, or trains steps again (this
    part is ``again_s``). Values that depend on reports are None if there are none.
    """
    since_s = min(known for known in (submit_s, times.first_s, work and work.since_s) if known)
    until_s = times.last_s if ended and times.open_s is None and times.last_s is not None else now_s
    open_s = 0.0 if times.open_s is None else max(0.0, until_s - times.open_s)
    with_nodes_s = times.seconds + open_s
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


Row: TypeAlias = tuple[int, float, float | None, str | None]  # task, start_s, end_s, how


@dataclass(frozen=True, slots=True)
class Tally:
    """A summary of one trainer's allocations so far."""

    grew: int = 0
    shrank: int = 0
    reclaimed: int = 0
    node_s: float = 0.0  # of finished allocations only
    times: NodeTime = field(default_factory=NodeTime)  # when the trainer had nodes


class Allocations:
    """One trainer's allocations; ``tally`` is their summary.

    The summary is updated with each allocation: a trainer may have had a million of them, so no
    turn may read them all again.
    """

    def __init__(self, rows: Iterable[Row]) -> None:
        known = list(rows)
        ways = Counter(how for *_, how in known)
        node_s = sum(end_s - start_s for _, start_s, end_s, _ in known if end_s is not None)
        times = node_time((start_s, end_s) for _, start_s, end_s, _ in known)
        self.tally = Tally(len(known), ways["shrank"], ways["reclaimed"], node_s, times)
        self._open_s = {task: start_s for task, start_s, end_s, _ in known if end_s is None}
        self._last_begin_s = max((start_s for _, start_s, *_ in known), default=-math.inf)

    def begin(self, task: int, start_s: float) -> bool:
        """Add an allocation; return False if it begins before others are over."""
        tally, times = self.tally, self.tally.times
        if task in self._open_s or start_s < (times.open_s or 0.0):
            return False
        if times.open_s is None and start_s <= (times.last_s or 0.0):  # there may have been no gap
            return False
        self._open_s[task] = start_s
        self._last_begin_s = max(self._last_begin_s, start_s)
        if times.open_s is None:
            first_s = start_s if times.first_s is None else times.first_s
            times = replace(times, open_s=start_s, first_s=first_s)
        self.tally = replace(tally, grew=tally.grew + 1, times=times)
        return True

    def end(self, task: int, end_s: float, how: str) -> bool:
        """End an allocation; return whether the summary could be updated.

        It could not if the allocation has not begun, or if another one began after ``end_s``: there
        may be a gap between them.
        """
        start_s, tally, times = self._open_s.pop(task, None), self.tally, self.tally.times
        if start_s is None or times.open_s is None:
            return False
        end_s = max(start_s, end_s)
        if end_s < self._last_begin_s:
            return False
        last_s = end_s if times.last_s is None else max(times.last_s, end_s)
        times = replace(times, last_s=last_s)
        if not self._open_s and times.open_s is not None:
            times = replace(times, seconds=times.seconds + last_s - times.open_s, open_s=None)
        self.tally = replace(
            tally,
            shrank=tally.shrank + (how == "shrank"),
            reclaimed=tally.reclaimed + (how == "reclaimed"),
            node_s=tally.node_s + end_s - start_s,
            times=times,
        )
        return True
