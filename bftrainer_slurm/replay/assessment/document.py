"""An assessment as a JSON document and as a table for the terminal."""

from __future__ import annotations

import math
from dataclasses import asdict
from itertools import chain
from typing import Any

from bftrainer_slurm.replay.assessment.assess import Assessment, Summary, Worth
from bftrainer_slurm.replay.assessment.gpus import gpus_document, gpus_rows
from bftrainer_slurm.replay.assessment.harvest import Replayed
from bftrainer_slurm.replay.assessment.reasons import Reasons
from bftrainer_slurm.replay.assessment.statistics import JobDelays, job_delays
from bftrainer_slurm.replay.assessment.words import (
    amount,
    between,
    duration,
    moment,
    percent,
    printable,
)
from bftrainer_slurm.replay.logs.log import Log
from bftrainer_slurm.words import counted

_FIGURES = (
    *("hours", "machine_nodes", "idle_node_hours", "idle_share", "mean_idle_nodes", "holes"),
    *("median_hole_s", "mean_hole_s"),
)


def document(assessment: Assessment) -> dict[str, Any]:
    """Return the whole assessment; unknown values are null."""
    log, figures = assessment.log, assessment.statistics
    return {
        "source": assessment.source,
        "kind": log.kind,
        "from_s": log.from_s,
        "to_s": log.to_s,
        "unit": assessment.unit,
        "kept": log.kept,
        **{name: _number(getattr(assessment, name)) for name in ("idle_hours", "mean_idle")},
        **{name: _number(getattr(figures, name)) for name in _FIGURES},
        "lengths": [asdict(one) | {"to_s": _number(one.to_s)} for one in figures.lengths],
        "mean_idle_nodes_by_hour": [list(map(_number, day)) for day in figures.by_hour.tolist()],
        "reasons": None if assessment.reasons is None else asdict(assessment.reasons),
        "gpus": gpus_document(log),
        "summaries": [
            asdict(one) | {"worth": asdict(assessment.worth(one))} for one in assessment.summaries
        ],
        "replays": [_replay(one) for one in assessment.replayed],
        "lines": _lines(assessment),
        "caveats": list(assessment.caveats),
    }


def _replay(one: Replayed) -> dict[str, Any]:
    sample, found = one.sample, job_delays(one.result.started)
    return {
        "at_once": one.options.at_once,
        "from_s": sample.from_s,
        "to_s": sample.to_s,
        "idle_hours": sample.idle_hours,
        "mean_idle": sample.mean_idle,
        "used_hours": one.result.used_hours,
        "used_share": one.used_share,
        "efficiency": _number(one.result.efficiency),
        "samples": one.result.samples,
        "dedicated": _number(one.dedicated),
        "felt": None if found is None else asdict(found),
    }


def _lines(assessment: Assessment) -> dict[str, Any] | None:
    notes = assessment.log.notes
    if notes is None:
        return None
    left_out = ("last_submit_s", "local_times", "slices")  # these are in the caveats
    return {name: said for name, said in asdict(notes).items() if name not in left_out}


def _number(value: float) -> float | None:
    return value if math.isfinite(value) else None


def table(assessment: Assessment) -> str:
    """Return the main figures for a terminal; from the log's text only names of partitions."""
    log, figures = assessment.log, assessment.statistics
    lines = [
        f"{log.kind}, {moment(log.from_s, assessment.zone)} to "
        f"{moment(log.to_s, assessment.zone)} ({duration(figures.hours * 3600)}"
        f"{_kept(log.kept)}), {counted(figures.machine_nodes, 'node')}{_with_gpus(log)}",
        *_headline(assessment),
        "",
    ]
    if log.in_gpus is not None:
        lines.append(_idle("idle nodes", figures.idle_node_hours, figures.idle_share, "node"))
    lines += [
        f"holes            {figures.holes:,} of nodes, half of them shorter than "
        f"{duration(figures.median_hole_s)}",
        "",
        f"{'LENGTH':<20}{'HOLES':>10}{'NODE-HOURS':>13}{'SHARE':>9}",
    ]
    for one in figures.lengths:
        share = one.node_hours / figures.idle_node_hours if figures.idle_node_hours else 0.0
        lines.append(
            f"{between(one.from_s, one.to_s):<20}{one.holes:>10,}"
            f"{amount(one.node_hours):>13}{percent(share):>9}"
        )
    gpus = [f"{name:<17}{text}" for name, text in gpus_rows(log)]
    known = (*_reasons(assessment.reasons), *(("", *gpus) if gpus else ()))
    return "\n".join([*lines, *known, *_harvested(assessment)])


def _kept(share: float) -> str:
    return "" if share > 0.995 else f", {share:.0%} of the log"


def _with_gpus(log: Log) -> str:
    return "" if log.gpu_use is None else f" with {counted(log.gpu_use.gpus, 'GPU')}"


def _idle(name: str, hours: float, share: float, unit: str) -> str:
    machine = "the machine" if unit == "node" else "all"
    return f"{name:<17}{amount(hours)} {unit}-hours, {percent(share)} of {machine}"


