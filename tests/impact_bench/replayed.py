"""The bench's stream, replayed: what the simulation behind ``bftrainer assess`` says of it.

The made-up cluster's scheduler runs the stream, and that is the log. So the replay can be held
against what was measured on Slurm with the same stream: ``python -m tests.impact_bench.replayed``
prints the table of docs/internals/assess.md.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import click
import numpy as np

from bftrainer_slurm.cli.simulation import play_back, run_live
from bftrainer_slurm.model import ThroughputCurve, WaitingJob
from bftrainer_slurm.planner.solver import Planner
from bftrainer_slurm.replay.assessment.statistics import JobDelays, job_delays
from bftrainer_slurm.replay.logs.holes import HoleTable, trace_of_holes
from bftrainer_slurm.replay.logs.jobs import Job, JobTable
from bftrainer_slurm.replay.logs.log import Log
from bftrainer_slurm.replay.logs.occupancy import Occupancy
from bftrainer_slurm.replay.logs.played import play_of
from bftrainer_slurm.replay.ordinary import Pass
from bftrainer_slurm.replay.playback import OrdinaryJobs
from bftrainer_slurm.replay.synthetic.backfill import INTERVAL_S, schedule
from bftrainer_slurm.replay.synthetic.workload import Jobs
from bftrainer_slurm.replay.trainers import TrainerSpec
from scripts.benchkit.command import Findings, bench_command, number
from scripts.benchkit.text import columns
from scripts.demonstration.stream import OrdinaryJob
from scripts.impact_bench.stream import busy_stream

_BEGIN_S = 1_700_000_010.0  # a multiple of the interval; any would do
_FOREVER_S = 1e9
_ANY = frozenset({""})  # all nodes are alike


@dataclass(frozen=True, slots=True)
class Replayed:
    """What jobs felt, and what trainers used of the node-seconds that were idle after a pass."""

    felt: JobDelays
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
    head = (
        f"{len(waits_s)} jobs replayed; wait without trainers, s: median {np.median(waits_s):.1f}, "
        f"mean {np.mean(waits_s):.1f}"
    )
    cells: list[tuple[str, Callable[[tuple[str, Replayed]], str]]] = [
        ("trainers", lambda row: row[0]),
        ("MEDIAN", lambda row: f"{row[1].felt.median_s:.2f}"),
        ("MEAN", lambda row: f"{row[1].felt.mean_s:.2f}"),
        ("P95", lambda row: f"{row[1].felt.p95_s:.2f}"),
        ("MAX", lambda row: f"{row[1].felt.most_s:.2f}"),
        ("MISSED", lambda row: str(row[1].felt.missed)),
        ("PREEMPTED", lambda row: str(row[1].felt.preempted)),
        ("USED", lambda row: f"{row[1].used:.0%}"),
    ]
    document = {name: asdict(one) for name, one in both.items()}
    return f"{head}\n{columns(both.items(), cells)}", document


def _replay(log: Log, kind: type[OrdinaryJobs]) -> Replayed:
    """Replay a log beside two trainers that take what they get."""
    play = play_of(log, log.holes, log.from_s, log.to_s)
    assert play is not None
    trace = trace_of_holes(log.holes, log.from_s, log.to_s)
    passes, ordinary = play_back(trace, play, INTERVAL_S, kind)
    trainers = [_trainer(f"t{number}", log.nodes) for number in range(2)]
    with Planner() as planner:
        span_s = (log.from_s, log.to_s)
        outcome = run_live(ordinary, span_s, trainers, len(trainers), INTERVAL_S, planner)
    found = job_delays(ordinary.close(log.to_s))
    assert found is not None
    used = 3600 * outcome.used_node_hours / _idle_after_pass_s(log.holes, passes)
    return Replayed(found, used)


def scheduled(stream: Sequence[OrdinaryJob], nodes: int) -> Log:
    """Return the log of a stream as the made-up cluster's scheduler runs it."""
    wanted = Jobs(
        submit_s=np.array([job.at_s for job in stream]),
        nodes=np.array([job.nodes for job in stream], np.int32),
        run_s=np.array([job.runs_s for job in stream]),
        limit_s=np.array([60.0 * job.minutes for job in stream]),
    )
    made = schedule(wanted, nodes, _FOREVER_S)
    occupancy, jobs, to_s = Occupancy(0.0), list[Job](), 0.0
    names = tuple(f"n{place}" for place in range(1, nodes + 1))
    for place, job in enumerate(stream):
        held, began_s = made.held[place].astype(np.int32), float(made.start_s[place])
        start_s, end_s = round(_BEGIN_S + began_s, 3), round(_BEGIN_S + began_s + job.runs_s, 3)
        occupancy.add(held, start_s, end_s)
        listed, backfilled = ",".join(names[node] for node in held), bool(made.backfilled[place])
        at = _BEGIN_S + job.at_s, backfilled, -place
        jobs.append(Job(0, place, start_s, end_s, len(held), listed, *at))
        to_s = max(to_s, end_s)
    holes = occupancy.holes(names, _BEGIN_S, to_s)
    table = JobTable.of(jobs)
    return Log("stream", holes, nodes, _BEGIN_S, to_s, jobs=table, kinds=(_ANY,) * nodes)


def _trainer(name: str, nodes: int) -> TrainerSpec:
    curve = ThroughputCurve((0, nodes), (0.0, float(nodes)))
    return TrainerSpec(name, 0.0, 1, nodes, 0.2, 0.2, 1e15, curve, start_s=3.0)


def _idle_after_pass_s(holes: HoleTable, passes: Sequence[Pass]) -> float:
    began_s = np.array([one.began_s for one in passes])
    seen_s = np.append(began_s, np.inf)[np.searchsorted(began_s, holes.start_s)]
    return float(np.maximum(holes.end_s - seen_s, 0.0).sum())


@bench_command()
@number("--jobs", 100, 2, 10_000)
@number("--nodes", 8, 2, 64)
@click.option("--seed", type=int, default=1, help="Of the stream of jobs.")
@number("--load", 0.6, 0.2, 0.95)
def main(jobs: int, nodes: int, seed: int, load: float) -> Findings:
    """Replay the bench's stream in seconds, without Slurm, as bftrainer assess does."""
    return Findings(*rendered(scheduled(busy_stream(jobs, nodes, seed, load), nodes)))


if __name__ == "__main__":
    main()
