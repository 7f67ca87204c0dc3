"""How trainers delay ordinary jobs: how much later these start, as a distribution."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from bftrainer_slurm.replay.playback import Started

AT_ONCE_S = 0.01  # a job that starts by less later has started as soon as without trainers
DELAYS_S = (0.0, AT_ONCE_S, 1.0, 10.0, 30.0, 60.0, 300.0)


@dataclass(frozen=True, slots=True)
class Felt:
    """For so many jobs: added start delay in seconds, and how many missed a pass or preempted.

    ``later`` started later at all; ``delays`` counts jobs by the classes that ``DELAYS_S`` begin.
    """

    jobs: int
    later: int
    delays: tuple[int, ...]
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
        later=int((late_s >= AT_ONCE_S).sum()),
        delays=tuple(np.histogram(late_s.clip(0.0), (*DELAYS_S, np.inf))[0].tolist()),
        median_s=median_s,
        p95_s=p95_s,
        p99_s=p99_s,
        mean_s=float(late_s.mean()),
        most_s=float(late_s.max()),
        missed=sum(one.missed > 0 for one in started),
        preempted=sum(one.preempted for one in started),
    )
