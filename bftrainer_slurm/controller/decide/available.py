"""Which nodes trainers may use: idle, in service, unclaimed, and in a hole that is long enough.

And which of these are still left to ordinary jobs: new ones, wanted ones, a reserve. While a job
waits that the main scheduler cannot start, Slurm starts elements in backfill passes only, and
there after all ordinary jobs. So nodes that no pass has seen idle need no extra protection. Pure.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping

from bftrainer_slurm.controller.decide.actions import Shrink
from bftrainer_slurm.controller.decide.time_limits import SHORTEST_S
from bftrainer_slurm.controller.observe.snapshot import Snapshot
from bftrainer_slurm.controller.settings import Settings
from bftrainer_slurm.controller.state.phases import OCCUPIES, Phase
from bftrainer_slurm.controller.state.picture import Picture
from bftrainer_slurm.model import ElementId


def available_nodes(picture: Picture, settings: Settings) -> frozenset[str]:
    """Return the nodes that an element can start on now.

    A node that was busy when the nodes were last read counts as idle when no job is on it any more.
    """
    return _unused(picture).difference(*left_alone(picture, settings).values())


def soon_available(picture: Picture, settings: Settings) -> frozenset[str]:
    """Return the nodes that elements are leaving because the controller has ended them.

    Without them the plan would change while its own moves are being made.
    """
    leaving = frozenset(
        record.node
        for view in picture.views
        for _, record in view.within(Phase.LEAVING, Phase.ENDING)
        if record.ours and record.node is not None
    )
    nodes = (leaving & picture.snapshot.in_holes) - picture.out_of_reach
    if not nodes:  # at most turns
        return nodes
    return nodes.difference(*_left_alone(nodes, picture, settings).values())


def left_alone(picture: Picture, settings: Settings) -> Mapping[str, frozenset[str]]:
    """Return idle nodes that no element may start on now, by reason; a node may have several."""
    return _left_alone(_unused(picture), picture, settings)


def _left_alone(
    nodes: frozenset[str], picture: Picture, settings: Settings
) -> Mapping[str, frozenset[str]]:
    now_s = picture.now_s
    bad = {node for node, until_s in picture.avoid.items() if until_s > now_s}
    claims, soon_s = picture.snapshot.claims, now_s + settings.min_hole_s
    wanted = {node for node, start_s in claims.wanted_s.items() if start_s < soon_s}
    first_s = now_s + SHORTEST_S
    reserved = {node for node, one in claims.reserved.items() if one.start_s < first_s}
    return {
        "elements failed there, or started or ended too slowly": nodes & bad,
        # A job that has preempted may not do so again for KillWait and MessageTimeout.
        "an ordinary job is expected there soon": nodes & (wanted | picture.taken),
        "reserved": nodes & reserved,
    }


def _unused(picture: Picture) -> frozenset[str]:
    """Return the nodes in holes on which no element runs, ends, or will start."""
    taken = set(picture.out_of_reach)
    for view in picture.views:
        taken.update(view.placed)
        taken.update(record.node for _, record in view.within(*OCCUPIES) if record.node)
    return picture.snapshot.in_holes - taken


def growable(
    free: frozenset[str], picture: Picture, settings: Settings, kept: frozenset[str] = frozenset()
) -> frozenset[str]:
    """Return the free nodes that trainers may grow onto.

    This leaves out nodes ``kept`` for jobs, nodes in holes for less than ``min_idle_s``, and the
    reserve: as many nodes as it has, those first that are expected to be wanted soonest.
    """
    now_s, since_s = picture.now_s, picture.since_s
    settled = [
        node for node in free - kept if now_s - since_s.get(node, now_s) >= settings.min_idle_s
    ]
    short = max(0, picture.reserve - (len(free) - len(settled)))
    if short:
        settled = _soonest_wanted(settled, picture.life_s)
    return frozenset(settled[short:])


def refill(free: frozenset[str], picture: Picture) -> list[Shrink]:
    """Return what trainers give up if ordinary jobs have taken nodes of the reserve.

    They give up the nodes that are wanted soonest, but no trainer goes below its least size for
    that. Nodes that elements are leaving already count as given up.
    """
    views = picture.views
    leaving = sum(len(view.ids(Phase.LEAVING, Phase.ENDING)) for view in views)
    missing = picture.reserve - len(free) - leaving
    left = {view.array: len(view.placed) - view.trainer.record.min_nodes for view in views}
    given: dict[int, list[ElementId]] = {}
    held = {node: view.placed[node] for view in views for node in view.running()}
    for node in _soonest_wanted(held, picture.life_s):
        element = held[node]
        if missing > 0 and left[element.array] > 0:
            missing -= 1
            left[element.array] -= 1
            given.setdefault(element.array, []).append(element)
    return [
        Shrink(tuple(elements), "its node is kept for ordinary jobs") for elements in given.values()
    ]


def _soonest_wanted(nodes: Iterable[str], life_s: Mapping[str, float]) -> list[str]:
    return sorted(nodes, key=lambda node: (life_s.get(node, math.inf), node))


def hardware_of(snapshot: Snapshot, settings: Settings) -> dict[str, str]:
    """Return each node's kind of hardware: the first of the admin's features that it has."""
    if not settings.hardware:
        return {}
    return {
        node.name: next((kind for kind in settings.hardware if kind in node.features), "")
        for node in snapshot.nodes
    }
