"""How trainers delay ordinary jobs: how much later these start, as a distribution."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from bftrainer_slurm.replay.playback import Started


@dataclass(frozen=True, slots=True)
class Felt:
    """For so many jobs: added start delay in seconds, and how many missed a pass or preempted."""

    jobs: int
    median_s: float
    p95_s: float
    p99_s: float
    mean_s: float
    most_s: float
    missed: int
    preempted: int


def felt(started: Sequence[Started]) -> Felt | None:
    """Return the distribution; None if no job started."""
    if not started:
        return None
    late_s = np.array([one.late_s for one in started])
    median_s, p95_s, p99_s = np.quantile(late_s, (0.5, 0.95, 0.99)).tolist()
    return Felt(
        jobs=len(started),
        median_s=median_s,
        p95_s=p95_s,
        p99_s=p99_s,
        mean_s=float(late_s.mean()),
        most_s=float(late_s.max()),
        missed=sum(one.missed > 0 for one in started),
        preempted=sum(one.preempted for one in started),
    )
