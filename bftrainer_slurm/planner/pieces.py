"""What a trainer's sizes are worth, as straight pieces: any curve, either model of costs."""

from __future__ import annotations

import itertools
from dataclasses import dataclass

from bftrainer_slurm.planner.problem import Contender, Problem


@dataclass(frozen=True, slots=True)
class Piece:
    """Sizes from ``least`` to ``most``: worth ``start`` at least, and ``slope`` a node more."""

    least: int
    most: int
    start: float
    slope: float


def pieces_of(problem: Problem, contender: Contender) -> list[Piece]:
    """Return the pieces of all sizes it may have but none at all, by rising size.

    Growing and shrinking cost something: the size it has is a piece of its own.
    """
    now = len(contender.current)
    low, high = contender.min_nodes, min(contender.max_nodes, len(problem.pool))
    ranges = [(low, min(high, now - 1)), (now, now), (max(low, now + 1), high)]
    pieces = []
    for least, most in ranges:
        if low <= least <= most <= high:
            pieces += _straight(problem, contender, least, most)
    return pieces


def _straight(problem: Problem, contender: Contender, least: int, most: int) -> list[Piece]:
    """Cut at the curve's points."""
    if least == most:
        return [Piece(least, most, problem.worth(contender, least), 0.0)]
    inner = (size for size in contender.curve.nodes if least < size < most)
    corners = [(size, problem.worth(contender, size)) for size in (least, *inner, most)]
    return [
        Piece(x0, x1, y0, (y1 - y0) / (x1 - x0))
        for (x0, y0), (x1, y1) in itertools.pairwise(corners)
    ]
