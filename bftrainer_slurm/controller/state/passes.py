"""Tracks Slurm's backfill passes: which jobs they left waiting, and when the next pass comes.

A pass tries every waiting job on idle nodes and on nodes of elements, which it preempts if a job
fits. ``decide.headroom`` decides what to do about it.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping
from heapq import nsmallest

from bftrainer_slurm.controller.observe.schedule import BackfillForecast
from bftrainer_slurm.controller.observe.snapshot import Snapshot
from bftrainer_slurm.controller.state.fitting import Fit, NodePart, part_of
from bftrainer_slurm.controller.state.phases import Phase
from bftrainer_slurm.controller.state.view import TrainerView
from bftrainer_slurm.model import Memory, WaitingJob

_TAKES_S = 3.5  # Slurm's clock ticks in whole seconds, and a pass takes a moment
_SHORT_S = 10.0  # if passes come this often, no pass is worth a look of its own
_RESOLUTION_S = 60.0  # Slurm's bf_resolution: starts are planned for whole minutes
_PLANNED_S = 5.0  # how long before its planned start a job's nodes have to be free
_STALE = 10  # if this many expected passes were not seen, their times are unknown again


_Demand = tuple[int, int, Memory, int | None, str, str, frozenset[str]]


class Passes:
    """Tracks the passes from look to look."""

    def __init__(self) -> None:
        self._began_s = -math.inf
        self._gap_s = 0.0  # between the last two passes that were seen
        # What each job asks for, and when it began to wait for exactly that.
        self._waits: dict[int, tuple[_Demand, float]] = {}
        self._looked_s = -math.inf
        # When (Unix seconds) each node entered the pool, if it was there at every look since.
        self._in_pool_s: dict[str | NodePart, float] = {}
        # For each job that a pass left waiting: the largest number of fitting nodes in holes then.
        self._left: dict[int, int] = {}
        self._blocked: dict[int, int] = {}  # priorities of jobs that need more nodes than the pool
        # Jobs that a pass left waiting, and that may fit now. Most of them wait for something else,
        # so they are tried one at a time, and twice as many after a pass that started all of them.
        self._again: frozenset[int] = frozenset()
        self._tries = 1
        self._asks = False

    def look(
        self,
        snapshot: Snapshot,
        pool: frozenset[str],
        now_s: float,
        parts: frozenset[NodePart] = frozenset(),
    ) -> None:
        """Take in a snapshot. Nodes in ``pool``, and ``parts``, are free of ordinary jobs.

        ``now_s`` (Unix seconds) is when Slurm had answered: changes in the snapshot may be as late
        as that. A new controller assumes that jobs have waited since they were submitted, and that
        nodes were in holes before its first look.
        """
        first = math.isinf(self._looked_s)
        waiting = {job.job_id: job for job in snapshot.queue.asking}
        self._waits = {
            job.job_id: self._wait(job, job.submit_s if first else now_s)
            for job in waiting.values()
        }
        every: frozenset[str | NodePart] = pool | parts
        freed = self._forget(waiting) or not every <= self._in_pool_s.keys()
        new_s = -math.inf if first else now_s
        self._in_pool_s = {one: self._in_pool_s.get(one, new_s) for one in every}
        last = snapshot.last_pass
        if last is not None and last.began_s > now_s + _TAKES_S:
            last = None  # the clock was set back; the next pass must not seem so far away
        if last is not None and last.began_s != self._began_s and not last.active:
            self._began_s, self._gap_s = last.began_s, last.began_s - self._began_s
            # There may have been other looks between the pass and this one, which first shows it.
            at_pass = {one for one, in_s in self._in_pool_s.items() if in_s < last.began_s}
            self._judge(waiting, Fit(snapshot.nodes.by_weight, at_pass, snapshot))
        if self._left and freed:
            self._try_again(waiting, Fit(snapshot.nodes.by_weight, every, snapshot))
        of_parts = parts and any(job.takes_parts for job in waiting.values())
        parts_fit = Fit((), parts, snapshot) if of_parts else None

        def room(job: WaitingJob) -> int:
            return parts_fit.count(job) if parts_fit and job.takes_parts else len(pool)

        self._blocked = {one: job.priority for one, job in waiting.items() if job.nodes > room(job)}
        self._looked_s = now_s
        alone = self._alone
        self._asks = any(
            job.nodes <= room(job) and job_id not in alone for job_id, job in waiting.items()
        )

    @property
    def _alone(self) -> frozenset[int]:
        """The jobs for which trainers do not leave: a pass left them waiting."""
        return frozenset(self._left.keys() - self._again)

    def _wait(self, job: WaitingJob, since_s: float) -> tuple[_Demand, float]:
        """Return a job's request, and when it began to wait: ``since_s`` if the request is new."""
        known = self._waits.get(job.job_id)
        asks = (job.partition, job.constraint, job.excluded)
        part = (part_of(job), job.memory)
        demand = (job.nodes, *part, job.minutes, *asks)
        return known if known is not None and known[0] == demand else (demand, since_s)

    def _forget(self, waiting: Mapping[int, WaitingJob]) -> bool:
        """Forget passes for changed jobs; let jobs be tried again that waited behind a large job.

        Returns whether such a large job no longer waits.
        """
        self._left = {
            one: nodes
            for one, nodes in self._left.items()
            if one in waiting and self._waits[one][1] < self._began_s
        }
        gone = self._blocked.keys() - waiting.keys()
        before = max((self._blocked[one] for one in gone), default=-math.inf)
        self._left |= {one: 0 for one in self._left if waiting[one].priority < before}
        return bool(gone)

    def _judge(self, waiting: Mapping[int, WaitingJob], fit: Fit) -> None:
        """Record the jobs that a pass left waiting although enough nodes fitted, and how many."""
        for job_id, (_, since_s) in self._waits.items():
            job = waiting[job_id]
            nodes = len(fit.nodes_for(job)) if since_s < self._began_s else 0
            if nodes >= job.nodes:
                self._left[job_id] = max(nodes, self._left.get(job_id, 0))
        if self._again:
            self._tries = 1 if self._again & self._left.keys() else 2 * self._tries
            self._again = frozenset()

    def _try_again(self, waiting: Mapping[int, WaitingJob], fit: Fit) -> None:
        """Choose jobs that have more fitting nodes in holes now than at any pass before."""
        jobs = (
            waiting[one]
            for one, nodes in self._left.items()
            if len(fit.nodes_for(waiting[one])) >= max(nodes + 1, waiting[one].nodes)
        )
        first = nsmallest(self._tries, jobs, key=lambda job: (-job.priority, job.job_id))
        self._again = frozenset(job.job_id for job in first)

    def forecast(self, interval_s: float | None, now_s: float) -> BackfillForecast:
        """Return the forecast; ``interval_s`` is Slurm's ``bf_interval``, None without passes."""
        left = self._alone
        if interval_s is None or interval_s < _SHORT_S:
            # The main scheduler tries a new job first, and may be doing so now. If trainers left
            # too, more elements would end than it preempts.
            waits = self._waits.items()
            new = {one for one, (_, since_s) in waits if since_s == self._looked_s}
            until_s = self._looked_s + _TAKES_S if new else -math.inf
            return BackfillForecast(until_s=until_s, asks=self._asks, left=left | new)
        # Slurm counts the interval from the end of a pass, and gives starts in whole seconds.
        follows = interval_s < self._gap_s < 2 * interval_s
        period_s = max(interval_s, self._gap_s - 1.0) if follows else interval_s
        passed = (now_s - _TAKES_S - self._began_s) / period_s
        if passed > _STALE:
            changed_s = max((since_s for _, since_s in self._waits.values()), default=0.0)
            until_s = changed_s + interval_s + _TAKES_S
            return BackfillForecast(until_s=until_s, asks=True, left=left)
        due_s = self._began_s + period_s * max(1, math.ceil(passed))
        sure_s = self._began_s + interval_s
        return BackfillForecast(due_s, due_s, sure_s, self._asks, left, due_s + period_s)


