"""The results as text and as JSON."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from scripts.benchkit.text import table
from scripts.impact_bench.figures import Figures, Measured, passes_missed, preempts


def document(measured: Measured, found: Figures) -> dict[str, Any]:
    """Return all results for JSON; durations are in seconds, times in Unix seconds."""
    sides = (measured.off, measured.on)
    by_side = ("failed", "makespan_s", "passes_s", "begin_s")
    return {
        **vars(found),
        **{what: {side.name: getattr(side, what) for side in sides} for what in by_side},
        "left_behind": measured.on.left_behind,
        "trainers": measured.on.work,
        "jobs": {side.name: side.starts for side in sides},
    }


def rendered(measured: Measured, found: Figures) -> list[str]:
    """Return the figures of the ordinary jobs as text, part by part, without the targets."""
    off, on = measured.off, measured.on
    first, second = found.passes.values()
    return [
        f"start delay of the ordinary jobs, s\n{_delays(found)}",
        f"{_shares(found, len(on.starts))}\n"
        f"{_idle(measured, found)}\n"
        f"passes of backfill: {first} and {second}, "
        f"{found.out_of_phase_s:.3f} s out of phase at most",
        f"makespan: {off.makespan_s:.1f} s without trainers, {on.makespan_s:.1f} s with\n"
        f"jobs failed: {off.failed} without trainers, {on.failed} with{_work(measured)}",
        late_jobs(measured),
    ]


def late_jobs(measured: Measured) -> str:
    """Return a table of the jobs that missed a pass, in seconds since the stream's first pass."""
    heads = ("missed a pass", "NODES", "SUBMITTED", "STARTED", "WITH", "LATER", "PREEMPTED")
    rows: list[Sequence[str]] = [heads]
    for (one, other), missed in zip(measured.pairs, passes_missed(measured), strict=True):
        if missed > 0:
            begun_s = one.submit_s - measured.off.begin_s
            with_s = math.nan if other.delay_s is None else begun_s + other.delay_s
            times_s = (begun_s, begun_s + (one.delay_s or 0.0), with_s)
            cells = [str(one.job.nodes), *(f"{time_s:.1f}" for time_s in times_s), f"{missed:g}"]
            preempted = "yes" if preempts(measured.on, other) else "no"
            rows.append((f"  {other.number}", *cells, preempted))
    return table(rows)


def _delays(found: Figures) -> str:
    rows: list[Sequence[str]] = [("", "JOBS", "MEDIAN", "MEAN", "P95", "MAX")]
    if (seen := found.start_delay_s) is not None:
        for text, one, sign in (
            ("without trainers", seen.off, ""),
            ("with trainers", seen.on, ""),
            ("difference of each job", seen.difference, "+"),
        ):
            values = (one.median, one.mean, one.p95, one.most)
            rows.append((text, str(one.count), *(f"{value:{sign}.2f}" for value in values)))
    return table(rows)


def _shares(found: Figures, jobs: int) -> str:
    rows = [("jobs that", "COUNT", "%")]
    for text, share in (
        ("preempted an element", found.shares.preempted),
        ("missed a pass that they made without", found.shares.missed),
        ("made an earlier pass", found.shares.sooner),
        ("had another number of nodes than without", found.shares.resized),
        ("had other nodes than without", found.shares.elsewhere),
    ):
        rows.append((f"  {text}", f"{share * jobs / 100:.0f}", f"{share:.1f}"))
    return table(rows)


def _idle(measured: Measured, found: Figures) -> str:
    text = f"idle after a pass, without trainers: {found.idle_s:,.0f} "
    text += "node-seconds, " if measured.gpus == 1 else "GPU-seconds, "
    text += f"{found.long_s:,.0f} of them in holes of a minute or more; used: {found.used_s:,.0f}"
    if measured.gpus > 1:
        text += f"\nof whole nodes that were idle: {found.whole_s:,.0f}"
        if found.whole_s:
            ratio = found.used_s / found.whole_s
            text += f"; used: {ratio:.2f} times what trainers of whole nodes could have"
    return text


def _work(measured: Measured) -> str:
    work = measured.on.work
    return (
        f"\ntrainers: {work.elements} elements as the stream began, "
        f"{work.left} elements left for jobs, {work.reclaimed} were reclaimed, "
        f"{measured.on.left_behind} processes left behind"
    )
