"""What the simulated cluster needs to know about ordinary jobs, and the simplest source: holes.

When backfill looked, as far as a log of jobs shows it, is here too. Jobs that wait and start are in
``playback``.
"""

from __future__ import annotations

import math
from bisect import bisect_right
from collections.abc import Iterable, Sequence, Set
from dataclasses import dataclass, field
from typing import Protocol

from bftrainer_slurm.model import BackfillPass, WaitingJob
from bftrainer_slurm.replay.trace import Trace


@dataclass(slots=True)
class Change:
    """What ordinary jobs do with nodes at one moment.

    They leave ``freed`` nodes and take ``taken`` ones. On ``cleared`` nodes Slurm ends elements,
    and these nodes stay idle. ``times`` counts moments of the log.
    """

    freed: set[str] = field(default_factory=set)
    taken: set[str] = field(default_factory=set)
    cleared: set[str] = field(default_factory=set)
    times: int = 0


class Ordinary(Protocol):
    """The ordinary jobs, as the simulated cluster sees them."""

    names: tuple[str, ...]
    kinds: Sequence[frozenset[str]]

    def next_s(self) -> float:
        """Return when something happens next."""

    def waiting(self) -> tuple[WaitingJob, ...]:
        """Return the jobs that wait for nodes."""

    def last_pass(self, now_s: float) -> BackfillPass | None:
        """Return the last pass of backfill, as sdiag tells it."""

    def promised(self) -> Set[str]:
        """Return the nodes on which Slurm starts no element: it has preempted some for a job."""

    def lets_elements_start(self, from_s: float, to_s: float) -> bool:
        """Whether Slurm starts elements in this time."""

    def until(self, now_s: float, harvested: Set[str]) -> Change:
        """Carry out all events up to now, with elements on the ``harvested`` nodes."""


class ListedHoles:
    """Holes without further knowledge: a node is taken at once when its hole ends."""

    def __init__(self, trace: Trace) -> None:
        self.names = trace.nodes
        self.kinds: Sequence[frozenset[str]] = (frozenset(),) * len(trace.nodes)
        self._times: list[float] = trace.time_s.tolist()
        self._node: list[int] = trace.node.tolist()
        self._idle: list[bool] = trace.idle.tolist()
        self._next = 0

    def next_s(self) -> float:
        """Return the time of the next event."""
        return self._times[self._next] if self._next < len(self._times) else math.inf

    def waiting(self) -> tuple[WaitingJob, ...]:
        """Return none: waiting jobs are not known."""
        return ()

    def last_pass(self, now_s: float) -> None:
        """Return none."""

    def promised(self) -> Set[str]:
        """Return none."""
        return frozenset()

    def lets_elements_start(self, from_s: float, to_s: float) -> bool:
        """Whether Slurm starts elements then: at any time."""
        return True

    def until(self, now_s: float, harvested: Set[str]) -> Change:
        """Take the events up to now."""
        end = bisect_right(self._times, now_s, lo=self._next)
        last = {self._node[index]: self._idle[index] for index in range(self._next, end)}
        times = len(set(self._times[self._next : end]))
        self._next = end
        freed = {self.names[node] for node, idle in last.items() if idle}
        taken = {self.names[node] for node, idle in last.items() if not idle}
        return Change(freed, taken, times=times)


_SAME_PASS = 0.9  # share of an interval: backfilled starts so close together are of one pass


@dataclass(frozen=True, slots=True)
class Pass:
    """A pass of backfill; its last job starts as it ends."""

    began_s: float
    ended_s: float


def passes_of(
    starts_s: Iterable[float], from_s: float, to_s: float, interval_s: float
) -> list[Pass]:
    """Return the passes of backfill in a time: each of these starts of jobs is in one.

    Between those that the log shows, they come as regularly as possible, at least ``interval_s``
    apart.
    """
    seen: list[Pass] = []
    for start_s in sorted({one for one in starts_s if one <= to_s}):
        if seen and start_s - seen[-1].began_s < _SAME_PASS * interval_s:
            seen[-1] = Pass(seen[-1].began_s, start_s)
        else:
            seen.append(Pass(start_s, start_s))
    if not seen:
        return _regular(from_s, to_s + interval_s, interval_s)
    first_s = seen[0].began_s
    before = int(max(0.0, first_s - from_s) // interval_s)
    passes = _regular(first_s - before * interval_s, first_s, interval_s)
    for one, following in zip(seen, [*seen[1:], None], strict=True):
        passes.append(one)
        if following is not None:
            count = max(1, round((following.began_s - one.began_s) / interval_s))
            gap_s = (following.began_s - one.began_s) / count
            between = (one.began_s + gap_s * number for number in range(1, count))
            passes += [Pass(at_s, at_s) for at_s in between if at_s > one.ended_s]
    last_s = seen[-1].began_s
    return passes + _regular(last_s + interval_s, to_s + interval_s, interval_s)


def _regular(from_s: float, to_s: float, interval_s: float) -> list[Pass]:
    count = math.ceil((to_s - from_s) / interval_s - 1e-9)
    times = (from_s + interval_s * number for number in range(max(0, count)))
    return [Pass(at_s, at_s) for at_s in times]
