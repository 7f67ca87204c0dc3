"""Decides where elements may start now, and how long they may stay there. Pure.

A bar keeps elements off nodes; those here hold for all trainers. ``eligibility`` makes those of one
trainer, and ``verdicts`` those because of failed elements.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Set
from dataclasses import replace

from bftrainer_slurm.controller.decide.actions import EndAt, Shrink
from bftrainer_slurm.controller.observe.snapshot import Snapshot
from bftrainer_slurm.controller.settings import Settings
from bftrainer_slurm.controller.state.bad_nodes import WENT_WRONG, Bar, bad_for_all
from bftrainer_slurm.controller.state.cluster import ClusterView
from bftrainer_slurm.controller.state.phases import OCCUPIES, VACATES, Phase
from bftrainer_slurm.controller.state.view import TrainerView
from bftrainer_slurm.model import Element, ElementId, TimeLimit

# slurmctld refuses a new reservation of a node if a job's limit there ends after its start.
_LONGEST_S = 3600.0
# Limits end this long before a reservation: slurmctld ends a job up to 30 s after its limit.
_CLEAR_S = 60.0
# If a node's reservation starts sooner than this, an element has less than a minute there.
_SHORTEST_S = _CLEAR_S + 60.0
# Backfill before 26.05 gives an element only the least time that it asks for (--time-min).
_LEAST_MINUTES = 10
# How long Slurm may take to try a released element: a look, a backfill pass and its resolution.
_PASS_S = 120.0
# A limit is renewed when less than this is left, so that the controller may be down that long.
_RENEW_S = 1800.0
_AHEAD_S = 120.0
_MARGIN_S = 30.0  # so long before its limit an element ends, if the limit cannot be lengthened
_SLACK_S = 60.0  # smaller changes of a limit are not worth a request
POWERED_DOWN = "powered down by Slurm; trainers do not wake nodes (wake_nodes)"


def bars_for_all(cluster: ClusterView, settings: Settings) -> Iterator[Bar]:
    """Yield bars for all trainers, on idle and other nodes."""
    now_s, snapshot = cluster.now_s, cluster.snapshot
    bad = bad_for_all(cluster.bad, now_s)
    yield Bar(WENT_WRONG, frozenset(bad), until_s=max(bad.values(), default=now_s))
    soon_s = now_s + settings.min_hole_s
    wanted = frozenset(node for node, start_s in snapshot.wanted_s.items() if start_s < soon_s)
    # A job that has preempted may not do so again for KillWait and MessageTimeout.
    yield Bar("an ordinary job is expected there soon", wanted | cluster.taken)
    slurm = snapshot.configuration
    yields = slurm.told and slurm.preempts and not slurm.exempt_s
    every = frozenset[str]() if yields else frozenset(snapshot.free_units)
    yield Bar("ordinary jobs could not preempt elements", every)
    reserved, first_s = snapshot.reserved.items(), now_s + _SHORTEST_S
    yield Bar("reserved", frozenset(node for node, one in reserved if one.start_s < first_s))
    yield Bar("a trainer may have it that the controller cannot handle", cluster.unhandled_nodes)
    yield Bar(POWERED_DOWN, snapshot.powered_down)
    yield Bar("Slurm may switch it off soon (SuspendTime, keep_awake_s)", cluster.soon_off)


def bars_for_growth(cluster: ClusterView, settings: Settings) -> Iterator[Bar]:
    """Yield bars for nodes that stay idle for ordinary jobs; they count towards the reserve."""
    yield Bar("kept for a waiting job, or for the next one", frozenset(cluster.kept))
    yield just_left(cluster, settings)


def just_left(cluster: ClusterView, settings: Settings) -> Bar:
    """Return a bar for nodes that an ordinary job has just left; it covers parts of them too."""
    rested_s = cluster.now_s - settings.min_idle_s
    fresh = frozenset(node for node, since_s in cluster.since_s.items() if since_s > rested_s)
    return Bar("an ordinary job has just left it (min_idle_s)", fresh)


def nodes_off(bars: Iterable[Bar], array: int | None = None) -> frozenset[str]:
    """Return the nodes that are barred for all trainers, or for this one."""
    return frozenset[str]().union(*(one.nodes for one in bars if one.array in (None, array)))


def bars_on(bars: Iterable[Bar], nodes: frozenset[str]) -> list[Bar]:
    """Return the bars cut down to these nodes; a node may have several bars."""
    found = (replace(one, nodes=one.nodes & nodes) for one in bars if one.nodes)
    return [one for one in found if one.nodes]


def free_units(
    cluster: ClusterView, off: Set[str] = frozenset(), soon: bool = False
) -> dict[str, int]:
    """Return how many units of each node an element can have; nodes ``off`` are barred for all.

    A node that was busy when the nodes were last read counts as idle if no job runs on it now.
    Elements that are leaving, or have no place, still have their units; but if ``soon``, those that
    the controller has ended do not: else the plan would change while its own moves are under way.
    """
    snapshot = cluster.snapshot
    free = {node: units for node, units in snapshot.free_units.items() if node not in off}
    for view in cluster.views:
        records = view.state.elements
        for id_, node, units in held(view, snapshot):
            leaves = soon and (one := records[id_.task]).ours and one.phase in VACATES
            if node in free and not leaves:
                free[node] -= units
    return {node: units for node, units in free.items() if units > 0}


def held(view: TrainerView, snapshot: Snapshot) -> Iterator[tuple[ElementId, str, int]]:
    """Yield the elements that have, or start on, a node; the node, and how many units of it."""
    gpus = view.trainer.element_gpus if view.gpus else {}
    others = ((id_, one.node) for id_, one in view.within(*OCCUPIES) if id_ not in view.placed)
    for id_, node in (*view.placed.items(), *others):
        if node is not None:
            yield id_, node, gpus.get(id_, 0) or snapshot.units(node)


def growable(free: Mapping[str, int], cluster: ClusterView, settings: Settings) -> dict[str, int]:
    """Return how many of the free units of each node trainers may have.

    This leaves out units kept for jobs, nodes in holes for less than ``min_idle_s``, and the
    reserve. The reserve is on as few nodes as possible, and on those that ordinary jobs are
    expected to need soonest.
    """
    fresh = just_left(cluster, settings).nodes
    left = {
        node: units - cluster.kept.get(node, 0) for node, units in free.items() if node not in fresh
    }
    left = {node: units for node, units in left.items() if units > 0}
    short = settings.reserve - (sum(free.values()) - sum(left.values()))
    for node in _most_first(left, left, cluster.life_s) if short > 0 else ():
        cut = min(max(0, short), left[node])
        short -= cut
        left[node] -= cut
    return {node: units for node, units in left.items() if units}


def refill(free: Mapping[str, int], cluster: ClusterView, reserve: int) -> list[Shrink]:
    """Return the elements that leave to refill the reserve after ordinary jobs have used it.

    Those leave first that are on nodes with most free units, or that ordinary jobs need soonest.
    No trainer shrinks below its least size for the reserve. Units that elements are leaving count
    as free.
    """
    missing = reserve - sum(free.values())
    spare = {view.array: view.above_least for view in cluster.views}
    on: dict[str, list[tuple[int, ElementId]]] = {}
    for view in cluster.views:
        for id_, node, units in held(view, cluster.snapshot):
            phase = view.state.of(id_.task).phase
            if phase in VACATES:
                missing -= units
            elif phase is Phase.RUNNING and id_ in view.placed:
                on.setdefault(node, []).append((-units, id_))
    given: dict[int, list[ElementId]] = {}
    nodes = _most_first(on, free, cluster.life_s) if missing > 0 else []
    for less, id_ in (one for node in nodes for one in sorted(on[node])):
        if missing > 0 and spare[id_.array] > 0:
            missing += less
            spare[id_.array] -= 1
            given.setdefault(id_.array, []).append(id_)
    why = "its node is kept for ordinary jobs"
    return [Shrink(tuple(elements), why) for elements in given.values()]


def _most_first(
    nodes: Iterable[str], free: Mapping[str, int], life_s: Mapping[str, float]
) -> list[str]:
    """Sort nodes: those with most free units first, then those that are needed soonest."""
    return sorted(nodes, key=lambda node: (-free.get(node, 0), life_s.get(node, math.inf), node))


def hardware_of(snapshot: Snapshot, settings: Settings) -> dict[str, str]:
    """Return each node's kind of hardware: the first ``hardware`` feature that it has."""
    if not settings.hardware:
        return {}
    return {
        node.name: next((kind for kind in settings.hardware if kind in node.features), "")
        for node in snapshot.nodes
    }


