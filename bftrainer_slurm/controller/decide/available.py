"""Which places trainers may use: idle, in service, unclaimed, and in a hole that is long enough.

And which of these are still left to ordinary jobs: new ones, wanted ones, a reserve. While a job
waits that the main scheduler cannot start, Slurm starts elements in backfill passes only, and
there after all ordinary jobs. So nodes that no pass has seen idle need no extra protection. Pure.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping

from bftrainer_slurm.controller.decide.actions import Shrink
from bftrainer_slurm.controller.decide.bars import Bar, for_all, for_growth, nodes_off
from bftrainer_slurm.controller.observe.snapshot import Snapshot
from bftrainer_slurm.controller.settings import Settings
from bftrainer_slurm.controller.state.phases import GOES, OCCUPIES
from bftrainer_slurm.controller.state.picture import Picture
from bftrainer_slurm.model import ElementId, Place, nodes_of


def available(picture: Picture, settings: Settings) -> frozenset[Place]:
    """Return the places in which an element can start now.

    A node that was busy when the nodes were last read counts as idle when no job is on it any more.
    """
    return _free(_unused(picture) - nodes_off(for_all(picture, settings)), picture)


def soon_available(picture: Picture, settings: Settings) -> frozenset[Place]:
    """Return the places that elements are leaving because the controller has ended them.

    Without them the plan would change while its own moves are being made.
    """
    leaving = frozenset(
        record.node
        for view in picture.views
        for _, record in view.within(*GOES)
        if record.ours and record.node is not None
    )
    if not leaving:  # at most turns
        return frozenset()
    return _free(leaving - nodes_off(for_all(picture, settings)), picture)


def left_alone(picture: Picture, bars: Iterable[Bar]) -> dict[str, frozenset[str]]:
    """Return idle nodes that no element may start on now, by reason; a node may have several."""
    idle = nodes_of(_free(_unused(picture), picture))
    return {one.why: idle & one.nodes for one in bars if one.array is None}


def _unused(picture: Picture) -> frozenset[str]:
    """Return the nodes in holes that no element is leaving, or runs on without a place."""
    return picture.snapshot.in_holes.difference(
        record.node
        for view in picture.views
        for id_, record in view.within(*OCCUPIES)
        if id_ not in view.placed
    )


def _free(nodes: frozenset[str], picture: Picture) -> frozenset[Place]:
    """Return the places on these nodes that are in holes, and that no element has."""
    there = nodes & picture.snapshot.in_holes
    places = frozenset(place for node in there for place in Place.on(node))
    return places.difference(*(view.places for view in picture.views))


def growable(free: frozenset[Place], picture: Picture, settings: Settings) -> frozenset[Place]:
    """Return the free places into which trainers may grow.

    This leaves out nodes kept for jobs, nodes in holes for less than ``min_idle_s``, and the
    reserve: as many places as it has nodes, those first that are expected to be wanted soonest.
    """
    off = nodes_off(for_growth(picture, settings))
    settled = [place for place in free if place.node not in off]
    short = max(0, picture.reserve - (len(free) - len(settled)))
    if short:
        settled = _soonest_wanted(settled, picture.life_s)
    return frozenset(settled[short:])


def refill(free: frozenset[Place], picture: Picture) -> list[Shrink]:
    """Return what trainers give up if ordinary jobs have taken nodes of the reserve.

    They give up the nodes that are wanted soonest, but no trainer goes below its least size for
    that. Nodes that elements are leaving already count as given up.
    """
    views = picture.views
    leaving = sum(len(view.ids(*GOES)) for view in views)
    missing = picture.reserve - len(free) - leaving
    left = {view.array: len(view.placed) - view.trainer.record.min_nodes for view in views}
    given: dict[int, list[ElementId]] = {}
    held = {place: id_ for view in views for id_, place in view.running().items()}
    for place in _soonest_wanted(held, picture.life_s):
        element = held[place]
        if missing > 0 and left[element.array] > 0:
            missing -= 1
            left[element.array] -= 1
            given.setdefault(element.array, []).append(element)
    return [
        Shrink(tuple(elements), "its node is kept for ordinary jobs") for elements in given.values()
    ]


def _soonest_wanted(places: Iterable[Place], life_s: Mapping[str, float]) -> list[Place]:
    return sorted(places, key=lambda place: (life_s.get(place.node, math.inf), place))


def hardware_of(snapshot: Snapshot, settings: Settings) -> dict[str, str]:
    """Return each node's kind of hardware: the first of the admin's features that it has."""
    if not settings.hardware:
        return {}
    return {
        node.name: next((kind for kind in settings.hardware if kind in node.features), "")
        for node in snapshot.nodes
    }
