"""What passes of backfill show: who waited for how many, what was idle after one. Pure."""

from __future__ import annotations

import math
from bisect import bisect_left, bisect_right
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from itertools import chain, pairwise

from scripts.impact_bench.course import Start
from scripts.impact_bench.slurmlog import Log


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
    starts: Sequence[Start],
    nodes: int,
    passes_s: Sequence[float],
    begin_s: float,
    end_s: float,
    shortest_s: float = 0.0,
) -> float:
    """Return the node-seconds that jobs leave idle between two moments.

    Each time that a node is idle counts from the first pass on that began meanwhile, where it
    lasts as long as ``shortest_s`` from there.
    """
    busy: dict[str, list[tuple[float, float]]] = defaultdict(list)
    for one in starts:
        if one.start_s is not None:
            for node in one.account.nodes:
                busy[node].append((one.start_s, one.end_s or end_s))
    names = [f"n{number}" for number in range(1, nodes + 1)]
    holes_s = (_holes_s(sorted(busy[name]), passes_s, begin_s, end_s) for name in names)
    return sum(one for one in chain.from_iterable(holes_s) if one >= shortest_s)


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

    Both since their side's own begin, in seconds.
    """
    if not off_s:
        return 0.0
    return max((min(abs(one - at_s) for one in off_s) for at_s in on_s), default=0.0)


def _holes_s(
    busy: Iterable[tuple[float, float]], passes_s: Sequence[float], begin_s: float, end_s: float
) -> Iterator[float]:
    """Yield how long one node is idle each time, after a pass that began while it was."""
    edges = [begin_s, *chain.from_iterable(busy), end_s]
    for since_s, until_s in list(pairwise(edges))[::2]:
        seen = passes_s[bisect_left(passes_s, since_s) :]
        if seen:
            yield max(0.0, min(until_s, end_s) - seen[0])
