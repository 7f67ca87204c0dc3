"""Counts events and their durations.

They are only for people: no decision uses them.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable
from dataclasses import dataclass, field, fields
from functools import partial
from statistics import median
from typing import Any

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

    def shown(self) -> dict[str, Any]:
        """Return a copy for the status."""
        return {one.name: _shown(getattr(self, one.name)) for one in fields(self)}


def _shown(value: Any) -> Any:
    if isinstance(value, Durations):
        return value.shown()
    return {key: _shown(one) for key, one in value.items()} if isinstance(value, dict) else value


@dataclass(frozen=True, slots=True)
class Preemption:
    """An ordinary job that started on nodes of preempted elements."""

    time_s: float  # its start (Unix seconds)
    elements: int  # how many were preempted
    delay_s: float  # how long it waited after the preemption, to within a second


def summary(preemptions: Iterable[Preemption]) -> dict[str, float | int | None]:
    """Return a summary for admins; delays are in seconds, None if there were no preemptions."""
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
