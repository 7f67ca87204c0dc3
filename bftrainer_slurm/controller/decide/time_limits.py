"""Time limits of elements: what to ask for at a start, when to change a limit, when to leave.

Also checks the node-hours that a trainer may use. Pure. No other module knows about these limits.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from dataclasses import replace

from bftrainer_slurm.controller.decide.actions import EndAt, Shrink
from bftrainer_slurm.controller.observe.snapshot import Snapshot
from bftrainer_slurm.controller.settings import Settings
from bftrainer_slurm.controller.state.trainer_state import TrainerState
from bftrainer_slurm.controller.state.view import TrainerView
from bftrainer_slurm.model import Element, ElementId, Place, TimeLimit

# slurmctld refuses a new reservation of a node if a job's limit there ends after its start.
LONGEST_S = 3600.0
# Limits end this long before a reservation: slurmctld ends a job up to 30 s after its limit.
_CLEAR_S = 60.0
# If a node's reservation starts sooner than this, an element has less than a minute there.
SHORTEST_S = _CLEAR_S + 60.0
# A limit is renewed when less than this is left, so that the controller may be down that long.
_RENEW_S = 1800.0
# Backfill before 26.05 gives an element only the least time that it asks for (--time-min).
_LEAST_MINUTES = 10
# How long Slurm may take to try a released element: a look, a backfill pass and its resolution.
_PASS_S = 120.0
_AHEAD_S = 120.0
_SLACK_S = 60.0  # smaller changes of a limit are not worth a request


def limits_at_start(
    places: Iterable[Place], user_minutes: int | None, snapshot: Snapshot, settings: Settings
) -> dict[TimeLimit, frozenset[Place]]:
    """Return which limits to ask for when elements of one trainer start in these places.

    An operator's controller lengthens limits later. Other controllers cannot, so an element asks
    for at least the whole hole, if Slurm tells its length. ``user_minutes`` is what the trainer's
    user asked for. Places where a reservation leaves less than a minute are left out.
    """
    limits: dict[TimeLimit, set[Place]] = {}
    for place in places:
        limit = _limit(place.node, user_minutes, snapshot, settings)
        if limit.minutes >= 1:
            limits.setdefault(limit, set()).add(place)
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
        last_s = min(clear_s, now_s + LONGEST_S)
        wish_s = min(last_s, _user_end_s(element, view.trainer.record.minutes))
        end_s = last_s if element.limit_end_s is None else element.limit_end_s
        if now_s >= clear_s - settings.limit_margin_s:
            why = f"its node is reserved ({snapshot.reserved[element.node or ''].name})"
            leaving.setdefault(why, []).append(element.id)
        elif end_s > clear_s or end_s > last_s + _SLACK_S:
            ends.setdefault(last_s, []).append(element.id)
        elif settings.operator and wish_s > end_s + _SLACK_S:
            longer.append((wish_s, element.id))
            renewing |= end_s < now_s + _RENEW_S
        elif end_s <= now_s + settings.limit_margin_s + _ahead_s(element, end_s):
            leaving.setdefault("near its time limit", []).append(element.id)
    for wish_s, id_ in longer if renewing else ():
        ends.setdefault(wish_s, []).append(id_)
    limits = [EndAt(tuple(ids), end_s) for end_s, ids in ends.items()]
    return [*limits, *(Shrink(tuple(ids), why) for why, ids in leaving.items())]


def _limit(
    node: str, user_minutes: int | None, snapshot: Snapshot, settings: Settings
) -> TimeLimit:
    now_s, wanted_s = snapshot.time_s, snapshot.wanted_s.get(node)
    rest = min(LONGEST_S, _clear_s(node, snapshot) - now_s) // 60
    allowed = snapshot.configuration.partition_minutes
    minutes = min(rest, user_minutes or math.inf, allowed or math.inf)
    hole = minutes if wanted_s is None else max(1.0, (wanted_s - _PASS_S - now_s) // 60)
    if settings.operator or (wanted_s is None and not snapshot.judged):
        hole = min(hole, _LEAST_MINUTES)
    return TimeLimit(int(minutes), int(min(minutes, hole)))


def _ahead_s(element: Element, end_s: float) -> float:
    """Return how long before the others this element leaves at its limit (seconds).

    Elements that began together have limits that end together. Every second element leaves earlier,
    so that the others keep the trainer's state. The end may lie before the start if the clock was
    set back.
    """
    if element.id.task % 2 or element.start_s is None:
        return 0.0
    return min(_AHEAD_S, max(0.0, end_s - element.start_s) / 30)


def _clear_s(node: str | None, snapshot: Snapshot) -> float:
    """Return when this node must be free of elements (Unix seconds)."""
    reservation = snapshot.reserved.get(node or "")
    return math.inf if reservation is None else reservation.start_s - _CLEAR_S


def _user_end_s(element: Element, user_minutes: int | None) -> float:
    """Return when an element will have run for the time that its user asked for (Unix seconds)."""
    if user_minutes is None or element.start_s is None:
        return math.inf
    return element.start_s + 60 * user_minutes


def out_of_node_hours(
    views: Iterable[TrainerView], used_s: Callable[[int], float], now_s: float
) -> dict[int, TrainerState]:
    """Return new states of trainers that have used up their node-hours: they are over.

    ``used_s`` returns the node-seconds of a trainer's ended allocations, by array.
    """
    states: dict[int, TrainerState] = {}
    for view in views:
        hours = view.trainer.record.spec.node_hours
        if hours is None or view.over or view.abandoned:
            continue
        if view.node_s(used_s(view.array), now_s) >= hours * 3600:
            why = f"it has used its {hours:g} node-hours (node_hours={hours:g})"
            states[view.array] = replace(view.state, over=why)
    return states
