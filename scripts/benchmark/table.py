"""The results as text for a terminal."""

from __future__ import annotations

from collections.abc import Sequence

from scripts.benchmark.figures import bound, ratio, summarise, targets
from scripts.benchmark.machine import Machine
from scripts.benchmark.measure import Comparison, Series


def tables(machine: Machine, comparisons: Sequence[Comparison], series: Sequence[Series]) -> str:
    """Return all of it."""
    lines = [
        str(machine),
        "",
        "both models on the same problems, seconds",
        f"{'':<18}{'NODE-LEVEL':>20}{'COUNTS':>18}",
        f"{'SIZE':<10}{'PROBLEMS':>8}{'MEDIAN':>10}{'MAX':>10}{'MEDIAN':>9}{'P95':>9}"
        f"{'RATIO':>8}  OBJECTIVES",
        *map(_comparison_row, comparisons),
        "",
        "the count model alone, seconds",
        f"{'PROBLEM':<26}{'MODE':<8}{'PLANS':>5}{'MEDIAN':>9}{'P95':>9}{'MAX':>9}  STATUS",
        *map(_series_row, series),
    ]
    held = targets(comparisons, series)
    if held:
        lines += ["", "targets"]
        lines += [f"{'met' if one.met else 'MISSED':<8}{one.text}: {one.reached}" for one in held]
    return "\n".join(lines)


def _comparison_row(comparison: Comparison) -> str:
    row = f"{comparison.size!s:<10}{len(comparison.pairs):>8}"
    factor = ratio(comparison)
    if factor is None:
        row += f"{'-':>10}{'-':>10}"
    else:
        level = summarise([run.seconds for run in comparison.ended])
        some_cut = any(run.status == "limit" for run in comparison.ended)
        row += f"{f'{bound(factor.at_least)}{level.median:.2f}':>10}"
        row += f"{f'{bound(some_cut)}{level.most:.2f}':>10}"
    count = summarise(comparison.count_seconds)
    row += f"{count.median:>9.4f}{count.p95:>9.4f}{'-' if factor is None else str(factor):>8}"
    return f"{row}  {_verdict(comparison)}"


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


def _series_row(series: Series) -> str:
    found = summarise(series.seconds)
    states = ", ".join(f"{often} {status}" for status, often in series.statuses.items())
    return (
        f"{series.kind.name:<26}{series.mode:<8}{len(series.seconds):>5}"
        f"{found.median:>9.4f}{found.p95:>9.4f}{found.most:>9.4f}  {states}"
    )
