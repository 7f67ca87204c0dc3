"""What is said of the times: medians and percentiles, how many times faster, targets met or not."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from dataclasses import dataclass

from scripts.benchmark.measure import Comparison, Series, Size

FASTER_AT, FASTER_BY = Size(10, 64), 100.0  # to reach


@dataclass(frozen=True, slots=True)
class Times:
    """Seconds of several runs."""

    median: float
    p95: float
    most: float


@dataclass(frozen=True, slots=True)
class Ratio:
    """How many times faster; ``at_least`` where the time limit cut the slower one off."""

    times: float
    at_least: bool

    def __str__(self) -> str:
        return f"{bound(self.at_least)}{self.times:.0f}"


@dataclass(frozen=True, slots=True)
class Target:
    """What was to be reached, and what was."""

    text: str
    reached: str
    met: bool


def bound(at_least: bool) -> str:
    """Return what stands before a figure that is a lower bound."""
    return ">=" if at_least else ""


def summarise(seconds: Sequence[float]) -> Times:
    """Return the figures; the 95th percentile lies between the two runs nearest to it."""
    p95 = max(seconds)
    if len(seconds) > 1:
        p95 = statistics.quantiles(seconds, n=20, method="inclusive")[-1]
    return Times(statistics.median(seconds), p95, max(seconds))


def ratio(comparison: Comparison) -> Ratio | None:
    """Compare the medians; runs that crashed are left out, None where all did."""
    ended = comparison.ended
    if not ended:
        return None
    middle = statistics.median_high(run.seconds for run in ended)
    cut = any(run.status == "limit" and run.seconds <= middle for run in ended)
    node_level = statistics.median(run.seconds for run in ended)
    return Ratio(node_level / statistics.median(comparison.count_seconds), cut)


def targets(comparisons: Sequence[Comparison], series: Sequence[Series]) -> list[Target]:
    """Hold what was measured to the targets that are about it."""
    found = []
    for comparison in comparisons:
        factor = ratio(comparison)
        if comparison.size == FASTER_AT and factor is not None:
            text = f"{FASTER_AT}: at least {FASTER_BY:g} times faster than node-level"
            found.append(Target(text, f"{factor} times", factor.times >= FASTER_BY))
    for one in series:
        if one.kind.target_p95_s is not None:
            p95, proven = summarise(one.seconds).p95, set(one.statuses) == {"optimal"}
            text = f"{one.kind.name}, {one.mode}: proven, p95 at most {one.kind.target_p95_s:g} s"
            reached = f"{p95:.3f} s{'' if proven else ', not all proven'}"
            found.append(Target(text, reached, proven and p95 <= one.kind.target_p95_s))
    return found
