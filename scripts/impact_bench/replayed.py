"""The bench's stream, replayed: what the simulation behind ``bftrainer assess`` says of it.

The log is the side without trainers of a run on Slurm, or the made cluster's scheduler runs the
stream. So the replay can be held against what was measured on Slurm with the same stream.
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
from bftrainer_slurm.replay.logs.holes import HoleTable, trace_of_holes
from bftrainer_slurm.replay.logs.jobs import Job, JobTable
from bftrainer_slurm.replay.logs.log import Log
from bftrainer_slurm.replay.logs.occupancy import Occupancy
from bftrainer_slurm.replay.logs.played import play_of
from bftrainer_slurm.replay.passes import Pass
from bftrainer_slurm.replay.playback import OrdinaryJobs
from bftrainer_slurm.replay.synthetic.backfill import INTERVAL_S, schedule
from bftrainer_slurm.replay.synthetic.workload import Jobs
from bftrainer_slurm.replay.trainers import TrainerSpec
from scripts.demonstration.stream import OrdinaryJob

_BEGIN_S = 1_700_000_010.0  # a multiple of the interval; any would do
_FOREVER_S = 1e9
_ANY = frozenset({""})  # all nodes are alike
_IN_PASS_S = 1.2


@dataclass(frozen=True, slots=True)
class Replayed:
    """What jobs felt, and what trainers used of the node-seconds that were idle after a pass."""

    felt: Felt
    used: float


class _Unseen(OrdinaryJobs):
    """Ordinary jobs that the controller does not see in the queue: then trainers do not leave."""

    def waiting(self) -> tuple[WaitingJob, ...]:
        """Return none."""
        return ()


def rendered(log: Log) -> tuple[str, dict[str, Any]]:
    """Replay with trainers that leave ahead of passes, and with such that do not; a table."""
    both = {"leave ahead": _replay(log, OrdinaryJobs), "do not": _replay(log, _Unseen)}
    assert log.jobs is not None
    waits_s = [one.start_s - one.eligible_s for one in log.jobs.between(log.from_s, log.to_s)]
    lines = [
        f"{len(waits_s)} jobs replayed; wait without trainers, s: median {np.median(waits_s):.1f}, "
        f"mean {np.mean(waits_s):.1f}",
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


def _replay(log: Log, kind: type[OrdinaryJobs]) -> Replayed:
    """Replay a log beside two trainers that take what they get."""
    play = play_of(log, log.holes, log.from_s, log.to_s)
    assert play is not None
    trace = trace_of_holes(log.holes, log.from_s, log.to_s)
    passes, ordinary = played_back(trace, play, INTERVAL_S, kind)
    trainers = [_trainer(f"t{number}", log.nodes) for number in range(2)]
    with Planner() as planner:
        span_s = (log.from_s, log.to_s)
        outcome = run_live(ordinary, span_s, trainers, len(trainers), INTERVAL_S, planner)
    found = felt(ordinary.close(log.to_s))
    assert found is not None
    used = 3600 * outcome.used_node_hours / _idle_after_pass_s(log.holes, passes)
    return Replayed(found, used)


def scheduled(stream: Sequence[OrdinaryJob], nodes: int) -> Log:
    """Return the log of a stream as the made cluster's scheduler runs it."""
    jobs = Jobs(
        submit_s=np.array([job.at_s for job in stream]),
        nodes=np.array([job.nodes for job in stream], np.int32),
        run_s=np.array([job.runs_s for job in stream]),
        limit_s=np.array([60.0 * job.minutes for job in stream]),
    )
    made = schedule(jobs, nodes, _FOREVER_S)
    rows = [
        (
            _BEGIN_S + job.at_s,
            _BEGIN_S + float(made.start_s[number]),
            _BEGIN_S + float(made.start_s[number]) + job.runs_s,
            made.held[number],
            bool(made.backfilled[number]),
        )
        for number, job in enumerate(stream)
    ]
    return _log(rows, nodes, _BEGIN_S)


def measured(results: dict[str, Any]) -> Log:
    """Return the log of the side without trainers, from the results of a run.

    Backfill has started a job whose first line came within a second of a pass.
    """
    passes_s = np.array(results["passes_s"]["without"])
    rows = []
    for job in results["jobs"]["without"]:
        since_s = job["start_s"] - passes_s
        backfilled = bool(((since_s >= 0) & (since_s < _IN_PASS_S)).any())
        held = np.array([int(name.removeprefix("n")) - 1 for name in job["account"]["nodes"]])
        rows.append((job["submit_s"], job["start_s"], job["end_s"], held, backfilled))
    return _log(rows, results["settings"]["nodes"], results["begin_s"]["without"])


def _log(
    rows: Sequence[tuple[float, float, float, NDArray[np.integer], bool]],
    nodes: int,
    from_s: float,
) -> Log:
    """Return a log of jobs: when each was submitted, started and ended, its nodes, by whom."""
    occupancy, jobs = Occupancy(0.0), list[Job]()
    names = tuple(f"n{number + 1}" for number in range(nodes))
    for number, (submit_s, start, end, held, backfilled) in enumerate(rows):
        start_s, end_s = round(start, 3), round(end, 3)
        occupancy.add(held.astype(np.int32), start_s, end_s)
        listed = ",".join(names[node] for node in held)
        jobs.append(
            Job(0, number, start_s, end_s, len(held), 0, listed, submit_s, backfilled, -number)
        )
    to_s = round(max(row[2] for row in rows), 3)
    holes = occupancy.holes(names, from_s, to_s)
    return Log("stream", holes, nodes, from_s, to_s, jobs=JobTable.of(jobs), kinds=(_ANY,) * nodes)


def _trainer(name: str, nodes: int) -> TrainerSpec:
    curve = ThroughputCurve((0, nodes), (0.0, float(nodes)))
    return TrainerSpec(name, 0.0, 1, nodes, 0.2, 0.2, 1e15, curve, start_s=3.0)


def _idle_after_pass_s(holes: HoleTable, passes: Sequence[Pass]) -> float:
    began_s = np.array([one.began_s for one in passes])
    seen_s = np.append(began_s, np.inf)[np.searchsorted(began_s, holes.start_s)]
    return float(np.maximum(holes.end_s - seen_s, 0.0).sum())
