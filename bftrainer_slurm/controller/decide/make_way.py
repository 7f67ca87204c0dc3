"""Which GPUs ordinary jobs shall find free where they share nodes with trainers. Pure.

Jobs get the GPUs that they would get if there were no trainers: in the order of their priority, on
the first nodes in Slurm's order that have enough. So trainers do not scatter ordinary jobs over
more nodes, and what is left for a large job is the same. Elements leave where jobs need their GPUs.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from itertools import islice

from bftrainer_slurm.controller.decide.claims import Claims, Wanted
from bftrainer_slurm.controller.state.passes import Fit
from bftrainer_slurm.controller.state.phases import Phase
from bftrainer_slurm.controller.state.picture import Picture
from bftrainer_slurm.model import ElementId, WaitingJob


def make_way(jobs: Iterable[WaitingJob], picture: Picture) -> Wanted:
    """Return what jobs, in the order of their priority, would get if there were no trainers.

    A job that cannot start on so many nodes gets nothing: it waits for other jobs to end.
    """
    packing = _Packing(picture)
    for job in jobs:
        packing.serve(job)
    kept, holes = +packing.kept, picture.snapshot.in_holes
    # Who starts on an idle node may want all of it: it is left alone until the job is there.
    idle = frozenset(node for node in kept if node in holes and not packing.held.get(node))
    return Wanted(idle=idle, gpus=kept, elements=frozenset(packing.leave))


class _Packing:
    """Gives one job after the other its GPUs. A node without GPUs to share counts as one GPU."""

    def __init__(self, picture: Picture) -> None:
        snapshot = picture.snapshot
        self._shared = snapshot.shared
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
            gpus = view.trainer.element_gpus
            for id_, place in view.running().items():
                if place.node in names:
                    mine = gpus.get(id_, 0) or self._size[place.node]
                    self.held.setdefault(place.node, {})[id_] = mine
            self._spare[view.array] = len(view.placed) - view.trainer.record.min_nodes
            for _, one in view.within(Phase.SUSPENDED):  # it has its GPUs, and does not leave
                if one.node in self._free:
                    mine = view.trainer.demands.gpus or self._size[one.node]
                    self._free[one.node] = max(0, self._free[one.node] - mine)
        self._claims = Claims(snapshot)
        self.kept = Counter[str]()
        self.leave: set[ElementId] = set()
        self._in_vain: set[tuple[object, ...]] = set()  # there are only fewer GPUs for later ones

    def serve(self, job: WaitingJob) -> None:
        """Choose GPUs for all tasks that wait in this record, as far as there are enough."""
        fitting = (job.partition, job.constraint, job.excluded, job.minutes)
        asks = (*fitting, job.nodes, job.gpus)
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
            self._claims.add(job, whole)
            if not served and self._claims.is_due(job):
                self._take(job, [node for node in job.expected_nodes if node in self._size])

    def _needs(self, job: WaitingJob, node: str) -> int:
        """GPUs of a node."""
        return job.gpus if job.gpus and node in self._shared else self._size.get(node, 1)

    def _nodes_for(self, job: WaitingJob) -> list[str]:
        in_time = self._claims.in_time(job)
        fits = (
            node
            for node in self._fit.nodes_for(job)
            if self._needs(job, node) <= self._free[node] - self.kept[node]
            and in_time(node)
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
