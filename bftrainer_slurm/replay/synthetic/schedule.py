"""What the made-up cluster did, as the log of a cluster: its jobs and its holes."""

from __future__ import annotations

import numpy as np

from bftrainer_slurm.replay.logs.caveats import SYNTHETIC
from bftrainer_slurm.replay.logs.jobs import JobTable
from bftrainer_slurm.replay.logs.log import Log
from bftrainer_slurm.replay.logs.occupancy import Occupancy
from bftrainer_slurm.replay.synthetic.backfill import schedule
from bftrainer_slurm.replay.synthetic.workload import EPOCH_S, Workload, draw


def simulate(workload: Workload, min_hole_s: float = 10.0) -> Log:
    """Draw a workload and run it; the same workload always gives the same log.

    Its jobs are those of the warm-up, too; its holes, of ``min_hole_s`` or more, begin after it.
    """
    drawn = draw(workload)
    found = schedule(drawn, workload.nodes, workload.span_s)
    number, ran = np.arange(len(drawn.run_s)), ~np.isnan(found.start_s)
    start_s = np.where(ran, found.start_s + EPOCH_S, np.inf)
    jobs = JobTable.made(
        key=number,
        start_s=start_s,
        end_s=np.where(ran, start_s + drawn.run_s, workload.to_s),
        nodes=drawn.nodes,
        eligible_s=drawn.submit_s + EPOCH_S,
        backfilled=found.backfilled,
        priority=-number,
        limit_s=drawn.limit_s,
    )
    occupancy = Occupancy(min_hole_s)
    for job in number[ran].tolist():
        occupancy.add(found.held[job], float(jobs.start_s[job]), float(jobs.end_s[job]))
    return Log(
        kind="made-up cluster, EASY backfill",
        holes=occupancy.holes(workload.names, workload.from_s, workload.to_s),
        nodes=workload.nodes,
        from_s=workload.from_s,
        to_s=workload.to_s,
        caveats=(SYNTHETIC,),
        jobs=jobs,
        kinds=(frozenset({""}),) * workload.nodes,
    )
