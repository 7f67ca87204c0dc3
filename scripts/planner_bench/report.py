"""What is said of the times: how many times faster, which targets are met, tables and JSON."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from scripts.benchkit.figures import Target, at_least, at_most, summarise
from scripts.benchkit.machine import Machine
from scripts.benchkit.text import table
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
            more = ", or more" if factor.at_least else ""
            text = f"{FASTER_AT}: times faster than node-level{more}"
            found.append(at_least(text, factor.times, FASTER_BY))
    for one in series:
        if one.kind.target_p95_s is not None:
            proven = set(one.statuses) == {"optimal"}
            text = f"{one.kind.name}, {one.mode}: p95, s, {'' if proven else 'not '}all proven"
            held = at_most(text, summarise(one.seconds).p95, one.kind.target_p95_s)
            found.append(replace(held, met=held.met and proven))
    return found


def document(
    machine: Machine, comparisons: Sequence[Comparison], series: Sequence[Series]
) -> dict[str, Any]:
    """Return all of it with every single time, in seconds."""
    return {
        "machine": machine,
        "side_by_side": [
            {
                "trainers": one.size.trainers,
                "nodes": one.size.nodes,
                "node_level_s": [pair.node_level.seconds for pair in one.pairs],
                "node_level_status": [pair.node_level.status for pair in one.pairs],
                "count_s": one.count_seconds,
                "count_status": [pair.count.status for pair in one.pairs],
                "ratio": ratio(one),
                "objectives_agree": one.agree,
            }
            for one in comparisons
        ],
        "alone": [
            {
                "problem": one.kind.name,
                "mode": one.mode,
                "seconds": one.seconds,
                "statuses": one.statuses,
                "summary": summarise(one.seconds),
            }
            for one in series
        ],
        "targets": targets(comparisons, series),
    }


def tables(machine: Machine, comparisons: Sequence[Comparison], series: Sequence[Series]) -> str:
    """Return all of it as text for a terminal."""
    both = ("SIZE", "PROBLEMS", "NODE-LEVEL", "MAX", "COUNTS", "P95", "RATIO", "OBJECTIVES")
    alone = ("PROBLEM", "MODE", "PLANS", "MEDIAN", "P95", "MAX", "STATUS")
    parts = [
        str(machine),
        "both models on the same problems, medians in seconds\n"
        + table([both, *map(_comparison_row, comparisons)], "<>>>>>><"),
        "the count model alone, seconds\n" + table([alone, *map(_series_row, series)], "<<>>>><"),
    ]
    if held := targets(comparisons, series):
        parts.append("\n".join(["targets", *map(str, held)]))
    return "\n\n".join(parts)


def _comparison_row(one: Comparison) -> tuple[str, ...]:
    count, factor = summarise(one.count_seconds), ratio(one)
    times = ("-", "-")
    if factor is not None:
        level = summarise([run.seconds for run in one.ended])
        some_cut = any(run.status == "limit" for run in one.ended)
        middle = f"{_bound(factor.at_least)}{level.median:.2f}"
        times = (middle, f"{_bound(some_cut)}{level.most:.2f}")
    counts = (f"{count.median:.4f}", f"{count.p95:.4f}", str(factor or "-"))
    return (str(one.size), str(len(one.pairs)), *times, *counts, _verdict(one))


def _bound(at_least: bool) -> str:
    """Return what stands before a figure that is a lower bound."""
    return ">=" if at_least else ""


def _verdict(comparison: Comparison) -> str:
    if not comparison.agree:
        return "DIFFER"
    statuses = [pair.node_level.status for pair in comparison.pairs]
    proven = statuses.count("optimal")
    words = [f"{proven} of {len(statuses)} equal"]
    if "limit" in statuses:
        words.append("none better in its time")
    if "crashed" in statuses:
        words.append(f"{statuses.count('crashed')} crashed")
    return ", ".join(words)


def _series_row(series: Series) -> tuple[str, ...]:
    found = summarise(series.seconds)
    times = (f"{time:.4f}" for time in (found.median, found.p95, found.most))
    states = ", ".join(f"{often} {status}" for status, often in series.statuses.items())
    return (series.kind.name, series.mode, str(found.count), *times, states)
