"""Finds the nodes, or parts of nodes, that fit a waiting job according to Slurm's data."""

from __future__ import annotations

import math
from bisect import bisect_left
from collections.abc import Iterable, Set

from bftrainer_slurm.constraint import ConstraintError, parse_constraint
from bftrainer_slurm.controller.observe.shared_nodes import needs_of
from bftrainer_slurm.controller.observe.snapshot import Snapshot
from bftrainer_slurm.model import Node, WaitingJob

# A node, and how many of its GPUs no ordinary job has. A negative number counts processors.
NodePart = tuple[str, int]


def part_of(job: WaitingJob) -> int:
    """Return the part of a node that a job takes, see ``NodePart``."""
    return job.gpus or -job.cpus


class Fit:
    """Finds the candidates that fit a job by partition, features, GPUs and memory.

    ``nodes`` are in the order in which Slurm allocates them. ``among`` are the candidates: whole
    nodes by name, and parts of shared nodes. Memory counts only if there is a ``snapshot``.
    """

    def __init__(
        self,
        nodes: Iterable[Node],
        among: Set[str | NodePart] | Set[str],
        snapshot: Snapshot | None = None,
    ) -> None:
        self._snapshot = snapshot
        self._memory_mb = {} if snapshot is None else snapshot.free_memory_mb
        self._among: dict[int, set[str]] = {}  # nodes by the number in ``NodePart``; 0: whole nodes
        for one in among:
            node, part = (one, 0) if isinstance(one, str) else one
            self._among.setdefault(part, set()).add(node)
        self._parts = any(self._among)
        self._sums: dict[int, Set[str]] = {}  # nodes with a part of this size or a larger one
        self._ordered_mb: dict[int, list[float]] = {}  # the memory of these nodes, sorted
        every = set[str]().union(*self._among.values())
        self._nodes = [node for node in nodes if node.name in every]
        self._known: dict[tuple[object, ...], tuple[str, ...]] = {}

    def nodes_for(self, job: WaitingJob) -> tuple[str, ...]:
        """Return the nodes that fit, in the order in which Slurm allocates them."""
        part, needs_mb = self._takes(job)
        key = (job.partition, job.constraint, job.excluded, part, needs_mb)
        if key not in self._known:
            among, has_mb = self._with(part), self._memory_mb
            partitions = frozenset(job.partition.split(","))
            self._known[key] = tuple(
                node.name
                for node in self._nodes
                if node.name in among
                and has_mb.get(node.name, math.inf) >= needs_mb
                and node.partitions & partitions
                and node.name not in job.excluded
                and _has(node, job.constraint)
            )
        return self._known[key]

    def count(self, job: WaitingJob) -> int:
        """Return how many candidates have the part and the memory that the job needs."""
        part, needs_mb = self._takes(job)
        if part not in self._ordered_mb:
            has_mb = (self._memory_mb.get(node, math.inf) for node in self._with(part))
            self._ordered_mb[part] = sorted(has_mb)
        ordered_mb = self._ordered_mb[part]
        return len(ordered_mb) - bisect_left(ordered_mb, needs_mb)

    def _with(self, part: int) -> Set[str]:
        if part not in self._sums:
            fits = (nodes for one, nodes in self._among.items() if one == part or one < part < 0)
            self._sums[part] = set[str]().union(*fits)
        return self._sums[part]

    def _takes(self, job: WaitingJob) -> tuple[int, float]:
        """Return the part and the memory (MB) that a job takes of a node."""
        if not self._parts or self._snapshot is None or not job.takes_parts:
            return 0, 0.0
        return part_of(job), needs_of(job, self._snapshot.configuration).memory_mb


def _has(node: Node, constraint: str) -> bool:
    """Whether a node has the requested features; true if the request cannot be parsed."""
    try:
        return not constraint or parse_constraint(constraint).allows(node.features)
    except ConstraintError:
        return True