def limits_at_start(
    nodes: Iterable[str], user_minutes: int | None, snapshot: Snapshot, settings: Settings
) -> dict[TimeLimit, frozenset[str]]:
    """Return which limits to ask for when elements of one trainer start on these nodes.

    An operator's controller lengthens limits later. Other controllers cannot, so an element asks
    for at least the whole hole, if Slurm tells its length. ``user_minutes`` is what the trainer's
    user asked for. Nodes where a reservation leaves less than a minute are left out.
    """
    limits: dict[TimeLimit, set[str]] = {}
    for node in nodes:
        limit = _limit(node, user_minutes, snapshot, settings)
        if limit.minutes >= 1:
            limits.setdefault(limit, set()).add(node)
    return {limit: frozenset(on) for limit, on in limits.items()}


def keep_limits(view: TrainerView, snapshot: Snapshot, settings: Settings) -> list[EndAt | Shrink]:
    """Return the actions that a trainer's running elements need because of time limits.

    An owner may only shorten limits. An operator may also lengthen them, up to what the user asked
    for. Limits that are set after one look get the same end, so that one request is enough.
    """
    now_s, running = snapshot.time_s, view.running()
    ends: dict[float, list[ElementId]] = {}
    leaving: dict[str, list[ElementId]] = {}
    longer: list[tuple[float, ElementId]] = []
    renewing = False
    for element in view.trainer.elements:
        if element.id not in running:
            continue
        clear_s = _clear_s(element.node, snapshot)
        last_s = min(clear_s, now_s + _LONGEST_S)
        wish_s = min(last_s, _user_end_s(element, view.trainer.record.minutes))
        end_s = last_s if element.limit_end_s is None else element.limit_end_s
        if now_s >= clear_s - _MARGIN_S:
            why = f"its node is reserved ({snapshot.reserved[element.node or ''].name})"
            leaving.setdefault(why, []).append(element.id)
        elif end_s > clear_s or end_s > last_s + _SLACK_S:
            ends.setdefault(last_s, []).append(element.id)
        elif settings.operator and wish_s > end_s + _SLACK_S:
            longer.append((wish_s, element.id))
            renewing |= end_s < now_s + _RENEW_S
        elif end_s <= now_s + _MARGIN_S + _ahead_s(element, end_s):
            leaving.setdefault("near its time limit", []).append(element.id)
    for wish_s, id_ in longer if renewing else ():
        ends.setdefault(wish_s, []).append(id_)
    limits = [EndAt(tuple(ids), end_s) for end_s, ids in ends.items()]
    return [*limits, *(Shrink(tuple(ids), why) for why, ids in leaving.items())]


