"""Decides which places trainers may use, and which nodes stay idle for ordinary jobs. Pure.

Slurm starts a job at once only on nodes that are idle when a backfill pass begins. If elements run
on them, the job starts one pass later. We predict Slurm's choice from partitions, features, time
limits and planned starts. If the prediction is wrong, the next pass shows it: trainers do not leave
for a job that a pass left waiting.

While a job waits that the main scheduler cannot start, Slurm starts elements only in backfill
passes, and there after all ordinary jobs. So nodes that no pass has seen idle need no extra
protection.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping
from heapq import heapify, heappop, heappush, nsmallest
from itertools import islice

from bftrainer_slurm.controller.decide.actions import Headroom, Shrink
from bftrainer_slurm.controller.decide.bars import bars_for_growth, nodes_off
from bftrainer_slurm.controller.decide.make_way import make_way
from bftrainer_slurm.controller.decide.reconcile import give_up
from bftrainer_slurm.controller.observe.snapshot import Snapshot
from bftrainer_slurm.controller.settings import Settings
from bftrainer_slurm.controller.state.cluster import ClusterView
from bftrainer_slurm.controller.state.fitting import Fit
from bftrainer_slurm.controller.state.passes import Claims, in_holes_without
from bftrainer_slurm.controller.state.phases import OCCUPIES, VACATES, Phase
from bftrainer_slurm.model import Place, WaitingJob, nodes_of

_JOBS = 500  # Slurm's own bf_max_job_test


def headroom(cluster: ClusterView) -> Headroom:
    """Return the nodes to keep idle, and those to empty before the next pass.

    Nodes count as idle if elements are leaving them, or have been released but not started: Slurm
    starts ordinary jobs first.

    Jobs get nodes in the order of their priority, each from idle nodes first. If idle nodes and
    trainers' nodes together are too few, a job gets none: it waits for other jobs to end.
    """
    jobs = _in_order(cluster)
    if not jobs:
        return Headroom()
    if cluster.snapshot.shared:
        return make_way(jobs, cluster)
    choice = _Choice(cluster)
    for job in jobs:
        choice.serve(job)
    return Headroom(frozenset(choice.kept), frozenset(choice.vacate))


def _in_order(cluster: ClusterView) -> list[WaitingJob]:
    """Return the jobs to serve, highest priority first; as many as one pass of Slurm looks at."""
    left = cluster.forecast.left
    jobs = (
        job for job in cluster.snapshot.queue.asking if job.nodes > 0 and job.job_id not in left
    )
    return nsmallest(_JOBS, jobs, key=lambda job: (-job.priority, job.job_id))


class _Choice:
    """Chooses nodes for one job after the other."""

    def __init__(self, cluster: ClusterView) -> None:
        nodes, views = cluster.snapshot.by_weight, cluster.views
        # For each node with elements, their trainers (by array).
        self._owners: dict[str, tuple[int, ...]] = {}
        for view in views:
            for place in view.running().values():
                if place.node in cluster.snapshot.in_holes:
                    self._owners[place.node] = *self._owners.get(place.node, ()), view.array
        idle = in_holes_without(cluster.snapshot, views, Phase.RUNNING)
        idle -= cluster.unhandled_nodes
        self._idle, self._harvested = Fit(nodes, idle), Fit(nodes, self._owners.keys())
        self._surplus = {one.array: one.above_least for one in views}
        self._claims = Claims(cluster.snapshot)
        self.kept: set[str] = set()
        self.vacate: set[str] = set()

    def serve(self, job: WaitingJob) -> None:
        """Choose nodes for as many tasks of this job record as possible."""
        nodes = self._nodes_for(job)
        if len(nodes) < job.nodes * job.count:  # else it does not need the nodes planned for it
            self._claims.add(job, job.expected_nodes)
        self._take(set(nodes or (job.expected_nodes if self._claims.is_due(job) else ())))

    def _take(self, nodes: set[str]) -> None:
        ours = nodes & self._owners.keys()
        self.kept |= nodes - ours
        self.vacate |= ours
        for node in ours:
            for array in self._owners[node]:
                self._surplus[array] -= 1

    def _nodes_for(self, job: WaitingJob) -> list[str]:
        """Return nodes for as many of the job's tasks as possible."""
        in_time = self._claims.in_time(job)

        def free(fit: Fit, taken: set[str]) -> Iterator[str]:
            return (node for node in fit.nodes_for(job) if node not in taken and in_time(node))

        most = job.nodes * job.count
        idle = list(islice(free(self._idle, self.kept), most))
        ours = list(free(self._harvested, self.vacate)) if len(idle) < most else []
        found = min(most, len(idle) + len(ours)) // job.nodes * job.nodes
        return idle[:found] + self._cheapest(ours, max(0, found - len(idle)))

    def _cheapest(self, nodes: Iterable[str], count: int) -> list[str]:
        """Return ``count`` of these nodes, each from the trainer with the largest surplus."""
        alike: dict[tuple[int, ...], list[str]] = {}
        for node in nodes:
            alike.setdefault(self._owners[node], []).append(node)
        heap = [(-min(self._surplus[one] for one in owners), owners) for owners in alike]
        heapify(heap)
        chosen: list[str] = []
        while len(chosen) < count:
            spare, owners = heappop(heap)
            chosen.append(alike[owners].pop())
            if alike[owners]:
                heappush(heap, (spare + 1, owners))
        return chosen


