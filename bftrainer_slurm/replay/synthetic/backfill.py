"""The scheduler of the made-up cluster: first come first served, with EASY backfill in passes.

As in Slurm, the main scheduler looks whenever a job comes or ends, and stops at the first job that
cannot start; backfill looks regularly. EASY (Lifka, "The ANL/IBM SP scheduling system", 1995): the
first waiting job gets a reservation, and a later job may start if that does not delay the first.
"""

from __future__ import annotations

import heapq
import math
from bisect import insort
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from bftrainer_slurm.replay.synthetic.workload import Jobs

INTERVAL_S = 30.0  # from one pass of backfill to the next, Slurm's own bf_interval
_DEPTH = 500  # waiting jobs that are looked at, as Slurm's bf_max_job_test


@dataclass(slots=True)
class Timetable:
    """Start times of jobs (NaN: not started), and their nodes."""

    start_s: NDArray[np.float64]
    held: list[NDArray[np.int32]]
    backfilled: NDArray[np.bool_]


def schedule(jobs: Jobs, nodes: int, until_s: float, interval_s: float = INTERVAL_S) -> Timetable:
    """Run the jobs on a cluster of so many nodes until a time; return when and where they ran.

    The scheduler knows limits, not run times. Nodes are taken by lowest number first. Backfill
    looks each ``interval_s`` from 0 on.
    """
    cluster = _Cluster(jobs, nodes)
    cluster.run(until_s, interval_s)
    return cluster.timetable


class _Cluster:
    """Running jobs, waiting jobs, and free nodes. Jobs are numbers in the order of submission."""

    def __init__(self, jobs: Jobs, nodes: int) -> None:
        self._waiting: list[int] = []
        self._ends: list[tuple[float, int]] = []  # heap of running jobs by their true end
        self._submit_s: list[float] = jobs.submit_s.tolist()
        self._size: list[int] = jobs.nodes.tolist()
        self._run_s: list[float] = jobs.run_s.tolist()
        self._limit_s: list[float] = jobs.limit_s.tolist()
        self._is_free = np.ones(nodes, bool)
        self._free = nodes
        self._limits: list[tuple[float, int]] = []  # running jobs, sorted by their latest end
        none = np.empty(0, np.int32)
        count = len(self._size)
        self.timetable = Timetable(np.full(count, np.nan), [none] * count, np.zeros(count, bool))

    def run(self, until_s: float, interval_s: float) -> None:
        """Run until a time: the main scheduler looks at each event, backfill in passes."""
        arriving, count = 0, len(self._submit_s)
        now_s = -math.inf
        while True:
            end_s = self._ends[0][0] if self._ends else math.inf
            next_submit_s = self._submit_s[arriving] if arriving < count else math.inf
            pass_s = interval_s * (now_s // interval_s + 1) if self._waiting else math.inf
            now_s = min(end_s, next_submit_s, pass_s)
            if now_s >= until_s:
                return
            while self._ends and self._ends[0][0] <= now_s:
                self._end(heapq.heappop(self._ends)[1])
            while arriving < count and self._submit_s[arriving] == now_s:
                self._waiting.append(arriving)
                arriving += 1
            self._start_jobs(now_s, backfill=now_s % interval_s == 0)

    def _end(self, job: int) -> None:
        self._is_free[self.timetable.held[job]] = True
        self._free += self._size[job]
        latest_s = float(self.timetable.start_s[job]) + self._limit_s[job]
        self._limits.remove((latest_s, job))

    def _start_jobs(self, now_s: float, backfill: bool) -> None:
        """Start all jobs that may start now."""
        fitting = 0
        while fitting < len(self._waiting) and self._size[self._waiting[fitting]] <= self._free:
            self._start(self._waiting[fitting], now_s)
            fitting += 1
        del self._waiting[:fitting]
        if backfill and self._waiting:
            self._backfill(now_s, *self._reserve(self._waiting[0]))

    def _reserve(self, job: int) -> tuple[float, int]:
        """Return when the job can start at the latest, and how many nodes it leaves free then."""
        free = self._free
        for latest_s, running in self._limits:
            free += self._size[running]
            if free >= self._size[job]:
                return latest_s, free - self._size[job]
        raise AssertionError("a job is larger than the cluster")

    def _backfill(self, now_s: float, expected_s: float, extra: int) -> None:
        started = set()
        for job in self._waiting[1:_DEPTH]:
            if not self._free:
                break
            if self._size[job] > self._free:
                continue
            if now_s + self._limit_s[job] > expected_s:
                if self._size[job] > extra:
                    continue
                extra -= self._size[job]
            self._start(job, now_s)
            self.timetable.backfilled[job] = True
            started.add(job)
        if started:
            self._waiting = [job for job in self._waiting if job not in started]

    def _start(self, job: int, now_s: float) -> None:
        held = np.flatnonzero(self._is_free)[: self._size[job]].astype(np.int32)
        self._is_free[held] = False
        self._free -= self._size[job]
        self.timetable.start_s[job] = now_s
        self.timetable.held[job] = held
        heapq.heappush(self._ends, (now_s + self._run_s[job], job))
        insort(self._limits, (now_s + self._limit_s[job], job))
