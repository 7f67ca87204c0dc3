"""Compares both sides: differences, missed passes, used nodes, targets. Pure."""

from __future__ import annotations

import math
from bisect import bisect_right
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TypeAlias

from scripts.benchkit.figures import Summary, Target, at_least, at_most, summarise
from scripts.impact_bench.course import Start
from scripts.impact_bench.slurmlog import Log, Span, elements
from scripts.impact_bench.trainers import Work

MEDIAN_TARGET_S, P95_TARGET_S, MEAN_TARGET_S = 0.05, 0.5, 0.3
MISSED_TARGET, PREEMPTED_TARGET = 1.0, 2.0  # percent of the jobs
RESIZED_TARGET = 1.0  # percent of the jobs
MAKESPAN_TARGET = 0.3  # percent more
SHORTEST_LIMIT_S = 60.0  # Slurm's time limits are whole minutes
USED_TARGET = 85.0  # percent of the node-seconds that trainers could have used

Pair: TypeAlias = tuple[Start, Start]  # the same job without trainers and with them


@dataclass
class Side:
    """All that was measured without trainers, or with them."""

    name: str
    starts: Sequence[Start] = ()  # of the jobs, in the stream's order
    begin_s: float = 0.0  # the pass of backfill that it began with, Unix seconds
    passes_s: Sequence[float] = ()  # of backfill
    log: Log = field(default_factory=dict)  # slurmctld's
    left_behind: int = 0  # processes of trainers that outlived them
    work: Work = field(default_factory=Work)  # what the trainers did meanwhile

    @property
    def elements(self) -> Iterator[Span]:
        """When elements had nodes, as slurmctld's log tells."""
        return elements(self.log, {one.number for one in self.starts})

    @property
    def failed(self) -> int:
        """How many jobs did not run to their end, once and well."""
        return sum(one.failed for one in self.starts)

    @property
    def makespan_s(self) -> float:
        """Seconds from the first submission to the last job's end; NaN where no job ended."""
        ends_s = [one.end_s for one in self.starts if one.end_s is not None]
        return max(ends_s, default=math.nan) - min(one.submit_s for one in self.starts)


@dataclass
class Measured:
    """Both sides of a run; they had the same stream."""

    off: Side
    on: Side
    nodes: int
    gpus: int = 1  # of a node; 1 where all have whole nodes

    @property
    def pairs(self) -> list[Pair]:
        """The same job on each side, in the stream's order."""
        return list(zip(self.off.starts, self.on.starts, strict=True))


@dataclass(frozen=True, slots=True)
class Comparison:
    """Start delays without and with trainers, in seconds; jobs that never started are in none.

    A job's ``difference`` is its delay with trainers less its delay without.
    """

    off: Summary
    on: Summary
    difference: Summary


@dataclass(frozen=True, slots=True)
class Shares:
    """What trainers did to the jobs, and how much of the nodes they had; all in percent.

    ``used`` is None if the jobs leave nothing idle, or if there are no trainers.
    """

    preempted: float  # jobs that took an element's node
    missed: float  # that started some passes of backfill later than without trainers
    sooner: float  # that started some passes sooner
    resized: float  # that had another number of nodes than without trainers
    elsewhere: float  # that had other nodes
    makespan: float  # how much longer all took
    used: float | None  # of the node-seconds that were idle, without trainers, after a pass


@dataclass(frozen=True)
class Figures:
    """All figures of both sides together.

    ``idle_s`` are the node-seconds (GPU-seconds, where jobs share nodes) idle after a pass without
    trainers, ``long_s`` those of them in holes that last another minute, ``whole_s`` those of nodes
    that are idle as a whole, ``used_s`` those that trainers had in the same time;
    ``passes`` are those of each side while both had jobs.
    """

    start_delay_s: Comparison | None
    shares: Shares
    idle_s: float
    long_s: float
    whole_s: float
    used_s: float
    passes: Mapping[str, int]
    out_of_phase_s: float
    targets: list[Target]


def figures_of(measured: Measured) -> Figures:
    """Return the figures of both sides."""
    off, on, gpus = measured.off, measured.on, measured.gpus
    end_s = off.begin_s + off.makespan_s
    holes_s = holes_after_pass_s(off, measured.nodes, end_s, gpus)
    whole_s = gpus * sum(holes_after_pass_s(off, measured.nodes, end_s, gpus, slot=gpus))
    idle_s, used_s = sum(holes_s), elements_s(on, on.begin_s + off.makespan_s, gpus)
    missed = passes_missed(measured)
    percent = 100 / len(missed)
    had = [(set(one.account.nodes), set(other.account.nodes)) for one, other in measured.pairs]
    shares = Shares(
        preempted=percent * sum(preempts(on, one) for one in on.starts),
        missed=percent * sum(one > 0 for one in missed),
        sooner=percent * sum(one < 0 for one in missed),
        resized=percent * sum(len(one) != len(other) for one, other in had),
        elsewhere=percent * sum(one != other for one, other in had),
        makespan=100 * (on.makespan_s / off.makespan_s - 1),
        used=100 * used_s / idle_s if idle_s else None,
    )
    until_s = min(off.makespan_s, on.makespan_s)
    off_s, on_s = (
        [at_s - one.begin_s for at_s in one.passes_s if 0 <= at_s - one.begin_s <= until_s]
        for one in (off, on)
    )
    seen = compared(measured.pairs)
    return Figures(
        start_delay_s=seen,
        shares=shares,
        idle_s=idle_s,
        long_s=sum(one for one in holes_s if one >= SHORTEST_LIMIT_S),
        whole_s=whole_s,
        used_s=used_s,
        passes={off.name: len(off_s), on.name: len(on_s)},
        out_of_phase_s=out_of_phase_s(off_s, on_s),
        targets=[]
        if seen is None
        else targets(seen, shares, off.failed, on.failed, on.left_behind),
    )


