"""What the two sides say about each other: differences, makespans, targets. Pure."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from scripts.benchkit.figures import Summary, Target, at_least, at_most, summarise
from scripts.impact_bench.course import Start

MEDIAN_TARGET_S, P95_TARGET_S, MEAN_TARGET_S = 0.05, 0.5, 0.3
MISSED_TARGET, PREEMPTED_TARGET = 1.0, 2.0  # percent of the jobs
MAKESPAN_TARGET = 0.3  # percent more
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
