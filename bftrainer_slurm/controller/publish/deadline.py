"""What users see of a trainer's deadline: what it needs, and whether it is on time. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from bftrainer_slurm.planner.objectives.deadlines import Need
from bftrainer_slurm.spec import Spec


def deadline_status(
    spec: Spec, samples: float | None, rate: float | None, need: Need | None, now_s: float
) -> Mapping[str, Any] | None:
    """Return a deadline as the status has it; None: the trainer has none.

    ``samples`` are trained so far, None: not known. ``rate`` is the samples/s now, None: it makes
    none. ``need`` is what the plan counts with, None: it is in no plan, or counts with no deadline.
    """
    if spec.samples is None or spec.by_s is None:
        return None
    left, needs = spec.samples - (samples or 0.0), spec.rate_needed(samples or 0.0, now_s)
    if needs is None:  # it is over, though the last plan may still count with it
        need = None
    if left <= 0:
        state = "done"
    elif needs is None:
        state = "passed"
    elif samples is None:
        state = "not known"
    elif need is not None and not need.nodes:
        state = "cannot be met"
    else:
        state = "on time" if rate and rate >= needs else "late"
    behind = state in ("late", "cannot be met")
    return {
        "state": state,
        "needs": needs,
        "late_s": max(0.0, left / rate - (spec.by_s - now_s)) if behind and rate else None,
        "nodes": None if need is None else need.nodes,
        "nodes_left": None if need is None else need.left,
    }
