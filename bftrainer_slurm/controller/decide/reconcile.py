"""Compares the observed and the planned state, and returns the actions that bring them together.

Pure. ``state.phases`` explains the phases of elements.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Set
from itertools import islice

from bftrainer_slurm.controller.decide.actions import (
    Action,
    Cancel,
    Grow,
    Hold,
    Label,
    Revive,
    Shrink,
    Trim,
    elements_of,
)
from bftrainer_slurm.controller.decide.available import limits_at_start
from bftrainer_slurm.controller.decide.eligibility import asks_of
from bftrainer_slurm.controller.observe.snapshot import Snapshot
from bftrainer_slurm.controller.settings import Settings
from bftrainer_slurm.controller.state.bad_nodes import Bar
from bftrainer_slurm.controller.state.cluster import ClusterView
from bftrainer_slurm.controller.state.phases import BROKEN, OCCUPIES, Phase
from bftrainer_slurm.controller.state.trainer_state import is_blocked
from bftrainer_slurm.controller.state.view import TrainerView
from bftrainer_slurm.model import ElementId, ElementState, Part, TimeLimit
from bftrainer_slurm.planner.problem import Plan
from bftrainer_slurm.spec import format_comment, with_own_comment

_FINISH_TIMEOUT_S = 300.0  # an elastic agent waits this long at its exit barrier
_CANCEL_AGAIN_S = 60.0
# A released element that has not started is held again after this time, or after three backfill
# passes if these take longer.
_START_TIMEOUT_S = 90.0
_MOST_LEFT = 64  # if a finished trainer has more unused elements, its array is not completed
_A_MINUTE = TimeLimit(1, 1)
_NO_ROOM = "other trainers leave it too few cores or too little memory"
SOON_OFF = "Slurm may switch its node off soon (keep_awake_s)"
_CAN_START = (ElementState.HELD, ElementState.DELAYED)
_WAITS_OR_RUNS = (
    *(Phase.WITHHELD, Phase.ASTRAY, Phase.RELEASED),
    *(Phase.RUNNING, Phase.SUSPENDED),
)


def maintain(
    view: TrainerView, snapshot: Snapshot, soon_off: Set[str] = frozenset()
) -> list[Action]:
    """Return the actions that a trainer's elements need, whatever the plan says.

    Elements that start on nodes that Slurm switches off would wake these.
    """
    if (anchor := view.trainer.anchor) is not None and view.all_ended:
        if _has_time(view, snapshot.time_s) and _where_it_ended(view):
            return []  # ``complete`` lets the anchor end successfully too
        return [Trim((anchor.id,), "all others of its array have ended")]
    if view.abandoned:
        return [Cancel(view.spare, "cancelled by its owner")] if view.spare else []
    if view.over and (cancel := _end(view, snapshot.time_s)):
        return cancel
    actions = _holds(view, snapshot, soon_off)
    if anchor is not None and anchor.state in (ElementState.PENDING, ElementState.DELAYED):
        actions.append(Hold((anchor.id,), "it must never start"))
    if anchor is not None and anchor.state is ElementState.RUNNING:
        actions.append(Shrink((anchor.id,), "it must never start"))
    if view.trainer.overwritten and not view.over:
        every = (*view.trainer.elements, *([anchor] if anchor else ()))
        if live := tuple(one.id for one in every if not one.state.over):
            record = format_comment(view.trainer.record)
            actions.append(Label(live, with_own_comment(record, view.trainer.comment)))
    running = set(view.ids(Phase.RUNNING))
    if strays := tuple(id_ for id_ in view.surplus if id_ in running):
        actions.append(Shrink(strays, "another element has its node"))
    broken = tuple(id_ for id_, one in view.within(*BROKEN) if not one.mute or one.blamed)
    if broken and not view.over:
        actions.append(Revive(broken, "failed"))
    return actions


def _holds(view: TrainerView, snapshot: Snapshot, soon_off: Set[str]) -> list[Action]:
    """Hold pending elements that should not start; each gets one reason."""
    released = dict(view.within(Phase.RELEASED))
    off = (id_ for id_, one in released.items() if one.targets & soon_off)
    why = dict.fromkeys(off, SOON_OFF)
    why |= dict.fromkeys(_late(view, snapshot), "it has not started")
    taken = set(view.surplus).union(_without_room(view, snapshot))
    why |= dict.fromkeys(released.keys() & taken, "its node is taken")
    blocked = (id_ for id_, record in released.items() if is_blocked(record.reason))
    why |= dict.fromkeys(blocked, "Slurm does not start it there")
    if view.over:
        before = (id_ for id_, one in released.items() if one.since_s <= view.state.finished_s)
        why |= dict.fromkeys(before, "the training has finished")
    why |= dict.fromkeys(view.ids(Phase.ASTRAY), "it was released by somebody else")
    return [
        Hold(tuple(sorted(id_ for id_ in why if why[id_] == reason)), reason)
        for reason in dict.fromkeys(why.values())
    ]


def _without_room(view: TrainerView, snapshot: Snapshot) -> list[ElementId]:
    """Return the elements whose parts no longer fit beside the ordinary jobs on their nodes."""
    gpus = view.trainer.element_gpus
    return [
        id_
        for id_, node in view.placed.items()
        if view.gpus
        and (one := snapshot.shared.get(node)) is not None
        and one.free.gpus < gpus.get(id_, 0)
    ]


def late_nodes(view: TrainerView, snapshot: Snapshot) -> list[str]:
    """Return the nodes on which released elements have not started in time, though tried."""
    if not snapshot.tries_all:
        return []
    late = _late(view, snapshot)
    return [view.placed[id_] for id_ in late if id_ in view.placed]


def _late(view: TrainerView, snapshot: Snapshot) -> list[ElementId]:
    """Return the released elements that have not started in time.

    While a large job waits, only backfill passes start elements, and one may skip them.
    """
    patience_s = max(_START_TIMEOUT_S, 3 * (snapshot.configuration.backfill_s or 0.0))
    last_s = snapshot.time_s - patience_s
    return [id_ for id_, record in view.within(Phase.RELEASED) if record.since_s < last_s]


def end_asked(view: TrainerView) -> list[Shrink]:
    """End elements that were asked to leave and still run: they have stopped training."""
    asked = {id_ for id_ in view.running() if view.state.of(id_.task).asked}
    return end(view, asked, "it was asked to leave")


def end_cut(view: TrainerView) -> list[Shrink]:
    """End elements that the keeper does not hear while others wait: they might train on."""
    cut = {id_ for id_ in view.running() if view.state.of(id_.task).cut}
    return end(view, cut, "the keeper does not hear it, and others wait for it")


def end_mute(view: TrainerView) -> list[Shrink]:
    """End elements that have no guard, because our plugin is not loaded on their nodes."""
    records = ((id_, view.state.of(id_.task)) for id_ in view.running())
    mute = {id_ for id_, record in records if record.mute and record.blamed}
    return end(view, mute, "it has never reported that it is up")


def leave(view: TrainerView, nodes: Set[str], why: str) -> list[Shrink]:
    """End a trainer's elements on these nodes."""
    return end(view, {id_ for id_, node in view.running().items() if node in nodes}, why)


