"""What passes of backfill show: who missed one, what was idle after one, how alike both sides were.

Pure functions of what was measured; delays and targets are in ``figures``.
"""

from __future__ import annotations

import math
from bisect import bisect_left, bisect_right
from collections import defaultdict
from collections.abc import Iterable, Sequence
from itertools import chain, pairwise

from scripts.impact_bench.bench import Measured
from scripts.impact_bench.course import Start
from scripts.impact_bench.figures import Shares, makespan_s
from scripts.impact_bench.slurmlog import Log


def passes_missed(measured: Measured, one: Start, other: Start) -> float:
    """Return how many passes later the same job started with trainers; below zero: sooner."""
    late = passes_waited(other, measured.on.passes_s)
    early = passes_waited(one, measured.off.passes_s)
    return 0 if late == early else late - early  # neither may ever have started


def shares(measured: Measured) -> Shares:
    """Return what trainers did to the jobs, and what they had of the nodes."""
    off, on = measured.off, measured.on
    pairs = zip(off.starts, on.starts, strict=True)
    missed = [passes_missed(measured, one, other) for one, other in pairs]
    percent = 100 / len(missed)
    idle_s, used_s = idle_and_used_s(measured)
    return Shares(
        preempted=percent * preempting(on.log, on.starts),
        missed=percent * sum(one > 0 for one in missed),
        sooner=percent * sum(one < 0 for one in missed),
        makespan=100 * (makespan_s(on.starts) / makespan_s(off.starts) - 1),
        used=100 * used_s / idle_s if idle_s and on.work is not None else None,
    )


def idle_and_used_s(measured: Measured) -> tuple[float, float]:
    """Return the node-seconds idle after a pass without trainers, and those that trainers used.

    Theirs are of as much time as the jobs took without them.
    """
    off, on = measured.off, measured.on
    took_s = makespan_s(off.starts)
    end_s = off.begin_s + took_s
    idle_s = idle_after_pass_s(off.starts, measured.nodes, off.passes_s, off.begin_s, end_s)
    return idle_s, elements_s(on.log, on.starts, on.begin_s, on.begin_s + took_s)


def passes_of_both(measured: Measured) -> tuple[tuple[int, int], float]:
    """Return how many there were while both sides had jobs, and how many seconds out of phase."""
    both = (measured.off, measured.on)
    took_s = min(makespan_s(side.starts) for side in both)
    off_s, on_s = (
        [at_s - one.begin_s for at_s in one.passes_s if at_s >= one.begin_s] for one in both
    )
    counts = bisect_right(off_s, took_s), bisect_right(on_s, took_s)
    return counts, out_of_phase_s(off_s, on_s[: counts[1]])


def passes_waited(start: Start, passes_s: Sequence[float]) -> float:
    """Return how many of these passes began while a job waited; infinitely many if it still does.

    They are in order.
    """
    if start.start_s is None:
        return math.inf
    return bisect_right(passes_s, start.start_s) - bisect_right(passes_s, start.submit_s)


def preempting(log: Log, starts: Sequence[Start]) -> int:
    """Return for how many of these jobs Slurm ended an element, from slurmctld's log."""
    return sum(("preempted", one.number) in log for one in starts)


def idle_after_pass_s(
    starts: Sequence[Start], nodes: int, passes_s: Sequence[float], begin_s: float, end_s: float
) -> float:
    """Return the node-seconds that jobs leave idle between two moments.

    Each time that a node is idle counts from the first pass on that began meanwhile.
    """
    busy: dict[str, list[tuple[float, float]]] = defaultdict(list)
    for one in starts:
        if one.start_s is not None:
            for node in one.account.nodes:
                busy[node].append((one.start_s, one.end_s or end_s))
    names = [f"n{number}" for number in range(1, nodes + 1)]
    return sum(_idle_s(sorted(busy[name]), passes_s, begin_s, end_s) for name in names)


def elements_s(log: Log, starts: Sequence[Start], begin_s: float, end_s: float) -> float:
    """Return the node-seconds of all but these jobs between two moments: of the elements.

    From slurmctld's log; Unix seconds.
    """
    used_s, jobs = 0.0, {one.number for one in starts}
    for (kind, job), times in log.items():
        if kind != "allocated" or job in jobs:
            continue
        ends_s = [at_s for at_s, _ in log.get(("known", job), ())]
        for at_s, _ in times:
            later = ends_s[bisect_left(ends_s, at_s) :]
            used_s += max(0.0, min(later[0] if later else end_s, end_s) - max(at_s, begin_s))
    return used_s


def out_of_phase_s(off_s: Sequence[float], on_s: Sequence[float]) -> float:
    """Return how far a pass of one side is at most from the nearest one of the other side.

    Both in order, each since its side's own begin, in seconds.
    """
    if not off_s:
        return 0.0
    nearest = ((off_s[max(0, bisect_left(off_s, at_s) - 1) :][:2], at_s) for at_s in on_s)
    apart_s = (min(abs(one - at_s) for one in near) for near, at_s in nearest)
    return max(apart_s, default=0.0)


def _idle_s(
    busy: Iterable[tuple[float, float]], passes_s: Sequence[float], begin_s: float, end_s: float
) -> float:
    """Return for how long one node is idle after a pass that began while it was."""
    edges = [begin_s, *chain.from_iterable(busy), end_s]
    idle_s = 0.0
    for since_s, until_s in list(pairwise(edges))[::2]:
        seen = passes_s[bisect_left(passes_s, since_s) :]
        idle_s += max(0.0, min(until_s, end_s) - seen[0]) if seen else 0.0
    return idle_s
