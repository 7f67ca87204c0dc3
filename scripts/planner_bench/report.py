"""The report of the times: how many times faster, which targets are met, tables. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from statistics import median, median_high

from scripts.benchkit.figures import Target, at_least, at_most, summarise
from scripts.benchkit.text import columns, table
from scripts.planner_bench.measure import Comparison, Series

FASTER_AT, FASTER_BY = "10x64", 100.0  # the target


@dataclass(frozen=True, slots=True)
class Ratio:
    """How many times faster; ``at_least`` where the time limit cut the slower one off."""

    times: float
    at_least: bool

    def __str__(self) -> str:
        return f"{_bound(self.at_least)}{self.times:.0f}"


def ratio(comparison: Comparison) -> Ratio | None:
    """Compare the medians without failed runs; None: all runs failed."""
    times_s = [run.seconds for run in comparison.ended]
    if not times_s:
        return None
    middle_s = median_high(times_s)
    cut = any(run.status == "limit" and run.seconds <= middle_s for run in comparison.ended)
    return Ratio(median(times_s) / median(comparison.count_s), cut)


def targets(comparisons: Sequence[Comparison], series: Sequence[Series]) -> list[Target]:
    """Return the targets for what was measured, met or missed."""
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
    heads = ("SIZE", "PROBLEMS", "NODE-LEVEL", "MAX", "COUNTS", "P95", "RATIO", "OBJECTIVES")
    rows = table([heads, *map(_compared, comparisons)], "<>>>>>><")
    return f"both models on the same problems, medians in seconds\n{rows}"


def alone(series: Sequence[Series]) -> str:
    """Return the table of the count model alone."""
    return "the count model alone, seconds\n" + columns(
        series,
        [
            ("PROBLEM", lambda one: one.kind),
            ("MODE", lambda one: one.mode),
            ("PLANS", lambda one: str(len(one.seconds))),
            ("MEDIAN", lambda one: f"{median(one.seconds):.4f}"),
            ("P95", lambda one: f"{summarise(one.seconds).p95:.4f}"),
            ("MAX", lambda one: f"{max(one.seconds):.4f}"),
            ("STATUS", lambda one: _counted(one.statuses)),
        ],
        "<<>>>><",
    )


def _compared(one: Comparison) -> list[str]:
    """Return the row of one size; a figure that is only a lower bound has ``>=`` before it."""
    factor, counts = ratio(one), summarise(one.count_s)
    node_level = ["-", "-"]
    if factor is not None:
        took = summarise([run.seconds for run in one.ended])
        cut = any(run.status == "limit" for run in one.ended)
        node_level = [
            f"{_bound(factor.at_least)}{took.median:.2f}",
            f"{_bound(cut)}{took.most:.2f}",
        ]
    count = [f"{counts.median:.4f}", f"{counts.p95:.4f}"]
    return [one.size, str(counts.count), *node_level, *count, str(factor or "-"), _verdict(one)]


def _bound(at_least: bool) -> str:
    return ">=" if at_least else ""


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
