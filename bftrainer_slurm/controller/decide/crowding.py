"""Shared nodes on which a planned part fits by its GPUs or cores, but not by memory or processors.

The plan counts units only. What does not fit becomes a bar, and the plan is made again.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

from bftrainer_slurm.controller.decide.parts import nodes_held, takes
from bftrainer_slurm.controller.decide.reconcile import gpus_to_take
from bftrainer_slurm.controller.state.bad_nodes import Bar
from bftrainer_slurm.controller.state.cluster import ClusterView
from bftrainer_slurm.controller.state.view import TrainerView
from bftrainer_slurm.model import Resources, nodes_of
from bftrainer_slurm.planner.problem import Plan

_WHY = "other trainers leave it too few cores or too little memory"


class Crowding:
    """Remembers which trainers do not fit on which nodes beside the elements that are there.

    Trainers that start at the same time are not compared: who starts first stays, and the others
    are barred in the next turn.
    """

    def __init__(self) -> None:
        self._asks: dict[tuple[int, str], Resources] = {}  # by trainer's array and node

    def bars(self, cluster: ClusterView) -> tuple[Bar, ...]:
        """Return the present bars; one ends when the trainer fits beside all that is there."""
        if self._asks:
            left = _left(cluster, {node for _, node in self._asks}, lambda *_: True)
            away = {view.array: left.keys() - nodes_held(view).values() for view in cluster.views}
            self._asks = {
                (array, node): asks
                for (array, node), asks in self._asks.items()
                if node in away.get(array, ()) and not _fits(asks, left[node])
            }
        nodes: dict[int, set[str]] = {}
        for array, node in self._asks:
            nodes.setdefault(array, set()).add(node)
        return tuple(Bar(_WHY, frozenset(names), array) for array, names in nodes.items())

    def add(self, cluster: ClusterView, plan: Plan) -> bool:
        """Bar trainers from nodes where they do not fit beside elements that stay in the plan.

        Return whether there are any.
        """
        new = [
            (view, node)
            for view in cluster.views
            if view.trainer.demands.units
            for node in plan.assignment.get(str(view.array), frozenset()) - nodes_of(view.places)
            if node in cluster.snapshot.shared
        ]
        if not new:
            return False

        def stays(view: TrainerView, node: str) -> bool:
            target = plan.assignment.get(str(view.array))
            return target is None or node in target

        left = _left(cluster, {node for _, node in new}, stays)
        found = {
            (view.array, node): asks
            for view, node in new
            for asks in (takes(view, cluster.snapshot, gpus_to_take(view, plan)),)
            if not _fits(asks, left[node])
        }
        self._asks |= found
        return bool(found)


def _fits(asks: Resources, left: Resources) -> bool:
    return asks.cpus <= left.cpus and asks.memory_mb <= left.memory_mb


def _left(
    cluster: ClusterView, nodes: Iterable[str], stays: Callable[[TrainerView, str], bool]
) -> dict[str, Resources]:
    """Return what ordinary jobs and the elements that stay leave of each of these shared nodes."""
    shared = cluster.snapshot.shared
    left = {
        node: Resources(shared[node].free_memory_mb, shared[node].free_cpus)
        for node in nodes
        if node in shared
    }
    for view in cluster.views:
        asks = takes(view, cluster.snapshot)
        for node in nodes_held(view).values():
            if node in left and stays(view, node):
                has = left[node]
                left[node] = Resources(has.memory_mb - asks.memory_mb, has.cpus - asks.cpus)
    return left
