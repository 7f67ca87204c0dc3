"""The results as JSON, with every single job."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

from scripts.impact_bench.bench import Measured
from scripts.impact_bench.figures import compared, delays, failures, makespan_s, verdicts


def document(machine: str, settings: dict[str, Any], measured: Measured) -> dict[str, Any]:
    """Return all of it; times are seconds, times of day Unix seconds."""
    off, on = measured.off, measured.on
    seen = compared(*delays(off.chunks, on.chunks))
    accounted = compared(*delays(off.chunks, on.chunks, accounted=True))
    judged = (
        []
        if seen is None
        else verdicts(seen, failures(off.chunks), failures(on.chunks), on.left_behind)
    )
    return {
        "machine": machine,
        "settings": settings,
        "start_delay_s": None if seen is None else asdict(seen),
        "accounted_start_delay_s": None if accounted is None else asdict(accounted),
        "targets": [asdict(one) | {"met": one.met} for one in judged],
        "failed": {side.name: failures(side.chunks) for side in (off, on)},
        "makespan_s": {
            side.name: [makespan_s(chunk) for chunk in side.chunks] for side in (off, on)
        },
        "left_behind": on.left_behind,
        "trainers": [asdict(work) for work in on.work],
        "jobs": {
            side.name: [[asdict(one) for one in chunk] for chunk in side.chunks]
            for side in (off, on)
        },
    }
