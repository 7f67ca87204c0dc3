"""The GPUs of nodes, as far as their jobs show; and those that are idle in nodes that are in use.

These GPUs are shown separately: trainers take whole nodes, so no other figure includes them.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from bftrainer_slurm.replay.logs.holes import HoleTable
from bftrainer_slurm.replay.logs.jobs import Job
from bftrainer_slurm.replay.trace import HOUR_S


@dataclass(frozen=True, slots=True)
class GpuUse:
    """GPU-hours of the nodes that have GPUs, while these nodes have a job."""

    nodes: int
    gpus: int
    allocated_hours: float
    idle_hours: float


# Node, start, end (Unix seconds) and GPUs on the node, a row for each job and node.
Stretches: TypeAlias = tuple[
    NDArray[np.int32], NDArray[np.float64], NDArray[np.float64], NDArray[np.float64]
]


class Allocations:
    """Collects the GPUs that jobs had on their nodes."""

    def __init__(self) -> None:
        self._jobs: list[tuple[NDArray[np.int32], float, float, float]] = []

    def add(self, nodes: NDArray[np.int32], job: Job, of_nodes: int) -> None:
        """Note what a job had on these nodes, out of so many."""
        self._jobs.append((nodes, job.start_s, job.end_s, job.gpus / of_nodes))

    def gpus(self, nodes: int, gpus_per_node: int | None) -> NDArray[np.int64]:
        """Return the GPUs of the first nodes: as given, else the most in use at once."""
        most = np.zeros(nodes)
        where, _, used = self._in_use()
        np.maximum.at(most, where, used)
        found = np.ceil(most - 1e-6).astype(np.int64)
        if gpus_per_node is not None:
            found[found > 0] = gpus_per_node
        return found

    def beyond(self, gpus_per_node: int) -> float:
        """Return which share of the GPU time of jobs that have an end is beyond so many a node."""
        where, at_s, used = self._in_use()
        ended_s = np.where(np.isfinite(at_s), at_s, np.nan)
        lasts_s = np.nan_to_num(np.diff(ended_s, append=np.nan))
        lasts_s[np.diff(where, append=-1) != 0] = 0.0  # the node's last job has ended
        over = np.clip(used - gpus_per_node, 0.0, None)
        return float(over @ lasts_s / max(1.0, used @ lasts_s))

    def _in_use(self) -> tuple[NDArray[np.int32], NDArray[np.float64], NDArray[np.float64]]:
        """Return when each node's GPUs in use change: node, time, and how many from then on."""
        node, start_s, end_s, gpus = self.stretches()
        at_s, change = np.concatenate([start_s, end_s]), np.concatenate([gpus, -gpus])
        where = np.concatenate([node, node])
        order = np.lexsort((change, at_s, where))  # at one moment, jobs end before others start
        # What a node has in use is back to zero before the next node's first job.
        return where[order], at_s[order], np.cumsum(change[order])

    def gpu_use(
        self, gpus: NDArray[np.int64], without_job: HoleTable, from_s: float, to_s: float
    ) -> GpuUse | None:
        """Return how nodes in use use their GPUs between two times; None if none has any."""
        count = len(gpus)
        if not gpus.any():
            return None
        node, start_s, end_s, had = self.stretches()
        length_s = np.clip(np.minimum(end_s, to_s) - np.maximum(start_s, from_s), 0.0, None)
        allocated_s = np.bincount(node, had * length_s, count)
        empty_s = np.bincount(without_job.node, without_job.length_s, count)
        idle_s = np.clip(gpus * (to_s - from_s - empty_s) - allocated_s, 0.0, None)
        return GpuUse(
            nodes=int((gpus > 0).sum()),
            gpus=int(gpus.sum()),
            allocated_hours=float(allocated_s.sum()) / HOUR_S,
            idle_hours=float(idle_s.sum()) / HOUR_S,
        )

    def stretches(self) -> Stretches:
        """Return node, start, end and GPUs on the node, a row for each job and node."""
        if not self._jobs:
            return np.empty(0, np.int32), np.empty(0), np.empty(0), np.empty(0)
        nodes, *others = zip(*self._jobs, strict=True)
        counts = [len(one) for one in nodes]
        start_s, end_s, gpus = (np.repeat(one, counts) for one in others)
        return np.concatenate(nodes), start_s, end_s, gpus
