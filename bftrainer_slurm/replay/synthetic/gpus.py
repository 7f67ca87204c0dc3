"""A made-up GPU cluster: jobs on parts of a node, or on several nodes, where least is left over.

Sizes and run times follow two published traces:

- ``helios``: SenseTime's four clusters, 1,580,464 GPU jobs (Hu et al., "Characterization and
  prediction of deep learning workloads in large-scale GPU datacenters", SC 2021; its artifact's
  ``helios_cluster_summary.csv``: 3.7 GPUs on average and 1 in the median, 6,652 s on average and
  206 s in the median). The shares of sizes below are ours, chosen to come near these.
- ``philly``: Microsoft's cluster, in the form that simulators use (Narayanan et al., Gavel, OSDI
  2020): 70, 10, 15 and 5 % have 1, 2, 4 and 8 GPUs; four of five run 10^1.5 to 10^3 min, the
  others 10^3 to 10^4 min, log-uniform.
"""

from __future__ import annotations

import heapq
import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from bftrainer_slurm.replay.logs.gpus import FreeGpus, free_gpus
from bftrainer_slurm.replay.logs.hardware import Allocations, GpuUse, Hardware
from bftrainer_slurm.replay.logs.holes import HoleTable
from bftrainer_slurm.replay.logs.jobs import Job, JobTable
from bftrainer_slurm.replay.logs.occupancy import Occupancy
from bftrainer_slurm.replay.synthetic.backfill import INTERVAL_S
from bftrainer_slurm.replay.synthetic.schedule import EPOCH_S
from bftrainer_slurm.replay.synthetic.workload import DAY_S, Workload, WorkloadError, arrivals

TRACES = ("helios", "philly")
_SIZES = {
    "helios": {1: 0.55, 2: 0.12, 4: 0.11, 8: 0.17, 16: 0.04, 32: 0.01},
    "philly": {1: 0.70, 2: 0.10, 4: 0.15, 8: 0.05},
}
_MEDIAN_S, _MEAN_S = 206.0, 6652.0  # of Helios
_LONGEST_S = 7 * DAY_S
_DEPTH = 500  # waiting jobs that backfill looks at
_SAMPLE = 100_000
_MOST_JOBS = 1_000_000


@dataclass(frozen=True, slots=True, eq=False)
class GpuSchedule:
    """What ran where; Unix seconds."""

    holes: HoleTable
    jobs: JobTable
    hardware: Hardware
    gpu_use: GpuUse | None
    free_gpus: FreeGpus | None
    from_s: float
    to_s: float


def simulate_gpus(
    workload: Workload, gpus: int, trace: str, min_hole_s: float = 10.0
) -> GpuSchedule:
    """Draw jobs and run them on nodes of so many GPUs; the same arguments give the same."""
    if workload.nodes * gpus < max(_SIZES[trace]):
        raise WorkloadError(f"its largest jobs have {max(_SIZES[trace])} GPUs: take more nodes")
    random = np.random.default_rng(workload.seed)
    span_s = (workload.warm_up_days + workload.days) * DAY_S
    each = float(np.mean(_sizes(trace, _SAMPLE, random) * _runs(trace, _SAMPLE, random)))
    expected = workload.load * workload.nodes * gpus * span_s / each
    if expected > _MOST_JOBS:
        raise WorkloadError(f"this makes more than {_MOST_JOBS:,} jobs: take fewer nodes or days")
    count = int(random.poisson(expected))
    sizes, run_s = _sizes(trace, count, random), _runs(trace, count, random)
    submit_s = arrivals(span_s, count, random)
    limit_s = np.ceil(run_s * np.exp(random.uniform(0, math.log(10), count)) / 900) * 900
    cluster = _GpuCluster(workload.nodes, gpus, sizes.tolist(), run_s.tolist(), limit_s.tolist())
    cluster.run(submit_s.tolist(), span_s)
    return _schedule(workload, gpus, sizes, submit_s, run_s, limit_s, cluster, min_hole_s)


def _sizes(trace: str, count: int, random: np.random.Generator) -> NDArray[np.int64]:
    shares = _SIZES[trace]
    return random.choice(np.array([*shares]), count, p=[*shares.values()])


def _runs(trace: str, count: int, random: np.random.Generator) -> NDArray[np.float64]:
    if trace == "philly":
        powers = np.where(
            random.random(count) < 0.8, random.uniform(1.5, 3, count), random.uniform(3, 4, count)
        )
        runs = 60 * 10.0**powers
    else:
        spread = math.sqrt(2 * math.log(_MEAN_S / _MEDIAN_S))
        runs = random.lognormal(math.log(_MEDIAN_S), spread, count)
    return np.clip(np.round(runs), 1.0, _LONGEST_S)


