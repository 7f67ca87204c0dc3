"""What Slurm's backfill scheduler has judged, and when it judges next.

A pass tries every waiting job, on idle nodes and over elements: it preempts them where a job fits.
What to do about it is in ``decide.vacate``.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Set
from dataclasses import dataclass
from heapq import nsmallest

from bftrainer_slurm.constraint import ConstraintError, parse_constraint
from bftrainer_slurm.controller.observe.snapshot import Snapshot
from bftrainer_slurm.controller.state.element import Phase
from bftrainer_slurm.controller.state.view import TrainerView
from bftrainer_slurm.model import Node, WaitingJob

_TAKES_S = 3.5  # Slurm's clock ticks in whole seconds, and a pass takes a moment
_SHORT_S = 10.0  # where passes come so often none is worth a look of its own
_STALE = 10  # passes since the last one that was seen: then when they come is not known any more


_Demand = tuple[int, int | None, str, str, frozenset[str]]


@dataclass(frozen=True, slots=True)
class Judgement:
    """What is known of the passes so far. Times are Unix seconds.

    The next pass is expected from ``due_s`` on, minus infinity: at any moment, and before
    ``until_s`` if something has changed. Before ``sure_s`` there is none. ``asks``: a job waits
    that the next pass may start. ``left`` are jobs for which trainers do not leave: a pass left
    them waiting though enough nodes were in holes, and nothing has changed for them since; or the
    main scheduler may be about to start them.
    """

    due_s: float = -math.inf
    until_s: float = -math.inf
    sure_s: float = -math.inf
    asks: bool = False
    left: frozenset[int] = frozenset()


class Passes:
    """Follows the passes from look to look."""

    def __init__(self) -> None:
        self._began_s = -math.inf
        self._gap_s = 0.0  # between the last two that were seen
        # What each job asks for, and since when it has waited for that; None: nobody has looked.
        self._waits: dict[int, tuple[_Demand, float]] | None = None
        self._looked_s = -math.inf
        self._pool: frozenset[str] = frozenset()
        # How many nodes in holes that fit each job passes have left it waiting beside, at most.
        self._left: dict[int, int] = {}
        self._blocked: dict[int, int] = {}  # jobs that want more than is in holes: their priority
        # Jobs that were left waiting, and may fit by now. Most wait for something else: they are
        # tried one at a time, and twice as many after a pass that has started all of them.
        self._again: frozenset[int] = frozenset()
        self._tries = 1
        self._asks = False

    def look(self, snapshot: Snapshot, pool: frozenset[str]) -> None:
        """Take in a snapshot; on the nodes of the ``pool`` nothing runs but elements.

        A new controller takes it that jobs have waited since they were submitted.
        """
        waiting = {job.job_id: job for job in snapshot.queue.waiting if job.for_nodes}
        self._waits = {
            job.job_id: self._wait(job, job.submit_s if self._waits is None else snapshot.time_s)
            for job in waiting.values()
        }
        freed = self._forget(waiting)
        last = snapshot.last_pass
        if last is not None and last.began_s != self._began_s and not last.active:
            self._began_s, self._gap_s = last.began_s, last.began_s - self._began_s
            self._judge(waiting, Fit(snapshot.by_weight, pool & (self._pool or pool)))
        if self._left and (freed or not pool <= self._pool):
            self._try_again(waiting, Fit(snapshot.by_weight, pool))
        self._blocked = {one: job.priority for one, job in waiting.items() if job.nodes > len(pool)}
        self._looked_s, self._pool = snapshot.time_s, pool
        alone = self._alone
        self._asks = any(
            job.nodes <= len(pool) and job_id not in alone for job_id, job in waiting.items()
        )

    @property
    def _alone(self) -> frozenset[int]:
        """The jobs for which trainers do not leave."""
        return frozenset(self._left.keys() - self._again)

    def _wait(self, job: WaitingJob, since_s: float) -> tuple[_Demand, float]:
        """Return what a job asks for, and since when: ``since_s``, if it asked for another."""
        known = None if self._waits is None else self._waits.get(job.job_id)
        demand = (job.nodes, job.minutes, job.partition, job.constraint, job.excluded)
        return known if known is not None and known[0] == demand else (demand, since_s)

    def _forget(self, waiting: Mapping[int, WaitingJob]) -> bool:
        """Drop judgements of jobs that have changed, and doubt those made behind a large job.

        Returns whether such a large one waits no more.
        """
        waits = self._waits or {}
        self._left = {
            one: nodes
            for one, nodes in self._left.items()
            if one in waiting and waits[one][1] < self._began_s
        }
        gone = self._blocked.keys() - waiting.keys()
        before = max((self._blocked[one] for one in gone), default=-math.inf)
        self._left |= {one: 0 for one in self._left if waiting[one].priority < before}
        return bool(gone)

    def _judge(self, waiting: Mapping[int, WaitingJob], fit: Fit) -> None:
        """Note which jobs a pass has left waiting beside enough nodes, and beside how many."""
        for job_id, (_, since_s) in (self._waits or {}).items():
            job = waiting[job_id]
            nodes = len(fit.nodes_for(job)) if since_s < self._began_s else 0
            if nodes >= job.nodes:
                self._left[job_id] = max(nodes, self._left.get(job_id, 0))
        if self._again:
            self._tries = 1 if self._again & self._left.keys() else 2 * self._tries
            self._again = frozenset()

    def _try_again(self, waiting: Mapping[int, WaitingJob], fit: Fit) -> None:
        """Choose jobs beside which more nodes that fit are in holes than any pass had."""
        jobs = (
            waiting[one]
            for one, nodes in self._left.items()
            if len(fit.nodes_for(waiting[one])) >= max(nodes + 1, waiting[one].nodes)
        )
        first = nsmallest(self._tries, jobs, key=lambda job: (-job.priority, job.job_id))
        self._again = frozenset(job.job_id for job in first)

    def nobody_waits(self) -> None:
        """Take in that no job waits for nodes."""
        self._waits, self._left, self._blocked, self._asks = {}, {}, {}, False
        self._again = frozenset()

    def judgement(self, interval_s: float | None, now_s: float) -> Judgement:
        """Return what is known now; ``interval_s`` is Slurm's ``bf_interval``, None: no passes."""
        left = self._alone
        if interval_s is None or interval_s < _SHORT_S:
            # The main scheduler tries a new job first, and may be at it: then trainers would leave
            # beside the elements that it preempts.
            waits = (self._waits or {}).items()
            new = {one for one, (_, since_s) in waits if since_s == self._looked_s}
            until_s = self._looked_s + _TAKES_S if new else -math.inf
            return Judgement(until_s=until_s, asks=self._asks, left=left | new)
        # Slurm counts from the end of a pass, and tells begins in whole seconds.
        follows = interval_s < self._gap_s < 2 * interval_s
        period_s = max(interval_s, self._gap_s - 1.0) if follows else interval_s
        passed = (now_s - _TAKES_S - self._began_s) / period_s
        if passed > _STALE:
            changed_s = max((since_s for _, since_s in (self._waits or {}).values()), default=0.0)
            until_s = changed_s + interval_s + _TAKES_S
            return Judgement(until_s=until_s, asks=True, left=left)
        due_s = self._began_s + period_s * max(1, math.ceil(passed))
        return Judgement(due_s, due_s, self._began_s + interval_s, self._asks, left)


def in_holes_without(
    snapshot: Snapshot, views: Iterable[TrainerView], *phases: Phase
) -> frozenset[str]:
    """Return the nodes in holes on which there is no element in one of these phases."""
    ours = {record.node for view in views for _, record in view.within(*phases) if record.node}
    return snapshot.in_holes - ours


class Fit:
    """Which of some nodes would do for a job, as far as partition and features tell.

    ``nodes`` are in the order in which Slurm takes them, ``among`` those that are in question.
    """

    def __init__(self, nodes: Iterable[Node], among: Set[str]) -> None:
        self._nodes = [node for node in nodes if node.name in among]
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
