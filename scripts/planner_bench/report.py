"""The report of the times: which targets are met, and tables. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace

from scripts.benchkit.figures import Target, at_least, at_most, summarise
from scripts.benchkit.text import columns
from scripts.planner_bench.measure import Comparison, Series

FASTER_AT, FASTER_BY = "10x64", 100.0  # the target


def targets(comparisons: Sequence[Comparison], series: Sequence[Series]) -> list[Target]:
    """Return the targets for what was measured, met or missed."""
    found = []
    for one in comparisons:
        if one.size == FASTER_AT and one.ratio is not None:
            text = f"{one.size}: times faster than node-level{', or more' * bool(one.bound)}"
            found.append(at_least(text, one.ratio, FASTER_BY))
    for other in series:
        if other.target_p95_s is not None:
            proven = set(other.statuses) == {"optimal"}
            text = f"{other.kind}, {other.mode}: p95, s, {'' if proven else 'not '}all proven"
            held = at_most(text, summarise(other.seconds).p95, other.target_p95_s)
            found.append(replace(held, met=held.met and proven))
    return found


def side_by_side(comparisons: Sequence[Comparison]) -> str:
    """Return the table of both models; ``>=`` is before a figure that is only a lower bound."""

    def slower(one: Comparison, which: str, bound: str) -> str:
        times_s = one.node_level_s
        return f"{bound}{getattr(summarise(times_s), which):.2f}" if times_s else "-"

    return "both models on the same problems, medians in seconds\n" + columns(
        comparisons,
        [
            ("SIZE", lambda one: one.size),
            ("PROBLEMS", lambda one: str(len(one.count_s))),
            ("NODE-LEVEL", lambda one: slower(one, "median", one.bound)),
            ("MAX", lambda one: slower(one, "most", ">=" * bool(one.statuses["limit"]))),
            ("COUNTS", lambda one: f"{summarise(one.count_s).median:.4f}"),
            ("P95", lambda one: f"{summarise(one.count_s).p95:.4f}"),
            ("RATIO", lambda one: "-" if one.ratio is None else f"{one.bound}{one.ratio:.0f}"),
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
            ("MEDIAN", lambda one: f"{summarise(one.seconds).median:.4f}"),
            ("P95", lambda one: f"{summarise(one.seconds).p95:.4f}"),
            ("MAX", lambda one: f"{max(one.seconds):.4f}"),
            ("STATUS", lambda one: _counted(one.statuses)),
        ],
        "<<>>>><",
    )


def _verdict(one: Comparison) -> str:
    if not one.agree:
        return "DIFFER"
    others = Counter(one.statuses)
    words = [f"{others.pop('optimal', 0)} of {len(one.count_s)} equal"]
    if others.pop("limit", 0):
        words.append("none better in its time")
    return ", ".join([*words, *([_counted(others)] if others else [])])


def _counted(statuses: Counter[str]) -> str:
    return ", ".join(f"{often} {status}" for status, often in statuses.items())
