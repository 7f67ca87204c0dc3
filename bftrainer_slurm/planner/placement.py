"""From counts to nodes without migration: shrinking keeps a subset, growing makes a superset.

If ends of holes are expected, the nodes that last go to the trainers that would lose most. Of its
nodes that last about as long a trainer keeps those that it has had longest: rank 0 is there.

Where nodes are under switches, each trainer has its nodes under few of them, whatever lasts.
"""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from typing import TypeAlias

from bftrainer_slurm.planner.problem import Problem, Share

_Rank: TypeAlias = tuple[float, str]  # of a node: the ones that last come first


def rank(problem: Problem, node: str) -> _Rank:
    """The order in which idle nodes are taken."""
    return -problem.life_s.get(node, math.inf), node


def kept_rank(problem: Problem, node: str) -> tuple[float, float, _Rank]:
    """The order in which a trainer keeps its nodes."""
    # Expected ends are guesses: within a factor of two they are alike.
    lasts_s = problem.life_s.get(node, math.inf)
    doublings = math.frexp(lasts_s)[1] if math.isfinite(lasts_s) else math.inf
    return -doublings, problem.since_s.get(node, math.inf), rank(problem, node)


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
    """Place trainers on nodes of one class."""

    kept = [
        _kept(problem, trainer.current & part)[:count]
        for trainer, count in zip(problem.trainers, counts, strict=True)
    ]
    taken = {node for nodes in kept for node in nodes}
    # Idle nodes come first: on nodes that others have yet to leave, elements start later.
    free = sorted(part - taken, key=lambda node: (node in held, rank(problem, node)))
    placed = {}
    for index in order:
        new = _beside(problem, kept[index], free, counts[index] - len(kept[index]))
        placed[index] = frozenset(kept[index]).union(new)
        gone = placed[index] if problem.switch_of else ()
        free = [node for node in free if node not in gone] if gone else free[len(new) :]
    return placed


def _kept(problem: Problem, own: frozenset[str]) -> list[str]:
    """Return a trainer's nodes in the order in which it keeps them: most under one switch first."""
    under = Counter(map(problem.switch_of.get, own))

    def order(node: str) -> tuple[int, str, tuple[float, float, _Rank]]:
        switch = problem.switch_of.get(node)
        return -under[switch], switch or "", kept_rank(problem, node)

    return sorted(own, key=order)


def _beside(problem: Problem, own: Iterable[str], free: Sequence[str], more: int) -> list[str]:
    """Return so many of the free nodes: those under a trainer's own switches come first.

    Then come those under the switch that has just enough, or has most. Of those under one switch
    the first ones are taken.
    """
    if not problem.switch_of or not more:
        return list(free[:more])
    under = Counter(map(problem.switch_of.get, own))
    by_switch: dict[str | None, list[str]] = defaultdict(list)
    for node in free:
        by_switch[problem.switch_of.get(node)].append(node)
    found: list[str] = []
    while missing := more - len(found):
        ranks = {
            (-under[one], len(nodes) < missing, abs(len(nodes) - missing), one or ""): one
            for one, nodes in by_switch.items()
        }
        found += by_switch.pop(ranks[min(ranks)])[:missing]
    return found


def _by_rate(problem: Problem, counts: Sequence[int]) -> list[int]:
    """The order of choice: if holes are expected to end, the greatest possible loss first."""
    order = list(range(len(counts)))
    if problem.life_s:
        order.sort(key=lambda index: -problem.trainers[index].curve.at(counts[index]))
    return order
