"""Parts of shared nodes: what the plan may allocate, and what is left as elements start. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Container, Iterable, Iterator, Mapping

from bftrainer_slurm.controller.decide.actions import Shrink
from bftrainer_slurm.controller.decide.available import give_up
from bftrainer_slurm.controller.decide.eligibility import asks_of
from bftrainer_slurm.controller.observe.shared_nodes import SharedNode
from bftrainer_slurm.controller.observe.snapshot import Snapshot
from bftrainer_slurm.controller.state.bad_nodes import Bar
from bftrainer_slurm.controller.state.cluster import ClusterView
from bftrainer_slurm.controller.state.phases import OCCUPIES
from bftrainer_slurm.controller.state.view import TrainerView
from bftrainer_slurm.model import ElementId, Part, Resources
from bftrainer_slurm.planner.problem import Plan

_NO_ROOM = "other trainers leave it too few cores or too little memory"


def offered(
    cluster: ClusterView,
    planned: Iterable[TrainerView],
    whole: frozenset[str],
    off: Container[str],
) -> dict[str, int]:
    """Return how many GPUs of each shared node the ``planned`` trainers may have together.

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
        for node, gpus in _held(view, snapshot):
            kept[node] += gpus if view.array not in theirs else 0
        mine_mb = asks_of(view.trainer, snapshot.configuration).memory_mb
        for node in _occupied(view).values():  # one that has not started has no memory there yet
            memory_mb[node] = memory_mb.get(node, 0.0) + mine_mb
        for node in view.nodes if view.array in theirs else ():
            held[node] += view.gpus or _all(node, snapshot)
    least = _least(planned, snapshot)
    out: dict[str, int] = {}
    for node, one in snapshot.shared.items():
        idle = node in snapshot.in_holes and not held[node] and not kept[node]
        alone = idle and node not in cluster.kept
        grows = node in snapshot.in_service and (node in whole if alone else node not in off)
        usable = _usable(one, memory_mb.get(node, 0.0), least)
        left = usable - kept[node] - cluster.kept_gpus.get(node, 0)
        free = max(held[node], left if grows else 0)
        if free:
            out[node] = free
    _reserve(out, held, cluster)
    return out


def _reserve(out: dict[str, int], held: Mapping[str, int], cluster: ClusterView) -> None:
    """Subtract the reserve from unused GPUs, on as few nodes as possible."""
    gpus = cluster.reserve_gpus
    for node in sorted(out, key=lambda one: (held.get(one, 0) - out[one], one)):
        cut = min(gpus, out[node] - held.get(node, 0))
        gpus -= cut
        out[node] -= cut
        if not out[node]:
            del out[node]


def refill_gpus(cluster: ClusterView) -> list[Shrink]:
    """Return the elements that leave if too few GPUs of shared nodes are free for the reserve.

    Elements on the nodes with most free GPUs leave first. No trainer shrinks below its least size.
    """
    snapshot, taken = cluster.snapshot, Counter[str](cluster.kept_gpus)
    held: dict[str, dict[ElementId, int]] = {}
    for view in cluster.views:
        has = view.trainer.element_gpus
        for id_, node in view.placed.items():
            taken[node] += has.get(id_, 0) or _all(node, snapshot)
        for id_, node in view.running().items() if view.gpus else ():
            held.setdefault(node, {})[id_] = has.get(id_, 0)
    nodes = snapshot.shared.keys() & snapshot.in_service
    free = {node: max(0, snapshot.shared[node].free_gpus - taken[node]) for node in nodes}
    missing = cluster.reserve_gpus - sum(free.values())
    going = (
        element
        for node in sorted(free, key=lambda one: (-free[one], one))
        for element in sorted(held.get(node, {}).items(), key=lambda one: (-one[1], one[0]))
    )
    return give_up(cluster.views, going, missing, "its GPUs are kept for ordinary jobs")


