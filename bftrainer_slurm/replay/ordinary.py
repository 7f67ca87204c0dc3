"""What the simulated cluster needs to know about ordinary jobs, and the simplest source: holes.

Jobs that wait and start are in ``playback``.
"""

from __future__ import annotations

import math
from bisect import bisect_right
from collections.abc import Sequence, Set
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