def in_holes_without(
    snapshot: Snapshot, views: Iterable[TrainerView], *phases: Phase
) -> frozenset[str]:
    """Return the nodes in holes on which no element is in one of these phases."""
    ours = {record.node for view in views for _, record in view.within(*phases) if record.node}
    return snapshot.in_holes - ours


def parts_without(
    snapshot: Snapshot, views: Iterable[TrainerView], *phases: Phase
) -> frozenset[NodePart]:
    """Return the GPUs and processors of shared nodes that no ordinary job has.

    Slurm starts nothing on a node that an element in one of these phases is leaving.
    """
    if not snapshot.shared:
        return frozenset()
    ours = {record.node for view in views for _, record in view.within(*phases) if record.node}
    usable = snapshot.in_service | snapshot.powered_down
    return frozenset(
        (node, part)
        for node, one in snapshot.shared.items()
        if node in usable and node not in ours
        for part in (*range(1, one.free_gpus + 1), *(-cpus for cpus in _steps(one.free_cpus)))
    )


def _steps(most: int) -> set[int]:
    """Return ``most`` and all powers of two below it: a small set."""
    return {1 << power for power in range(most.bit_length())} | ({most} if most else set())


class Claims:
    """When each node is reserved, or planned for a job of higher priority than the present one."""

    def __init__(self, snapshot: Snapshot) -> None:
        self._now_s = snapshot.time_s
        self._until_s: dict[str, float] = {}
        for node, reservation in snapshot.reserved.items():
            self._add((node,), reservation.start_s)

    def add(self, job: WaitingJob, nodes: Iterable[str]) -> None:
        """Claim nodes for a job from its planned start on."""
        self._add(nodes, _planned_s(job))

    def is_due(self, job: WaitingJob) -> bool:
        """Whether the job's planned start is so near that its nodes have to be free now."""
        return _planned_s(job) <= self._now_s + _PLANNED_S

    def in_time(self, job: WaitingJob) -> Callable[[str], bool]:
        """Return a test for nodes: would the job, started there now, end before any claim?"""
        ends_s = math.inf if job.minutes is None else self._now_s + 60.0 * job.minutes
        return lambda node: ends_s <= self._until_s.get(node, math.inf)

    def _add(self, nodes: Iterable[str], start_s: float) -> None:
        whole_s = start_s if math.isinf(start_s) else start_s // _RESOLUTION_S * _RESOLUTION_S
        for node in nodes:
            self._until_s[node] = min(whole_s, self._until_s.get(node, math.inf))


def _planned_s(job: WaitingJob) -> float:
    return math.inf if job.expected_start_s is None else job.expected_start_s
