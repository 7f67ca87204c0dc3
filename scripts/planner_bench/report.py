"""What is said of the times: how many times faster, which targets are met, and tables. Pure."""

from __future__ import annotations

import statistics
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace

from scripts.benchkit.figures import Target, at_least, at_most, summarise
from scripts.benchkit.text import columns
from scripts.planner_bench.measure import Comparison, Series, Size

FASTER_AT, FASTER_BY = Size(10, 64), 100.0  # to reach


@dataclass(frozen=True, slots=True)
class Ratio:
    """How many times faster; ``at_least`` where the time limit cut the slower one off."""

    times: float
    at_least: bool

    def __str__(self) -> str:
        return f"{_bound(self.at_least)}{self.times:.0f}"


def ratio(comparison: Comparison) -> Ratio | None:
    """Compare the medians; runs that failed are left out, None where all did."""
    ended = comparison.ended
    if not ended:
        return None
    middle = statistics.median_high(run.seconds for run in ended)
    cut = any(run.status == "limit" and run.seconds <= middle for run in ended)
    node_level = statistics.median(run.seconds for run in ended)
    return Ratio(node_level / statistics.median(comparison.count_s), cut)


def targets(comparisons: Sequence[Comparison], series: Sequence[Series]) -> list[Target]:
    """Hold what was measured to the targets that are about it."""
    found = []
    for comparison in comparisons:
        factor = ratio(comparison)
        if comparison.size == FASTER_AT and factor is not None:
            more = ", or more" if factor.at_least else ""
            text = f"{FASTER_AT}: times faster than node-level{more}"
            found.append(at_least(text, factor.times, FASTER_BY))
    for one in series:
        if one.target_p95_s is not None:
            proven = set(one.statuses) == {"optimal"}
            text = f"{one.kind}, {one.mode}: p95, s, {'' if proven else 'not '}all proven"
            held = at_most(text, summarise(one.seconds).p95, one.target_p95_s)
            found.append(replace(held, met=held.met and proven))
    return found


def side_by_side(comparisons: Sequence[Comparison]) -> str:
    """Return the table of both models."""
    return "both models on the same problems, medians in seconds\n" + columns(
        comparisons,
        [
            ("SIZE", lambda one: str(one.size)),
            ("PROBLEMS", lambda one: str(len(one.count_s))),
            ("NODE-LEVEL", _node_level),
            ("MAX", _longest),
            ("COUNTS", lambda one: f"{statistics.median(one.count_s):.4f}"),
            ("P95", lambda one: f"{summarise(one.count_s).p95:.4f}"),
            ("RATIO", lambda one: str(ratio(one) or "-")),
            ("OBJECTIVES", _verdict),
        ],
        "<>>>>>><",
    )


def alone(series: Sequence[Series]) -> str:
    """Return the table of the count model alone."""
    return "the count model alone, seconds\n" + columns(
        series,
        [
            ("PROBLEM", lambda one: one.kind),
            ("MODE", lambda one: one.mode),
            ("PLANS", lambda one: str(len(one.seconds))),
            ("MEDIAN", lambda one: f"{statistics.median(one.seconds):.4f}"),
            ("P95", lambda one: f"{summarise(one.seconds).p95:.4f}"),
            ("MAX", lambda one: f"{max(one.seconds):.4f}"),
            ("STATUS", lambda one: _counted(one.statuses)),
        ],
        "<<>>>><",
    )


def _bound(at_least: bool) -> str:
    """Return what stands before a figure that is a lower bound."""
    return ">=" if at_least else ""


def _node_level(one: Comparison) -> str:
    factor = ratio(one)
    if factor is None:
        return "-"
    return f"{_bound(factor.at_least)}{statistics.median(run.seconds for run in one.ended):.2f}"


def _longest(one: Comparison) -> str:
    cut = any(run.status == "limit" for run in one.ended)
    most_s = max((run.seconds for run in one.ended), default=None)
    return "-" if most_s is None else f"{_bound(cut)}{most_s:.2f}"


def _verdict(one: Comparison) -> str:
    if not one.agree:
        return "DIFFER"
    statuses = Counter(run.status for run in one.node_level)
    words = [f"{statuses.pop('optimal', 0)} of {len(one.node_level)} equal"]
    if statuses.pop("limit", 0):
        words.append("none better in its time")
    return ", ".join([*words, *([_counted(statuses)] if statuses else [])])


def _counted(statuses: Counter[str]) -> str:
    return ", ".join(f"{often} {status}" for status, often in statuses.items())
