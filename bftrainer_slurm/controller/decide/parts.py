"""Parts of shared nodes: what the plan may allocate, and what is left as elements start. Pure.

Everything is counted in units: the GPUs of a node, or its cores if it has no GPUs.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Container, Iterable, Iterator, Mapping

from bftrainer_slurm.controller.decide.actions import Shrink
from bftrainer_slurm.controller.decide.available import give_up
from bftrainer_slurm.controller.decide.eligibility import asks_of
from bftrainer_slurm.controller.decide.reconcile import gpus_to_take
from bftrainer_slurm.controller.observe.shared_nodes import SharedNode
from bftrainer_slurm.controller.observe.snapshot import Snapshot
from bftrainer_slurm.controller.state.bad_nodes import Bar
from bftrainer_slurm.controller.state.cluster import ClusterView
from bftrainer_slurm.controller.state.phases import OCCUPIES
from bftrainer_slurm.controller.state.view import TrainerView
from bftrainer_slurm.model import CORE, GPU, ElementId, Place, Resources, nodes_of
from bftrainer_slurm.planner.problem import Plan

_NO_ROOM = "other trainers leave it too few cores or too little memory"


def offered(
    cluster: ClusterView,
    planned: Iterable[TrainerView],
    whole: frozenset[str],
    off: Container[str],
) -> dict[str, int]:
    """Return how many units of each shared node the ``planned`` trainers may have together.

    ``whole`` are idle nodes that a trainer may have as whole nodes. No element may start on nodes
    ``off``, but trainers keep what they have there. If an idle node is kept for a job, trainers may
    have the rest of it: they start in the same pass, which starts the job first.
    """
    snapshot = cluster.snapshot
    if not snapshot.shared:
        return {}
    planned = tuple(planned)
    theirs = {view.array for view in planned}
    held, kept, memory_mb = Counter[str](), Counter[str](), dict[str, float]()
    for view in cluster.views:
        for node, units in _held(view, snapshot):
            kept[node] += units if view.array not in theirs else 0
        mine_mb = _takes(view, snapshot).memory_mb
        for node in _occupied(view).values():  # one that has not started has no memory there yet
            memory_mb[node] = memory_mb.get(node, 0.0) + mine_mb
        for place in view.places if view.array in theirs else ():
            held[place.node] += view.units or _all(place.node, snapshot)
    least = {unit: _least(planned, snapshot, unit) for unit in (GPU, CORE)}
    out: dict[str, int] = {}
    for node, one in snapshot.shared.items():
        idle = node in snapshot.in_holes and not held[node] and not kept[node]
        alone = idle and node not in cluster.kept
        grows = node in snapshot.in_service and (node in whole if alone else node not in off)
        usable = _usable(one, memory_mb.get(node, 0.0), least[one.unit])
        left = usable - kept[node] - cluster.kept_units.get(node, 0)
        free = max(held[node], left if grows else 0)
        if free:
            out[node] = free
    _reserve(out, held, cluster)
    return out


def _reserve(out: dict[str, int], held: Mapping[str, int], cluster: ClusterView) -> None:
    """Subtract the reserve of GPUs from unused units, on as few nodes as possible."""
    gpus, shared = cluster.reserve_gpus, cluster.snapshot.shared
    having = (node for node in out if shared[node].gpus)
    for node in sorted(having, key=lambda one: (held.get(one, 0) - out[one], one)):
        cut = min(gpus, out[node] - held.get(node, 0))
        gpus -= cut
        out[node] -= cut
        if not out[node]:
            del out[node]


def refill_gpus(cluster: ClusterView) -> list[Shrink]:
    """Return the elements that leave if too few GPUs of shared nodes are free for the reserve.

    Elements on the nodes with most free GPUs leave first. No trainer shrinks below its least size.
    """
    snapshot, taken = cluster.snapshot, Counter[str](cluster.kept_units)
    held: dict[str, dict[ElementId, int]] = {}
    for view in cluster.views:
        has = view.trainer.element_units
        for id_, place in view.placed.items():
            taken[place.node] += has.get(id_, 0) or _all(place.node, snapshot)
        for id_, place in view.running().items():
            if place.trainer:
                held.setdefault(place.node, {})[id_] = has.get(id_, 0)
    nodes = (one for one, has in snapshot.shared.items() if has.gpus and one in snapshot.in_service)
    free = {node: max(0, snapshot.shared[node].free - taken[node]) for node in nodes}
    missing = cluster.reserve_gpus - sum(free.values())
    going = (
        element
        for node in sorted(free, key=lambda one: (-free[one], one))
        for element in sorted(held.get(node, {}).items(), key=lambda one: (-one[1], one[0]))
    )
    return give_up(cluster.views, going, missing, "its GPUs are kept for ordinary jobs")


def _usable(one: SharedNode, memory_mb: float, least: Resources) -> int:
    """Return how many units elements can use: each unit needs processors and memory too.

    ``memory_mb`` is what elements have there; ``least`` is the least that any takes with a unit.
    """
    by_memory = (one.memory_mb + memory_mb) / least.memory_mb if least.memory_mb else one.units
    return min(one.free, one.free_cpus // max(1, least.cpus), int(by_memory))


def _least(planned: Iterable[TrainerView], snapshot: Snapshot, unit: str) -> Resources:
    """Return the least memory and processors that any trainer's element takes with a unit."""
    trainers = [one.trainer for one in planned if one.trainer.demands.units]
    parts = [
        (asks_of(one, snapshot.configuration), one.demands.units)
        for one in trainers
        if one.demands.unit == unit
    ]
    return Resources(
        min((asks.memory_mb / units for asks, units in parts), default=0.0),
        min((asks.cpus // units for asks, units in parts), default=0),
    )


def _takes(view: TrainerView, snapshot: Snapshot, gpus: int = 0) -> Resources:
    """Return what an element takes with ``gpus`` GPUs; 0: with as many as others have."""
    gpus = gpus or (view.units if view.choices else 0)
    return asks_of(view.trainer, snapshot.configuration, view.part(gpus))


def _held(view: TrainerView, snapshot: Snapshot) -> Iterator[tuple[str, int]]:
    """Yield the nodes that a trainer's elements have or start on, and the units on each."""
    units = view.trainer.element_units
    nodes = {id_: place.node for id_, place in view.placed.items()}
    nodes |= _occupied(view)
    for id_, node in nodes.items():
        yield node, units.get(id_, 0) or _all(node, snapshot)


def _occupied(view: TrainerView) -> dict[ElementId, str]:
    return {id_: one.node for id_, one in view.within(*OCCUPIES) if one.node is not None}


def _all(node: str, snapshot: Snapshot) -> int:
    one = snapshot.shared.get(node)
    return 0 if one is None else one.units


class Room:
    """What is left of each shared node while the elements of this turn take their parts."""

    def __init__(self, cluster: ClusterView, off: Container[str]) -> None:
        self._snapshot = cluster.snapshot
        self._nodes = {
            name: one
            for name, one in cluster.snapshot.shared.items()
            if name not in off and name in cluster.snapshot.in_service
        }
        self._taken, self._cpus = Counter[str](cluster.kept_units), Counter[str]()
        self._memory_mb = dict.fromkeys(self._nodes, 0.0)
        if not self._nodes:
            return
        for view in cluster.views:
            for node, units in _held(view, cluster.snapshot):
                self._taken[node] += units
            occupies, asks = set(view.ids(*OCCUPIES)), _takes(view, self._snapshot)
            for id_, place in view.placed.items():
                if id_ not in occupies and place.trainer:  # it has not started yet
                    self._take(place.node, 0, asks)

    def places(self, view: TrainerView, nodes: Iterable[str], gpus: int = 0) -> dict[str, Place]:
        """Take a part on each of these nodes that has room for an element; return the places.

        Each element takes ``gpus`` GPUs, or what it asks for if that is 0.
        """
        asked, asks = view.trainer.element_units, _takes(view, self._snapshot, gpus)
        own, found = nodes_of(view.places), dict[str, Place]()
        fit = [one for one in sorted(nodes) if one not in own and self.has(view, one, gpus)]
        for node, id_ in zip(fit, view.spare, strict=False):
            self._take(node, gpus or asked.get(id_, 0), asks)
            found[node] = Place(node, view.array)
        return found

    def has(self, view: TrainerView, node: str, gpus: int = 0) -> bool:
        """Whether another element fits on this node now."""
        if not self.has_units(view, node, gpus):
            return False
        one, asks = self._nodes[node], _takes(view, self._snapshot, gpus)
        return (
            asks.cpus <= one.cpus - self._cpus[node]
            and asks.memory_mb <= one.memory_mb - self._memory_mb[node]
        )

    def has_units(self, view: TrainerView, node: str, gpus: int = 0) -> bool:
        """Whether another element's GPUs or cores are free on this node now."""
        one, asked = self._nodes.get(node), view.trainer.element_units
        most = gpus or max((asked.get(id_, 0) for id_ in view.spare), default=0)
        return one is not None and most <= one.free - self._taken[node]

    def _take(self, node: str, units: int, asks: Resources) -> None:
        self._taken[node] += units
        self._cpus[node] += asks.cpus
        self._memory_mb[node] = self._memory_mb.get(node, 0.0) + asks.memory_mb


def without_room(views: Iterable[TrainerView], plan: Plan, room: Room) -> Iterator[Bar]:
    """Yield bars for nodes where planned parts fit by units, but not by memory or processors.

    The plan counts units only. Such a part waits.
    """
    for view in views:
        target = plan.assignment.get(str(view.array))
        if target and view.spare:
            gpus = gpus_to_take(view, plan)
            for node in sorted(target - nodes_of(view.places)):
                if room.has_units(view, node, gpus) and not room.has(view, node, gpus):
                    yield Bar(_NO_ROOM, frozenset({node}), view.array)
