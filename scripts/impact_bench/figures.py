"""Compares both sides: differences, missed passes, used nodes, targets. Pure."""

from __future__ import annotations

import math
from bisect import bisect_right
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from bftrainer_slurm.controller.decide.node_choice import Candidate, predict_nodes
from scripts.benchkit.figures import Summary, Target, at_least, at_most, summarise
from scripts.demonstration.stream import OrdinaryJob
from scripts.impact_bench.slurmlog import Event, times_s

_MOVED, _DISPLACED = "jobs on other nodes, %", "jobs that trainers displaced, %"
# What is judged, and what it may be at most: seconds, percent of the jobs.
_MOST = {
    "median of the differences, s": 0.05,
    "p95 of the differences, s": 0.5,
    "mean of the differences, s": 0.3,
    "jobs that missed a pass, %": 1.0,
    "jobs that preempted an element, %": 2.0,
    _MOVED: 3.0,
    _DISPLACED: 3.0,
    "makespan longer by, %": 0.3,
    "jobs failed that did not without": 0.0,
}
_USED, _LEAST_USED = "idle node-seconds used, %", 85.0


@dataclass(frozen=True)
class Start:
    """What became of an ordinary job; Unix seconds. A time is None if the job never got there."""

    job: OrdinaryJob
    number: int  # Slurm's job id
    submit_s: float  # just before its sbatch
    start_s: float | None  # its own first line
    end_s: float | None  # its own last line
    state: str = "UNKNOWN"  # as Slurm says
    restarts: int = 0
    nodes: tuple[str, ...] = ()  # that it had, or has

    @property
    def failed(self) -> bool:
        """Whether it did not run to its end, once and well."""
        return self.end_s is None or self.state != "COMPLETED" or self.restarts > 0


@dataclass
class Side:
    """All that was measured without trainers, or with them."""

    name: str
    starts: Sequence[Start] = ()  # of the jobs, in the stream's order
    begin_s: float = 0.0  # the pass of backfill that it began with, Unix seconds
    log: Sequence[Event] = ()  # slurmctld's
    parts: Mapping[str, int] = field(default_factory=dict)  # GPUs of an element, by array; or all
    elements: Mapping[str, int] = field(default_factory=dict)  # what trainers did meanwhile

    @property
    def failed(self) -> int:
        """How many jobs did not run to their end, once and well."""
        return sum(one.failed for one in self.starts)

    @property
    def makespan_s(self) -> float:
        """Seconds from the first submission to the last job's end; NaN where no job ended."""
        ends_s = [one.end_s for one in self.starts if one.end_s is not None]
        return max(ends_s, default=math.nan) - min(one.submit_s for one in self.starts)


def delays_s(off: Side, on: Side, nodes: int, gpus: int = 1) -> dict[str, Summary]:
    """Return start delays, of jobs that started on both sides, and what elements added to them.

    Those are each job's difference, and for how long elements ``held up`` jobs
    (``beside_ordinary_jobs``; the same of the side without trainers is the ``error`` of that).
    """
    rows = [
        (one.start_s - one.submit_s, other.start_s - other.submit_s)
        for one, other in zip(off.starts, on.starts, strict=True)
        if one.start_s is not None and other.start_s is not None
    ]
    columns = zip(*((one, other, other - one) for one, other in rows), strict=True)
    found = dict(zip(("without", "with", "difference"), columns, strict=False))
    for name, side in (("error", off), ("held up", on)):
        found[name] = tuple(held_s for _, held_s in beside_ordinary_jobs(side, nodes, gpus))
    return {name: summarise(values) for name, values in found.items() if values}


def figures_of(off: Side, on: Side, nodes: int, gpus: int = 1) -> dict[str, float]:
    """Return what else both sides show, which had the same stream, each with its unit.

    ``gpus``: of a node; where jobs share nodes, node-seconds are GPU-seconds.
    """
    pairs = list(zip(off.starts, on.starts, strict=True))
    passes = [times_s(one.log, "pass") for one in (off, on)]
    waited = [[*map(passes_waited, pair, passes)] for pair in pairs]
    preempted = {one.job for one in on.log if one.kind == "preempted"}
    idle_s = idle_after_pass_s(off, nodes, off.begin_s + off.makespan_s, gpus)
    used_s = elements_s(on, on.begin_s + off.makespan_s, gpus)
    jobs = {
        "jobs that missed a pass, %": [late > early for early, late in waited],
        "jobs that preempted an element, %": [one.number in preempted for one in on.starts],
        _MOVED: [{*one.nodes} != {*other.nodes} for one, other in pairs],
        _DISPLACED: [displaced for displaced, _ in beside_ordinary_jobs(on, nodes, gpus)],
    }
    return {
        **{name: 100 * sum(those) / len(pairs) for name, those in jobs.items()},
        "jobs failed without trainers": off.failed,
        "jobs failed that did not without": on.failed - off.failed,
        "makespan without trainers, s": off.makespan_s,
        "makespan longer by, %": 100 * (on.makespan_s / off.makespan_s - 1),
        "idle node-seconds after a pass, without trainers": idle_s,
        **({_USED: 100 * used_s / idle_s} if idle_s else {}),
    }


