"""Compares both sides: differences, missed passes, used nodes, targets. Pure."""

from __future__ import annotations

import math
from bisect import bisect_right
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from bftrainer_slurm.controller.decide.node_choice import Candidate, predict_nodes
from scripts.benchkit.figures import Summary, Target, at_least, at_most, summarise
from scripts.benchkit.text import table
from scripts.impact_bench.course import Start
from scripts.impact_bench.slurmlog import Log, elements
from scripts.impact_bench.trainers import Work

# What is judged, and what it may be at most: seconds of the differences, percent of the jobs.
DIFFERENCE_TARGETS_S = {"median": 0.05, "p95": 0.5, "mean": 0.3}
SHARE_TARGETS = {
    "missed": ("jobs that missed a pass", 1.0),
    "preempted": ("jobs that preempted an element", 2.0),
    "resized": ("jobs on another number of nodes", 1.0),
    "moved": ("jobs on other nodes", 3.0),
    "displaced": ("jobs that trainers displaced", 3.0),
    "makespan": ("makespan longer by", 0.3),
}
_WHERE = ("moved", "displaced")
USED_TARGET = 85.0  # percent of the node-seconds that trainers could have used


@dataclass
class Side:
    """All that was measured without trainers, or with them."""

    name: str
    starts: Sequence[Start] = ()  # of the jobs, in the stream's order
    begin_s: float = 0.0  # the pass of backfill that it began with, Unix seconds
    passes_s: Sequence[float] = ()  # of backfill
    looks_s: Sequence[float] = ()  # of the main scheduler
    log: Log = field(default_factory=dict)  # slurmctld's
    left_behind: int = 0  # processes of trainers that outlived them
    work: Work = field(default_factory=Work)  # what the trainers did meanwhile

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
    def pairs(self) -> list[tuple[Start, Start]]:
        """The same job without trainers and with them, in the stream's order."""
        return list(zip(self.off.starts, self.on.starts, strict=True))


@dataclass(frozen=True)
class Figures:
    """All figures of both sides together.

    ``delays_s``: start delays without and with trainers, and each job's difference, of jobs that
    started on both sides; empty if there are none. ``held_s``: for how long elements held jobs up
    (``beside_ordinary_jobs``), and the error of that. ``shares``, in percent: jobs that
    ``preempted`` an element, that ``missed`` a pass, that were ``resized``, ``moved`` to other
    nodes, or ``displaced`` by elements; how much longer the ``makespan`` is; what trainers ``used``
    of what was idle (None if nothing was). ``idle_s``: node-seconds (GPU-seconds, where jobs share
    nodes) idle after a pass without trainers; ``used_s``: those that trainers had in the same time.
    """

    delays_s: Mapping[str, Summary]
    held_s: Mapping[str, Summary]
    shares: Mapping[str, float | None]
    idle_s: float
    used_s: float
    targets: Sequence[Target]


def figures_of(measured: Measured) -> Figures:
    """Return the figures of both sides."""
    off, on, gpus, pairs = measured.off, measured.on, measured.gpus, measured.pairs
    idle_s = sum(holes_after_pass_s(off, measured.nodes, off.begin_s + off.makespan_s, gpus))
    used_s = elements_s(on, on.begin_s + off.makespan_s, gpus)
    moved = sum({*one.account.nodes} != {*other.account.nodes} for one, other in pairs)
    sizes = [(len(one.account.nodes), len(other.account.nodes)) for one, other in pairs]
    alone = [beside_ordinary_jobs(one, measured.nodes, gpus) for one in (off, on)]
    held_s = {
        name: summarise([held for _, held in jobs] or [0.0])
        for name, jobs in zip(("error", "held up"), alone, strict=True)
    }
    percent = 100 / len(pairs)
    shares = {
        "preempted": percent * sum(preempts(on, one) for one in on.starts),
        "missed": percent * sum(one > 0 for one in passes_missed(measured)),
        "resized": percent * sum(one != other for one, other in sizes),
        "moved": percent * moved,
        "displaced": percent * sum(displaced for displaced, _ in alone[1]),
        "makespan": 100 * (on.makespan_s / off.makespan_s - 1),
        "used": 100 * used_s / idle_s if idle_s else None,
    }
    delays_s = compared(pairs)
    failed = on.failed - off.failed
    unjudged = () if gpus > 1 else _WHERE  # which whole nodes a job has is nothing to others
    to_judge = shares | dict.fromkeys(unjudged)
    judged = targets(delays_s, to_judge, failed, on.left_behind) if delays_s else []
    return Figures(delays_s, held_s, shares, idle_s, used_s, judged)


