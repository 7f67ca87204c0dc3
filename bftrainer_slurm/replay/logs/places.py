"""A log in GPUs: each GPU is a place of its own, which a job has or nobody has.

Which of a node's GPUs a job has, no log says: it gets the first free ones.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from heapq import heappop, heappush
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from bftrainer_slurm.replay.logs.holes import HoleTable
from bftrainer_slurm.replay.logs.jobs import JobTable
from bftrainer_slurm.replay.logs.nodes import NodeNumbers, expand
from bftrainer_slurm.replay.logs.occupancy import Occupancy


@dataclass(frozen=True, slots=True, eq=False)
class Places:
    """The holes of GPUs, and the jobs that ask for GPUs, with these in place of nodes."""

    holes: HoleTable
    jobs: JobTable
    node: NDArray[np.int64]  # of each GPU


def places_of(
    jobs: JobTable,
    numbers: NodeNumbers,
    gpus: NDArray[np.int64],
    unusable: HoleTable | None,
    span_s: tuple[float, float],
    min_hole_s: float,
) -> Places:
    """Return the log in GPUs; ``gpus`` [nodes] are each node's.

    While a node is down or reserved (``unusable``), its GPUs are not idle.
    """
    node = np.repeat(np.arange(len(gpus)), gpus)
    first = np.concatenate([[0], np.cumsum(gpus)]).tolist()
    free = [list(range(*ends)) for ends in pairwise(first)]  # heaps
    names = tuple(
        f"{name}.g{place}"
        for name, count in zip(numbers.names, gpus.tolist(), strict=True)
        for place in range(count)
    )
    occupancy = Occupancy(min_hole_s)
    leaving: list[tuple[float, int, list[int]]] = []
    has: dict[int, list[int]] = {}
    order = np.argsort(jobs.start_s, kind="stable").tolist()
    listed = list(jobs)
    for row in order:
        job = listed[row]
        if not job.gpus or not math.isfinite(job.start_s):
            continue
        while leaving and leaving[0][0] <= job.start_s:
            _, where, left = heappop(leaving)
            for place in left:
                heappush(free[where], place)
        each = -(-job.gpus // len(expand(job.node_list)))
        has[row] = []
        for where in numbers.of(job.node_list).tolist():
            its = [heappop(free[where]) for _ in range(min(each, len(free[where])))]
            heappush(leaving, (job.end_s, where, its))
            has[row] += its
        if has[row]:
            occupancy.add(np.array(has[row], np.int32), job.start_s, job.end_s)
    for where, start_s, end_s in _rows(unusable):
        occupancy.add(np.arange(first[where], first[where + 1], dtype=np.int32), start_s, end_s)
    kept = [row for row, job in enumerate(listed) if job.gpus]
    counts = [len(has.get(row, ())) or listed[row].gpus for row in kept]
    lists = [",".join(names[place] for place in has.get(row, ())) for row in kept]
    table = replace(
        jobs.rows(np.array(kept, np.int64)),
        nodes=np.array(counts, np.int64),
        node_list=np.array(lists, object),
    )
    return Places(occupancy.holes(names, *span_s), table, node)


def _rows(holes: HoleTable | None) -> list[tuple[int, float, float]]:
    if holes is None:
        return []
    columns = (holes.node.tolist(), holes.start_s.tolist(), holes.end_s.tolist())
    return list(zip(*columns, strict=True))
