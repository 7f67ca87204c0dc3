"""Made results, so that figures can be told by heart."""

from __future__ import annotations

from bftrainer_slurm.replay.drive import Outcome
from experiments.paper.runs import Result, Run, dedicated, free, papers

RUN = Run("hpo-1000")


def result(samples: float, lost: float = 0.0, **plans: int) -> Result:
    outcome = Outcome(
        events=10,
        hours=2.0,
        mean_pool_nodes=50.0,
        idle_node_hours=100.0,
        used_node_hours=90.0,
        samples=samples,
        lost_to_rescaling=lost,
        lost_to_reclaims=0.0,
        trainers_done=3,
    )
    return Result(samples, outcome, plans, 0.01, 0.02, 0.03, 36.0, "abc")


RESULTS = {
    RUN: result(850.0, lost=20.0, optimal=7),
    papers(RUN): result(800.0, optimal=5),
    free(RUN): result(900.0, optimal=4),
    dedicated(RUN): result(1000.0, optimal=1),
}