def passes_waited(start: Start, passes_s: Sequence[float]) -> float:
    """Return how many of these passes, in order, began while a job waited; inf if it still does."""
    if start.start_s is None:
        return math.inf
    return bisect_right(passes_s, start.start_s) - bisect_right(passes_s, start.submit_s)


def beside_ordinary_jobs(side: Side, nodes: int, gpus: int = 1) -> list[tuple[bool, float]]:
    """Return what elements did to each job: displaced it, and held it up for so long (seconds).

    A job is displaced if Slurm put it on other nodes than if only ordinary jobs ran at that moment,
    and held up from the first look at which it would have started then. One such job changes when
    and where later ones start; this tells the first of them from the others. Jobs that backfill
    started are left out: it keeps nodes for those that wait.
    """
    jobs = {start.number: start for start in side.starts}
    needs = {number: start.job.gpus or gpus for number, start in jobs.items()}
    free = {f"n{number}": gpus for number in range(1, nodes + 1)}

    def chosen(number: int, free: Mapping[str, int]) -> tuple[str, ...]:
        room = (
            Candidate(name, place, 1, has)
            for place, (name, has) in enumerate(free.items())
            if has >= needs[number]
        )
        return predict_nodes(jobs[number].job.nodes, room)

    order = ("submitted", "known", "look", "allocated")  # of what one look shows in the log
    ours = {0, *jobs}
    events = [one for one in side.log if one.kind in order and one.job in ours]
    events.sort(key=lambda one: (one.at_s, order.index(one.kind)))
    backfilled = {one.job for one in side.log if one.kind == "backfilled"}
    waiting, could_s, found = list[int](), dict[int, float](), list[tuple[bool, float]]()
    for at_s, kind, number, node in events:
        if kind == "submitted":
            waiting.append(number)
        elif kind == "known":
            free[node] += needs[number]
        elif kind == "look":
            left = dict(free)
            for one in waiting:
                if not (on := chosen(one, left)):
                    break
                could_s.setdefault(one, at_s)
                left |= {name: left[name] - needs[one] for name in on}
        else:
            had = jobs[number].nodes
            if number not in backfilled:
                held_s = at_s - could_s.get(number, at_s)
                found.append(({*chosen(number, free)} != {*had}, held_s))
            waiting.remove(number)
            free |= {name: free[name] - needs[number] for name in had}
    return found


def idle_after_pass_s(side: Side, nodes: int, end_s: float, gpus: int = 1) -> float:
    """Return for how long nodes, or each of their ``gpus``, are idle in all until ``end_s``.

    Each time counts from the first pass that began in it.
    """
    changes: dict[str, list[tuple[float, int]]] = defaultdict(list)
    for one in side.starts:
        if one.start_s is not None:
            had = one.job.gpus or gpus
            for node in one.nodes:
                changes[node] += [(one.start_s, -had), (one.end_s or end_s, had)]
    passes = [(at_s, 0) for at_s in times_s(side.log, "pass") if at_s >= side.begin_s]
    idle_s = 0.0
    for number in range(1, nodes + 1):
        free, seen, last_s = gpus, 0, 0.0  # seen: by a pass
        events = [*changes[f"n{number}"], *passes, (end_s, 0)]
        for at_s, change in sorted(events, key=lambda event: (event[0], event[1] == 0)):
            idle_s += seen * (min(at_s, end_s) - last_s)
            free, last_s = free + change, min(at_s, end_s)
            seen = max(0, min(seen, free) if change else free)
    return idle_s


def elements_s(side: Side, end_s: float, gpus: int = 1) -> float:
    """Return the node-seconds (GPU-seconds) of the elements from begin to end (Unix seconds).

    Elements are all jobs but the ordinary ones; each has its node until slurmctld knows its end.
    """
    ordinary, since = {one.number for one in side.starts}, dict[int, Event]()
    spans = list[tuple[Event, float]]()
    for one in sorted(side.log):
        if one.kind == "allocated" and one.job not in ordinary:
            since[one.job] = one
        elif one.kind == "known" and one.job in since:
            spans.append((since.pop(one.job), one.at_s))
    return sum(
        max(0.0, min(until_s, end_s) - max(one.at_s, side.begin_s))
        * side.parts.get(one.other, gpus)
        for one, until_s in [*spans, *((one, end_s) for one in since.values())]
    )


def targets(
    delays: Mapping[str, Summary], figures: Mapping[str, float], gpus: int = 1
) -> list[Target]:
    """Return what is judged, met or missed; nothing if no job started on both sides.

    Which whole nodes a job has is nothing to others.
    """
    if "difference" not in delays:
        return []
    unjudged = () if gpus > 1 else (_MOVED, _DISPLACED)
    found = {
        f"{name} of the differences, s": getattr(delays["difference"], name)
        for name in ("median", "p95", "mean")
    } | {**figures}
    judged = [at_most(name, found[name], _MOST[name]) for name in _MOST if name not in unjudged]
    used = found.get(_USED)  # of nothing, if there was nothing idle
    return judged if used is None else [*judged, at_least(_USED, used, _LEAST_USED)]
