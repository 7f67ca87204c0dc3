"""What waiting jobs shall find free, and which nodes belong to the jobs before them. Pure.

Who gets what is decided in ``available`` for whole nodes, and in ``make_way`` for parts of nodes.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field

from bftrainer_slurm.controller.observe.snapshot import Snapshot
from bftrainer_slurm.model import ElementId, WaitingJob

_RESOLUTION_S = 60.0  # Slurm's bf_resolution: starts are planned for whole minutes
_PLANNED_S = 5.0  # how long before a planned start what the job needs is free


@dataclass(frozen=True, slots=True)
class Wanted:
    """Nodes for jobs that no pass has judged: ``idle`` ones, and those that trainers ``leave``.

    Where jobs share nodes, it is ``gpus`` of each node instead, and ``elements`` that leave; of
    the nodes without ordinary jobs, the ``idle`` ones then have no other elements.
    """

    idle: frozenset[str] = frozenset()
    leave: frozenset[str] = frozenset()
    gpus: Mapping[str, int] = field(default_factory=dict)
    elements: frozenset[ElementId] = frozenset()


class Claims:
    """From when on a node belongs to a job that comes before the present one, or is reserved."""

    def __init__(self, snapshot: Snapshot) -> None:
        self._now_s = snapshot.time_s
        self._until_s: dict[str, float] = {}
        for node, reservation in snapshot.reserved.items():
            self._add((node,), reservation.start_s)

    def add(self, job: WaitingJob, nodes: Iterable[str]) -> None:
        """These nodes belong to the job from its planned start on."""
        self._add(nodes, _planned_s(job))

    def is_due(self, job: WaitingJob) -> bool:
        """Whether its planned start is so near that its nodes have to be free."""
        return _planned_s(job) <= self._now_s + _PLANNED_S

    def in_time(self, job: WaitingJob) -> Callable[[str], bool]:
        """Return a test of a node: whether the job, if it starts now, ends before any claim."""
        ends_s = math.inf if job.minutes is None else self._now_s + 60.0 * job.minutes
        return lambda node: ends_s <= self._until_s.get(node, math.inf)

    def _add(self, nodes: Iterable[str], start_s: float) -> None:
        whole_s = start_s if math.isinf(start_s) else start_s // _RESOLUTION_S * _RESOLUTION_S
        for node in nodes:
            self._until_s[node] = min(whole_s, self._until_s.get(node, math.inf))


def _planned_s(job: WaitingJob) -> float:
    return math.inf if job.expected_start_s is None else job.expected_start_s
