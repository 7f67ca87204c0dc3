"""An assessment as a JSON document and as a table for the terminal."""

from __future__ import annotations

import math
from typing import Any

from bftrainer_slurm.replay.assessment.assess import Assessment
from bftrainer_slurm.replay.assessment.harvest import Replayed
from bftrainer_slurm.replay.assessment.words import (
    amount,
    between,
    duration,
    moment,
    percent,
)


def document(assessment: Assessment) -> dict[str, Any]:
    """Return everything that an assessment says; what is not known is null."""
    log, figures, sample = assessment.log, assessment.statistics, assessment.sample
    return {
        "source": assessment.source,
        "kind": log.kind,
        "from_s": log.from_s,
        "to_s": log.to_s,
        "hours": figures.hours,
        "machine_nodes": figures.machine_nodes,
        "idle_node_hours": figures.idle_node_hours,
        "idle_share": figures.idle_share,
        "mean_idle_nodes": figures.mean_idle_nodes,
        "holes": figures.holes,
        "median_hole_s": _number(figures.median_hole_s),
        "mean_hole_s": _number(figures.mean_hole_s),
        "lengths": [
            {
                "from_s": one.from_s,
                "to_s": _number(one.to_s),
                "holes": one.holes,
                "node_hours": one.node_hours,
            }
            for one in figures.lengths
        ],
        "mean_idle_nodes_by_hour": [list(map(_number, day)) for day in figures.by_hour.tolist()],
        "sample": None
        if sample is None
        else {
            "from_s": sample.from_s,
            "to_s": sample.to_s,
            "hours": sample.hours,
            "idle_node_hours": sample.idle_node_hours,
            "mean_pool_nodes": sample.mean_pool_nodes,
        },
        "replays": [_replay(assessment, one) for one in assessment.replayed],
        "lines": _lines(assessment),
        "caveats": list(log.caveats),
    }


def _replay(assessment: Assessment, one: Replayed) -> dict[str, Any]:
    return {
        "at_once": one.options.at_once,
        "forward_time_s": one.options.forward_time_s,
        "rescale_scale": one.options.rescale_scale,
        "used_node_hours": one.result.used_node_hours,
        "used_share": assessment.used_share(one),
        "efficiency": _number(one.result.efficiency),
        "samples": one.result.samples,
        "equivalent_nodes": _number(assessment.equivalent_nodes(one)),
    }


def _lines(assessment: Assessment) -> dict[str, Any] | None:
    notes = assessment.log.notes
    if notes is None:
        return None
    return {
        "jobs": notes.jobs,
        "never_ran": notes.never_ran,
        "steps": notes.steps,
        "running": notes.running,
        "malformed": notes.malformed,
        "bad_lines": [
            {"number": line.number, "why": line.why, "text": line.text} for line in notes.bad_lines
        ],
    }


def _number(value: float) -> float | None:
    return value if math.isfinite(value) else None


def table(assessment: Assessment) -> str:
    """Return the main figures for a terminal; nothing in it comes from the log's text."""
    log, figures = assessment.log, assessment.statistics
    lines = [
        f"{log.kind}, {moment(log.from_s, assessment.zone)} to "
        f"{moment(log.to_s, assessment.zone)} ({duration(figures.hours * 3600)}), "
        f"{figures.machine_nodes:,} nodes",
        f"idle             {amount(figures.idle_node_hours)} node-hours, "
        f"{percent(figures.idle_share)} of the machine, "
        f"{amount(figures.mean_idle_nodes)} nodes on average",
        f"holes            {figures.holes:,}, half of them shorter than "
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
    return "\n".join(lines + _harvested(assessment))


def _harvested(assessment: Assessment) -> list[str]:
    sample = assessment.sample
    if sample is None:
        return []
    part = "all of it" if sample.whole else f"the {duration(sample.to_s - sample.from_s)} from "
    if not sample.whole:
        part += moment(sample.from_s, assessment.zone)
    lines = [
        "",
        f"replayed: {part}, {amount(sample.mean_pool_nodes)} nodes idle on average",
        f"{'TRAINERS':<10}{'T_FWD':>8}{'RESCALE':>9}{'USED':>9}{'U':>8}{'EQUIVALENT NODES':>18}",
    ]
    for one in assessment.replayed:
        options = one.options
        lines.append(
            f"{options.at_once:<10}{f'{options.forward_time_s:g} s':>8}"
            f"{f'x {options.rescale_scale:g}':>9}{percent(assessment.used_share(one)):>9}"
            f"{one.result.efficiency:>8.3f}{amount(assessment.equivalent_nodes(one)):>18}"
        )
    return lines