class _GpuCluster:
    """Nodes with GPUs; a job has GPUs of one node, or whole nodes."""

    def __init__(
        self, nodes: int, gpus: int, sizes: list[int], run_s: list[float], limit_s: list[float]
    ) -> None:
        self._free = np.full(nodes, gpus, np.int64)
        self._gpus, self._sizes, self._run_s, self._limit_s = gpus, sizes, run_s, limit_s
        self._ends: list[tuple[float, int]] = []
        self._latest_s: dict[int, float] = {}  # of running jobs, by their limits
        self._waiting: list[int] = []
        self.start_s = np.full(len(sizes), np.nan)
        self.held: dict[int, NDArray[np.int32]] = {}

    def run(self, submit_s: list[float], until_s: float) -> None:
        """Run the jobs; the main scheduler looks at each event, backfill in passes."""
        arriving, now_s = 0, -math.inf
        while True:
            end_s = self._ends[0][0] if self._ends else math.inf
            next_s = submit_s[arriving] if arriving < len(submit_s) else math.inf
            pass_s = INTERVAL_S * (now_s // INTERVAL_S + 1) if self._waiting else math.inf
            now_s = min(end_s, next_s, pass_s)
            if now_s >= until_s:
                return
            while self._ends and self._ends[0][0] <= now_s:
                _, job = heapq.heappop(self._ends)
                self._free[self.held[job]] += self._each(job)
                del self._latest_s[job]
            while arriving < len(submit_s) and submit_s[arriving] == now_s:
                self._waiting.append(arriving)
                arriving += 1
            self._start_jobs(now_s, backfill=now_s % INTERVAL_S == 0)

    def _each(self, job: int) -> int:
        """How many GPUs of each of its nodes a job has."""
        return min(self._sizes[job], self._gpus)

    def _place(self, job: int, free: NDArray[np.int64]) -> NDArray[np.int32] | None:
        """Return where a job fits, with the least left over."""
        count = -(-self._sizes[job] // self._gpus)
        room = np.flatnonzero(free >= self._each(job))
        if len(room) < count:
            return None
        return room[free[room].argsort(kind="stable")[:count]].astype(np.int32)

    def _start_jobs(self, now_s: float, backfill: bool) -> None:
        while self._waiting and self._try(self._waiting[0], now_s):
            del self._waiting[0]
        if not backfill or not self._waiting or not self._free.any():
            return
        shadow_s = self._expected_s(self._waiting[0])
        started = {
            job
            for job in self._waiting[1:_DEPTH]
            if now_s + self._limit_s[job] <= shadow_s and self._try(job, now_s)
        }
        self._waiting = [job for job in self._waiting if job not in started]

    def _expected_s(self, job: int) -> float:
        """When the first job can start at the latest, by the limits of those that run."""
        free = self._free.copy()
        for running, latest_s in sorted(self._latest_s.items(), key=lambda one: one[1]):
            free[self.held[running]] += self._each(running)
            if self._place(job, free) is not None:
                return latest_s
        return math.inf

    def _try(self, job: int, now_s: float) -> bool:
        where = self._place(job, self._free)
        if where is None:
            return False
        self._free[where] -= self._each(job)
        self.start_s[job], self.held[job] = now_s, where
        self._latest_s[job] = now_s + self._limit_s[job]
        heapq.heappush(self._ends, (now_s + self._run_s[job], job))
        return True


def _schedule(
    workload: Workload,
    gpus: int,
    sizes: NDArray[np.int64],
    submit_s: NDArray[np.float64],
    run_s: NDArray[np.float64],
    limit_s: NDArray[np.float64],
    cluster: _GpuCluster,
    min_hole_s: float,
) -> GpuSchedule:
    from_s = EPOCH_S + workload.warm_up_days * DAY_S
    to_s = from_s + workload.days * DAY_S
    start_s = cluster.start_s + EPOCH_S
    ran = ~np.isnan(start_s)
    digits = len(str(workload.nodes - 1))
    names = tuple(f"n{number:0{digits}}" for number in range(workload.nodes))
    table = JobTable.made(
        key=np.arange(len(sizes)),
        start_s=np.where(ran, start_s, np.inf),
        end_s=np.where(ran, start_s + run_s, to_s),
        nodes=-(-sizes // gpus),
        eligible_s=submit_s + EPOCH_S,
        priority=-np.arange(len(sizes)),
        gpus=sizes,
        limit_s=limit_s,
    )
    occupancy, allocations = Occupancy(min_hole_s), Allocations()
    for number, job in enumerate(table):
        if math.isfinite(job.start_s):
            _note(occupancy, allocations, cluster.held[number], job)
    holes = occupancy.holes(names, from_s, to_s)
    hardware = allocations.hardware(workload.nodes, gpus)
    return GpuSchedule(
        holes,
        table,
        hardware,
        allocations.gpu_use(hardware, holes, from_s, to_s),
        free_gpus(names, hardware.gpus, allocations.stretches(), holes, (), (from_s, to_s)),
        from_s,
        to_s,
    )


def _note(
    occupancy: Occupancy, allocations: Allocations, held: NDArray[np.int32], job: Job
) -> None:
    occupancy.add(held, job.start_s, job.end_s)
    allocations.add(held, job, len(held))
