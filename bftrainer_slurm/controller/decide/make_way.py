"""Which GPUs ordinary jobs shall find free where they share nodes with trainers. Pure.

Jobs get the GPUs that they would get if there were no trainers: in the order of their priority, on
the first nodes in Slurm's order that have enough. So trainers do not scatter ordinary jobs over
more nodes, and what is left for a large job is the same. Elements leave where jobs need their GPUs.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from itertools import islice

from bftrainer_slurm.controller.state.passes import Fit
from bftrainer_slurm.controller.state.phases import Phase
from bftrainer_slurm.controller.state.picture import Picture
from bftrainer_slurm.model import ElementId, WaitingJob

_RESOLUTION_S = 60.0  # Slurm's bf_resolution: starts are planned for whole minutes
_PLANNED_S = 5.0  # how long before a planned start its GPUs are free


@dataclass(frozen=True, slots=True)
class Way:
    """GPUs of each node for jobs that no pass has judged, and the elements that leave for them.

    Of the nodes without ordinary jobs, the ``idle`` ones have no other elements.
    """

    gpus: Mapping[str, int]
    idle: frozenset[str]
    leave: frozenset[ElementId]


def way_for(jobs: Iterable[WaitingJob], picture: Picture) -> Way:
    """Return what jobs, in the order of their priority, would get if there were no trainers.

    A job that cannot start on so many nodes gets nothing: it waits for other jobs to end.
    """
    packing = _Packing(picture)
    for job in jobs:
        packing.serve(job)
    kept, holes = +packing.kept, picture.snapshot.in_holes
    idle = frozenset(node for node in kept if node in holes and not packing.held.get(node))
    return Way(kept, idle, frozenset(packing.leave))


class _Packing:
    """Gives one job after the other its GPUs. A node without GPUs to share counts as one GPU."""

    def __init__(self, picture: Picture) -> None:
        snapshot = picture.snapshot
        self._now_s, self._shared = picture.now_s, snapshot.shared
        names = snapshot.in_service - picture.out_of_reach
        self._fit = Fit(snapshot.by_weight, names)
        self._size = {
            node: self._shared[node].gpus if node in self._shared else 1 for node in names
        }
        self._free = {
            node: self._shared[node].free
            if node in self._shared
            else int(node in snapshot.in_holes)
            for node in names
        }
        self._holes = snapshot.in_holes
        self.held: dict[str, dict[ElementId, int]] = {}
        self._spare: dict[int, int] = {}
        for view in picture.views:
            gpus = {one.id: one.gpus for one in view.trainer.elements}
            for id_, place in view.running().items():
                if place.node in names:
                    mine = gpus.get(id_, 0) or self._size[place.node]
                    self.held.setdefault(place.node, {})[id_] = mine
            self._spare[view.array] = len(view.placed) - view.trainer.record.min_nodes
            for _, one in view.within(Phase.SUSPENDED):  # it has its GPUs, and does not leave
                if one.node in self._free:
                    mine = view.trainer.demands.gpus or self._size[one.node]
                    self._free[one.node] = max(0, self._free[one.node] - mine)
        # From when on a node belongs to a job that comes before the present one.
        self._until_s: dict[str, float] = {}
        for node, reservation in snapshot.reserved.items():
            self._claim((node,), reservation.start_s)
        self.kept = Counter[str]()
        self.leave: set[ElementId] = set()
        self._in_vain: set[tuple[object, ...]] = set()  # there are only fewer GPUs for later ones

    def serve(self, job: WaitingJob) -> None:
        """Choose GPUs for all tasks that wait in this record, as far as there are enough."""
        planned_s = math.inf if job.expected_start_s is None else job.expected_start_s
        asks = (
            *(job.partition, job.constraint, job.excluded, job.minutes),
            *(job.nodes, job.gpus),
        )
        served = 0
        while served < job.count and asks not in self._in_vain:
            nodes = self._nodes_for(job)
            if not nodes:
                self._in_vain.add(asks)
                break
            self._take(job, nodes)
            served += 1
        if served < job.count:
            whole = (
                node
                for node in job.expected_nodes
                if self._needs(job, node) == self._size.get(node)
            )
            self._claim(whole, planned_s)
            if not served and planned_s <= self._now_s + _PLANNED_S:
                self._take(job, [node for node in job.expected_nodes if node in self._size])

    def _needs(self, job: WaitingJob, node: str) -> int:
        """GPUs of a node."""
        return job.gpus if job.gpus and node in self._shared else self._size.get(node, 1)

    def _nodes_for(self, job: WaitingJob) -> list[str]:
        ends_s = math.inf if job.minutes is None else self._now_s + 60.0 * job.minutes
        fits = (
            node
            for node in self._fit.nodes_for(job)
            if self._needs(job, node) <= self._free[node] - self.kept[node]
            and ends_s <= self._until_s.get(node, math.inf)
            and (job.gpus or node in self._holes)
        )
        nodes = list(islice(fits, job.nodes))
        return nodes if len(nodes) == job.nodes else []

    def _take(self, job: WaitingJob, nodes: Iterable[str]) -> None:
        for node in nodes:
            self.kept[node] += self._needs(job, node)
            held = self.held.get(node, {})
            over = sum(held.values()) - max(0, self._free[node] - self.kept[node])
            while over > 0:
                element = self._first_to_leave(held, over)
                over -= held.pop(element)
                self._spare[element.array] -= 1
                self.leave.add(element)

    def _first_to_leave(self, held: Mapping[ElementId, int], over: int) -> ElementId:
        """The smallest that alone gives enough, else the largest; of equals, who can spare it."""

        def cost(id_: ElementId) -> tuple[bool, int, int, ElementId]:
            enough = held[id_] >= over
            return (not enough, held[id_] if enough else -held[id_], -self._spare[id_.array], id_)

        return min(held, key=cost)

    def _claim(self, nodes: Iterable[str], start_s: float) -> None:
        whole_s = start_s if math.isinf(start_s) else start_s // _RESOLUTION_S * _RESOLUTION_S
        for node in nodes:
            self._until_s[node] = min(whole_s, self._until_s.get(node, math.inf))
