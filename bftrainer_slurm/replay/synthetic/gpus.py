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
from bisect import insort
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from bftrainer_slurm.replay.logs.gpus import free_gpus
from bftrainer_slurm.replay.logs.hardware import Allocations
from bftrainer_slurm.replay.logs.log import Log
from bftrainer_slurm.replay.synthetic.backfill import INTERVAL_S, Scheduler
from bftrainer_slurm.replay.synthetic.schedule import logged
from bftrainer_slurm.replay.synthetic.workload import (
    DAY_S,
    Workload,
    WorkloadError,
    arrivals,
    how_many,
    limits,
)

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


def simulate_gpus(workload: Workload, gpus: int, trace: str, min_hole_s: float = 10.0) -> Log:
    """Draw jobs and run them on nodes of so many GPUs; the same arguments give the same log."""
    if workload.nodes * gpus < max(_SIZES[trace]):
        raise WorkloadError(f"its largest jobs have {max(_SIZES[trace])} GPUs: take more nodes")
    random = np.random.default_rng(workload.seed)
    each_s = float(np.mean(_sizes(trace, _SAMPLE, random) * _runs(trace, _SAMPLE, random)))
    count = how_many(workload, workload.nodes * gpus, each_s, _MOST_JOBS, random)
    sizes, run_s = _sizes(trace, count, random), _runs(trace, count, random)
    submit_s = arrivals(workload.span_s, count, random)
    limit_s = limits(run_s, random)
    nodes = -(-sizes // gpus)
    cluster = _GpuCluster(workload.nodes, gpus, sizes, nodes, run_s, limit_s)
    cluster.run(submit_s, workload.span_s, INTERVAL_S)
    kind = f"made-up GPU cluster, jobs like those of {trace.capitalize()}"
    times_s, held = (submit_s, cluster.start_s, run_s), cluster.held
    log = logged(
        kind, workload, times_s, held.__getitem__, min_hole_s,
        nodes=nodes, gpus=sizes, limit_s=limit_s,
    )  # fmt: skip
    assert log.jobs is not None
    allocations = Allocations()
    for number, job in enumerate(log.jobs):
        if number in held:
            allocations.add(held[number], job, len(held[number]))
    hardware, span_s = allocations.hardware(workload.nodes, gpus), (log.from_s, log.to_s)
    stretches = allocations.stretches()
    return replace(
        log,
        hardware=hardware,
        gpu_use=allocations.gpu_use(hardware, log.holes, *span_s),
        free_gpus=free_gpus(workload.names, hardware.gpus, stretches, log.holes, (), span_s),
    )


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


class _GpuCluster(Scheduler):
    """Nodes with GPUs; a job has GPUs of one node, or whole nodes."""

    def __init__(
        self,
        nodes: int,
        gpus: int,
        sizes: NDArray[np.int64],
        on: NDArray[np.int64],
        run_s: NDArray[np.float64],
        limit_s: NDArray[np.float64],
    ) -> None:
        """Take the cluster, and the jobs: their GPUs, on how many nodes, run times and limits."""
        super().__init__()
        self._free = np.full(nodes, gpus, np.int64)
        self._room = [nodes] * (gpus + 1)  # how many nodes have so many free GPUs, or more
        self._each: list[int] = np.minimum(sizes, gpus).tolist()  # of each of a job's nodes
        self._nodes: list[int] = on.tolist()
        self._run_s: list[float] = run_s.tolist()
        self._limit_s: list[float] = limit_s.tolist()
        self._limits: list[tuple[float, int]] = []  # running jobs, sorted by their latest end
        self.start_s = np.full(len(sizes), np.nan)
        self.held: dict[int, NDArray[np.int32]] = {}

    def ended(self, job: int) -> None:
        """Free its GPUs."""
        where, each = self.held[job], self._each[job]
        for has in self._free[where].tolist():
            for count in range(has + 1, has + each + 1):
                self._room[count] += 1
        self._free[where] += each
        self._limits.remove((float(self.start_s[job]) + self._limit_s[job], job))

    def start_jobs(self, now_s: float, backfill: bool) -> None:
        """Start all jobs that may start now."""
        while self.waiting and self._try(self.waiting[0], now_s):
            del self.waiting[0]
        if not backfill or not self.waiting or not self._room[1]:
            return
        shadow_s = self._expected_s(self.waiting[0])
        started = {
            job
            for job in self.waiting[1:_DEPTH]
            if now_s + self._limit_s[job] <= shadow_s and self._try(job, now_s)
        }
        if started:
            self.waiting = [job for job in self.waiting if job not in started]

    def _expected_s(self, job: int) -> float:
        """When the first job can start at the latest, by the limits of those that run."""
        each, free = self._each[job], self._free.tolist()
        missing = self._nodes[job] - self._room[each]
        for latest_s, running in self._limits:
            for node in self.held[running].tolist():
                before, free[node] = free[node], free[node] + self._each[running]
                missing -= before < each <= free[node]
            if missing <= 0:
                return latest_s
        return math.inf

    def _try(self, job: int, now_s: float) -> bool:
        """Start a job if it fits, where the least is left over."""
        each, nodes = self._each[job], self._nodes[job]
        if self._room[each] < nodes:
            return False
        fit = np.flatnonzero(self._free >= each)
        where = fit[self._free[fit].argsort(kind="stable")[:nodes]].astype(np.int32)
        for has in self._free[where].tolist():
            for count in range(has - each + 1, has + 1):
                self._room[count] -= 1
        self._free[where] -= each
        self.start_s[job], self.held[job] = now_s, where
        insort(self._limits, (now_s + self._limit_s[job], job))
        heapq.heappush(self.ends, (now_s + self._run_s[job], job))
        return True