def _headline(assessment: Assessment) -> list[str]:
    """What is idle, what it is worth in a year, and what ordinary jobs would feel."""
    unit, free = assessment.unit, assessment.log.free_gpus
    idle = _idle("idle", assessment.idle_hours, assessment.idle_share, unit)
    idle += f", {amount(assessment.mean_idle)} {unit}s on average"
    if unit == "GPU" and free is not None and free.total:
        idle += f"; {percent(free.used_nodes / free.total)} of that in nodes that had a job"
    return [
        idle,
        *chain.from_iterable(_summarised(assessment, one) for one in assessment.summaries[:1]),
    ]


def _reasons(found: Reasons | None) -> list[str]:
    """Why nodes were idle: in all, and for each kind of node if there are several."""
    if found is None:
        return []
    several = (one for one in (found.by_partition, found.by_type) if len(one) > 1)
    lines = ["", f"{'WHY, NODE-HOURS':<24}" + "".join(f"{one.name:>10}" for one in found.seen)]
    for one in (found.total, *chain.from_iterable(several)):
        hours = "".join(f"{amount(one.node_hours[why.name.lower()]):>10}" for why in found.seen)
        lines.append(f"{printable(one.what)[:23]:<24}{hours}")
    return [*lines, *(f"{one.name.lower() + ':':<10}{one.value}" for one in found.seen)]


def _harvested(assessment: Assessment) -> list[str]:
    if not assessment.replayed:
        return []
    hours, count = assessment.samples[0].hours, len(assessment.samples)
    parts = counted(count, "sample")
    lines = [
        "",
        f"replayed as the daemon works, with its defaults{_as_nodes(assessment)}: "
        f"{parts} of {duration(hours * 3600)} (start delay of ordinary jobs in s)",
        f"{'SAMPLE':<22}{'TRAINERS':>8}{'IDLE':>7}{'USED':>9}{'U':>7}{'JOBS':>8}"
        f"{'MEDIAN':>8}{'P95':>7}{'P99':>7}{'MAX':>7}{'MEAN':>7}{'MISSED':>8}{'PREEMPTED':>11}",
    ]
    for one in assessment.replayed:
        lines.append(
            f"{moment(one.sample.from_s, assessment.zone):<22}{one.options.at_once:>8}"
            f"{amount(one.sample.mean_idle):>7}{percent(one.used_share):>9}"
            f"{one.result.efficiency:>7.3f}{_delay_columns(job_delays(one.result.started))}"
        )
    for summary in assessment.summaries[1:]:
        lines += ["", *_summarised(assessment, summary)]
    return lines


def _as_nodes(assessment: Assessment) -> str:
    return ", and share = true; IDLE are GPUs" if assessment.unit == "GPU" else ""


def _delay_columns(found: JobDelays | None) -> str:
    if found is None:
        return f"{'-':>8}"
    times = (found.median_s, found.p95_s, found.p99_s, found.most_s, found.mean_s)
    widths = (8, 7, 7, 7, 7)
    delays = "".join(f"{time:>{width}.2f}" for time, width in zip(times, widths, strict=True))
    return f"{found.jobs:>8,}{delays}{found.missed:>8,}{found.preempted:>11,}"


def _summarised(assessment: Assessment, summary: Summary) -> list[str]:
    used, dedicated, unit = summary.used_share, summary.dedicated, assessment.unit
    return [
        f"{counted(summary.options.at_once, 'trainer')} at once",
        f"used             {percent(used.mean)} of the idle {unit}-hours "
        f"({percent(used.least)} to {percent(used.most)})",
        f"worth            {amount(dedicated.mean)} dedicated {unit}s "
        f"({amount(dedicated.least)} to {amount(dedicated.most)})",
        _worth(assessment.worth(summary), unit, assessment.rates.currency),
        *_felt(summary.felt),
    ]


def _worth(worth: Worth, unit: str, currency: str) -> str:
    """What a year like the log would bring, if as many trainings always wait."""
    nodes, gpus = (worth.used_node_hours, " node-hours"), (worth.gpu_hours, " GPU-hours")
    known = (
        *((gpus,) if unit == "GPU" else (nodes, gpus)),
        (worth.money, f" {currency}".rstrip()),
        (worth.megawatt_hours, " MWh more"),
    )
    parts = [f"{amount(of / worth.years)}{name}" for of, name in known if of is not None]
    return f"a year           {', '.join(parts)}, if as many trainings always wait"


def _felt(found: JobDelays | None) -> list[str]:
    if found is None:
        why = "the log has no times of submission, or no job starts in what was replayed"
        return [f"ordinary jobs    unknown: {why}"]
    return [
        f"ordinary jobs    {found.later:,} of {found.jobs:,} started later "
        f"({percent(found.later / found.jobs)}); delay of all: mean {found.mean_s:.2f} s, median "
        f"{found.median_s:.2f}, p95 {found.p95_s:.2f}, p99 {found.p99_s:.2f}, at most "
        f"{found.most_s:.1f}",
        f"                 {found.missed:,} missed a pass ({percent(found.missed / found.jobs)}), "
        f"{found.preempted:,} preempted an element ({percent(found.preempted / found.jobs)})",
    ]