def _usable(one: SharedNode, memory_mb: float, least: Resources) -> int:
    """Return how many GPUs elements can use: each GPU needs processors and memory too.

    ``memory_mb`` is what elements have there; ``least`` is the least that any takes with a GPU.
    """
    by_memory = (one.memory_mb + memory_mb) / least.memory_mb if least.memory_mb else one.gpus
    return min(one.free_gpus, one.free_cpus // max(1, least.cpus), int(by_memory))


def _least(planned: Iterable[TrainerView], snapshot: Snapshot) -> Resources:
    """Return the least memory and processors that any trainer's element takes with a GPU."""
    parts = [
        (asks_of(view.trainer, snapshot.configuration), view.gpus) for view in planned if view.gpus
    ]
    return Resources(
        min((asks.memory_mb / gpus for asks, gpus in parts), default=0.0),
        min((asks.cpus // gpus for asks, gpus in parts), default=0),
    )


def _held(view: TrainerView, snapshot: Snapshot) -> Iterator[tuple[str, int]]:
    """Yield the nodes that a trainer's elements have or start on, and the GPUs on each."""
    gpus = view.trainer.element_gpus
    for id_, node in {**view.placed, **_occupied(view)}.items():
        yield node, gpus.get(id_, 0) or _all(node, snapshot)


def _occupied(view: TrainerView) -> dict[ElementId, str]:
    return {id_: one.node for id_, one in view.within(*OCCUPIES) if one.node is not None}


def _all(node: str, snapshot: Snapshot) -> int:
    one = snapshot.shared.get(node)
    return 0 if one is None else one.gpus


class Room:
    """What is left of each shared node while the elements of this turn take their parts."""

    def __init__(self, cluster: ClusterView, off: Container[str]) -> None:
        self._snapshot, kept = cluster.snapshot, cluster.kept_gpus
        self._left = {
            name: Part(one.free_gpus - kept.get(name, 0), one.cpus, one.memory_mb)
            for name, one in cluster.snapshot.shared.items()
            if name not in off and name in cluster.snapshot.in_service
        }
        if not self._left:
            return
        for view in cluster.views:
            for node, gpus in _held(view, cluster.snapshot):
                self._take(node, Part(gpus, 0))
            occupies, part = set(view.ids(*OCCUPIES)), self._part(view, 0)
            for id_, node in view.placed.items() if view.gpus else ():
                if id_ not in occupies:  # it has not started yet
                    self._take(node, part)

    def take(self, view: TrainerView, nodes: Iterable[str]) -> set[str]:
        """Take a part on each of these nodes that has room for an element; return the nodes."""
        asked, own = view.trainer.element_gpus, view.nodes
        fit = [one for one in sorted(nodes) if one not in own and self.has(view, one)]
        for node, id_ in zip(fit, view.spare, strict=False):
            self._take(node, self._part(view, asked.get(id_, 0)))
        return set(fit[: len(view.spare)])

    def has(self, view: TrainerView, node: str) -> bool:
        """Whether another element fits on this node now."""
        return self.has_gpus(view, node) and self._part(view, 0).within(self._left[node])

    def has_gpus(self, view: TrainerView, node: str) -> bool:
        """Whether another element's GPUs are free on this node now."""
        asked = view.trainer.element_gpus
        most = max((asked.get(id_, 0) for id_ in view.spare), default=0)
        return node in self._left and most <= self._left[node].gpus

    def _part(self, view: TrainerView, gpus: int) -> Part:
        """Return what an element takes of its node with these GPUs."""
        asks = asks_of(view.trainer, self._snapshot.configuration)
        return Part(gpus, asks.cpus, asks.memory_mb)

    def _take(self, node: str, part: Part) -> None:
        if node in self._left:
            self._left[node] = self._left[node].less(part)


def without_room(views: Iterable[TrainerView], plan: Plan, room: Room) -> Iterator[Bar]:
    """Yield bars for nodes where planned parts fit by GPUs, but not by memory or processors.

    The plan counts GPUs only. Such a part waits.
    """
    for view in views:
        target = plan.assignment.get(str(view.array))
        if target and view.spare:
            for node in sorted(target - view.nodes):
                if room.has_gpus(view, node) and not room.has(view, node):
                    yield Bar(_NO_ROOM, frozenset({node}), view.array)
