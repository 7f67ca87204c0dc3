"""The results as text, as JSON and as a picture."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import Any

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from scripts.benchkit.figures import Summary, Target
from scripts.benchkit.machine import Machine
from scripts.benchkit.picture import BLUE, GREY, GRID, INK, ORANGE, drawn
from scripts.benchkit.text import table
from scripts.impact_bench.bench import Measured, Side
from scripts.impact_bench.course import Start
from scripts.impact_bench.figures import (
    Comparison,
    compared,
    delays,
    failures,
    makespan_s,
    targets,
)
from scripts.impact_bench.passes import (
    idle_and_used_s,
    passes_missed,
    passes_of_both,
    preempting,
    shares,
)

_LEAST_S = 0.05  # an axis of logarithms has no zero


def document(machine: Machine, settings: dict[str, Any], measured: Measured) -> dict[str, Any]:
    """Return all of it for JSON; times are seconds, times of day Unix seconds."""
    off, on = measured.off, measured.on
    both = (off, on)
    return {
        "machine": machine,
        "settings": settings,
        "start_delay_s": compared(*delays(off.starts, on.starts)),
        "targets": _targets(measured),
        "failed": {side.name: failures(side.starts) for side in both},
        "shares": shares(measured),
        "passes_s": {side.name: side.passes_s for side in both},
        "begin_s": {side.name: side.begin_s for side in both},
        "makespan_s": {side.name: makespan_s(side.starts) for side in both},
        "left_behind": on.left_behind,
        "trainers": on.work,
        "jobs": {side.name: side.starts for side in both},
    }


def rendered(measured: Measured) -> str:
    """Return the figures of the ordinary jobs as text."""
    off, on = measured.off, measured.on
    return "\n".join(
        [
            "start delay of the ordinary jobs, s",
            table(_delays(measured)),
            "",
            table(_by_kind(measured)),
            "",
            *_shares(measured),
            "",
            f"makespan: {makespan_s(off.starts):.1f} s without trainers, "
            f"{makespan_s(on.starts):.1f} s with",
            f"jobs failed: {failures(off.starts)} without trainers, {failures(on.starts)} with",
            *_work(on),
            "",
            *map(str, _targets(measured)),
            "",
            late_jobs(measured),
        ]
    )


def late_jobs(measured: Measured) -> str:
    """Return a table of the jobs that missed a pass, seconds since the stream's first pass."""
    off, on = measured.off, measured.on
    rows = [["missed a pass", "NODES", "SUBMITTED", "STARTED", "WITH", "LATER", "PREEMPTED"]]
    for one, other in zip(off.starts, on.starts, strict=True):
        missed = passes_missed(measured, one, other)
        if missed > 0:
            since_s = one.submit_s - off.begin_s
            start_s = since_s + (one.delay_s or 0.0)
            with_s = math.nan if other.delay_s is None else since_s + other.delay_s
            took = "yes" if preempting(on.log, [other]) else "no"
            times = [f"{at_s:.1f}" for at_s in (since_s, start_s, with_s)]
            cells = [f"  {other.number}", str(one.job.nodes), *times, f"{missed:g}", took]
            rows.append(cells)
    return table(rows)


def picture(off_s: Sequence[float], on_s: Sequence[float]) -> str:
    """Return an SVG of the delays of the same jobs, in seconds: both sides, and the differences."""
    differences = [other - one for one, other in zip(off_s, on_s, strict=True)]

    def draw(figure: Figure) -> None:
        left, right = figure.subplots(1, 2)
        _steps(left, [max(_LEAST_S, one) for one in off_s], GREY, "without trainers")
        _steps(left, [max(_LEAST_S, one) for one in on_s], ORANGE, "with trainers")
        left.set_xscale("log")
        left.set(xlabel="start delay, s", ylabel="share of the jobs", title="started within")
        left.legend(frameon=False, loc="lower right")
        _steps(right, differences, BLUE, "")
        right.set_xscale("symlog", linthresh=1.0)
        right.axvline(0, color=INK, linewidth=0.6)
        right.set(xlabel="delay with trainers less delay without, s", title="difference of a job")

    return drawn(draw)


def _steps(axes: Axes, values: Sequence[float], colour: str, label: str) -> None:
    shares = [(rank + 1) / len(values) for rank in range(len(values))]
    axes.step(sorted(values), shares, where="post", color=colour, label=label, marker="")
    axes.set_ylim(0, 1.02)
    axes.grid(color=GRID)


def _targets(measured: Measured) -> list[Target]:
    off, on = measured.off, measured.on
    seen = compared(*delays(off.starts, on.starts))
    if seen is None:
        return []
    failed = failures(off.starts), failures(on.starts)
    return targets(seen, shares(measured), *failed, on.left_behind)


def _delays(measured: Measured) -> Iterator[Sequence[str]]:
    yield "", "JOBS", "MEDIAN", "MEAN", "P95", "MAX"
    found = compared(*delays(measured.off.starts, measured.on.starts))
    if found is not None:
        yield _row("without trainers", found.off)
        yield _row("with trainers", found.on)
        yield _row("difference of each job", found.difference, "+")


def _row(text: str, found: Summary, sign: str = "") -> Sequence[str]:
    times = (found.median, found.mean, found.p95, found.most)
    return text, str(found.count), *(f"{one:{sign}.2f}" for one in times)


def _shares(measured: Measured) -> Iterator[str]:
    found = shares(measured)
    jobs = len(measured.on.starts)
    rows = [("jobs that", "COUNT", "%")]
    for text, share in (
        ("preempted an element", found.preempted),
        ("missed a pass that they made without", found.missed),
        ("made an earlier pass", found.sooner),
    ):
        rows.append((f"  {text}", f"{share * jobs / 100:.0f}", f"{share:.1f}"))
    yield table(rows)
    idle_s, used_s = idle_and_used_s(measured)
    yield f"idle after a pass, without trainers: {idle_s:,.0f} node-seconds; used: {used_s:,.0f}"
    counts, apart_s = passes_of_both(measured)
    yield f"passes of backfill: {counts[0]} and {counts[1]}, {apart_s:.3f} s out of phase at most"


def _by_kind(measured: Measured) -> Iterator[Sequence[str]]:
    """Backfill's passes are set alike on both sides, the main scheduler's looks come as they do."""
    pairs = list(zip(measured.off.starts, measured.on.starts, strict=True))
    kinds: dict[str, list[tuple[Start, Start]]] = {"backfill": [], "the main scheduler": []}
    for pair in pairs:
        backfilled = ("backfilled", pair[0].number) in measured.off.log
        kinds["backfill" if backfilled else "the main scheduler"].append(pair)
    kinds = {f"started by {who} without": those for who, those in kinds.items()}
    for size in sorted({job.job.nodes for job, _ in pairs}):
        kinds[f"nodes: {size}"] = [pair for pair in pairs if pair[0].job.nodes == size]
    yield "difference by kind of job", "JOBS", "MEDIAN", "P95"
    for text, those in kinds.items():
        found = _compared_pairs(those)
        if found is not None:
            one = found.difference
            yield f"  {text}", str(one.count), f"{one.median:+.2f}", f"{one.p95:+.2f}"


def _compared_pairs(pairs: Sequence[tuple[Start, Start]]) -> Comparison | None:
    return compared(*delays([off for off, _ in pairs], [on for _, on in pairs]))


def _work(on: Side) -> list[str]:
    work = on.work
    if work is None:
        return []
    return [
        f"trainers: on {work.nodes} nodes as the stream began, "
        f"{work.left} elements left for jobs, {work.reclaimed} were reclaimed, "
        f"{on.left_behind} processes left behind"
    ]
