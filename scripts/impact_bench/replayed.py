"""The bench's stream, replayed: what the simulation behind ``bftrainer assess`` says of it.

The made cluster's scheduler runs the stream without trainers, and that is the log. So the replay
can be held against what was measured on Slurm with the same stream.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bftrainer_slurm.cli.simulation import played_back, run_live
from bftrainer_slurm.model import ThroughputCurve, WaitingJob
from bftrainer_slurm.planner.solver import Planner
from bftrainer_slurm.replay.assessment.felt import Felt, felt
from bftrainer_slurm.replay.logs.counts import Counts
from bftrainer_slurm.replay.logs.holes import HoleTable, trace_of_holes
from bftrainer_slurm.replay.logs.jobs import Job, JobTable
from bftrainer_slurm.replay.logs.log import Log
from bftrainer_slurm.replay.logs.played import play_of
from bftrainer_slurm.replay.ordinary import OrdinaryJobs, Pass
from bftrainer_slurm.replay.synthetic.backfill import INTERVAL_S, schedule
from bftrainer_slurm.replay.synthetic.workload import Jobs
from bftrainer_slurm.replay.trainers import TrainerSpec
from scripts.demonstration.stream import OrdinaryJob

_BEGIN_S = 1_700_000_010.0  # a multiple of the interval; any would do
_FOREVER_S = 1e9
_ANY = frozenset({""})  # all nodes are alike


@dataclass(frozen=True, slots=True)
class Replayed:
    """What jobs waited for without trainers, what they felt, and what trainers used.

    ``used`` is a share of the node-seconds that were idle after a pass.
    """

    median_wait_s: float
    mean_wait_s: float
    felt: Felt
    used: float


class _Unseen(OrdinaryJobs):
    """Ordinary jobs that the controller does not see in the queue: then trainers do not leave."""

    def waiting(self) -> tuple[WaitingJob, ...]:
        """Return none."""
        return ()


def replay(stream: Sequence[OrdinaryJob], nodes: int, leave_ahead: bool = True) -> Replayed:
    """Replay a stream on so many nodes beside two trainers that take what they get."""
    log, waits_s = _log(stream, nodes)
    play = play_of(log, log.holes, log.from_s, log.to_s)
    assert play is not None
    trace = trace_of_holes(log.holes, log.from_s, log.to_s)
    passes, ordinary = played_back(
        trace, play, INTERVAL_S, OrdinaryJobs if leave_ahead else _Unseen
    )
    trainers = [_trainer(f"t{number}", nodes) for number in range(2)]
    with Planner() as planner:
        span_s = (log.from_s, log.to_s)
        outcome = run_live(ordinary, span_s, trainers, len(trainers), INTERVAL_S, planner)
    found = felt(ordinary.close(log.to_s))
    assert found is not None
    used = 3600 * outcome.used_node_hours / _idle_after_pass_s(log.holes, passes)
    return Replayed(float(np.median(waits_s)), float(waits_s.mean()), found, used)


def rendered(stream: Sequence[OrdinaryJob], nodes: int) -> tuple[str, dict[str, Any]]:
    """Replay with trainers that leave ahead of passes, and with such that do not; a table."""
    both = {"leave ahead": replay(stream, nodes), "do not": replay(stream, nodes, False)}
    first = both["leave ahead"]
    lines = [
        f"wait without trainers, s: median {first.median_wait_s:.1f}, mean {first.mean_wait_s:.1f}",
        f"{'trainers':<14}{'MEDIAN':>8}{'MEAN':>8}{'P95':>8}{'MAX':>8}"
        f"{'MISSED':>8}{'PREEMPTED':>11}{'USED':>7}",
    ]
    for name, one in both.items():
        late = one.felt
        lines.append(
            f"{name:<14}{late.median_s:>8.2f}{late.mean_s:>8.2f}{late.p95_s:>8.2f}"
            f"{late.most_s:>8.2f}{late.missed:>8}{late.preempted:>11}{one.used:>7.0%}"
        )
    return "\n".join(lines), {name: asdict(one) for name, one in both.items()}


def _log(stream: Sequence[OrdinaryJob], nodes: int) -> tuple[Log, NDArray[np.float64]]:
    """Return the log of the stream without trainers, and how long each job waited."""
    jobs = Jobs(
        submit_s=np.array([job.at_s for job in stream]),
        nodes=np.array([job.nodes for job in stream], np.int32),
        run_s=np.array([job.runs_s for job in stream]),
        limit_s=np.array([60.0 * job.minutes for job in stream]),
    )
    made = schedule(jobs, nodes, _FOREVER_S)
    counts, table = Counts(None), JobTable()
    ends_s = []
    for number, job in enumerate(stream):
        begin_s = _BEGIN_S + float(made.start_s[number])
        start_s, end_s = round(begin_s, 3), round(begin_s + job.runs_s, 3)
        submit_s, backfilled = _BEGIN_S + job.at_s, bool(made.backfilled[number])
        counts.add(number, start_s, end_s, job.nodes, 0)
        table.add(Job(0, number, start_s, end_s, job.nodes, 0, "", submit_s, backfilled, -number))
        ends_s.append(end_s)
    counts.finish()
    to_s = max(ends_s)
    holes = counts.holes(nodes, 0.0, _BEGIN_S, to_s)
    log = Log("stream", holes, nodes, _BEGIN_S, to_s, jobs=table, kinds=(_ANY,) * nodes)
    return log, made.start_s - jobs.submit_s


def _trainer(name: str, nodes: int) -> TrainerSpec:
    curve = ThroughputCurve((0, nodes), (0.0, float(nodes)))
    return TrainerSpec(name, 0.0, 1, nodes, 0.2, 0.2, 1e15, curve, start_s=3.0)


def _idle_after_pass_s(holes: HoleTable, passes: Sequence[Pass]) -> float:
    began_s = np.array([one.began_s for one in passes])
    seen_s = np.append(began_s, np.inf)[np.searchsorted(began_s, holes.start_s)]
    return float(np.maximum(holes.end_s - seen_s, 0.0).sum())