def _limit(
    node: str, user_minutes: int | None, snapshot: Snapshot, settings: Settings
) -> TimeLimit:
    now_s, wanted_s = snapshot.time_s, snapshot.wanted_s.get(node)
    rest = min(_LONGEST_S, _clear_s(node, snapshot) - now_s) // 60
    allowed = snapshot.configuration.partition_minutes
    minutes = min(rest, user_minutes or math.inf, allowed or math.inf)
    hole = minutes if wanted_s is None else max(1.0, (wanted_s - _PASS_S - now_s) // 60)
    if settings.operator or (wanted_s is None and not snapshot.judged):
        hole = min(hole, _LEAST_MINUTES)
    return TimeLimit(int(minutes), int(min(minutes, hole)))


def _clear_s(node: str | None, snapshot: Snapshot) -> float:
    """Return when this node must be free of elements (Unix seconds)."""
    reservation = snapshot.reserved.get(node or "")
    return math.inf if reservation is None else reservation.start_s - _CLEAR_S


def _user_end_s(element: Element, user_minutes: int | None) -> float:
    """Return when an element will have run for the time that its user asked for (Unix seconds)."""
    if user_minutes is None or element.start_s is None:
        return math.inf
    return element.start_s + 60 * user_minutes


def _ahead_s(element: Element, end_s: float) -> float:
    """Return how long before the others this element leaves at its limit (seconds).

    Elements that began together have limits that end together. Every second element leaves earlier,
    so that the others keep the trainer's state. The end may lie before the start if the clock was
    set back.
    """
    if element.id.task % 2 or element.start_s is None:
        return 0.0
    return min(_AHEAD_S, max(0.0, end_s - element.start_s) / 30)
