"""What the made-up cluster did, as the log of a cluster: its jobs and its holes."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

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
    jobs = draw(workload)
    found = schedule(jobs, workload.nodes, workload.span_s)
    return logged(
        "made-up cluster, EASY backfill",
        workload,
        (jobs.submit_s, found.start_s, jobs.run_s),
        found.held.__getitem__,
        min_hole_s,
        nodes=jobs.nodes,
        backfilled=found.backfilled,
        limit_s=jobs.limit_s,
    )


def logged(
    kind: str,
    workload: Workload,
    times_s: tuple[NDArray[np.float64], NDArray[np.float64], NDArray[np.float64]],
    held: Callable[[int], NDArray[np.int32]],
    min_hole_s: float,
    **columns: NDArray[Any],
) -> Log:
    """Return the log of a made-up cluster, with these ``columns`` of its jobs.

    ``times_s`` are the jobs' submissions and starts (NaN: never) in seconds from the beginning, and
    how long they run; ``held`` returns the numbers of a job's nodes.
    """
    submit_s, start_s, run_s = times_s
    number, ran = np.arange(len(run_s)), ~np.isnan(start_s)
    jobs = JobTable.made(
        key=number,
        start_s=np.where(ran, start_s + EPOCH_S, np.inf),
        end_s=np.where(ran, start_s + EPOCH_S + run_s, workload.to_s),
        eligible_s=submit_s + EPOCH_S,
        priority=-number,
        **columns,
    )
    occupancy = Occupancy(min_hole_s)
    for job in number[ran].tolist():
        occupancy.add(held(job), float(jobs.start_s[job]), float(jobs.end_s[job]))
    return Log(
        kind=kind,
        holes=occupancy.holes(workload.names, workload.from_s, workload.to_s),
        nodes=workload.nodes,
        from_s=workload.from_s,
        to_s=workload.to_s,
        caveats=(SYNTHETIC,),
        jobs=jobs,
        kinds=(frozenset({""}),) * workload.nodes,
    )