def end(view: TrainerView, these: Set[ElementId], why: str) -> list[Shrink]:
    """End those of these elements that belong to the trainer and run."""
    mine = tuple(id_ for id_ in view.running() if id_ in these) if these else ()
    return [Shrink(mine, why)] if mine else []


class Room:
    """What is left of each node while the elements of this turn take their places.

    ``free`` are the units that elements can have now, by node.
    """

    def __init__(self, cluster: ClusterView, free: Mapping[str, int]) -> None:
        self._snapshot = snapshot = cluster.snapshot
        self._units = dict(free)
        shared = snapshot.shared
        self._left = {name: shared[name].left for name in free if name in shared}
        for view in cluster.views if shared else ():
            occupies = set(view.ids(*OCCUPIES))
            for id_, node in view.placed.items() if view.gpus else ():
                if id_ not in occupies:  # it has not started yet
                    self._take(node, 0, self._asks(view))

    def take(
        self, view: TrainerView, nodes: Iterable[str], elements: Iterable[ElementId]
    ) -> set[str]:
        """Take room for one element on each of these nodes that has it; return the nodes.

        It may be any of them, so it takes as much as the largest.
        """
        own, taken = view.nodes, set[str]()
        fit = (node for node in sorted(nodes) if node not in own and self.has(view, node))
        for _, node in zip(elements, fit, strict=False):
            self._take(node, self._most(view, node), self._asks(view))
            taken.add(node)
        return taken

    def has(self, view: TrainerView, node: str) -> bool:
        """Whether another element fits on this node now."""
        if not self.has_units(view, node):
            return False
        if not view.gpus:
            return node in self._snapshot.in_holes
        return node in self._left and self._asks(view).within(self._left[node])

    def has_units(self, view: TrainerView, node: str) -> bool:
        """Whether the units of another element are free on this node now."""
        return self._most(view, node) <= self._units.get(node, 0)

    def _most(self, view: TrainerView, node: str) -> int:
        """Return the most units that an element takes of a node."""
        if not view.gpus:
            return self._snapshot.units(node)
        asked = view.trainer.element_gpus
        return max((asked.get(id_, 0) for id_ in view.spare), default=view.gpus)

    def _asks(self, view: TrainerView) -> Part:
        """Return what an element takes of its node besides units."""
        asks = asks_of(view.trainer, self._snapshot.configuration)
        return Part(0, asks.cpus, asks.memory_mb)

    def _take(self, node: str, units: int, part: Part) -> None:
        if node in self._units:
            self._units[node] -= units
        if node in self._left:
            self._left[node] = self._left[node].less(part)


