"""What Slurm's backfill scheduler has judged: which nodes it left idle, which jobs it left waiting.

A pass tries every waiting job on the nodes that are idle when it begins. What to do about it is in
``decide.vacate`` and ``decide.headroom``.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Set
from dataclasses import dataclass, field

from bftrainer_slurm.constraint import ConstraintError, parse_constraint
from bftrainer_slurm.controller.observe.snapshot import Snapshot
from bftrainer_slurm.controller.state.element import Phase
from bftrainer_slurm.controller.state.view import TrainerView
from bftrainer_slurm.model import Node, WaitingJob

_TAKES_S = 3.0  # Slurm's clock ticks in whole seconds, and a pass takes a moment


@dataclass(frozen=True, slots=True)
class Judgement:
    """What is known of the passes so far. Times are Unix seconds.

    ``began_s`` is when the last whole pass began. The next one begins after ``due_s``, and as jobs
    wait probably before ``until_s``; after that Slurm makes none before anything changes. Minus
    infinity: that is not known. ``left`` says of jobs how many passes left them waiting though
    enough nodes that fit them were idle all the time.
    """

    began_s: float = -math.inf
    due_s: float = -math.inf
    until_s: float = -math.inf
    left: Mapping[int, int] = field(default_factory=dict)


class Passes:
    """Follows the passes from look to look."""

    def __init__(self) -> None:
        self._began_s = -math.inf
        self._waited: Mapping[int, WaitingJob] = {}  # at the last look before the pass
        self._idle: frozenset[str] = frozenset()  # then
        self._left: dict[int, int] = {}
        self._wait_since_s = -math.inf

    def look(self, snapshot: Snapshot, idle: frozenset[str]) -> None:
        """Take in a fresh snapshot; ``idle`` are the nodes that nothing runs on."""
        waiting = {job.job_id: job for job in snapshot.queue.waiting if job.for_nodes}
        if waiting and not self._waited:
            self._wait_since_s = snapshot.time_s
        last = snapshot.last_pass
        if last is not None and last.active and last.began_s != self._began_s:
            return  # it has not judged all of them
        same = {
            job_id
            for job_id, job in waiting.items()
            if job_id in self._waited and _demand(job) == _demand(self._waited[job_id])
        }
        self._left = {job_id: left for job_id, left in self._left.items() if job_id in same}
        if last is not None and last.began_s != self._began_s:
            self._began_s = last.began_s
            fit = Fit(snapshot.nodes, idle & self._idle)
            for job_id in same:
                if len(fit.nodes_for(waiting[job_id])) >= waiting[job_id].nodes:
                    self._left[job_id] = self._left.get(job_id, 0) + 1
        self._waited, self._idle = waiting, idle

    def judgement(self, interval_s: float | None) -> Judgement:
        """Return what is known now; ``interval_s`` is Slurm's ``bf_interval``, None: no passes."""
        if interval_s is None:
            return Judgement(self._began_s, left=self._left)
        due_s = self._began_s + interval_s
        until_s = max(due_s, self._wait_since_s + interval_s) + _TAKES_S
        return Judgement(self._began_s, due_s, until_s, self._left)


def idle_nodes(
    snapshot: Snapshot, views: Iterable[TrainerView], partition: str, *occupied: Phase
) -> frozenset[str]:
    """Return the nodes in service on which no job runs, and no element in one of these phases."""
    taken = snapshot.queue.ordinary_nodes | snapshot.unexplained
    ours = {record.node for view in views for _, record in view.within(*occupied) if record.node}
    return snapshot.in_service(partition) - taken - ours


class Fit:
    """Which of some nodes would do for a job, as far as partition and features tell."""

    def __init__(self, nodes: tuple[Node, ...], among: Set[str]) -> None:
        self._nodes = sorted(
            (node for node in nodes if node.name in among), key=lambda node: node.weight
        )
        self._known: dict[tuple[object, ...], tuple[str, ...]] = {}

    def nodes_for(self, job: WaitingJob) -> tuple[str, ...]:
        """Return them in the order in which Slurm takes them."""
        key = (job.partition, job.constraint, job.excluded)
        if key not in self._known:
            partitions = frozenset(job.partition.split(","))
            self._known[key] = tuple(
                node.name
                for node in self._nodes
                if node.partitions & partitions
                and node.name not in job.excluded
                and _has(node, job.constraint)
            )
        return self._known[key]


def _has(node: Node, constraint: str) -> bool:
    """Whether a node has the features; one that cannot be read asks for something of many nodes."""
    try:
        return not constraint or parse_constraint(constraint).allows(node.features)
    except ConstraintError:
        return True


def _demand(job: WaitingJob) -> tuple[object, ...]:
    return (job.nodes, job.minutes, job.partition, job.constraint, job.excluded)
