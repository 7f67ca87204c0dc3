"""From counts to nodes without migration: shrinking keeps a subset, growing makes a superset.

Where the ends of holes are expected, nodes that last go to those who would lose most.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TypeAlias

from bftrainer_slurm.planner.problem import Problem

_Rank: TypeAlias = tuple[float, str]  # of a node: what lasts comes first


def place(problem: Problem, counts: Sequence[int]) -> dict[str, frozenset[str]]:
    """Return the nodes of each contender, by key; the same counts always give the same nodes."""

    def rank(node: str) -> _Rank:
        return -problem.life_s.get(node, math.inf), node

    kept = [
        sorted(contender.current, key=rank)[:count]
        for contender, count in zip(problem.contenders, counts, strict=True)
    ]
    taken = {node for nodes in kept for node in nodes}
    held = {node for contender in problem.contenders for node in contender.current}
    # Nodes that are idle already come first: what others have yet to leave starts later.
    spare = iter(sorted(problem.pool - taken, key=lambda node: (node in held, rank(node))))
    placed = [frozenset(nodes) for nodes in kept]
    for index in _by_rate(problem, counts):
        placed[index] |= {next(spare) for _ in range(counts[index] - len(placed[index]))}
    return {one.key: nodes for one, nodes in zip(problem.contenders, placed, strict=True)}


def _by_rate(problem: Problem, counts: Sequence[int]) -> list[int]:
    """Who chooses first: where holes are expected to end, who would lose most when one does."""
    order = list(range(len(counts)))
    if problem.life_s:
        order.sort(key=lambda index: -problem.contenders[index].curve.at(counts[index]))
    return order
