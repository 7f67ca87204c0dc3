"""The results as text, as JSON and as a picture."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import fields
from typing import Any

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from scripts.benchkit.figures import Summary
from scripts.benchkit.picture import BLUE, GREY, GRID, INK, ORANGE, drawn
from scripts.benchkit.text import columns, table
from scripts.impact_bench.bench import Measured, Pair
from scripts.impact_bench.figures import Figures, compared, delays, passes_missed
from scripts.impact_bench.passes import preempting

_LEAST_S = 0.05  # an axis of logarithms has no zero


def document(measured: Measured, found: Figures) -> dict[str, Any]:
    """Return all of it for JSON; times are seconds, times of day Unix seconds."""
    names = measured.off.name, measured.on.name
    said = {one.name: getattr(found, one.name) for one in fields(found)}
    for pair in ("failed", "makespan_s", "passes"):
        said[pair] = dict(zip(names, said[pair], strict=True))
    return {
        **said,
        "passes_s": {side.name: side.passes_s for side in (measured.off, measured.on)},
        "begin_s": {side.name: side.begin_s for side in (measured.off, measured.on)},
        "left_behind": measured.on.left_behind,
        "trainers": measured.on.work,
        "jobs": {side.name: side.starts for side in (measured.off, measured.on)},
    }


def rendered(measured: Measured, found: Figures) -> str:
    """Return the figures of the ordinary jobs as text."""
    took_s, passes = found.makespan_s, found.passes
    parts = [
        f"start delay of the ordinary jobs, s\n{_delays(found)}",
        _by_kind(measured),
        f"{_shares(found, len(measured.pairs))}\n"
        f"idle after a pass, without trainers: {found.idle_s:,.0f} node-seconds, "
        f"{found.long_s:,.0f} of them in holes of a minute or more; used: {found.used_s:,.0f}\n"
        f"passes of backfill: {passes[0]} and {passes[1]}, "
        f"{found.out_of_phase_s:.3f} s out of phase at most",
        f"makespan: {took_s[0]:.1f} s without trainers, {took_s[1]:.1f} s with\n"
        f"jobs failed: {found.failed[0]} without trainers, {found.failed[1]} with{_work(measured)}",
        "\n".join(map(str, found.targets)),
        late_jobs(measured),
    ]
    return "\n\n".join(filter(None, parts))


def late_jobs(measured: Measured) -> str:
    """Return a table of the jobs that missed a pass, seconds since the stream's first pass."""

    def since_s(pair: Pair, delay_s: float | None = 0.0) -> str:
        begun_s = pair[0].submit_s - measured.off.begin_s
        return f"{math.nan if delay_s is None else begun_s + delay_s:.1f}"

    return columns(
        [pair for pair in measured.pairs if passes_missed(measured, *pair) > 0],
        [
            ("missed a pass", lambda pair: f"  {pair[1].number}"),
            ("NODES", lambda pair: str(pair[0].job.nodes)),
            ("SUBMITTED", since_s),
            ("STARTED", lambda pair: since_s(pair, pair[0].delay_s or 0.0)),
            ("WITH", lambda pair: since_s(pair, pair[1].delay_s)),
            ("LATER", lambda pair: f"{passes_missed(measured, *pair):g}"),
            ("PREEMPTED", lambda pair: "yes" if preempting(measured.on.log, pair[1:]) else "no"),
        ],
    )


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


def _delays(found: Figures) -> str:
    seen, rows = found.start_delay_s, list[tuple[str, Summary, str]]()
    if seen is not None:
        rows = [("without trainers", seen.off, ""), ("with trainers", seen.on, "")]
        rows.append(("difference of each job", seen.difference, "+"))
    return columns(
        rows,
        [
            ("", lambda row: row[0]),
            ("JOBS", lambda row: str(row[1].count)),
            ("MEDIAN", lambda row: f"{row[1].median:{row[2]}.2f}"),
            ("MEAN", lambda row: f"{row[1].mean:{row[2]}.2f}"),
            ("P95", lambda row: f"{row[1].p95:{row[2]}.2f}"),
            ("MAX", lambda row: f"{row[1].most:{row[2]}.2f}"),
        ],
    )


def _shares(found: Figures, jobs: int) -> str:
    shares = {
        "preempted an element": found.shares.preempted,
        "missed a pass that they made without": found.shares.missed,
        "made an earlier pass": found.shares.sooner,
    }
    return columns(
        shares.items(),
        [
            ("jobs that", lambda row: f"  {row[0]}"),
            ("COUNT", lambda row: f"{row[1] * jobs / 100:.0f}"),
            ("%", lambda row: f"{row[1]:.1f}"),
        ],
    )


def _by_kind(measured: Measured) -> str:
    """Backfill's passes are set alike on both sides, the main scheduler's looks come as they do."""
    kinds: dict[str, list[Pair]] = {"backfill": [], "the main scheduler": []}
    for pair in measured.pairs:
        backfilled = ("backfilled", pair[0].number) in measured.off.log
        kinds["backfill" if backfilled else "the main scheduler"].append(pair)
    kinds = {f"started by {who} without": those for who, those in kinds.items()}
    for size in sorted({job.job.nodes for job, _ in measured.pairs}):
        kinds[f"nodes: {size}"] = [pair for pair in measured.pairs if pair[0].job.nodes == size]
    rows: list[Sequence[str]] = [("difference by kind of job", "JOBS", "MEDIAN", "P95")]
    for text, those in kinds.items():
        found = compared(*delays([off for off, _ in those], [on for _, on in those]))
        if found is not None:
            one = found.difference
            rows.append((f"  {text}", str(one.count), f"{one.median:+.2f}", f"{one.p95:+.2f}"))
    return table(rows)


def _work(measured: Measured) -> str:
    work = measured.on.work
    if work is None:
        return ""
    return (
        f"\ntrainers: on {work.nodes} nodes as the stream began, "
        f"{work.left} elements left for jobs, {work.reclaimed} were reclaimed, "
        f"{measured.on.left_behind} processes left behind"
    )
