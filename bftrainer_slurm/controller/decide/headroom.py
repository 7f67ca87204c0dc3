"""Decides which units stay free for waiting ordinary jobs, and which elements leave. Pure.

Slurm starts a job at once only where it finds room as a backfill pass begins. If elements are
there, the job starts one pass later. We predict Slurm's choice from partitions, features, time
limits and planned starts. If the prediction is wrong, the next pass shows it: trainers do not leave
for a job that a pass left waiting.

While a job waits that the main scheduler cannot start, Slurm starts elements only in backfill
passes, and there after all ordinary jobs. So nodes that no pass has seen idle need no extra
protection.

Where jobs share nodes, they get those that Slurm would give them if there were no trainers
(``node_choice``), so that trainers scatter them less over nodes, and large jobs find as much room
as without them. Slurm's choice also depends on what is free elsewhere, so more elements leave if a
job would otherwise go to another node. While no job waits in vain, the main scheduler starts jobs
as they come, up to some seconds later: so elements leave at once, and the place of the next job
stays free. Slurm looks for jobs again as soon as an element has ended, and room elsewhere would
draw a waiting job there: so until it has started, elements leave only for it. Where nodes are
whole, it does not matter to other jobs which ones a job gets: idle ones, then those of trainers
with most to spare.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from heapq import nsmallest
from itertools import islice

from bftrainer_slurm.controller.decide.actions import Headroom
from bftrainer_slurm.controller.decide.node_choice import Candidate, predict_nodes, runs_of
from bftrainer_slurm.controller.observe.shared_nodes import needs_of
from bftrainer_slurm.controller.state.cluster import ClusterView
from bftrainer_slurm.controller.state.passes import Claims, Fit
from bftrainer_slurm.controller.state.phases import Phase
from bftrainer_slurm.controller.state.view import TrainerView
from bftrainer_slurm.model import ElementId, Node, NodeState, Part, Resources, WaitingJob

_ROUNDS = 8  # an element that leaves for one job may change where earlier jobs go
_EXTRA = 8  # at most this many elements leave to bring a job to its node
_MORE = Part(1 << 30, 1 << 30, math.inf)  # more than any element has
_TO_WAKE = 1 << 33  # more than any weight: Slurm takes nodes that it has to wake last
_PLACES = 1 / 8  # of all units: at most so many stay free for the next jobs
_LOOKED_AT = 100_000  # nodes to examine; beyond that, jobs find room, but maybe on other nodes


def headroom(cluster: ClusterView) -> Headroom:
    """Return the units to keep free, and the elements to end before the next pass.

    Nodes count as idle if elements are leaving them, or have been released but not started: Slurm
    starts ordinary jobs first.

    Jobs get nodes in the order of their priority, each from idle nodes first. If idle nodes and
    trainers' nodes together are too few, a job gets none: it waits for other jobs to end. Slurm
    also takes nodes that it has to wake, but only if those that are awake do not suffice.
    """
    jobs, nexts = _in_order(cluster), cluster.next_jobs if cluster.snapshot.shared else ()
    if any(job.job_id in cluster.forecast.left for job in cluster.snapshot.queue.asking):
        nexts = ()  # only passes start jobs behind it
    return _Packing(cluster).headroom(jobs, nexts) if jobs or nexts else Headroom()


def _in_order(cluster: ClusterView) -> list[WaitingJob]:
    """Return the jobs to serve, highest priority first; as many as one pass of Slurm looks at."""
    left, most = cluster.forecast.left, cluster.snapshot.configuration.backfill_depth
    jobs = (
        job for job in cluster.snapshot.queue.asking if job.nodes > 0 and job.job_id not in left
    )
    return nsmallest(most, jobs, key=lambda job: (-job.priority, job.job_id))


@dataclass(frozen=True, slots=True)
class _Start:
    """A task of a job that could start if there were no trainers."""

    key: tuple[int, int]  # the job's id, and the task's number
    job: WaitingJob
    fitting: Sequence[str]  # nodes on which it may start
    nodes: tuple[str, ...]  # nodes on which it would start
    planned: bool = False  # Slurm has planned it for these nodes


class _Packing:
    """Places one job after the other, highest priority first, as if there were no trainers.

    A job that finds too few nodes gets nothing.
    """

    def __init__(self, cluster: ClusterView) -> None:
        snapshot = cluster.snapshot
        self._snapshot, self._divided = snapshot, bool(snapshot.shared)
        # ``_free`` is what ordinary jobs leave; ``_room`` is what running elements leave of it.
        names = snapshot.room.keys() - cluster.unhandled_nodes
        self._free = {name: snapshot.room[name] for name in names}
        self._table: dict[str, tuple[int, Node]] = {
            node.name: (position, node) for position, node in enumerate(snapshot.nodes)
        }
        self._names = [node.name for node in snapshot.nodes]
        self._held: dict[str, dict[ElementId, Part]] = {}
        self._on: dict[ElementId, str] = {}
        self._spare: dict[int, int] = {}
        for view in cluster.views:
            self._spare[view.array] = view.above_least
            part_on = self._parts(view)
            for id_, node in view.running().items():
                if node in names:
                    self._on[id_] = node
                    self._held.setdefault(node, {})[id_] = part_on(id_, node)
            for id_, one in view.within(Phase.SUSPENDED):  # it has its part, and does not leave
                if one.node is not None and one.node in names:
                    self._free[one.node] = self._free[one.node].less(part_on(id_, one.node))
        nodes = snapshot.nodes if self._divided else self._cheapest_first()
        self._fit = Fit(snapshot, self._free, nodes)
        self._room = dict(self._free)
        for node, held in self._held.items():
            for part in held.values():
                self._room[node] = self._room[node].less(part)
        self._log: list[tuple[ElementId, str, Part]] = []  # elements that leave
        self._looked_at = self._jobs = 0
        self._in_vain = False  # a job finds no room

    def _parts(self, view: TrainerView) -> Callable[[ElementId, str], Part]:
        """Return a function for what each element of a trainer has of its node."""
        elements = {one.id: one for one in view.trainer.elements} if self._divided else {}

        def part_on(id_: ElementId, node: str) -> Part:
            one, every = elements.get(id_), self._snapshot.room[node].gpus
            if one is None:
                return Part(every, 1)
            return Part(one.gpus or every, one.cpus, one.memory_mb or 0.0)

        return part_on

    def _cheapest_first(self) -> list[Node]:
        """Return the idle nodes, those of trainers with most to spare, and then those to wake."""
        spare, rank = dict(self._spare), dict[str, tuple[int, int, int]]()
        for node in reversed(self._snapshot.nodes.by_weight):
            asleep = node.state is NodeState.POWERED_DOWN
            rank[node.name] = 2 if asleep else 0, 0, 0
            for id_ in self._held.get(node.name, ()):
                rank[node.name] = 1, -spare[id_.array], id_.array
                spare[id_.array] -= 1
        return sorted(self._snapshot.nodes.by_weight, key=lambda node: rank[node.name])

    def headroom(self, jobs: Sequence[WaitingJob], nexts: Sequence[WaitingJob]) -> Headroom:
        """Let elements leave until all jobs find their nodes, or the search takes too long.

        ``nexts`` are such as may come next, small ones first.
        """
        elsewhere: dict[tuple[int, int], tuple[str, ...]] = {}
        starts = list(self._without_trainers(jobs, elsewhere))
        jobs = jobs[: self._jobs]  # there was no time for more
        self._looked_at = 0
        for rounds in range(_ROUNDS if self._held else 0):
            if not self._beside_elements(starts, elsewhere, hurried=rounds == _ROUNDS - 1):
                break
            if elsewhere:
                starts = list(self._without_trainers(jobs, elsewhere))
        kept = Counter[str]()
        for start in starts:
            for node in start.nodes:
                kept[node] += self._kept(start.job, node)
        open_ = bool(nexts) and not self._in_vain
        if open_:
            kept.update(self._places(starts, nexts))
        return Headroom(kept, frozenset(id_ for id_, _, _ in self._log), open_)

    def _places(self, starts: Sequence[_Start], nexts: Sequence[WaitingJob]) -> Mapping[str, int]:
        """Return the units of the nodes to which the next job would go.

        Elements leave them, but not before the waiting jobs have started. Only one comes next: the
        place of a larger one has room for a smaller one too.
        """
        free, room, places = dict(self._free), dict(self._room), dict[str, int]()
        for start in starts:
            self._taken(start, free), self._taken(start, room)
        most = _PLACES * sum(self._snapshot.units(node) for node in self._free)
        for number, job in enumerate(nexts, 1):
            may = self._fit.nodes_for(job)
            start = _Start((-number, 0), job, may, self._choice(job, may, free))
            for node in start.nodes:  # one
                logged, had = len(self._log), places.get(node, 0)
                units = max(had, self._kept(job, node))
                if sum(places.values()) - had + units > most:
                    return places
                if not starts:
                    self._make_room(start, room, spared=True)
                if self._snapshot.fits(job, node, room[node]):
                    places[node] = units
                else:
                    self._undo(logged, room)
        return places

    def _kept(self, job: WaitingJob, node: str) -> int:
        """Return how many units to keep for a job: all that it takes or makes useless."""
        needs, units = self._snapshot.takes(job, node), self._snapshot.units(node)
        has = self._table[node][1].resources or Resources()
        with_cpus = math.ceil(needs.cpus * units / max(1, has.cpus))
        with_memory = math.ceil(needs.memory_mb * units / max(1.0, has.memory_mb))
        return max(1, needs.gpus, min(max(with_cpus, with_memory), self._free[node].gpus))

    def _without_trainers(
        self, jobs: Iterable[WaitingJob], elsewhere: Mapping[tuple[int, int], tuple[str, ...]]
    ) -> Iterator[_Start]:
        """Yield where tasks would start without trainers; ``elsewhere`` gives some by key."""
        room, claims = dict(self._free), Claims(self._snapshot)
        unserved: set[tuple[object, ...]] = set()  # requests without room; later ones find less
        fits: dict[tuple[object, ...], list[str]] = {}
        self._jobs = 0
        for job in jobs:
            if self._looked_at > _LOOKED_AT and not elsewhere:
                return
            self._jobs += 1
            needs = needs_of(job, self._snapshot.configuration) if job.takes_parts else None
            fitting = (job.partition, job.constraint, job.excluded, job.minutes, needs)
            asks = (*fitting, job.nodes)
            in_time, served = claims.in_time(job), 0
            if self._divided and fitting not in fits:
                fits[fitting] = [node for node in self._fit.nodes_for(job) if in_time(node)]
            may = fits.get(fitting, [])
            while served < job.count and asks not in unserved:
                key = job.job_id, served
                if self._divided:
                    nodes = elsewhere.get(key) or self._choice(job, may, room)
                else:
                    nodes = self._first(job, in_time, room)
                if not nodes:
                    unserved.add(asks)
                    break
                yield self._taken(_Start(key, job, may, nodes), room)
                served += 1
            if served < job.count:
                self._in_vain = True
                if job.expected_nodes:
                    claims.add(job, job.expected_nodes)  # a pass plans with whole nodes
                    fits.clear()
                if not served and claims.is_due(job):
                    nodes = tuple(node for node in job.expected_nodes if node in self._free)
                    yield self._taken(_Start((job.job_id, 0), job, nodes, nodes, True), room)

    def _beside_elements(
        self,
        starts: Iterable[_Start],
        elsewhere: dict[tuple[int, int], tuple[str, ...]],
        hurried: bool,
    ) -> bool:
        """Let elements leave so that each job goes to its nodes; return whether to search again.

        A job that cannot be brought there, or not in time, is added to ``elsewhere``.
        """
        room, before = dict(self._room), len(self._log)
        for start in starts:
            logged = len(self._log)
            simply = start.planned or hurried or self._looked_at > _LOOKED_AT
            simply |= not self._divided
            goes = () if simply else self._choice(start.job, start.fitting, room)
            if goes != start.nodes:
                self._make_room(start, room)
                if not (simply or self._bring(start, room)):
                    if goes:  # no element has to leave for it
                        self._undo(logged, room)
                    elsewhere[start.key] = goes or self._choice(start.job, start.fitting, room)
                    return True
            self._taken(start, room)
        return len(self._log) > before

    def _choice(
        self, job: WaitingJob, fitting: Iterable[str], room: Mapping[str, Part]
    ) -> tuple[str, ...]:
        """Return the nodes that Slurm gives a job if this room is free."""
        return predict_nodes(job.nodes, self._candidates(job, fitting, room))

    def _first(
        self, job: WaitingJob, in_time: Callable[[str], bool], room: Mapping[str, Part]
    ) -> tuple[str, ...]:
        """Return the cheapest whole nodes that no job of higher priority gets."""
        free, fit = self._free, self._fit.nodes_for(job)
        left = (node for node in fit if room[node] is free[node] and in_time(node))
        found = tuple(islice(left, job.nodes))
        return found if len(found) == job.nodes else ()

    def _candidates(
        self, job: WaitingJob, fitting: Iterable[str], room: Mapping[str, Part]
    ) -> Iterator[Candidate]:
        counts_own_cpus = job.gpus > 0 and job.tasks_said
        for name in fitting:
            self._looked_at += 1
            if self._snapshot.fits(job, name, has := room[name]):
                position, node = self._table[name]
                cpus = self._snapshot.takes(job, name).cpus if counts_own_cpus else has.cpus
                weight = node.weight + (_TO_WAKE if node.state is NodeState.POWERED_DOWN else 0)
                yield Candidate(name, position, weight, cpus)

    def _taken(self, start: _Start, room: dict[str, Part]) -> _Start:
        for node in start.nodes:
            room[node] = room[node].less(self._snapshot.takes(start.job, node))
        return start

    def _make_room(self, start: _Start, room: dict[str, Part], spared: bool = False) -> None:
        """Let elements leave a job's nodes; if ``spared``, none that its trainer needs to go on."""
        for node in start.nodes:
            needs, here = self._snapshot.takes(start.job, node), self._held.get(node, {})
            while any(over := needs.beyond(room[node])):
                held = {
                    id_: part
                    for id_, part in here.items()
                    if not spared or self._spare[id_.array] > 0
                }
                if not held:
                    break
                left = {id_: over.beyond(part) for id_, part in held.items()}
                self._leave(self._first_to_leave(held, left), room)

    def _first_to_leave(
        self, held: Mapping[ElementId, Part], left: Mapping[ElementId, Part]
    ) -> ElementId:
        """Return the element that leaves the smallest rest; then the smallest; then by surplus."""

        def cost(id_: ElementId) -> tuple[Part, Part, int, ElementId]:
            return left[id_], held[id_], -self._spare[id_.array], id_

        return min(held, key=cost)

    def _bring(self, start: _Start, room: dict[str, Part]) -> bool:
        """Make more room near the nodes of Slurm's choice, so that it prefers the right nodes.

        If that does not help, no element leaves.
        """
        logged, goes = len(self._log), self._choice(start.job, start.fitting, room)
        while goes != start.nodes and len(self._log) < logged + _EXTRA:
            best = self._who_helps(start, goes, room)
            if best is None:
                break
            self._leave(best, room)
            goes = self._choice(start.job, start.fitting, room)
        if goes != start.nodes:
            self._undo(logged, room)
        return goes == start.nodes

    def _who_helps(
        self, start: _Start, goes: Sequence[str], room: dict[str, Part]
    ) -> ElementId | None:
        """Return the smallest element whose end corrects Slurm's choice, else the largest near."""
        near = self._near(start, goes, room)
        held = {id_: part for node in near for id_, part in self._held.get(node, {}).items()}
        if not held:
            return None

        def left(id_: ElementId) -> Part:
            on = self._on[id_]
            before, room[on] = room[on], room[on].plus(held[id_])
            nodes = self._choice(start.job, start.fitting, room)
            room[on] = before
            return Part(0, 0) if nodes == start.nodes else _MORE.less(held[id_])

        return self._first_to_leave(held, {id_: left(id_) for id_ in held})

    def _near(self, start: _Start, goes: Sequence[str], room: Mapping[str, Part]) -> set[str]:
        """Return the nodes that Slurm wrongly prefers, and the neighbours of their runs."""
        wrong = set(goes) - set(start.nodes)
        near, may = set(wrong), set(start.fitting)
        for run in runs_of(self._candidates(start.job, start.fitting, room)):
            if wrong & {one.name for one in run}:
                ends = run[0].position - 1, run[-1].position + 1
                neighbours = (self._names[one] for one in ends if 0 <= one < len(self._names))
                near |= {one for one in neighbours if one in may} - set(start.nodes)
        return near

    def _leave(self, id_: ElementId, room: dict[str, Part]) -> None:
        node = self._on[id_]
        part = self._held[node].pop(id_)
        room[node], self._room[node] = room[node].plus(part), self._room[node].plus(part)
        self._log.append((id_, node, part))
        self._spare[id_.array] -= 1

    def _undo(self, since: int, room: dict[str, Part]) -> None:
        """Let the elements stay after all that leave by the log's entries from ``since`` on."""
        while len(self._log) > since:
            id_, node, part = self._log.pop()
            self._held[node][id_] = part
            room[node], self._room[node] = room[node].less(part), self._room[node].less(part)
            self._spare[id_.array] += 1
