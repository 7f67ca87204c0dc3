"""What the two sides say about each other: quantiles, differences, makespans. Pure functions."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import chain
from statistics import median

from scripts.impact_bench.course import Start

MEDIAN_TARGET_S = 0.1
P99_TARGET_S = 1.0


@dataclass(frozen=True, slots=True)
class Quantiles:
    """Of several times, in seconds."""

    count: int
    median: float
    p95: float
    p99: float
    most: float


@dataclass(frozen=True, slots=True)
class Verdict:
    """What was asked for, and what it is."""

    text: str
    most: float
    found: float

    @property
    def met(self) -> bool:
        """Whether it is reached."""
        return self.found <= self.most


@dataclass(frozen=True, slots=True)
class Comparison:
    """Start delays without and with trainers, in seconds; jobs that never started are in none.

    A job's ``difference`` is its delay with trainers less its delay without.
    """

    off: Quantiles
    on: Quantiles
    difference: Quantiles


def quantiles(times_s: Sequence[float]) -> Quantiles | None:
    """Return what a table says of them; None if there are none."""
    if not times_s:
        return None
    ordered = sorted(times_s)
    return Quantiles(
        len(ordered),
        median(ordered),
        _nearest_rank(ordered, 0.95),
        _nearest_rank(ordered, 0.99),
        ordered[-1],
    )


def delays(
    off: Sequence[Sequence[Start]], on: Sequence[Sequence[Start]], accounted: bool = False
) -> tuple[list[float], list[float]]:
    """Return the start delays of the jobs that started on both sides, in the stream's order.

    ``accounted``: as Slurm's accounting has them, in whole seconds.
    """
    pairs = zip(chain.from_iterable(off), chain.from_iterable(on), strict=True)
    found = [
        (one.accounted_s, other.accounted_s) if accounted else (one.delay_s, other.delay_s)
        for one, other in pairs
    ]
    both = [(one, other) for one, other in found if one is not None and other is not None]
    return [one for one, _ in both], [other for _, other in both]


def compared(off_s: Sequence[float], on_s: Sequence[float]) -> Comparison | None:
    """Compare the delays of the same jobs; None if there are none."""
    off, on = quantiles(off_s), quantiles(on_s)
    found = quantiles([other - one for one, other in zip(off_s, on_s, strict=True)])
    return None if off is None or on is None or found is None else Comparison(off, on, found)


def makespan_s(chunk: Sequence[Start]) -> float:
    """Return the seconds from a chunk's first submission to its last job's end."""
    ends_s = [one.end_s for one in chunk if one.end_s is not None]
    return max(ends_s, default=math.nan) - min(one.submit_s for one in chunk)


def failures(chunks: Sequence[Sequence[Start]]) -> int:
    """Return how many jobs did not run to their end, once and well."""
    return sum(one.failed for one in chain.from_iterable(chunks))


def verdicts(
    comparison: Comparison, failed_off: int, failed_on: int, left_behind: int
) -> list[Verdict]:
    """Return what issue and design ask for, and whether it is so."""
    return [
        Verdict("median of the differences, s", MEDIAN_TARGET_S, comparison.difference.median),
        Verdict(
            "difference of the medians, s",
            MEDIAN_TARGET_S,
            comparison.on.median - comparison.off.median,
        ),
        Verdict("difference of the p99, s", P99_TARGET_S, comparison.on.p99 - comparison.off.p99),
        Verdict("jobs failed that did not without", 0, failed_on - failed_off),
        Verdict("processes of trainers left behind", 0, left_behind),
    ]


def _nearest_rank(ordered: Sequence[float], share: float) -> float:
    return ordered[max(0, math.ceil(share * len(ordered)) - 1)]