def available(cluster: ClusterView, off: frozenset[str]) -> frozenset[Place]:
    """Return the places in which an element can start now; nodes ``off`` are barred for all.

    A node that was busy when the nodes were last read counts as idle if no job runs on it now.
    """
    return _free(_unused(cluster) - off, cluster)


def soon_available(cluster: ClusterView, off: frozenset[str]) -> frozenset[Place]:
    """Return the places that elements are leaving because the controller has ended them.

    If the plan did not count on them, it would change while its own moves are under way.
    """
    leaving = frozenset(
        record.node
        for view in cluster.views
        for _, record in view.within(*VACATES)
        if record.ours and record.node is not None
    )
    return _free(leaving - off, cluster) if leaving else frozenset()


def idle_nodes(cluster: ClusterView) -> frozenset[str]:
    """Return all idle nodes, also those on which no element may start."""
    return nodes_of(_free(_unused(cluster), cluster))


def _unused(cluster: ClusterView) -> frozenset[str]:
    """Return the nodes in holes without elements that are leaving or have no place."""
    return cluster.snapshot.in_holes.difference(
        record.node
        for view in cluster.views
        for id_, record in view.within(*OCCUPIES)
        if id_ not in view.placed
    )


def _free(nodes: frozenset[str], cluster: ClusterView) -> frozenset[Place]:
    """Return those of the nodes, as whole places, that are in holes and have no element."""
    there = nodes & cluster.snapshot.in_holes
    taken = nodes_of(place for view in cluster.views for place in view.places)
    return frozenset(place for node in there - taken for place in Place.on(node))


def growable(free: frozenset[Place], cluster: ClusterView, settings: Settings) -> frozenset[Place]:
    """Return the free places into which trainers may grow.

    This leaves out nodes kept for jobs, nodes in holes for less than ``min_idle_s``, and the
    reserve. The reserve takes the places that ordinary jobs are expected to need soonest.
    """
    off = nodes_off(bars_for_growth(cluster, settings))
    settled = [place for place in free if place.node not in off]
    short = max(0, cluster.reserve - (len(free) - len(settled)))
    if short:
        settled = _soonest_wanted(settled, cluster.life_s)
    return frozenset(settled[short:])


def refill(free: frozenset[Place], cluster: ClusterView) -> list[Shrink]:
    """Return the elements that leave to refill the reserve after ordinary jobs have used it.

    Those on nodes that ordinary jobs need soonest leave first. No trainer shrinks below its least
    size for the reserve. Nodes that elements are already leaving count as free.
    """
    views = cluster.views
    leaving = sum(len(view.ids(*VACATES)) for view in views)
    missing = cluster.reserve - len(free) - leaving
    held = {
        place: id_
        for view in views
        for id_, place in view.running().items()
        if not place.trainer  # an element with a part of a node does not empty the node
    }
    going = ((held[place], 1) for place in _soonest_wanted(held, cluster.life_s))
    return give_up(views, going, missing, "its node is kept for ordinary jobs")


def _soonest_wanted(places: Iterable[Place], life_s: Mapping[str, float]) -> list[Place]:
    return sorted(places, key=lambda place: (life_s.get(place.node, math.inf), place))


def hardware_of(snapshot: Snapshot, settings: Settings) -> dict[str, str]:
    """Return each node's kind of hardware: the first ``hardware`` feature that it has."""
    if not settings.hardware:
        return {}
    return {
        node.name: next((kind for kind in settings.hardware if kind in node.features), "")
        for node in snapshot.nodes
    }
