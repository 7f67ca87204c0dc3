"""Nothing of whom starts where, until when, and why: all bars of a turn in one list. Pure.

Those for everybody are made here, those for one trainer in ``eligibility``.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from bftrainer_slurm.controller.decide.time_limits import SHORTEST_S
from bftrainer_slurm.controller.settings import Settings
from bftrainer_slurm.controller.state.picture import Picture


@dataclass(frozen=True, slots=True)
class Bar:
    """No element starts on these nodes, or none of one trainer (``array``).

    ``until_s`` (Unix seconds) is when that ends, infinity if nobody knows.
    """

    why: str
    nodes: frozenset[str]
    array: int | None = None
    until_s: float = math.inf


def for_all(picture: Picture, settings: Settings) -> Iterator[Bar]:
    """Yield the nodes on which no element may start, idle or not."""
    now_s, snapshot = picture.now_s, picture.snapshot
    bad = frozenset(node for node, until_s in picture.avoid.items() if until_s > now_s)
    last_s = max((picture.avoid[node] for node in bad), default=now_s)
    yield Bar("elements failed there, or started or ended too slowly", bad, until_s=last_s)
    soon_s = now_s + settings.min_hole_s
    wanted = frozenset(node for node, start_s in snapshot.wanted_s.items() if start_s < soon_s)
    # A job that has preempted may not do so again for KillWait and MessageTimeout.
    yield Bar("an ordinary job is expected there soon", wanted | picture.taken)
    yields = snapshot.configuration.preempts and not snapshot.configuration.exempt_s
    in_holes = frozenset[str]() if yields else snapshot.in_holes
    yield Bar("ordinary jobs could not preempt elements", in_holes)
    reserved, first_s = snapshot.reserved.items(), now_s + SHORTEST_S
    yield Bar("reserved", frozenset(node for node, one in reserved if one.start_s < first_s))
    yield Bar("a trainer may have it that the controller cannot handle", picture.out_of_reach)


def for_growth(picture: Picture, settings: Settings) -> Iterator[Bar]:
    """Yield the nodes that are left to ordinary jobs; they count as a part of the reserve."""
    yield Bar("kept for a job that waits", picture.kept)
    rested_s = picture.now_s - settings.min_idle_s
    fresh = frozenset(node for node, since_s in picture.since_s.items() if since_s > rested_s)
    yield Bar("an ordinary job has just left it (min_idle_s)", fresh)


def nodes_off(bars: Iterable[Bar], array: int | None = None) -> frozenset[str]:
    """Return the nodes on which nobody, or also this trainer, starts an element."""
    return frozenset[str]().union(*(one.nodes for one in bars if one.array in (None, array)))


def why_not(bars: Iterable[Bar], node: str, array: int | None = None) -> list[str]:
    """Say why nobody, or also this trainer, starts an element on a node; nothing: it may."""
    return [one.why for one in bars if node in one.nodes and one.array in (None, array)]
