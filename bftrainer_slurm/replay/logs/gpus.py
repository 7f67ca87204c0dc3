"""The GPUs of nodes, as far as their jobs show, and those that no job had.

They are in idle nodes, and in half-used ones. Where most nodes have GPUs, ``places`` counts them in
place of nodes; elsewhere trainers take whole nodes, and no other figure includes half-used ones.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from bftrainer_slurm.replay.logs.holes import HoleTable, next_s
from bftrainer_slurm.replay.logs.jobs import Job
from bftrainer_slurm.replay.trace import HOUR_S

SIZES = (1, 2, 4, 8)  # GPUs of an element, for what finds room
_LITTLE = 1e-6  # of a GPU


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


@dataclass(frozen=True, slots=True)
class FreeGpus:
    """GPU-hours that no ordinary job had: in idle nodes, and in nodes that had a job.

    ``together`` has those of the latter by how many were free at once on a node; ``fit`` is how
    many of them elements of so many GPUs find room for, one beside the other. A job without GPUs
    keeps one: not all GPUs of a node that has a job are free.
    """

    idle_nodes: float
    together: dict[int, float]
    fit: dict[int, float]

    @property
    def used_nodes(self) -> float:
        """Those in nodes that had a job."""
        return sum(self.together.values())

    @property
    def total(self) -> float:
        """All of them."""
        return self.idle_nodes + self.used_nodes


def free_gpus(
    has: NDArray[np.int64],
    jobs: Stretches,
    holes: HoleTable,
    unusable: HoleTable | None,
    span_s: tuple[float, float],
) -> FreeGpus | None:
    """Return what jobs leave between two times (Unix seconds); None if no node has a GPU.

    ``has`` [nodes] are each node's GPUs, ``holes`` times without any job, ``unusable`` those in
    which nodes were down or reserved.
    """
    if not has.any():
        return None
    every = np.arange(len(has))  # so that each node has a row
    down = () if unusable is None else (unusable,)
    stretches: list[tuple[NDArray[Any], ...]] = [  # node, from, to, GPUs taken, holes
        (every, np.full(len(has), -np.inf), np.full(len(has), np.inf), 0 * has, 0 * has),
        (*jobs, 0 * jobs[3]),
        *((one.node, one.start_s, one.end_s, has[one.node], 0 * one.node) for one in down),
        (holes.node, holes.start_s, holes.end_s, 0 * holes.node, 0 * holes.node + 1),
    ]
    parts = []
    for at, start_s, end_s, taken, hole in stretches:
        parts += [(at, start_s, taken, hole), (at, end_s, -taken, -hole)]
    at, time_s, change, idle = (np.concatenate(column) for column in zip(*parts, strict=True))
    order = np.lexsort((time_s, at))
    at, time_s = at[order], time_s[order]
    # Both are back to zero before the next node's first row.
    used, empty = np.cumsum(change[order]), np.cumsum(idle[order])
    left = np.floor(has[at] - used + _LITTLE).astype(np.int64)
    most = np.where(empty > 0, has[at], has[at] - 1)
    free = np.clip(left, 0, np.maximum(most, 0))
    begins_s, ends_s = np.maximum(time_s, span_s[0]), next_s(at, time_s, span_s[1])
    hours = free * np.clip(np.minimum(ends_s, span_s[1]) - begins_s, 0.0, None) / HOUR_S
    whole = free == has[at]
    by_free = np.bincount(free[~whole], hours[~whole]).tolist()
    together = {count: of for count, of in enumerate(by_free) if of > 0}
    fit = {
        size: sum(of * (count // size * size) / count for count, of in together.items())
        for size in SIZES
        if size < has.max()
    }
    return FreeGpus(float(hours[whole].sum()), together, fit)
