"""What the made-up cluster did: the job schedule and its holes."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from bftrainer_slurm.replay.logs.caveats import SYNTHETIC
from bftrainer_slurm.replay.logs.holes import HoleTable, trace_of_holes
from bftrainer_slurm.replay.logs.jobs import JobTable
from bftrainer_slurm.replay.logs.log import Log
from bftrainer_slurm.replay.logs.occupancy import Occupancy
from bftrainer_slurm.replay.synthetic.backfill import schedule
from bftrainer_slurm.replay.synthetic.workload import EPOCH_S, Jobs, Workload, draw
from bftrainer_slurm.replay.trace import Trace


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

    def holes(self, min_hole_s: float = 10.0) -> HoleTable:
        """Return the holes after the warm-up, those of ``min_hole_s`` or more."""
        occupancy = Occupancy(min_hole_s)
        for job in np.flatnonzero(~np.isnan(self.start_s)):
            occupancy.add(self.held[job], float(self.start_s[job]), float(self.end_s[job]))
        workload = self.workload
        return occupancy.holes(workload.names, workload.from_s, workload.to_s)

    def table(self) -> JobTable:
        """Return the jobs as a log has them."""
        ran = ~np.isnan(self.start_s)
        return JobTable.made(
            key=np.arange(len(ran)),
            start_s=np.where(ran, self.start_s, np.inf),
            end_s=np.where(ran, self.end_s, self.workload.to_s),
            nodes=self.jobs.nodes,
            eligible_s=self.submit_s,
            backfilled=self.backfilled,
            priority=-np.arange(len(ran)),
            limit_s=self.jobs.limit_s,
        )

    def trace(self, min_hole_s: float = 10.0) -> Trace:
        """Return the holes after the warm-up as events, to replay them."""
        return trace_of_holes(self.holes(min_hole_s), self.workload.from_s, self.workload.to_s)

    def log(self, min_hole_s: float) -> Log:
        """Return the whole as the log of a cluster."""
        kind = "made-up cluster, EASY backfill"
        return log_of(kind, self.workload, self.holes(min_hole_s), self.table())


def log_of(kind: str, workload: Workload, holes: HoleTable, jobs: JobTable) -> Log:
    """Return the log of a made-up cluster, of whose nodes nothing else is known."""
    return Log(
        kind=kind,
        holes=holes,
        nodes=workload.nodes,
        from_s=workload.from_s,
        to_s=workload.to_s,
        caveats=(SYNTHETIC,),
        jobs=jobs,
        kinds=(frozenset({""}),) * workload.nodes,
    )


def simulate(workload: Workload) -> Schedule:
    """Draw a workload and run it; the same workload always gives the same schedule."""
    jobs = draw(workload)
    timetable = schedule(jobs, workload.nodes, workload.span_s)
    return Schedule(
        workload,
        jobs,
        jobs.submit_s + EPOCH_S,
        timetable.start_s + EPOCH_S,
        tuple(timetable.held),
        timetable.backfilled,
    )