def compared(pairs: Iterable[tuple[Start, Start]]) -> dict[str, Summary]:
    """Compare the delays of jobs that started on both sides; empty if none did."""
    found = [(one.delay_s, other.delay_s) for one, other in pairs]
    both_s = [(one, other) for one, other in found if one is not None and other is not None]
    if not both_s:
        return {}
    off_s, on_s = zip(*both_s, strict=True)
    later_s = [other - one for one, other in both_s]
    return dict(
        zip(("without", "with", "difference"), map(summarise, (off_s, on_s, later_s)), strict=True)
    )


def passes_missed(measured: Measured) -> list[float]:
    """Return how many passes later each job started with trainers; below zero: sooner."""
    waited = [
        (passes_waited(one, measured.off.passes_s), passes_waited(other, measured.on.passes_s))
        for one, other in measured.pairs
    ]
    return [0 if early == late else late - early for early, late in waited]  # both may be infinite


def passes_waited(start: Start, passes_s: Sequence[float]) -> float:
    """Return how many of these passes, in order, began while a job waited; inf if it still does."""
    if start.start_s is None:
        return math.inf
    return bisect_right(passes_s, start.start_s) - bisect_right(passes_s, start.submit_s)


def preempts(side: Side, start: Start) -> bool:
    """Return whether Slurm ended an element for this job, from slurmctld's log."""
    return ("preempted", start.number) in side.log


def beside_ordinary_jobs(side: Side, nodes: int, gpus: int = 1) -> list[tuple[bool, float]]:
    """Return what elements did to each job: displaced it, and held it up for so long (seconds).

    A job is displaced if Slurm put it on other nodes than if only ordinary jobs ran at that moment,
    and held up from the first look at which it would have started then. One such job changes when
    and where later ones start; this tells the first of them from the others. Jobs that backfill
    started are left out: it keeps nodes for those that wait.
    """
    jobs = {start.number: start for start in side.starts}
    free = {f"n{number}": gpus for number in range(1, nodes + 1)}

    def needs(number: int) -> int:
        return jobs[number].job.gpus or gpus

    def chosen(number: int, free: Mapping[str, int]) -> tuple[str, ...]:
        room = (
            Candidate(name, place, 1, has)
            for place, (name, has) in enumerate(free.items())
            if has >= needs(number)
        )
        return predict_nodes(jobs[number].job.nodes, room)

    events = [(at_s, "look", 0, "") for at_s in side.looks_s]
    for kind in ("submitted", "known", "allocated"):
        for number in jobs:
            times = side.log.get((kind, number), ())
            events += ((at_s, kind, number, node) for at_s, node in times)
    order = ("submitted", "known", "look", "allocated")  # of what one look shows in the log
    waiting, could_s = list[int](), dict[int, float]()
    found = list[tuple[bool, float]]()
    for at_s, kind, number, node in sorted(events, key=lambda one: (one[0], order.index(one[1]))):
        if kind == "submitted":
            waiting.append(number)
        elif kind == "known":
            free[node] += needs(number)
        elif kind == "look":
            left = dict(free)
            for one in waiting:
                if not (on := chosen(one, left)):
                    break
                could_s.setdefault(one, at_s)
                left |= {name: left[name] - needs(one) for name in on}
        else:
            had = jobs[number].account.nodes
            if ("backfilled", number) not in side.log:
                held_s = at_s - could_s.get(number, at_s)
                found.append(({*chosen(number, free)} != {*had}, held_s))
            waiting.remove(number)
            free |= {name: free[name] - needs(number) for name in had}
    return found


