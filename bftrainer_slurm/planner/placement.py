"""From counts to nodes without migration: shrinking keeps a subset, growing makes a superset.

Where the ends of holes are expected, nodes that last go to those who would lose most.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TypeAlias

from bftrainer_slurm.planner.problem import Problem, Share

_Rank: TypeAlias = tuple[float, str]  # of a node: what lasts comes first


def place(problem: Problem, shares: Sequence[Share]) -> dict[str, frozenset[str]]:
    """Return the nodes of each trainer, by key; the same shares always give the same nodes."""
    held = {node for trainer in problem.trainers for node in trainer.current}
    placed: list[frozenset[str]] = [frozenset() for _ in shares]
    order = _by_rate(problem, [sum(share) for share in shares])
    columns = zip(*shares, strict=True)
    for part, column in zip(problem.all_classes(), columns, strict=False):
        for index, nodes in _place_alike(problem, part.nodes, column, held, order).items():
            placed[index] |= nodes
    return {one.key: nodes for one, nodes in zip(problem.trainers, placed, strict=True)}


def _place_alike(
    problem: Problem,
    part: frozenset[str],
    counts: Sequence[int],
    held: set[str],
    order: Sequence[int],
) -> dict[int, frozenset[str]]:
    """Place on nodes that are alike but for their expected ends."""

    def rank(node: str) -> _Rank:
        return -problem.life_s.get(node, math.inf), node

    kept = [
        sorted(trainer.current & part, key=rank)[:count]
        for trainer, count in zip(problem.trainers, counts, strict=True)
    ]
    taken = {node for nodes in kept for node in nodes}
    # Nodes that are idle already come first: what others have yet to leave starts later.
    free = iter(sorted(part - taken, key=lambda node: (node in held, rank(node))))
    return {
        index: frozenset(kept[index])
        | {next(free) for _ in range(counts[index] - len(kept[index]))}
        for index in order
    }


def _by_rate(problem: Problem, counts: Sequence[int]) -> list[int]:
    """Who chooses first: where holes are expected to end, who would lose most when one does."""
    order = list(range(len(counts)))
    if problem.life_s:
        order.sort(key=lambda index: -problem.trainers[index].curve.at(counts[index]))
    return order
