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
    return _unused(picture, settings).difference(*left_alone(picture, settings).values())


def left_alone(picture: Picture, settings: Settings) -> Mapping[str, frozenset[str]]:
    """Return idle nodes that no element may start on now, by why; a node may have several."""
    snapshot, now_s = picture.snapshot, picture.now_s
    bad = {node for node, until_s in picture.avoid.items() if until_s > now_s}
    soon_s = now_s + settings.min_hole_s
    wanted, reserved = set[str](), set[str]()
    for job in snapshot.queue.waiting:
        if job.expected_start_s is not None and job.expected_start_s < soon_s:
            wanted.update(job.expected_nodes)
    for reservation in snapshot.reservations:
        if reservation.start_s < now_s + SHORTEST_S and reservation.end_s > now_s:
            reserved.update(reservation.nodes)
    unused = _unused(picture, settings)
    return {
        "elements failed there, or started or ended too slowly": unused & bad,
        "an ordinary job is expected there soon": unused & wanted,
        "reserved": unused & reserved,
    }


def _unused(picture: Picture, settings: Settings) -> frozenset[str]:
    """Return the nodes in holes on which no element runs or ends, or is to start."""
    taken = set(picture.out_of_reach)
    for view in picture.views:
        taken.update(view.placed)
        taken.update(record.node for _, record in view.within(*OCCUPIES) if record.node)
    return picture.snapshot.in_holes(settings.partition) - taken


def hardware_of(snapshot: Snapshot, settings: Settings) -> dict[str, str]:
    """Return each node's kind of hardware: the first of the admin's features that it has."""
    if not settings.hardware:
        return {}
    return {
        node.name: next((kind for kind in settings.hardware if kind in node.features), "")
        for node in snapshot.nodes
    }
