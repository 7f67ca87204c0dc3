"""Decides which nodes stay idle for waiting ordinary jobs, and which ones trainers leave. Pure.

Slurm starts a job at once only on nodes that are idle when a backfill pass begins. If elements run
on them, the job starts one pass later. We predict Slurm's choice from partitions, features, time
limits and planned starts. If the prediction is wrong, the next pass shows it: trainers do not leave
for a job that a pass left waiting.

While a job waits that the main scheduler cannot start, Slurm starts elements only in backfill
passes, and there after all ordinary jobs. So nodes that no pass has seen idle need no extra
protection.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from heapq import heapify, heappop, heappush, nsmallest
from itertools import islice

from bftrainer_slurm.controller.decide.actions import Headroom
from bftrainer_slurm.controller.decide.make_way import Packing
from bftrainer_slurm.controller.state.cluster import ClusterView
from bftrainer_slurm.controller.state.fitting import Fit
from bftrainer_slurm.controller.state.passes import Claims, in_holes_without
from bftrainer_slurm.controller.state.phases import Phase
from bftrainer_slurm.model import WaitingJob

_JOBS = 500  # Slurm's own bf_max_job_test


def headroom(cluster: ClusterView) -> Headroom:
    """Return the nodes to keep idle, and those to empty before the next pass.

    Nodes count as idle if elements are leaving them, or have been released but not started: Slurm
    starts ordinary jobs first.

    Jobs get nodes in the order of their priority, each from idle nodes first. If idle nodes and
    trainers' nodes together are too few, a job gets none: it waits for other jobs to end. Slurm
    also takes nodes that it has to wake, but only if those that are awake do not suffice.
    """
    jobs = _in_order(cluster)
    if not jobs:
        return Headroom()
    if cluster.snapshot.shared:
        return Packing(cluster).headroom(jobs)
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
        nodes, views = cluster.snapshot.nodes.by_weight, cluster.views
        # For each node with elements, their trainers (by array).
        self._owners: dict[str, tuple[int, ...]] = {}
        for view in views:
            for node in view.running().values():
                if node in cluster.snapshot.in_holes:
                    self._owners[node] = *self._owners.get(node, ()), view.array
        idle = in_holes_without(cluster.snapshot, views, Phase.RUNNING)
        idle -= cluster.unhandled_nodes
        self._idle, self._harvested = Fit(nodes, idle), Fit(nodes, self._owners.keys())
        self._asleep = Fit(nodes, cluster.snapshot.powered_down)
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
        awake = len(idle) + len(ours)
        asleep = list(free(self._asleep, self.kept)) if awake < most else []
        found = min(most, awake + len(asleep)) // job.nodes * job.nodes
        nodes = idle[:found] + self._cheapest(ours, min(len(ours), max(0, found - len(idle))))
        return nodes + asleep[: found - len(nodes)]

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
