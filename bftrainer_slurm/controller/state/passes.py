"""Tracks Slurm's backfill passes: which jobs they left waiting, and when the next pass comes.

A pass tries every waiting job on idle nodes and on nodes of elements, which it preempts if a job
fits. ``decide.headroom`` decides what to do about it.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Iterable, Mapping
from heapq import nsmallest
from typing import NamedTuple

from bftrainer_slurm.constraint import ConstraintError, parse_constraint
from bftrainer_slurm.controller.observe.schedule import BackfillForecast
from bftrainer_slurm.controller.observe.shared_nodes import needs_of
from bftrainer_slurm.controller.observe.snapshot import Snapshot
from bftrainer_slurm.controller.state.phases import Phase
from bftrainer_slurm.controller.state.view import TrainerView
from bftrainer_slurm.model import Memory, Node, Part, WaitingJob

_TAKES_S = 3.5  # Slurm's clock ticks in whole seconds, and a pass takes a moment
_SHORT_S = 10.0  # if passes come this often, no pass is worth a look of its own
_RESOLUTION_S = 60.0  # Slurm's bf_resolution: starts are planned for whole minutes
_PLANNED_S = 5.0  # how long before its planned start a job's nodes have to be free
_STALE = 10  # if this many expected passes were not seen, their times are unknown again


_Demand = tuple[int, int, int, Memory, int | None, str, str, frozenset[str]]
_Levels = tuple[tuple[float, Part], ...]  # since when (Unix seconds) a node has had at least this


class Fit:
    """Finds the nodes that fit a job by partition, features, and the ``room`` on each node.

    The nodes come in the order in which Slurm allocates them, or in that of ``nodes``.
    """

    def __init__(
        self, snapshot: Snapshot, room: Mapping[str, Part], nodes: Iterable[Node] | None = None
    ) -> None:
        self._snapshot, self._room = snapshot, room
        ordered = snapshot.nodes.by_weight if nodes is None else nodes
        self._nodes = [node for node in ordered if node.name in room]
        self._with_room: dict[Part | None, list[Node]] = {}  # by what a job takes; None: the whole
        self._known: dict[tuple[object, ...], tuple[str, ...]] = {}

    def nodes_for(self, job: WaitingJob) -> tuple[str, ...]:
        """Return the nodes that fit, in order."""
        key = (job.partition, job.constraint, job.excluded, self._takes(job))
        if key not in self._known:
            partitions = frozenset(job.partition.split(","))
            self._known[key] = tuple(
                node.name
                for node in self._roomy(job)
                if node.partitions & partitions
                and node.name not in job.excluded
                and _has(node, job.constraint)
            )
        return self._known[key]

    def count(self, job: WaitingJob) -> int:
        """Return how many nodes have room for the job, whatever else it asks for."""
        return len(self._roomy(job))

    def _roomy(self, job: WaitingJob) -> list[Node]:
        key, room, fits = self._takes(job), self._room, self._snapshot.fits
        if key not in self._with_room:
            shared = bool(self._snapshot.shared)  # else a node is free, or it is not
            self._with_room[key] = [
                node
                for node in self._nodes
                if (fits(job, node.name, room[node.name]) if shared else room[node.name].gpus)
            ]
        return self._with_room[key]

    def _takes(self, job: WaitingJob) -> Part | None:
        return needs_of(job, self._snapshot.configuration) if job.takes_parts else None


def _has(node: Node, constraint: str) -> bool:
    """Whether a node has the requested features; true if the request cannot be parsed."""
    try:
        return not constraint or parse_constraint(constraint).allows(node.features)
    except ConstraintError:
        return True


class _Waiting(NamedTuple):
    """A waiting job, and what passes have shown of it. Times are Unix seconds."""

    demand: _Demand
    since_s: float  # when it began to wait for exactly that; inf: it waits for a limit now
    fitted: int | None = None  # passes left it waiting beside so many at most; None: none did
    again: bool = False  # it is tried again, though a pass has left it waiting
    large: float = -math.inf  # its priority, if it needs more nodes than there are

    @property
    def left(self) -> bool:
        """Whether trainers leave it alone, although it waits for nodes and nothing else."""
        return self.fitted is not None and not self.again and self.since_s < math.inf

    @property
    def asks(self) -> bool:
        """Whether the next pass may start it."""
        return not self.left and self.since_s < math.inf and self.large == -math.inf


class Passes:
    """Tracks the passes from look to look."""

    def __init__(self) -> None:
        self._began_s = -math.inf
        self._gap_s = 0.0  # between the last two passes that were seen
        self._known: dict[int, _Waiting] = {}
        self._looked_s = -math.inf
        self._levels: dict[str, _Levels] = {}
        self._tried: frozenset[int] = frozenset()  # jobs that the next pass may start after all
        self._tries = 1  # how many

    def look(self, snapshot: Snapshot, room: Mapping[str, Part], now_s: float) -> None:
        """Take in a snapshot, and what ordinary jobs leave of each node (``room``).

        ``now_s`` (Unix seconds) is when Slurm had answered: changes in the snapshot may be as late
        as that. A new controller assumes that jobs have waited since they were submitted, and that
        nodes were in holes before its first look.
        """
        before = self._levels
        new_s = -math.inf if math.isinf(self._looked_s) else now_s
        self._levels = {
            node: _with_look(before.get(node, ()), part, new_s) for node, part in room.items()
        }
        freed = any(
            node not in before or not room[node].within(before[node][-1][1])
            for node, levels in self._levels.items()
            if levels is not before.get(node)  # few
        )
        last, at_pass = snapshot.last_pass, None
        if last is not None and last.began_s > now_s + _TAKES_S:
            last = None  # the clock was set back; the next pass must not seem so far away
        if last is not None and last.began_s != self._began_s and not last.active:
            self._began_s, self._gap_s = last.began_s, last.began_s - self._began_s
            # There may have been other looks between the pass and this one, which first shows it.
            at_pass = {
                node: there[-1]
                for node, levels in self._levels.items()
                if (there := [part for since_s, part in levels if since_s < last.began_s])
            }
        fit = Fit(snapshot, room if snapshot.queue.asking else {})
        found = None if at_pass is None else Fit(snapshot, at_pass)
        self._learn(snapshot.queue.waiting, fit, found, freed, now_s)
        self._looked_s = now_s

    def _learn(
        self,
        jobs: Collection[WaitingJob],
        fit: Fit,
        at_pass: Fit | None,
        freed: bool,
        now_s: float,
    ) -> None:
        """Learn which of the jobs to leave alone, from what ``fit`` at the last pass, and now.

        A job that a pass has left waiting beside enough nodes is tried again when some are
        ``freed`` so that more fit than at any pass, or when a large job before it waits no more.
        Most such jobs wait for something else, so they are tried one at a time, and twice as many
        after a pass that started all of them.
        """
        before, known = self._known, dict[int, _Waiting]()
        waiting = {job.job_id for job in jobs if job.for_nodes}
        over = (one.large for id_, one in before.items() if id_ not in waiting)
        gone = max(over, default=-math.inf)
        freed |= gone > -math.inf
        if at_pass is not None and self._tried:
            self._tries, self._tried = 1 if waiting & self._tried else 2 * self._tries, frozenset()
        for job in jobs:
            one, demand = before.get(job.job_id), _demand_of(job)
            if one is None or one.demand != demand:
                one = _Waiting(demand, math.inf)
            _, since_s, fitted, *_ = one
            if not job.for_nodes:  # it may wait for nodes again, and is no new one then
                known[job.job_id] = _Waiting(demand, math.inf, fitted)
                continue
            if since_s == math.inf:
                since_s = job.submit_s if math.isinf(self._looked_s) else now_s
            if fitted and job.priority < gone:
                fitted = 0
            if at_pass is not None and since_s < self._began_s:
                nodes = len(at_pass.nodes_for(job))
                fitted = max(nodes, fitted or 0) if nodes >= job.nodes else fitted
            large = job.priority if job.nodes > fit.count(job) else -math.inf
            known[job.job_id] = _Waiting(demand, since_s, fitted, large=large)
        if freed and (left := [job for job in jobs if known[job.job_id].left]):
            more = (
                job
                for job in left
                if len(fit.nodes_for(job)) > max(known[job.job_id].fitted or 0, job.nodes - 1)
            )
            first = nsmallest(self._tries, more, key=lambda job: (-job.priority, job.job_id))
            self._tried = frozenset(job.job_id for job in first)
        for id_ in self._tried & known.keys():
            known[id_] = known[id_]._replace(again=True)
        self._known = known

    def forecast(self, interval_s: float | None, now_s: float) -> BackfillForecast:
        """Return the forecast; ``interval_s`` is Slurm's ``bf_interval``, None without passes."""
        left = frozenset(id_ for id_, one in self._known.items() if one.left)
        asks = any(one.asks for one in self._known.values())
        if interval_s is None or interval_s < _SHORT_S:
            # The main scheduler tries a new job first, and may be doing so now. If trainers left
            # too, more elements would end than it preempts.
            new = {id_ for id_, job in self._known.items() if job.since_s == self._looked_s}
            until_s = self._looked_s + _TAKES_S if new else -math.inf
            return BackfillForecast(until_s=until_s, asks=asks, left=left | new)
        # Slurm counts the interval from the end of a pass, and gives starts in whole seconds.
        follows = interval_s < self._gap_s < 2 * interval_s
        period_s = max(interval_s, self._gap_s - 1.0) if follows else interval_s
        passed = (now_s - _TAKES_S - self._began_s) / period_s
        if passed > _STALE:
            since_s = (job.since_s for job in self._known.values())
            changed_s = max((one for one in since_s if one < math.inf), default=0.0)
            until_s = changed_s + interval_s + _TAKES_S
            return BackfillForecast(until_s=until_s, asks=True, left=left)
        due_s = self._began_s + period_s * max(1, math.ceil(passed))
        sure_s = self._began_s + interval_s
        return BackfillForecast(due_s, due_s, sure_s, asks, left, due_s + period_s)


def _demand_of(job: WaitingJob) -> _Demand:
    part, asks = (job.gpus, job.cpus, job.memory), (job.partition, job.constraint, job.excluded)
    return job.nodes, *part, job.minutes, *asks


def _with_look(levels: _Levels, part: Part, now_s: float) -> _Levels:
    """Return the levels of a node after a look that has found this part left of it."""
    if levels and levels[-1][1] == part:
        return levels
    known: list[tuple[float, Part]] = []
    for since_s, one in (*levels, (now_s, part)):
        least = one.least(part)
        if not known or known[-1][1] != least:
            known.append((since_s, least))
    return tuple(known)


def room_without(
    snapshot: Snapshot, views: Iterable[TrainerView], *phases: Phase
) -> Mapping[str, Part]:
    """Return what ordinary jobs leave of the nodes without an element in one of these phases."""
    ours = {record.node for view in views for _, record in view.within(*phases)}
    return {node: part for node, part in snapshot.room.items() if node not in ours}


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