def without_room(views: Iterable[TrainerView], plan: Plan, room: Room) -> Iterator[Bar]:
    """Yield bars for nodes where planned parts fit by units, but not by memory or processors.

    The plan counts units only. Such a part waits.
    """
    for view in views:
        target = plan.assignment.get(str(view.array)) if view.gpus else None
        if target and view.spare:
            for node in sorted(target - view.nodes):
                if room.has_units(view, node) and not room.has(view, node):
                    yield Bar(_NO_ROOM, frozenset({node}), view.array)


def moves_towards(
    view: TrainerView,
    plan: Plan,
    room: Room,
    snapshot: Snapshot,
    settings: Settings,
) -> list[Action]:
    """Return the moves of a trainer towards the plan that are possible now.

    A node where there is no ``room``, because another trainer still has it, is used in a later
    turn. Elements with parts of nodes are released one by one: Slurm could put two of them on one
    node.
    """
    target = plan.assignment.get(str(view.array))
    if target is None:
        return []
    leaving = [id_ for id_, node in view.placed.items() if node not in target]
    running = view.running()
    started = tuple(id_ for id_ in leaving if id_ in running)
    waiting = tuple(id_ for id_ in leaving if id_ not in running)
    actions: list[Action] = []
    if started:
        actions.append(Shrink(started, "the plan gives its nodes to others"))
    if waiting:
        actions.append(Hold(waiting, "the plan gives its node to others"))
    spare, first = iter(view.spare), not view.live
    excluded = view.trainer.demands.excluded
    goals = sorted(room.take(view, target, view.spare))
    limits = limits_at_start(goals, view.trainer.record.minutes, snapshot, settings)
    starts = ((limit, onto) for limit, nodes in limits.items() for onto in _at_once(view, nodes))
    for limit, onto in starts:
        elements = tuple(islice(spare, len(onto)))
        others, new = snapshot.all_nodes - onto, first and not view.state.begun
        actions.append(Grow(elements, onto, others, first, limit, excluded, new=new))
        first = False
    return actions


def _at_once(view: TrainerView, nodes: frozenset[str]) -> list[frozenset[str]]:
    """Split nodes into groups; one request may start elements on all nodes of a group."""
    return [frozenset({node}) for node in sorted(nodes)] if view.gpus else [nodes]


def complete(view: TrainerView, room: Room, snapshot: Snapshot) -> list[Grow]:
    """Release the unused elements of a finished trainer: they end at once with success.

    Slurm counts an array as completed, for ``--dependency=afterok``, only if all its tasks ran and
    succeeded. They start on nodes where the trainer's other elements ended, if there is ``room``.
    """
    if not view.finishing or view.abandoned or view.state.cancelled_s > view.state.finished_s:
        return []
    left, anchor = view.spare, view.trainer.anchor
    if view.all_ended and anchor is not None and anchor.state in _CAN_START:
        left = (anchor.id,)
    had = (node for node in _where_it_ended(view) if node is not None)
    nodes = frozenset(room.take(view, had, left))
    if not nodes:
        return []
    these, excluded = iter(left), view.trainer.demands.excluded
    return [
        Grow(
            *(tuple(islice(these, len(onto))), onto, snapshot.all_nodes - onto),
            *(False, _A_MINUTE, excluded),
            finished=True,
        )
        for onto in _at_once(view, nodes)
    ]


def _has_time(view: TrainerView, now_s: float) -> bool:
    """Whether the remaining elements of a finished trainer may still end by themselves."""
    return view.finishing and now_s - view.state.finished_s < _FINISH_TIMEOUT_S


def _where_it_ended(view: TrainerView) -> set[str | None]:
    """Return the nodes on which elements ended successfully.

    Empty if an element ended otherwise, or too many are unused: then the array cannot be completed.
    """
    ended = [one for one in view.trainer.elements if one.state.over]
    well = all(one.state is ElementState.COMPLETED for one in ended)
    return {one.node for one in ended} if well and len(view.spare) <= _MOST_LEFT else set()


def hold_reclaimed(view: TrainerView, actions: Collection[Action]) -> list[Action]:
    """Hold reclaimed elements that no move uses, before Slurm starts them by itself."""
    if view.over and not view.finishing:
        return []
    used = set(elements_of(Grow, actions))
    left = tuple(id_ for id_ in view.ids(Phase.RECLAIMED) if id_ not in used)
    return [Hold(left, "it would start by itself")] if left else []


def _end(view: TrainerView, now_s: float) -> list[Action]:
    """Cancel the remaining elements of a trainer that is over; running ones get time to end."""
    if _has_time(view, now_s) and (view.live or (view.spare and _where_it_ended(view))):
        return []
    left = view.spare or view.ids(*_WAITS_OR_RUNS)
    if now_s - view.state.cancelled_s < _CANCEL_AGAIN_S or not left:
        return []
    assert view.state.over is not None
    return [Cancel(left, view.state.over)]
