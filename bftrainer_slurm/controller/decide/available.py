"""Which nodes trainers may use: idle, in service, nobody's, and in a hole that is long enough.

Pure. How many of them ordinary jobs are to keep is in ``headroom``.
"""

from __future__ import annotations

from collections.abc import Mapping

from bftrainer_slurm.controller.decide.time_limits import SHORTEST_S
from bftrainer_slurm.controller.observe.snapshot import Snapshot
from bftrainer_slurm.controller.settings import Settings
from bftrainer_slurm.controller.state.element import OCCUPIES
from bftrainer_slurm.controller.state.picture import Picture


def available_nodes(picture: Picture, settings: Settings) -> frozenset[str]:
    """Return the nodes that an element can start on now.

    A node that was busy when nodes were last read counts as idle once no job is on it.
    """
    return _unused(picture).difference(*left_alone(picture, settings).values())


def left_alone(picture: Picture, settings: Settings) -> Mapping[str, frozenset[str]]:
    """Return idle nodes that no element may start on now, by why; a node may have several."""
    now_s = picture.now_s
    bad = {node for node, until_s in picture.avoid.items() if until_s > now_s}
    claims, soon_s = picture.snapshot.claims, now_s + settings.min_hole_s
    wanted = {node for node, start_s in claims.wanted_s.items() if start_s < soon_s}
    first_s = now_s + SHORTEST_S
    reserved = {node for node, one in claims.reserved.items() if one.start_s < first_s}
    unused = _unused(picture)
    return {
        "elements failed there, or started or ended too slowly": unused & bad,
        "an ordinary job is expected there soon": unused & wanted,
        "reserved": unused & reserved,
    }


def _unused(picture: Picture) -> frozenset[str]:
    """Return the nodes in holes on which no element runs or ends, or is to start."""
    taken = set(picture.out_of_reach)
    for view in picture.views:
        taken.update(view.placed)
        taken.update(record.node for _, record in view.within(*OCCUPIES) if record.node)
    return picture.snapshot.in_holes - taken


def hardware_of(snapshot: Snapshot, settings: Settings) -> dict[str, str]:
    """Return each node's kind of hardware: the first of the admin's features that it has."""
    if not settings.hardware:
        return {}
    return {
        node.name: next((kind for kind in settings.hardware if kind in node.features), "")
        for node in snapshot.nodes
    }