def holes_after_pass_s(side: Side, nodes: int, end_s: float, gpus: int = 1) -> list[float]:
    """Return how long a node, or one of its ``gpus``, is idle each time, from begin to end.

    Each time counts from the first pass that began in it.
    """
    changes: dict[str, list[tuple[float, int]]] = defaultdict(list)
    for one in side.starts:
        if one.start_s is not None:
            had = one.job.gpus or gpus
            for node in one.account.nodes:
                changes[node] += [(one.start_s, -had), (one.end_s or end_s, had)]
    passes = [(at_s, 0) for at_s in side.passes_s if at_s >= side.begin_s]
    names = [f"n{number}" for number in range(1, nodes + 1)]
    return [hole_s for name in names for hole_s in _holes_s([*changes[name], *passes], end_s, gpus)]


def _holes_s(events: Iterable[tuple[float, int]], end_s: float, free: int) -> Iterator[float]:
    """Yield how long units of one node are idle each time; an event without a change is a pass."""
    since_s: list[float] = []  # of each idle unit that a pass has seen
    for at_s, change in sorted(events, key=lambda event: (event[0], event[1] == 0)):
        if at_s > end_s:
            break
        free += change
        while len(since_s) > max(free, 0):
            yield at_s - since_s.pop()
        if change == 0:
            since_s += [at_s] * (free - len(since_s))
    yield from (end_s - one for one in since_s)


def elements_s(side: Side, end_s: float, gpus: int = 1) -> float:
    """Return the node-seconds (GPU-seconds) of the elements from begin to end (Unix seconds)."""
    return sum(
        max(0.0, min(one.until_s, end_s) - max(one.from_s, side.begin_s))
        * side.work.parts.get(one.array, gpus)
        for one in elements(side.log, {one.number for one in side.starts})
    )


def targets(
    delays_s: Mapping[str, Summary],
    shares: Mapping[str, float | None],
    failed: int,
    left_behind: int,
) -> list[Target]:
    """Return the targets, met or missed; ``failed``: jobs that failed, less those without."""
    difference = delays_s["difference"]
    judged = [
        at_most(f"{name} of the differences, s", getattr(difference, name), most)
        for name, most in DIFFERENCE_TARGETS_S.items()
    ]
    judged += [
        at_most(f"{text}, %", share, most)
        for name, (text, most) in SHARE_TARGETS.items()
        if (share := shares.get(name)) is not None
    ]
    judged.append(at_most("jobs failed that did not without", failed, 0))
    judged.append(at_most("processes of trainers left behind", left_behind, 0))
    if (used := shares["used"]) is not None:
        judged.append(at_least("idle node-seconds used, %", used, USED_TARGET))
    return judged


def document(measured: Measured, found: Figures) -> dict[str, Any]:
    """Return all results for JSON; durations are in seconds, times in Unix seconds."""
    sides = (measured.off, measured.on)
    by_side = ("failed", "makespan_s", "passes_s", "begin_s")
    return {
        **vars(found),
        **{what: {side.name: getattr(side, what) for side in sides} for what in by_side},
        "left_behind": measured.on.left_behind,
        "trainers": measured.on.work,
        "jobs": {side.name: side.starts for side in sides},
    }


def rendered(measured: Measured, found: Figures) -> list[str]:
    """Return the figures as text, part by part, without the targets, which say the shares."""
    work, unit = measured.on.work, "node-seconds" if measured.gpus == 1 else "GPU-seconds"
    rows: list[Sequence[str]] = [("start delay, s", "JOBS", "MEDIAN", "MEAN", "P95", "MAX")]
    for name, one in {**found.delays_s, **found.held_s}.items():
        values = (one.median, one.mean, one.p95, one.most)
        rows.append((f"  {name}", str(one.count), *(f"{value:.2f}" for value in values)))
    off, on, shares = measured.off, measured.on, found.shares
    return [
        table(rows),
        f"idle after a pass, without trainers: {found.idle_s:,.0f} {unit}; "
        f"used: {found.used_s:,.0f}\n"
        f"makespan: {off.makespan_s:.1f} s without trainers, {on.makespan_s:.1f} s with\n"
        f"jobs on other nodes than without trainers: {shares['moved']:.1f} %\n"
        f"displaced by an element at that moment: {shares['displaced']:.1f} %\n"
        f"jobs failed: {off.failed} without trainers, {on.failed} with\n"
        f"trainers: {work.elements} elements as the stream began, {work.left} elements left for "
        f"jobs, {work.reclaimed} were reclaimed, {on.left_behind} processes left behind",
    ]
