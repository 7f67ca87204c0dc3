"""What both sides say about each other: differences, passes missed, nodes used, targets. Pure."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from scripts.benchkit.figures import Summary, Target, at_least, at_most, summarise
from scripts.impact_bench.bench import Measured
from scripts.impact_bench.course import Start
from scripts.impact_bench.passes import (
    elements_s,
    idle_after_pass_s,
    out_of_phase_s,
    passes_waited,
    preempting,
)

MEDIAN_TARGET_S, P95_TARGET_S, MEAN_TARGET_S = 0.05, 0.5, 0.3
MISSED_TARGET, PREEMPTED_TARGET = 1.0, 2.0  # percent of the jobs
MAKESPAN_TARGET = 0.3  # percent more
SHORTEST_LIMIT_S = 60.0  # Slurm's time limits are whole minutes
USED_TARGET = 85.0  # percent of the node-seconds that trainers could have used


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
    """What trainers did to the jobs, and what they had of the nodes; all in percent.

    ``used`` is None where the jobs leave nothing idle, and where there are no trainers.
    """

    preempted: float  # jobs that took an element's node
    missed: float  # that started some passes of backfill later than without trainers
    sooner: float  # and some passes sooner
    makespan: float  # how much longer all took
    used: float | None  # of the node-seconds that were idle, without trainers, after a pass


@dataclass(frozen=True, slots=True)
class Figures:
    """All that is said of both sides; pairs are without and with trainers.

    ``idle_s`` are the node-seconds idle after a pass without trainers, ``long_s`` those of them in
    holes that last a minute from there, ``used_s`` those that trainers had in as much time;
    ``passes`` are those while both sides had jobs.
    """

    start_delay_s: Comparison | None
    shares: Shares
    failed: tuple[int, int]  # jobs
    makespan_s: tuple[float, float]
    idle_s: float
    long_s: float
    used_s: float
    passes: tuple[int, int]
    out_of_phase_s: float
    targets: list[Target]


def figures_of(measured: Measured) -> Figures:
    """Return what is said of both sides."""
    off, on = measured.off, measured.on
    took_s = makespan_s(off.starts), makespan_s(on.starts)
    end_s = off.begin_s + took_s[0]
    idle_s, long_s = (
        idle_after_pass_s(off.starts, measured.nodes, off.passes_s, off.begin_s, end_s, shortest_s)
        for shortest_s in (0.0, SHORTEST_LIMIT_S)
    )
    used_s = elements_s(on.log, on.starts, on.begin_s, on.begin_s + took_s[0])
    missed = [passes_missed(measured, *pair) for pair in measured.pairs]
    percent = 100 / len(missed)
    shares = Shares(
        preempted=percent * preempting(on.log, on.starts),
        missed=percent * sum(one > 0 for one in missed),
        sooner=percent * sum(one < 0 for one in missed),
        makespan=100 * (took_s[1] / took_s[0] - 1),
        used=100 * used_s / idle_s if idle_s and on.work is not None else None,
    )
    off_s, on_s = (
        [at_s - one.begin_s for at_s in one.passes_s if 0 <= at_s - one.begin_s <= min(took_s)]
        for one in (off, on)
    )
    seen = compared(*delays(off.starts, on.starts))
    failed = failures(off.starts), failures(on.starts)
    judged = [] if seen is None else targets(seen, shares, *failed, on.left_behind)
    apart_s = out_of_phase_s(off_s, on_s)
    passes = len(off_s), len(on_s)
    return Figures(seen, shares, failed, took_s, idle_s, long_s, used_s, passes, apart_s, judged)


def passes_missed(measured: Measured, one: Start, other: Start) -> float:
    """Return how many passes later the same job started with trainers; below zero: sooner."""
    late = passes_waited(other, measured.on.passes_s)
    early = passes_waited(one, measured.off.passes_s)
    return 0 if late == early else late - early  # neither may ever have started


def delays(off: Sequence[Start], on: Sequence[Start]) -> tuple[list[float], list[float]]:
    """Return the start delays of the jobs that started on both sides, in the stream's order."""
    found = [(one.delay_s, other.delay_s) for one, other in zip(off, on, strict=True)]
    both = [(one, other) for one, other in found if one is not None and other is not None]
    return [one for one, _ in both], [other for _, other in both]


def compared(off_s: Sequence[float], on_s: Sequence[float]) -> Comparison | None:
    """Compare the delays of the same jobs; None if there are none."""
    if not off_s:
        return None
    differences = [other - one for one, other in zip(off_s, on_s, strict=True)]
    return Comparison(summarise(off_s), summarise(on_s), summarise(differences))


def makespan_s(starts: Sequence[Start]) -> float:
    """Return the seconds from the first submission to the last job's end."""
    ends_s = [one.end_s for one in starts if one.end_s is not None]
    return max(ends_s, default=math.nan) - min(one.submit_s for one in starts)


def failures(starts: Sequence[Start]) -> int:
    """Return how many jobs did not run to their end, once and well."""
    return sum(one.failed for one in starts)


def targets(
    comparison: Comparison, shares: Shares, failed_off: int, failed_on: int, left_behind: int
) -> list[Target]:
    """Return what is asked for, and whether it is so."""
    difference = comparison.difference
    judged = [
        at_most("median of the differences, s", difference.median, MEDIAN_TARGET_S),
        at_most("p95 of the differences, s", difference.p95, P95_TARGET_S),
        at_most("mean of the differences, s", difference.mean, MEAN_TARGET_S),
        at_most("jobs that missed a pass, %", shares.missed, MISSED_TARGET),
        at_most("jobs that preempted an element, %", shares.preempted, PREEMPTED_TARGET),
        at_most("makespan longer by, %", shares.makespan, MAKESPAN_TARGET),
        at_most("jobs failed that did not without", failed_on - failed_off, 0),
        at_most("processes of trainers left behind", left_behind, 0),
    ]
    if shares.used is not None:
        judged.append(at_least("idle node-seconds used, %", shares.used, USED_TARGET))
    return judged
