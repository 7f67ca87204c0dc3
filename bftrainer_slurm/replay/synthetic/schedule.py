"""What the made-up cluster did: the job schedule and its holes."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from bftrainer_slurm.replay.logs.holes import HoleTable, trace_of_holes
from bftrainer_slurm.replay.logs.jobs import JobTable
from bftrainer_slurm.replay.logs.occupancy import Occupancy
from bftrainer_slurm.replay.synthetic.backfill import schedule as run
from bftrainer_slurm.replay.synthetic.workload import DAY_S, Jobs, Workload, draw
from bftrainer_slurm.replay.trace import Trace

EPOCH_S = 1_704_067_200.0  # Monday, 1 January 2024, 00:00 UTC


@dataclass(frozen=True, slots=True, eq=False)
class Schedule:
    """When and where jobs ran. Times are Unix seconds; the warm-up is included.

    ``start_s`` is NaN for a job that still waited at the end; ``held`` are its nodes' numbers.
    ``backfilled`` is true if a pass of backfill started it.
    """

    workload: Workload
    jobs: Jobs
    submit_s: NDArray[np.float64]
    start_s: NDArray[np.float64]
    held: tuple[NDArray[np.int32], ...]
    backfilled: NDArray[np.bool_]

    @property
    def end_s(self) -> NDArray[np.float64]:
        """When each job ends, also past the schedule's end."""
        return self.start_s + self.jobs.run_s

    @property
    def from_s(self) -> float:
        """When the warm-up is over."""
        return EPOCH_S + self.workload.warm_up_days * DAY_S

    @property
    def to_s(self) -> float:
        """When the schedule ends."""
        return self.from_s + self.workload.days * DAY_S

    def holes(self, min_hole_s: float = 10.0) -> HoleTable:
        """Return the holes after the warm-up, those of ``min_hole_s`` or more."""
        occupancy = Occupancy(min_hole_s)
        for job in np.flatnonzero(~np.isnan(self.start_s)):
            occupancy.add(self.held[job], float(self.start_s[job]), float(self.end_s[job]))
        digits = len(str(self.workload.nodes - 1))
        names = tuple(f"n{number:0{digits}}" for number in range(self.workload.nodes))
        return occupancy.holes(names, self.from_s, self.to_s)

    def table(self) -> JobTable:
        """Return the jobs as a log has them."""
        ran = ~np.isnan(self.start_s)
        return JobTable.made(
            key=np.arange(len(ran)),
            start_s=np.where(ran, self.start_s, np.inf),
            end_s=np.where(ran, self.end_s, self.to_s),
            nodes=self.jobs.nodes,
            eligible_s=self.submit_s,
            backfilled=self.backfilled,
            priority=-np.arange(len(ran)),
            limit_s=self.jobs.limit_s,
        )

    def trace(self, min_hole_s: float = 10.0) -> Trace:
        """Return the holes after the warm-up as events, to replay them."""
        return trace_of_holes(self.holes(min_hole_s), self.from_s, self.to_s)


def simulate(workload: Workload) -> Schedule:
    """Draw a workload and run it; the same workload always gives the same schedule."""
    jobs = draw(workload)
    span_s = (workload.warm_up_days + workload.days) * DAY_S
    timetable = run(jobs, workload.nodes, span_s)
    return Schedule(
        workload,
        jobs,
        jobs.submit_s + EPOCH_S,
        timetable.start_s + EPOCH_S,
        tuple(timetable.held),
        timetable.backfilled,
    )
