"""Changes of nodes by ordinary jobs, and the backfill passes that a log shows.

``playback`` plays the jobs back.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass, field


@dataclass(slots=True)
class Change:
    """What ordinary jobs do with nodes at one moment.

    They leave the nodes ``freed`` and take ``taken``. On ``cleared`` nodes Slurm ends elements,
    and the nodes stay idle. ``times`` counts moments of the log.
    """

    freed: set[str] = field(default_factory=set)
    taken: set[str] = field(default_factory=set)
    cleared: set[str] = field(default_factory=set)
    times: int = 0


_SAME_PASS = 0.9  # starts within this share of an interval belong to one pass


@dataclass(frozen=True, slots=True)
class Pass:
    """A backfill pass; its last job starts as the pass ends."""

    began_s: float
    ended_s: float


def passes_of(
    starts_s: Iterable[float], from_s: float, to_s: float, interval_s: float
) -> list[Pass]:
    """Return the backfill passes in a time: each of these starts of jobs is in a pass.

    Passes that the log does not show are added as regularly as possible, ``interval_s`` apart or
    more.
    """
    seen: list[Pass] = []
    for start_s in sorted({one for one in starts_s if one <= to_s}):
        if seen and start_s - seen[-1].began_s < _SAME_PASS * interval_s:
            seen[-1] = Pass(seen[-1].began_s, start_s)
        else:
            seen.append(Pass(start_s, start_s))
    if not seen:
        return _regular_passes(from_s, to_s + interval_s, interval_s)
    first_s = seen[0].began_s
    before = int(max(0.0, first_s - from_s) // interval_s)
    passes = _regular_passes(first_s - before * interval_s, first_s, interval_s)
    for one, following in zip(seen, [*seen[1:], None], strict=True):
        passes.append(one)
        if following is not None:
            count = max(1, round((following.began_s - one.began_s) / interval_s))
            gap_s = (following.began_s - one.began_s) / count
            between = (one.began_s + gap_s * number for number in range(1, count))
            passes += [Pass(at_s, at_s) for at_s in between if at_s > one.ended_s]
    last_s = seen[-1].began_s
    return passes + _regular_passes(last_s + interval_s, to_s + interval_s, interval_s)


def _regular_passes(from_s: float, to_s: float, interval_s: float) -> list[Pass]:
    count = math.ceil((to_s - from_s) / interval_s - 1e-9)
    times = (from_s + interval_s * number for number in range(max(0, count)))
    return [Pass(at_s, at_s) for at_s in times]