def delays(pairs: Iterable[Pair]) -> list[tuple[float, float]]:
    """Return the start delays of the jobs that started on both sides, in the stream's order."""
    found = [(one.delay_s, other.delay_s) for one, other in pairs]
    return [(one, other) for one, other in found if one is not None and other is not None]


def compared(pairs: Iterable[Pair]) -> Comparison | None:
    """Compare the delays of these jobs; None if none of them started on both sides."""
    both_s = delays(pairs)
    if not both_s:
        return None
    off_s, on_s = zip(*both_s, strict=True)
    return Comparison(
        summarise(off_s), summarise(on_s), summarise([other - one for one, other in both_s])
    )


def passes_missed(measured: Measured) -> list[float]:
    """Return how many passes later each job started with trainers; below zero: sooner."""
    waited = [
        (passes_waited(one, measured.off.passes_s), passes_waited(other, measured.on.passes_s))
        for one, other in measured.pairs
    ]
    return [0 if early == late else late - early for early, late in waited]  # both may be infinite


def passes_waited(start: Start, passes_s: Sequence[float]) -> float:
    """Return how many of these passes began while a job waited; infinitely many if it still does.

    The passes are in order.
    """
    if start.start_s is None:
        return math.inf
    return bisect_right(passes_s, start.start_s) - bisect_right(passes_s, start.submit_s)


def preempts(side: Side, start: Start) -> bool:
    """Return whether Slurm ended an element for this job, from slurmctld's log."""
    return ("preempted", start.number) in side.log


def holes_after_pass_s(
    side: Side, nodes: int, end_s: float, gpus: int = 1, slot: int = 1
) -> list[float]:
    """Return how long a slot is idle each time that jobs leave it idle, from begin to end.

    A slot are so many GPUs of a node that has ``gpus``; by default it is the node. Each time counts
    from the first pass that began in it.
    """
    changes: dict[str, list[tuple[float, int]]] = defaultdict(list)
    for one in side.starts:
        if one.start_s is not None:
            had = one.job.gpus or gpus
            for node in one.account.nodes:
                changes[node] += [(one.start_s, -had), (one.end_s or end_s, had)]
    passes = [(at_s, 0) for at_s in side.passes_s if at_s >= side.begin_s]
    names = [f"n{number}" for number in range(1, nodes + 1)]
    return [
        hole_s
        for name in names
        for hole_s in _holes_s([*changes[name], *passes], end_s, gpus, slot)
    ]


def _holes_s(
    events: Iterable[tuple[float, int]], end_s: float, gpus: int, slot: int
) -> Iterator[float]:
    """Yield how long slots of one node are idle each time; an event without a change is a pass."""
    since_s: list[float] = []  # of each idle slot that a pass has seen
    for at_s, change in sorted(events, key=lambda event: (event[0], event[1] == 0)):
        if at_s > end_s:
            break
        gpus += change
        slots = max(gpus, 0) // slot
        while len(since_s) > slots:
            yield at_s - since_s.pop()
        if change == 0:
            since_s += [at_s] * (slots - len(since_s))
    yield from (end_s - one for one in since_s)


def elements_s(side: Side, end_s: float, gpus: int = 1) -> float:
    """Return the node-seconds of the elements (all but the ordinary jobs) from begin to end.

    Where a node has several ``gpus``, they are GPU-seconds. They are read from slurmctld's log;
    times are Unix seconds.
    """
    return sum(
        max(0.0, min(one.until_s, end_s) - max(one.from_s, side.begin_s))
        * side.work.parts.get(one.array, gpus)
        for one in side.elements
    )


def out_of_phase_s(off_s: Sequence[float], on_s: Sequence[float]) -> float:
    """Return the largest distance of a pass of one side to the nearest pass of the other side.

    Both count from the begin of their own side, in seconds.
    """
    if not off_s:
        return 0.0
    return max((min(abs(one - at_s) for one in off_s) for at_s in on_s), default=0.0)


def targets(
    comparison: Comparison, shares: Shares, failed_off: int, failed_on: int, left_behind: int
) -> list[Target]:
    """Return the targets, met or missed."""
    difference = comparison.difference
    judged = [
        at_most("median of the differences, s", difference.median, MEDIAN_TARGET_S),
        at_most("p95 of the differences, s", difference.p95, P95_TARGET_S),
        at_most("mean of the differences, s", difference.mean, MEAN_TARGET_S),
        at_most("jobs that missed a pass, %", shares.missed, MISSED_TARGET),
        at_most("jobs that preempted an element, %", shares.preempted, PREEMPTED_TARGET),
        at_most("jobs on another number of nodes, %", shares.resized, RESIZED_TARGET),
        at_most("makespan longer by, %", shares.makespan, MAKESPAN_TARGET),
        at_most("jobs failed that did not without", failed_on - failed_off, 0),
        at_most("processes of trainers left behind", left_behind, 0),
    ]
    if shares.used is not None:
        judged.append(at_least("idle node-seconds used, %", shares.used, USED_TARGET))
    return judged
