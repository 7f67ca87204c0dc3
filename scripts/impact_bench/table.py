"""The results as a table of text."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import chain

from scripts.impact_bench.bench import Measured
from scripts.impact_bench.course import Start
from scripts.impact_bench.figures import (
    Comparison,
    Quantiles,
    compared,
    delays,
    failures,
    makespan_s,
    verdicts,
)

# slurmctld looks at new batch jobs once a second.
_AT_ONCE_S = 1.5
_HEAD = f"{'':<36}{'JOBS':>6}{'MEDIAN':>9}{'P95':>9}{'P99':>9}{'MAX':>9}"


def rendered(measured: Measured) -> str:
    """Return all of it; there must be a job that started on both sides."""
    off, on = measured.off, measured.on
    seen = compared(*delays(off.chunks, on.chunks))
    accounted = compared(*delays(off.chunks, on.chunks, accounted=True))
    lines = ["start delay of the ordinary jobs, s", _HEAD]
    if seen is not None:
        lines += _rows("", seen)
    if accounted is not None:
        lines += _rows(", as Slurm accounts it", accounted)
    lines += ["", *_by_kind(measured), "", *_makespans(measured), ""]
    samples = sum(work.samples for work in on.work)
    reclaimed = sum(work.reclaimed for work in on.work)
    began = _spread([work.nodes for work in on.work])
    lines += [
        f"jobs failed: {failures(off.chunks)} without trainers, {failures(on.chunks)} with",
        f"trainers meanwhile: on {began} nodes as chunks began, "
        f"{samples:,.0f} samples, {reclaimed} elements reclaimed, "
        f"{on.left_behind} processes left behind",
    ]
    if seen is not None:
        judged = verdicts(seen, failures(off.chunks), failures(on.chunks), on.left_behind)
        lines += ["", *(_judged(*_words(one.found, one.most), one.text, one.met) for one in judged)]
    return "\n".join(lines)


def _rows(what: str, comparison: Comparison) -> list[str]:
    return [
        _row(f"without trainers{what}", comparison.off),
        _row(f"with trainers{what}", comparison.on),
        _row("difference of each job", comparison.difference, sign="+"),
    ]


def _row(text: str, found: Quantiles, sign: str = "") -> str:
    times = (found.median, found.p95, found.p99, found.most)
    return f"{text:<36}{found.count:>6}" + "".join(f"{one:>{sign}9.2f}" for one in times)


def _by_kind(measured: Measured) -> list[str]:
    """Jobs that had no time in the queue without trainers are where a reclaim shows by itself."""
    off, on = (chain(*side.chunks) for side in (measured.off, measured.on))
    pairs = list(zip(off, on, strict=True))
    kinds = {
        "started at once without trainers": [pair for pair in pairs if not _queued(pair[0])],
        "waited in the queue": [pair for pair in pairs if _queued(pair[0])],
    }
    for size in sorted({job.job.nodes for job, _ in pairs}):
        kinds[f"nodes: {size}"] = [pair for pair in pairs if pair[0].job.nodes == size]
    head = f"{'difference by kind of job':<36}{'JOBS':>6}{'MEDIAN':>9}{'P95':>9}"
    return [head, *chain.from_iterable(_kind(text, those) for text, those in kinds.items())]


def _queued(job: Start) -> bool:
    return job.delay_s is None or job.delay_s > _AT_ONCE_S


def _kind(text: str, pairs: Sequence[tuple[Start, Start]]) -> list[str]:
    """Return the row of jobs without and with trainers; none if none started."""
    found = compared(*delays([[off for off, _ in pairs]], [[on for _, on in pairs]]))
    if found is None:
        return []
    one = found.difference
    return [f"{f'  {text}':<36}{one.count:>6}{one.median:>+9.2f}{one.p95:>+9.2f}"]


def _makespans(measured: Measured) -> list[str]:
    pairs = [
        (makespan_s(off), makespan_s(on))
        for off, on in zip(measured.off.chunks, measured.on.chunks, strict=True)
    ]
    return [
        f"makespan of each chunk, s: without trainers  {_numbers([off for off, _ in pairs])}",
        f"                           with trainers     {_numbers([on for _, on in pairs])}",
        f"                           in all            "
        f"{sum(off for off, _ in pairs):.1f} and {sum(on for _, on in pairs):.1f}",
    ]


def _spread(counts: Sequence[int]) -> str:
    least, most = min(counts, default=0), max(counts, default=0)
    return str(most) if least == most else f"{least} to {most}"


def _numbers(values: Sequence[float]) -> str:
    return " ".join(f"{one:6.1f}" for one in values)


def _words(found: float, most: float) -> tuple[str, str]:
    if isinstance(found, int):
        return str(found), f"{most:g}"
    return f"{found:.3f}", f"{most:g}"


def _judged(found: str, most: str, text: str, met: bool) -> str:
    return f"{'met' if met else 'MISSED':<8}{text}: {found} <= {most}"
